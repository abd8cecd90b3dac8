// Findings: grouping and ranges, and in Chromium the badges of layers and units on the page of a run.
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { countUnits, groupByEpoch, groupFindings, listNumbers, type Finding } from '../shared/finding.ts'
import { hasChromium, launch, openPage } from './chromium.ts'

const finding = (kind: string, severity: Finding['severity'], where: Finding['where'] = {}, units = ''): Finding => ({
  ...{ kind, severity, where, units, title: kind, message: '', place: [], unit: '', numbers: [], remedies: [] },
})

describe('the sentences of findings', () => {
  it('group findings of one kind, with the worst severity', () => {
    const groups = groupFindings([finding('dead', 'warning'), finding('leak', 'info'), finding('dead', 'error')])
    expect(groups.map(({ kind, severity, findings }) => [kind, severity, findings.length])).toEqual([
      ['dead', 'error', 2],
      ['leak', 'info', 1],
    ])
    expect(groupFindings([])).toEqual([])
  })

  it('group findings by the epoch in which they began', () => {
    const some = [
      { ...finding('dead', 'warning', { epoch: 6 }), place: ['relu2'] },
      { ...finding('fast', 'error', { epoch: 2 }), place: ['since epoch 2'] },
      { ...finding('dead', 'error', { epoch: 6 }), place: ['relu1', '3 of 4 units'] },
      finding('leak', 'error'),
    ]
    expect(groupByEpoch(some)).toEqual([
      { epoch: 2, severity: 'error', text: 'fast (since epoch 2)' },
      { epoch: 6, severity: 'error', text: 'dead (relu2)\ndead (relu1, 3 of 4 units)' },
    ])
    expect(groupByEpoch([])).toEqual([])
  })

  it.each([
    [[], 5, 0, ''],
    [[7], 5, 1, '7'],
    [[3, 1, 2, 0], 5, 4, '0–3'],
    [[1, 2, 5, 9, 10, 11], 5, 6, '1, 2, 5, 9–11'],
    [[0, 1, 2, 5, 9], 2, 5, '0–2, 5 and 1 more'],
    [[0, 1, 2], 5, 1500, '0–2 and 1,497 more'],
  ])('list %j as ranges', (numbers, most, of, text) => {
    expect(listNumbers(numbers, most, of)).toBe(text)
  })

  it('count all units, also those that are not listed', () => {
    expect(countUnits(finding('dead', 'error', { units: [0, 1] }, '1,040 of 2,048 units'))).toBe(1040)
    expect(countUnits(finding('dead', 'error', { units: [0, 1] }))).toBe(2)
    expect(countUnits(finding('leak', 'error'))).toBe(0)
  })
})

describe.skipIf(!hasChromium)('the page of a run with findings', () => {
  const url = `file://${join(inject('folder'), 'findings.html')}`
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))
  const textOf = async (page: Page, selector: string): Promise<string> =>
    (await page.locator(selector).innerText()).replace(/\s+/g, ' ')

  it('lists them with place, numbers and remedy', async () => {
    const { page, clean } = await openPage(browser, url)
    for (const summary of await page.locator('#own-findings summary').all()) await summary.click()
    const text = await textOf(page, '#own-findings')
    expect(text).toContain('warning: Dead units relu1 40 of 64 units Show relu1, 40 of 64 units 40 units of 64 in relu1 are dead')
    expect(text).toContain('share of the FLOPs 40 % units, counted from 0 4–43')
    expect(text).toContain('Remedy: Use gelu instead of relu. mlp train digits --arch 64-64:gelu-10')
    expect(text).toContain("error: Target leakage column 'discharge date' Column")
    expect(text).toContain('Overfitting since epoch 6')
    expect(await page.locator('#own-findings').getByRole('button', { name: 'Show' }).count()).toBe(2)
    await clean()
  })

  it('marks the layers and units of the member that is shown', async () => {
    const { page, clean } = await openPage(browser, url)
    expect(await page.locator('[data-layer] [data-finding]').count()).toBe(1)
    expect(await page.locator('[data-layer=relu1] .mark').count()).toBe(40)
    expect(await textOf(page, '[data-layer=relu1]')).toContain('64 units, 40 dead (✕)')
    expect(await page.locator('[data-layer=relu2] .mark').count()).toBe(0)
    await page.selectOption('#own-member', '1')
    expect(await page.locator('[data-layer=relu2] .mark').count()).toBe(2)
    expect(await textOf(page, '[data-layer=relu2] [data-finding]')).toBe('! warning: Saturated units: 2 of 16 units')
    await clean()
  })

  it('opens a finding and its units with the keyboard', async () => {
    const { page, clean } = await openPage(browser, url)
    const badge = page.locator('[data-layer=relu1] [data-finding=dead_units]')
    expect(await badge.getAttribute('aria-expanded')).toBe('false')
    const panel = page.locator(`[id="${await badge.getAttribute('aria-controls')}"]`)
    expect(await panel.isVisible()).toBe(false)
    await badge.focus()
    await page.keyboard.press('Enter')
    expect(await badge.getAttribute('aria-expanded')).toBe('true')
    expect(await panel.innerText()).toContain('Use gelu instead of relu.')
    expect(await panel.innerText()).toContain('and 28 more')
    expect(await page.locator('#own-unit [data-fault]').count()).toBe(0) // unit 1 of linear1
    await panel.getByRole('button', { name: 'show unit 5 of relu1' }).focus()
    await page.keyboard.press('Enter')
    expect(await textOf(page, '#own-unit')).toContain('Inside linear1, unit 5')
    expect(await textOf(page, '#own-unit [data-fault=dead_units]')).toContain('dead 40 units of 64 in relu1')
    await badge.focus()
    await page.keyboard.press('Space')
    expect(await panel.isVisible()).toBe(false)
    await clean()
  })

  it('shows the layer of a finding, also of another member', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.locator('#own-findings').getByRole('button', { name: 'Show relu2, member 2' }).click()
    expect(await page.inputValue('#own-member')).toBe('1')
    expect(await page.evaluate(() => document.activeElement?.getAttribute('data-finding'))).toBe('saturated_units')
    expect(await textOf(page, '#own-unit')).toContain('Inside linear2, unit 2')
    expect(await textOf(page, '#own-unit [data-fault]')).toContain('saturated 12 of 16 units of sigmoid2 are saturated.')
    await clean()
  })
})
