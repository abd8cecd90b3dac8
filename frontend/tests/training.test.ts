// Training in the explorer, in Chromium: lessons, dead units, and steps that are not taken because numbers are not finite.
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { hasChromium, launch, openPage } from './chromium.ts'

const url = `file://${join(inject('folder'), 'explorer.html')}`
const edge = (place: string): string => `[data-place="${place}"]`

describe.skipIf(!hasChromium)('training in the explorer', () => {
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))

  it('trains a 2-8-1 network with tanh until all four songs are correct', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-train')
    await page.click('[data-preset=learn]')
    await page.waitForFunction(
      () =>
        document.querySelector('#score')?.textContent === '4 of 4 correct' &&
        Number(document.querySelector('#loss')!.textContent) < 0.01,
    )
    await page.click('#play')
    expect(await page.locator('[role=slider][aria-label^=weight]').count()).toBe(24)
    await clean()
  })

  it('shows the collapse to one layer without an activation, and the same output for all songs', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.selectOption('#activation', 'identity')
    expect(await page.textContent('#collapse')).toContain('W₂W₁')
    expect(await page.textContent('#collapse')).toContain('best possible result is 3 of 4')
    await page.click('#tab-train')
    await page.click('[data-preset=collapse]')
    await page.waitForFunction(() =>
      [0, 1, 2, 3].every(
        (r) => Math.abs(Number(document.querySelector(`[data-output="${r}"]`)!.textContent) - 0.5) < 0.01,
      ),
    )
    await page.click('#play')
    await clean()
  })

  it('reports the step and the layer when numbers are no longer finite', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-train')
    await page.click('[data-preset=blow]')
    await page.waitForSelector('#failure')
    expect(await page.textContent('#failure')).toMatch(/Stopped at step \d+.*of layer \d is not a finite number/s)
    await clean()
  })

  it('draws the activation of each unit for every data set, and updates it with a bias', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-train')
    for (const [name, drawn] of [
      ['songs', 'canvas'],
      ['xor', 'canvas'],
      ['circles', 'canvas'],
      ['moons', 'canvas'],
      ['spirals', 'canvas'],
      ['wave', 'path.line'],
      ['bump', 'path.line'],
      ['steps', 'path.line'],
    ]) {
      await page.selectOption('#data', name)
      expect(await page.locator(`[aria-label="hidden layer 1"] figure ${drawn}`).count(), name).toBe(3)
    }
    const line = (): Promise<string | null> => page.locator('figure path.line').first().getAttribute('d')
    const before = await line()
    await page.locator(edge('0.0.-1')).focus()
    await page.keyboard.press('PageUp')
    expect(await line()).not.toBe(before)
    expect(await page.getAttribute(edge('0.0.-1'), 'aria-valuetext')).toMatch(/^\S+; loss \d+\.\d+$/)
    await clean()
  })

  it('marks dead units if the learning rate is far too large', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-train')
    await page.click('[data-preset=dead]')
    await page.waitForFunction(() => document.querySelectorAll('figcaption .badge.bad').length >= 3)
    await page.click('#play')
    await clean()
  })
})
