// Open pages in Chromium, and print what they contain as JSON: text, errors, requests, accessibility violations, scripts.
//   node report_page.mjs '{"modules": "…/frontend", "pages": [{"url": "…", "width": 1280, "scheme": "dark", …}]}'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'

const job = JSON.parse(readFileSync(0, 'utf8'))
const require = createRequire(`${job.modules}/package.json`)
const { chromium } = require('playwright-core')
const axe = readFileSync(require.resolve('axe-core/axe.min.js'), 'utf8')
const browser = await chromium.launch({
  executablePath: job.chromium,
  args: [
    ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run'],
    ...['--disable-background-networking', '--disable-component-update', '--disable-sync'],
  ],
})
const found = []
for (const one of job.pages) {
  // The policy of the page forbids other scripts. Bypass it only to inject axe.
  const context = await browser.newContext({
    viewport: { width: one.width ?? 1280, height: 900 },
    colorScheme: one.scheme ?? 'light',
    bypassCSP: one.axe ?? false,
  })
  const page = await context.newPage()
  const result = { errors: [], requests: [], dialogs: 0 }
  page.on('console', (m) => ['error', 'warning'].includes(m.type()) && result.errors.push(m.text()))
  page.on('pageerror', (e) => result.errors.push(String(e)))
  page.on('request', (r) => result.requests.push(r.url()))
  page.on('dialog', (d) => (result.dialogs++, d.dismiss()))
  await page.goto(one.url)
  // In a notebook, the page is inside a frame.
  const view = one.frame ? await (await page.waitForSelector('iframe')).contentFrame() : page
  await view.waitForSelector('main h1')
  const texts = one.wait ?? []
  await view.waitForFunction((all) => all.every((text) => document.body.innerText.includes(text)), texts, { timeout: 60000 })
  await page.waitForTimeout(150)
  if (one.open) {
    for (const summary of await page.locator('summary').all()) await summary.click()
    const collapsed = page.locator('button[aria-expanded=false]')
    while (await collapsed.count()) await collapsed.first().click()
  }
  if (one.keys) for (const key of one.keys) await page.keyboard.press(key)
  if (one.press) {
    await page.locator(one.press).first().click()
    await page.waitForTimeout(100)
  }
  Object.assign(
    result,
    await view.evaluate(() => ({
      title: document.title,
      text: document.body.innerText,
      overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
      hit: Object.keys(window).filter((name) => name.startsWith('hit')),
      scripts: document.scripts.length,
      foreign: document.querySelectorAll('iframe, object, embed, base, form, img, a, link[rel=stylesheet], main script').length,
      handlers: [...document.querySelectorAll('*')].filter((e) => [...e.attributes].some((a) => /^on|^style$/i.test(a.name))).length,
      focus: document.activeElement?.tagName ?? '',
      selected: String(getSelection()),
      named: [...document.querySelectorAll('svg[role=img], canvas')].every((e) => e.getAttribute('aria-label')),
      rules: [...document.querySelectorAll('svg[role=img] .rule title')].map((e) => e.textContent),
      figures: document.querySelectorAll('svg[role=img]').length,
    })),
  )
  if (one.axe) {
    await page.evaluate(axe)
    const { violations } = await page.evaluate(() => globalThis.axe.run(document, { resultTypes: ['violations'] }))
    result.violations = violations
      .filter((v) => ['serious', 'critical'].includes(v.impact))
      .map((v) => `${v.id}: ${v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(' | ')}`)
  }
  if (one.shot) await page.screenshot({ path: one.shot, fullPage: true })
  if (one.pdf) result.pdf = (await page.pdf({ format: 'A4' })).length
  found.push(result)
  await context.close()
}
await browser.close()
console.log(JSON.stringify(found))
