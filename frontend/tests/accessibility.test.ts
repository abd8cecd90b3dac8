// Every tab at two widths and in both color schemes: axe finds no serious violation, and the page does not scroll sideways.
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import type { Browser } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { hasChromium, launch, openPage } from './chromium.ts'

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
const folder = inject('folder')

interface Violation {
  id: string
  impact: string
  nodes: { html: string; failureSummary: string }[]
}

describe.skipIf(!hasChromium).each(['explorer', 'digits', 'table', 'ensemble', 'reduced', 'findings'])('%s', (name) => {
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))

  it.each([
    [1280, 'light'],
    [1280, 'dark'],
    [400, 'light'],
    [400, 'dark'],
  ] as const)('is accessible at %i px, %s', async (width, colorScheme) => {
    const options = { viewport: { width, height: 900 }, colorScheme, bypassCSP: true }
    const { page, errors } = await openPage(browser, `file://${join(folder, `${name}.html`)}`, options)
    await page.addScriptTag({ content: axe })
    await page.selectOption('#depth', 'deep')
    for (const tab of await page.locator('[role=tab]').all()) {
      if (name !== 'explorer' && (await tab.getAttribute('id')) !== 'tab-own') continue
      await tab.click()
      if (await page.locator('[data-unit="0.0"]').count()) {
        await page.locator('[data-unit="0.0"]').click()
        await page.locator('[data-place="0.0.0"]').focus()
        await page.keyboard.press('Enter')
      }
      for (const badge of await page.locator('[data-finding]').all()) await badge.click()
      const serious = await page.evaluate(async () => {
        const found = await (
          window as unknown as { axe: { run: () => Promise<{ violations: Violation[] }> } }
        ).axe.run()
        return found.violations
          .filter((v) => v.impact === 'serious' || v.impact === 'critical')
          .map((v) => `${v.id}: ${v.nodes[0].html} ${v.nodes[0].failureSummary}`)
      })
      const title = await tab.textContent()
      expect(serious, title!).toEqual([])
      expect(
        await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
        `${title} too wide`,
      ).toBeLessThanOrEqual(0)
    }
    expect(errors).toEqual([])
    await page.context().close()
  })
})
