// Time per frame while a weight is dragged, in Chromium: a 2-8-8-1 network with its decision boundary, and 784-128-10.
//
//   node bench/frames.mjs          needs the pages (make pages), the package in ../.venv, and Chromium
//
// Prints the median and the 95th percentile of the time between frames, and the mean script time per frame, in
// milliseconds; 60 frames per second are 16.7 ms. Frames do not wait for the screen and the weight changes in every frame, so
// the time between two frames is the cost of a frame.
import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { chromium } from 'playwright-core'

const own = join(import.meta.dirname, '../../.venv/bin/python')
const python = process.env.PYTHON ?? (existsSync(own) ? own : 'python3')
const folder = mkdtempSync(join(tmpdir(), 'multilayer-frames-'))
execFileSync(python, [
  '-c',
  `
import sys, numpy as np, multilayer as ml
folder = sys.argv[1]
ml.explore().save(folder + "/toys.html")
ml.explore(ml.build("784-128:relu-10"), np.random.default_rng(0).normal(size=(100, 784))).save(folder + "/wide.html")
`,
  folder,
])

const widths = [2, 8, 8, 1]
const count = widths.slice(1).reduce((sum, n, l) => sum + n * widths[l] + n, 0)
const weights = Array.from({ length: count }, (_, k) => Math.round(1000 * Math.sin(12.9898 * (k + 1))) / 1000)
const state = { data: 'songs', loss: 'mse', activation: 'tanh', widths, weights, tab: 'play' }

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
  args: [
    '--no-sandbox',
    '--disable-background-networking',
    '--disable-component-update',
    '--disable-sync',
    '--no-first-run',
    '--disable-frame-rate-limit',
    '--disable-gpu-vsync',
  ],
})

/** Drags up and down from a point for three seconds. Returns the times between frames. */
async function drag(page, at, dx, dy) {
  await page.mouse.move(at.x, at.y)
  await page.mouse.down()
  const session = await page.context().newCDPSession(page)
  await session.send('Performance.enable')
  const script = async () =>
    (await session.send('Performance.getMetrics')).metrics.find((m) => m.name === 'ScriptDuration').value
  const before = await script()
  await page.evaluate(
    ({ at, dx, dy }) => {
      window.frames_ = []
      const held = document.elementFromPoint(at.x, at.y)
      let last = performance.now()
      const turn = (now) => {
        window.frames_.push(now - last)
        last = now
        const t = Math.sin(window.frames_.length / 12)
        if (held.type === 'range') {
          held.value = String((Number(held.max) + Number(held.min) + (held.max - held.min) * t) / 2)
          held.dispatchEvent(new Event('input', { bubbles: true }))
        } else {
          const place = { clientX: at.x + dx * t, clientY: at.y + dy * t }
          const mouse = { pointerId: 1, pointerType: 'mouse', buttons: 1, bubbles: true }
          held.dispatchEvent(new PointerEvent('pointermove', { ...place, ...mouse }))
        }
        if (!window.stop_) requestAnimationFrame(turn)
      }
      requestAnimationFrame(turn)
    },
    { at, dx, dy },
  )
  await page.waitForTimeout(3000)
  const spent = 1000 * ((await script()) - before)
  const frames = await page.evaluate(() => ((window.stop_ = true), window.frames_))
  await page.mouse.up()
  return { frames: frames.slice(5), script: spent / frames.length }
}

function report(name, { frames, script }) {
  const sorted = [...frames].sort((a, b) => a - b)
  const at = (q) => sorted[Math.floor(q * (sorted.length - 1))].toFixed(1)
  console.log(
    `${name.padEnd(24)} frames ${sorted.length}  median ${at(0.5)} ms  95 % ${at(0.95)} ms  script ${script.toFixed(1)} ms per frame`,
  )
}

const page = await browser.newPage({ viewport: { width: 1280, height: 900 } })
await page.goto(`file://${folder}/toys.html#v1=${encodeURIComponent(JSON.stringify(state))}`)
const box = await page.locator('[data-place="1.3.4"]').boundingBox()
report('2-8-8-1 with boundary', await drag(page, { x: box.x + box.width / 2, y: box.y + box.height / 2 }, 0, 60))

const wide = await browser.newPage({ viewport: { width: 1280, height: 900 } })
await wide.goto(`file://${folder}/wide.html`)
await wide.locator('#own-weight').scrollIntoViewIfNeeded()
const slider = await wide.locator('#own-weight').boundingBox()
report(
  '784-128-10',
  await drag(wide, { x: slider.x + slider.width / 2, y: slider.y + slider.height / 2 }, slider.width / 3, 0),
)

await browser.close()
rmSync(folder, { recursive: true })
