// Makes the pictures of the pages in README and docs, from real runs, in Chromium:
//   make pages && node docs/make_pictures.mjs
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'

const root = join(import.meta.dirname, '..')
const images = join(root, 'docs', 'images')
const mlp = join(root, '.venv', 'bin', 'mlp')
const browsers = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']
const { chromium } = createRequire(join(root, 'frontend', 'package.json'))('playwright-core')

const folder = mkdtempSync(join(tmpdir(), 'pictures-'))
const run = (...args) => execFileSync(mlp, args, { cwd: folder, stdio: 'inherit' })
const browser = await chromium.launch({
  executablePath: browsers.find((path) => path && existsSync(path)),
  args: ['--headless', '--no-sandbox', '--disable-gpu', '--disable-background-networking', '--disable-sync'],
})

/** The top of a page as a picture, `height` pixels of it. */
async function shoot(file, name, { width = 1200, height, before = async () => {} }) {
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: 'light', deviceScaleFactor: 1.5 })
  await page.goto(pathToFileURL(join(folder, file)).href)
  await page.waitForSelector('h1')
  await before(page)
  await page.waitForTimeout(300)
  await page.screenshot({ path: join(images, name) })
  await page.close()
  console.log(`wrote docs/images/${name}`)
}

try {
  run('train', 'digits', '--quiet', '--run', 'digits')
  await shoot('digits/report.html', 'report.png', { height: 1010 })
  if (execFileSync(mlp, ['--help'], { encoding: 'utf8' }).includes('explore')) {
    run('explore', '--out', 'explorer.html')
    await shoot('explorer.html', 'explorer.png', { height: 900 })
  }
} finally {
  await browser.close()
  rmSync(folder, { recursive: true, force: true })
}
