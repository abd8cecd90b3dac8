// The user's network in Chromium: agreement with Python, changed inputs and weights, hostile names, and networks that are too
// large for the page.
import { execFileSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { hasChromium, launch, openPage } from './chromium.ts'

interface Facts {
  outputs: number[][]
  targets: unknown[]
  predicted: number
  changed: number
  score: number
  right: number
  whole: string
}

interface Shares {
  members: number
  score: number
  predicted: Record<string, number>
  changed: Record<string, number>
}

const folder = inject('folder')
const page = (name: string): string => `file://${join(folder, `${name}.html`)}`
const facts = JSON.parse(readFileSync(join(folder, 'facts.json'), 'utf8')) as Record<string, Facts> & {
  ensemble: Shares
  digits: { shares: number[][] }
}
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

/** The path of the file that a button of the Share menu downloads. */
async function downloaded(on: Page, button: string): Promise<string> {
  if (!(await on.locator('#share-menu').count())) await on.click('#share')
  const [file] = await Promise.all([on.waitForEvent('download'), on.click(`text=${button}`)])
  return file.path()
}
/** The outputs of the page, from its JSON export. Closes the menu. */
async function outputs(on: Page): Promise<number[]> {
  const file = await downloaded(on, 'Download the weights')
  await on.keyboard.press('Escape')
  return (JSON.parse(readFileSync(file, 'utf8')) as { outputs: number[] }).outputs
}

describe.skipIf(!hasChromium)("the user's network", () => {
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))

  it('shows the probabilities of Python for digits, and reacts to a changed weight and pixel', async () => {
    const { page: p, clean } = await openPage(browser, page('digits'))
    for (const row of [0, 5, 17]) {
      await p.selectOption('#own-row', String(row))
      const shares: number[] = facts.digits.shares[row]
      for (const digit of [0, 3, 9]) {
        const shown = await p.$eval(`[data-share="${digit}"]`, (e) => e.textContent)
        expect(read(shown)).toBeCloseTo(100 * shares[digit], 1)
      }
    }
    const correct = await p.textContent('#own-right')
    const before = await p.textContent('[data-own=z]')
    await slide(p, '#own-weight', 0.9)
    expect(await p.textContent('[data-own=z]')).not.toBe(before)
    await p.click('[aria-label=undo]')
    expect(await p.textContent('[data-own=z]')).toBe(before)
    expect(await p.textContent('#own-right')).toBe(correct)
    const picture = (await p.locator('canvas[aria-label^="the image"]').boundingBox())!
    await p.mouse.click(picture.x + 3, picture.y + 3)
    expect(await p.textContent('body')).toContain('inputs changed')
    await clean()
  })

  it('shows a table in its original units, and predicts a changed row like Python', async () => {
    const { page: p, clean } = await openPage(browser, page('table'))
    // Python predicts in float32, with about seven digits.
    expect(read(await p.textContent('#prediction'))).toBeCloseTo(facts.table.predicted, 1)
    await p.fill('input[aria-label=area]', '150')
    await p.keyboard.press('Enter')
    expect(read(await p.textContent('#prediction'))).toBeCloseTo(facts.table.changed, 1)
    expect(facts.table.changed).not.toBeCloseTo(facts.table.predicted, 1)
    await p.selectOption('select[aria-label=place]', { label: 'village' })
    await clean()
  })

  it('shows the average of all members of the default recipe, and the layers of any member', async () => {
    const { page: p, clean } = await openPage(browser, page('ensemble'))
    const near = async (expected: Record<string, number>): Promise<void> => {
      for (const [name, share] of Object.entries(expected))
        expect(read(await p.textContent(`[data-share="${name}"]`))).toBeCloseTo(100 * share, 1)
    }
    expect(facts.ensemble.members).toBe(8)
    expect(await p.locator('[data-member]').count()).toBe(8)
    await near(facts.ensemble.predicted)
    await p.fill('input[aria-label=area]', '150')
    await p.keyboard.press('Enter')
    await near(facts.ensemble.changed)
    await p.click('[aria-label=undo]')
    await near(facts.ensemble.predicted)
    await p.click('[data-member="5"]')
    await near(facts.ensemble.predicted)
    expect(await p.inputValue('#own-member')).toBe('5')
    const mean = await openPage(browser, page('mean'))
    expect(read(await mean.page.textContent('#prediction'))).toBeCloseTo(facts.mean.predicted, 1)
    await mean.page.fill('input[aria-label=area]', '150')
    await mean.page.keyboard.press('Enter')
    expect(read(await mean.page.textContent('#prediction'))).toBeCloseTo(facts.mean.changed, 1)
    await mean.clean()
    await clean()
  })

  it('shows the score computed in Python, and names the member whose layers are shown', async () => {
    const stated = async (name: string): Promise<[Page, string, () => Promise<void>]> => {
      const { page: p, clean } = await openPage(browser, page(name))
      return [p, (await p.textContent('#own-score'))!.replace(/\s+/g, ' ').replaceAll('−', '-').trim(), clean]
    }
    const [p, text, clean] = await stated('ensemble')
    const accuracy = (share: number): string => `Accuracy ${(100 * share).toFixed(1)} % on 240 rows`
    expect(text).toBe(
      `${accuracy(facts.ensemble.score)}: calibrated average of 8 members; the layers below are those of member 1.`,
    )
    await p.click('[data-member="5"]')
    expect(await p.textContent('#own-score')).toMatch(/member\s+6\./)
    await clean()
    const [, number, cleanMean] = await stated('mean')
    expect(number).toContain(`R² ${facts.mean.score.toFixed(3)} on 240 rows: calibrated average of 8 members`)
    await cleanMean()
  })

  it('counts a multilabel row as correct only if all its labels are', async () => {
    const { page: p, clean } = await openPage(browser, page('labels'))
    expect(await p.textContent('#own-right')).toBe(`${facts.labels.right} of the 120 rows shown are correct`)
    expect(await p.textContent('#own-score')).toContain(`${(100 * facts.labels.score).toFixed(1)} %`)
    await clean()
  })

  it('reports that it runs only one member, and shows the prediction of all members', async () => {
    const { page: p, clean } = await openPage(browser, page('alone'))
    expect(await p.textContent('#own-alone')).toContain('runs member 2 alone (member=1 in Python)')
    expect(await p.textContent('#own-score')).toContain(`${(100 * facts.alone.score).toFixed(1)} %`)
    expect(await p.textContent('#own-right')).toBe(`${facts.alone.right} of the 120 rows shown are correct for member 2`)
    expect(await p.textContent('#own-whole')).toContain(`average of 3 members predicts ${facts.alone.whole}.`)
    await clean()
  })

  it.each(['digits', 'table', 'ensemble', 'mean', 'plain'])(
    'exports %s with its changes as Python code with the same outputs, and as a link',
    async (name) => {
      const { page: p, clean } = await openPage(browser, page(name))
      const model = name === 'plain' ? '' : join(folder, `${name}.safetensors`)
      const first = await outputs(p)
      if (name === 'ensemble' || name === 'mean') await p.click('[data-member="3"]')
      await p.fill('input[aria-label^="weight of"]', '1.75')
      await p.keyboard.press('Enter')
      await p.click('text=Change the bias')
      await p.fill('input[aria-label="weight of bias"]', '-0.6')
      await p.keyboard.press('Enter')
      if (name === 'digits') {
        const canvas = p.locator('canvas[aria-label^="the image"]')
        await canvas.scrollIntoViewIfNeeded()
        const picture = (await canvas.boundingBox())!
        await p.mouse.move(picture.x + 90, picture.y + 5)
        await p.mouse.down()
        await p.mouse.move(picture.x + 90, picture.y + 150, { steps: 12 })
        await p.mouse.up()
      } else {
        const input = p.locator('.input input[type=text]').first()
        await input.fill('0.7')
        await input.press('Enter')
      }
      const changed = await outputs(p)
      const saved = await downloaded(p, 'Download the weights')
      const code = await downloaded(p, 'Download the code as network.py')
      const printed = execFileSync(inject('python'), [code, model || saved], { encoding: 'utf8' })
      const python = /^outputs (.*)$/m.exec(printed)![1].split(' ').map(Number)
      expect(python.length).toBe(changed.length)
      python.forEach((z, k) => expect(Math.abs(z - changed[k])).toBeLessThan(1e-10 * Math.max(1, Math.abs(z))))
      python.forEach((z, k) => expect(Math.abs(z - first[k])).toBeGreaterThan(1e-4))
      await p.waitForTimeout(300)
      const again = await openPage(browser, p.url())
      expect(await outputs(again.page)).toEqual(changed)
      expect(await again.page.textContent('[data-own=z]')).toBe(await p.textContent('[data-own=z]'))
      await again.clean()
      for (let k = 0; k < 3; k++) await p.click('[aria-label=undo]')
      expect(await p.isDisabled('[aria-label=undo]')).toBe(true)
      expect(await outputs(p)).toEqual(first)
      await p.click('#share')
      await p.setInputFiles('input[type=file]', saved)
      await p.waitForFunction(() => document.querySelector('#share-menu [role=status]')?.textContent?.includes('shown'))
      expect(await outputs(p)).toEqual(changed)
      for (const button of ['Figure as SVG', 'Figure as PNG'])
        expect(readFileSync(await downloaded(p, button)).length).toBeGreaterThan(1000)
      await clean()
    },
  )

  it('names the first layer whose numbers are not finite', async () => {
    const { page: p, clean } = await openPage(browser, page('digits'))
    await p.fill('input[aria-label^="weight of"]', '-1.7e308')
    await p.keyboard.press('Enter')
    await p.click('text=Change the bias')
    await p.fill('input[aria-label="weight of bias"]', '-1e308')
    await p.keyboard.press('Enter')
    expect(await p.textContent('[data-own=z]')).toContain('∞')
    expect(await p.textContent('#own-broken')).toBe('not finite: first in linear1')
    for (let k = 0; k < 2; k++) await p.click('[aria-label=undo]')
    expect(await p.locator('#own-broken').count()).toBe(0)
    await clean()
  })

  it('rejects a link of another model, and a link with invalid changes', async () => {
    const { page: p, clean } = await openPage(browser, page('table'))
    await p.fill('input[aria-label=area]', '150')
    await p.keyboard.press('Enter')
    await p.waitForTimeout(300)
    const hash = p.url().split('#')[1]
    const text = decodeURIComponent(hash)
    expect(text).toMatch(/"own":\{"model":"[^"]+","row":/) // existing links have this form
    const changed = (from: RegExp, to: string): string => `${page('table')}#${encodeURI(text.replace(from, to))}`
    for (const [link, why] of [
      [`${page('mean')}#${hash}`, 'belongs to another model'],
      [changed(/"inputs":\[\[0,/, '"inputs":[[99,'), 'changes inputs that the model does not have'],
      [changed(/"weights":\[\],"member"/, '"weights":[[0,9,0,0,1]],"member"'), 'changes weights that the model does not have'],
      [changed(/"member":0/, '"member":1'), 'its member must be from 0 to 0'],
      [changed(/"row":0,"inputs"/, '"row":-1,"inputs"'), 'its row must be from 0 to'],
    ]) {
      const refused = await openPage(browser, link)
      expect(await refused.page.textContent('[role=alert]'), link).toContain(why)
      expect(await refused.page.locator('text=inputs changed').count()).toBe(0)
      await refused.clean()
    }
    await clean()
  })

  it('searches wide layers and shows the cost of each', async () => {
    const { page: p, clean } = await openPage(browser, page('wide'))
    await p.fill('input[aria-label="search terms of the sum"]', 'x777')
    expect(await p.locator('#own-unit tbody tr').count()).toBe(1)
    expect(await p.textContent('body')).toContain('101,770')
    await clean()
  })

  it('names the layer that it cannot compute', async () => {
    const { page: p, clean } = await openPage(browser, page('reduced'))
    expect(await p.textContent('#reduced')).toContain('kan1 is a layer of kind kan')
    await clean()
  })

  it('works in the frame of a notebook, without an address', async () => {
    const { page: p, clean } = await openPage(browser, page('notebook'))
    const frame = p.frameLocator('iframe')
    await frame.locator('[data-place="1.0.1"]').focus()
    for (let k = 0; k < 5; k++) await p.keyboard.press('ArrowDown')
    expect(await frame.locator('#score').textContent()).toBe('4 of 4 correct')
    await frame.locator('#share').click()
    expect(await frame.locator('#share-menu').textContent()).not.toContain('Copy a link')
    await clean()
  })

  it('shows hostile names as text', async () => {
    const { page: p, clean } = await openPage(browser, page('hostile'))
    for (const tab of await p.locator('[role=tab]').all()) await tab.click()
    await p.click('#tab-own')
    for (const word of ['svg', 'script', 'style', 'hit', 'x']) {
      await p.fill('input[aria-label="search inputs"]', word)
      await p.fill('input[aria-label="search terms of the sum"]', word)
    }
    // Selecting an output to explain puts its class name into a title.
    const explain = p.locator('label:has-text("explain") select')
    const outputs = await explain.locator('option').count()
    expect(outputs).toBeGreaterThanOrEqual(60)
    for (let k = 0; k < outputs; k++) await explain.selectOption({ index: k })
    await p.fill('input[aria-label="search inputs"]', 'svg')
    await p.waitForTimeout(300)
    expect(await p.evaluate(() => Object.keys(window).filter((name) => name.startsWith('hit')))).toEqual([])
    expect(await p.locator('#app img, #app iframe, #app script, #app link, #app meta').count()).toBe(0)
    expect(await p.textContent('body')).toContain('<svg onload=window.hit4=1>')
    await clean()
  })
})
