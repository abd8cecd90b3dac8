// The user's own network in Chromium: numbers of Python, changed inputs and weights, hostile names, and what is too large.
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { softmax } from '../engine/losses.ts'
import { found, launch, open } from './chromium.ts'

interface Facts {
  outputs: number[][]
  targets: unknown[]
  predicted: number
  changed: number
}

const folder = inject('folder')
const page = (name: string): string => `file://${join(folder, `${name}.html`)}`
const facts = JSON.parse(readFileSync(join(folder, 'facts.json'), 'utf8')) as Record<string, Facts>
const read = (text: string | null): number => Number((text ?? '').replaceAll('−', '-').replace(/[ %,]/g, ''))
const slide = (on: Page, selector: string, value: number): Promise<void> =>
  on.$eval(
    selector,
    (element, to) => {
      const input = element as HTMLInputElement
      input.value = String(to)
      input.dispatchEvent(new Event('input', { bubbles: true }))
      input.dispatchEvent(new Event('change', { bubbles: true }))
    },
    value,
  )

describe.skipIf(!found)('your own network', () => {
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))

  it('shows digits with the probabilities of Python, and follows a changed weight and pixel', async () => {
    const { page: p, clean } = await open(browser, page('digits'))
    for (const row of [0, 5, 17]) {
      await p.selectOption('#own-row', String(row))
      const shares = softmax(facts.digits.outputs[row])
      for (const digit of [0, 3, 9]) {
        const shown = await p.$eval(`[data-share="${digit}"]`, (e) => e.textContent)
        expect(read(shown)).toBeCloseTo(100 * shares[digit], 1)
      }
    }
    const right = await p.textContent('#own-right')
    const before = await p.textContent('[data-own=z]')
    await slide(p, '#own-weight', 0.9)
    expect(await p.textContent('[data-own=z]')).not.toBe(before)
    await p.click('[aria-label=undo]')
    expect(await p.textContent('[data-own=z]')).toBe(before)
    expect(await p.textContent('#own-right')).toBe(right)
    const picture = (await p.locator('canvas[aria-label^="the picture"]').boundingBox())!
    await p.mouse.click(picture.x + 3, picture.y + 3)
    expect(await p.textContent('body')).toContain('inputs changed')
    await clean()
  })

  it('shows a table in its own units, and predicts a changed row as Python does', async () => {
    const { page: p, clean } = await open(browser, page('table'))
    // Python predicts in float32: seven digits.
    expect(read(await p.textContent('#prediction'))).toBeCloseTo(facts.table.predicted, 1)
    await p.fill('input[aria-label=area]', '150')
    await p.keyboard.press('Enter')
    expect(read(await p.textContent('#prediction'))).toBeCloseTo(facts.table.changed, 1)
    expect(facts.table.changed).not.toBeCloseTo(facts.table.predicted, 1)
    await p.selectOption('select[aria-label=place]', { label: 'village' })
    await clean()
  })

  it('searches wide layers and shows the cost of each', async () => {
    const { page: p, clean } = await open(browser, page('wide'))
    await p.fill('input[aria-label="search terms of the sum"]', 'x777')
    expect(await p.locator('#own-unit tbody tr').count()).toBe(1)
    expect(await p.textContent('body')).toContain('101,770')
    await clean()
  })

  it('says what it cannot compute', async () => {
    const { page: p, clean } = await open(browser, page('reduced'))
    expect(await p.textContent('#reduced')).toContain('kan1 is a layer of kind kan')
    await clean()
  })

  it('works in the frame of a notebook, which has no address', async () => {
    const { page: p, clean } = await open(browser, page('notebook'))
    const frame = p.frameLocator('iframe')
    await frame.locator('[data-place="1.0.1"]').focus()
    for (let k = 0; k < 5; k++) await p.keyboard.press('ArrowDown')
    expect(await frame.locator('#score').textContent()).toBe('4 of 4 right')
    await frame.locator('#share').click()
    expect(await frame.locator('#share-menu').textContent()).not.toContain('Copy a link')
    await clean()
  })

  it('shows hostile names as text', async () => {
    const { page: p, clean } = await open(browser, page('hostile'))
    for (const tab of await p.locator('[role=tab]').all()) await tab.click()
    await p.click('#tab-own')
    await p.fill('input[aria-label="search inputs"]', 'svg')
    await p.fill('input[aria-label="search terms of the sum"]', 'script')
    await p.waitForTimeout(300)
    expect(await p.evaluate(() => (window as unknown as { hit?: number }).hit)).toBeUndefined()
    expect(await p.locator('#app img, #app iframe, #app script, #app link, #app meta').count()).toBe(0)
    expect(await p.textContent('body')).toContain('<svg onload=window.hit=1>')
    await clean()
  })
})
