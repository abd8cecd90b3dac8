// The explorer in Chromium, opened from a file: mouse, keyboard and touch input, steps, training, links and exports.
import { execFileSync, spawn } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Browser, Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import { hasChromium, launch, openPage } from './chromium.ts'

const folder = inject('folder')
const url = `file://${join(folder, 'explorer.html')}`
const edge = (place: string): string => `[data-place="${place}"]`
const score = (page: Page): Promise<string | null> => page.textContent('#score')
/** Parses a number as the page formats it. */
const read = (text: string | null): number => Number((text ?? '').replaceAll('−', '-').replaceAll(',', ''))

/** The address after the page has updated it. */
async function address(page: Page): Promise<string> {
  await page.waitForTimeout(300)
  return page.url()
}

async function middle(page: Page, selector: string): Promise<{ x: number; y: number }> {
  const box = (await page.locator(selector).boundingBox())!
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 }
}

describe.skipIf(!hasChromium)('explorer', () => {
  let browser: Browser
  beforeAll(async () => void (browser = await launch()))
  afterAll(async () => void (await browser?.close()))

  it('previews a song under the pointer, and shows its computation after a click', async () => {
    const { page, clean } = await openPage(browser, url)
    const shown = (): Promise<string | null> => page.textContent('[data-unit="1.0"] .number')
    expect(await shown()).toBe('0.92')
    await page.hover('[data-row="2"]')
    expect(await shown()).toBe('0.63')
    await page.mouse.move(5, 5)
    expect(await shown()).toBe('0.92')
    await page.click('[data-row="3"]')
    expect(await page.textContent('#peek-title')).toBe('Inside add, for Grey Harbour')
    await clean()
  })

  it('works from the local server', async () => {
    const server = spawn(inject('python'), ['-m', 'multilayer', 'explore'], {
      env: { ...process.env, BROWSER: 'true', PYTHONUNBUFFERED: '1' },
    })
    try {
      const address = await new Promise<string>((resolve) => {
        let text = ''
        server.stdout.on('data', (part) => {
          text += String(part).replaceAll('\n', '')
          const match = /open (http:\/\/\S+?)press Ctrl-C/.exec(text)
          if (match) resolve(match[1])
        })
      })
      const { page, errors } = await openPage(browser, address)
      await page.locator(edge('1.0.1')).focus()
      for (let k = 0; k < 5; k++) await page.keyboard.press('ArrowDown')
      expect(await score(page)).toBe('4 of 4 correct')
      await page.reload()
      expect(errors).toEqual([])
    } finally {
      server.kill('SIGINT')
    }
  })

  it('changes a weight by dragging, and undoes the whole drag as one step', async () => {
    const { page, clean } = await openPage(browser, url)
    expect(await score(page)).toBe('3 of 4 correct')
    const at = await middle(page, edge('1.0.1'))
    await page.mouse.move(at.x, at.y)
    await page.mouse.down()
    for (let k = 1; k <= 6; k++) await page.mouse.move(at.x, at.y + 5 * k)
    await page.mouse.up()
    expect(await score(page)).toBe('4 of 4 correct')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.7')
    expect(await page.textContent('#announcement')).toContain('Confetti is now skip. 4 of 4 correct.')
    await page.click('[aria-label=undo]')
    expect(await score(page)).toBe('3 of 4 correct')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.2')
    await page.keyboard.press('Control+Shift+z')
    expect(await score(page)).toBe('4 of 4 correct')
    await clean()
  })

  it('cancels a drag on Escape, and snaps to 0', async () => {
    const { page, clean } = await openPage(browser, url)
    const at = await middle(page, edge('1.0.1'))
    await page.mouse.move(at.x, at.y)
    await page.mouse.down()
    await page.mouse.move(at.x, at.y - 12)
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('0')
    await page.mouse.move(at.x, at.y - 40)
    await page.keyboard.press('Escape')
    await page.mouse.up()
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.2')
    expect(await page.isDisabled('[aria-label=undo]')).toBe(true)
    await clean()
  })

  it('can be used with the keyboard alone', async () => {
    const { page, clean } = await openPage(browser, url)
    const reached = async (label: string): Promise<void> => {
      for (let k = 0; k < 80; k++) {
        if ((await page.evaluate(() => document.activeElement?.getAttribute('aria-label'))) === label) return
        await page.keyboard.press('Tab')
      }
      expect.fail(`Tab never reached ${label}`)
    }
    await reached('weight h₂ → add')
    for (let k = 0; k < 4; k++) await page.keyboard.press('ArrowDown')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.6')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuetext')).toBe('−0.60; 4 of 4 correct')
    await page.keyboard.press('PageUp')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('0.4')
    await page.keyboard.type('-1/2')
    await page.keyboard.press('Enter')
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.5')
    await reached('h₂ −0.89: show details')
    await page.keyboard.press('Enter')
    expect(await page.textContent('#peek-title')).toBe('Inside h₂, for Night Drive')
    await clean()
  })

  it('changes a weight by touch', async () => {
    const { page, clean } = await openPage(browser, url, { hasTouch: true, viewport: { width: 400, height: 860 } })
    await page.locator(edge('1.0.1')).scrollIntoViewIfNeeded()
    const at = await middle(page, edge('1.0.1'))
    const session = await page.context().newCDPSession(page)
    const touch = (type: string, y: number): Promise<unknown> =>
      session.send('Input.dispatchTouchEvent', {
        type: type as 'touchMove',
        touchPoints: type === 'touchEnd' ? [] : [{ x: at.x, y }],
      })
    await touch('touchStart', at.y)
    for (let k = 1; k <= 6; k++) await touch('touchMove', at.y + 5 * k)
    await touch('touchEnd', 0)
    expect(await page.getAttribute(edge('1.0.1'), 'aria-valuenow')).toBe('-0.7')
    await clean()
  })

  it('changes a weight with the button and the field of the weight editor, and accepts a decimal comma', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.locator(edge('1.0.0')).click()
    await page.click('#weight-card [aria-label=increase]')
    expect(await page.getAttribute(edge('1.0.0'), 'aria-valuenow')).toBe('0.7')
    const field = page.locator('#weight-card input[type=text]')
    await field.fill('0,25')
    await field.blur()
    expect(await page.getAttribute(edge('1.0.0'), 'aria-valuenow')).toBe('0.25')
    await field.fill('nonsense')
    await field.blur()
    expect(await page.getAttribute(edge('1.0.0'), 'aria-valuenow')).toBe('0.25')
    await clean()
  })

  it('shows the same numbers as the exported Python code', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.selectOption('#activation', 'gelu')
    await page.click('[aria-label="add a hidden neuron"]')
    await page.click('#share')
    const [file] = await Promise.all([page.waitForEvent('download'), page.click('text=Download the code as network.py')])
    const code = await file.path()
    const lines = execFileSync(inject('python'), [code], { encoding: 'utf8' }).trim().split('\n')
    const printed = Object.fromEntries(
      lines.map((line) => line.match(/^(outputs|loss|(?:y|delta|d) \S+) (.*)$/)!.slice(1, 3)),
    ) as Record<string, string>
    const numbers = (name: string): number[] => printed[name].split(' ').map(Number)
    await page.click('#share')
    await page.click('#numbers summary')
    await page.waitForSelector('[data-delta]') // the tables appear shortly after the click
    let compared = 0
    /** Compares the numbers of the page that match a selector with those of Python, in order. */
    const near = async (selector: string, expected: number[]): Promise<void> => {
      const shown = (await page.locator(selector).allTextContents()).map(read)
      expect(shown.length, selector).toBe(expected.length)
      shown.forEach((value, k) => expect(Math.abs(value - expected[k]), selector).toBeLessThan(1e-10))
      compared += shown.length
    }
    for (const l of [0, 1]) {
      await near(`[data-slope^="${l}."]:not([data-slope$="-1"])`, numbers(`d linear${l + 1}.weight`))
      await near(`[data-slope^="${l}."][data-slope$="-1"]`, numbers(`d linear${l + 1}.bias`))
      await near(`[data-z^="${l}."]`, numbers(`y linear${l + 1}`))
      await near(`[data-delta^="${l}."]`, numbers(`delta linear${l + 1}`))
    }
    await near('[data-a^="0."]', numbers('y gelu1'))
    await near('[data-a^="1."]', numbers('outputs'))
    expect(compared).toBe(8 + 4 + 4 + 1 + 2 * (16 + 4) + 16 + 4)
    await page.click('#tab-steps')
    for (let k = 0; k < 20 && !(await page.textContent('#step-title'))!.includes('dW'); k++)
      await page.click('text=Next')
    const shown = await page.locator('[data-entry^="dW."]').allTextContents()
    expect(shown.map(read)).toEqual(numbers('d linear2.weight').map((g) => Number(g.toFixed(4)) + 0))
    await clean()
  })

  it('restores the whole state from a link, and rejects a link that is damaged or newer', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.selectOption('#activation', 'sigmoid')
    await page.click('[aria-label="add a hidden neuron"]')
    await page.locator(edge('0.3.1')).focus()
    await page.keyboard.press('ArrowUp')
    await page.keyboard.press('Enter')
    await page.click('[data-unit="0.2"]')
    await page.click('[data-row="2"]')
    await page.selectOption('#depth', 'maths')
    await page.click('#tab-gallery')
    await page.fill('#gallery-z', '-1.5')
    await page.click('#tab-depth')
    await page.selectOption('#depth-activation', 'relu')
    await page.selectOption('#depth-scheme', 'he')
    await page.click('#tab-draw')
    await page.fill('#draw-units', '11')
    const board = (await page.locator('#draw-board').boundingBox())!
    await page.mouse.click(board.x + board.width / 4, board.y + 40)
    const off = await page.textContent('#draw-error')
    await page.click('#tab-train')
    await page.fill('input[aria-label="learning rate"]', '0.3')
    await page.selectOption('#optimiser', 'momentum')
    await page.click('text=One step')
    await page.click('text=One step')
    await page.click('#tab-steps')
    await page.click('text=Next')
    await page.click('text=Next')
    const weight = await page.getAttribute(edge('0.3.1'), 'aria-valuenow')
    const title = await page.textContent('#step-title')
    const link = await address(page)
    const again = await openPage(browser, link)
    expect(await again.page.getAttribute('#tab-steps', 'aria-selected')).toBe('true')
    expect(await again.page.getAttribute(edge('0.3.1'), 'aria-valuenow')).toBe(weight)
    expect(await again.page.inputValue('#activation')).toBe('sigmoid')
    expect(await again.page.inputValue('#depth')).toBe('maths')
    expect(await again.page.textContent('#step-title')).toBe(title)
    expect(await again.page.textContent('#step-number')).toBe('3')
    await again.page.click('#tab-play')
    expect(await again.page.textContent('#peek-title')).toBe('Inside h₃, for Confetti')
    expect(await again.page.textContent('#weight-card strong')).toBe('mood → h₄')
    await again.page.click('#tab-train')
    expect(await again.page.inputValue('input[aria-label="learning rate"]')).toBe('0.3')
    expect(await again.page.inputValue('#optimiser')).toBe('momentum')
    expect(await again.page.textContent('#train-step')).toBe('2')
    await again.page.click('#tab-gallery')
    expect(await again.page.inputValue('#gallery-z')).toBe('-1.5')
    await again.page.click('#tab-depth')
    expect(await again.page.inputValue('#depth-activation')).toBe('relu')
    await again.page.click('#tab-draw')
    expect(await again.page.textContent('#draw-error')).toBe(off)
    await again.page.click('#tab-steps')
    // Only the order of the values in the address may differ.
    expect(decodeURIComponent(await address(again.page)).length).toBe(decodeURIComponent(link).length)
    await again.clean()
    await page.click('#tab-play')
    await page.selectOption('#activation', 'relu')
    await page.waitForFunction((old) => location.href !== old, link)
    await page.evaluate((to) => (location.hash = to), new URL(link).hash) // pasted into the open page
    await page.waitForSelector('#tab-steps[aria-selected=true]')
    expect(await page.inputValue('#activation')).toBe('sigmoid')
    for (const [bad, why] of [
      [link.replace('%22widths%22', '%22width%22'), 'hidden layers'],
      [link.slice(0, -9), 'incomplete or damaged'],
      [link.replace('#v3=', '#v9='), 'version 9'],
      [link.replace('%22speed%22%3A2', '%22speed%22%3A77'), 'cannot show its speed'],
      [
        `${url}#v1=${encodeURIComponent('{"data":"constructor","loss":"mse","activation":"tanh","widths":[2,1],"weights":[1,1,1]}')}`,
        'does not have',
      ],
    ]) {
      const refused = await openPage(browser, bad)
      expect(await refused.page.textContent('[role=alert]')).toContain(why)
      expect(await score(refused.page)).toBe('3 of 4 correct')
      await refused.clean()
    }
    await clean()
  })

  it('changes the target curve by a click, by keys and by strokes, and undoes each of them', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-draw')
    const off = (): Promise<string | null> => page.textContent('#draw-error')
    const seen = [await off()]
    const board = (await page.locator('#draw-board').boundingBox())!
    await page.mouse.click(board.x + 200, board.y + 30)
    seen.push(await off())
    await page.locator('#draw-height').focus()
    for (let k = 0; k < 30; k++) await page.keyboard.press('ArrowDown')
    seen.push(await off())
    await page.mouse.move(board.x + 300, board.y + 300)
    await page.mouse.down()
    for (let k = 1; k <= 8; k++) await page.mouse.move(board.x + 300 + 60 * k, board.y + 300 - 30 * k)
    await page.mouse.up()
    seen.push(await off())
    expect(new Set(seen).size).toBe(4)
    await page.click('[aria-label=undo]')
    expect(await off()).toBe(seen[2])
    for (let k = 0; k < 31; k++) await page.keyboard.press('Control+z')
    expect(await off()).toBe(seen[0])
    expect(await page.isDisabled('[aria-label=undo]')).toBe(true)
    await page.click('#tab-play')
    expect(await page.isDisabled('[aria-label=undo]')).toBe(true)
    await clean()
  })

  it('keeps trained weights exactly when a neuron is added', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-train')
    await page.click('text=One step')
    await page.click('#tab-play')
    const weight = await page.getAttribute(edge('0.0.0'), 'aria-valuenow')
    expect(weight!.length).toBeGreaterThan(8)
    await page.click('[aria-label="add a hidden neuron"]')
    expect(await page.getAttribute(edge('0.0.0'), 'aria-valuenow')).toBe(weight)
    await clean()
  })

  it('steps forward and back, and checks a gradient numerically', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#tab-steps')
    expect(await page.textContent('#step-title')).toContain('weighted sum')
    const titles: string[] = []
    for (let k = 0; k < 11; k++) {
      titles.push((await page.textContent('#step-title'))!)
      await page.click('text=Next')
    }
    expect(await page.textContent('#step-title')).toContain('Update')
    await page.click('#take-step')
    const loss = read(await page.textContent('#loss'))
    expect(loss).toBeLessThan(0.1203)
    for (let k = 0; k < 6; k++) await page.click('text=◂ Back')
    expect(await page.textContent('#step-title')).toBe(titles[5])
    expect(titles[5]).toContain('(a): dW')
    await page.click('text=Check numerically')
    expect(await page.textContent('#nudge')).toContain('they agree')
    await clean()
  })

  it('shows numbers of any size in the figure, the details of a unit and the steps', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('[data-unit="1.0"]')
    for (const place of ['0.0.0', '1.0.0', '1.0.1']) {
      await page.locator(edge(place)).focus()
      await page.keyboard.type('1e308')
      await page.keyboard.press('Enter')
    }
    await page.selectOption('#activation', 'relu')
    expect(await page.textContent('[role=alert]')).toMatch(/not finite: \S+ of layer \d/)
    expect(await page.textContent('#announcement')).toContain('Not finite')
    await page.selectOption('#depth', 'deep')
    await page.click('#tab-steps')
    for (let k = 0; k < 12; k++) await page.keyboard.press('Tab')
    for (let k = 0; k < 11; k++) await page.click('text=Next')
    await page.click('#tab-train')
    await page.selectOption('#data', 'wave')
    await page.locator(edge('0.0.0')).focus()
    await page.keyboard.type('1e308')
    await page.keyboard.press('Enter')
    await page.locator(edge('1.0.0')).focus()
    await page.keyboard.type('1e308')
    await page.keyboard.press('Enter')
    await clean()
  })

  it('exports the figure as SVG and PNG and the weights as JSON, and opens that JSON', async () => {
    const { page, clean } = await openPage(browser, url)
    await page.click('#share')
    for (const [button, name] of [
      ['Figure as SVG', 'network.svg'],
      ['Figure as PNG', 'network.png'],
      ['Download the weights', 'network.json'],
    ]) {
      const [file] = await Promise.all([page.waitForEvent('download'), page.click(`text=${button}`)])
      expect(file.suggestedFilename()).toBe(name)
      if (name === 'network.json') {
        writeFileSync(join(folder, name), '')
        await file.saveAs(join(folder, name))
      }
    }
    await page.click('text=Solved')
    expect(await score(page)).toBe('4 of 4 correct')
    await page.setInputFiles('input[type=file]', join(folder, 'network.json'))
    await page.waitForFunction(() => document.querySelector('#score')?.textContent === '3 of 4 correct')
    await clean()
  })
})
