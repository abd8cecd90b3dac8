// Chromium for the browser tests, controlled by Playwright. It records every console error and every request.
import { existsSync } from 'node:fs'
import { chromium, type Browser, type BrowserContextOptions, type Page } from 'playwright-core'
import { expect } from 'vitest'

const path = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
  (p) => p && existsSync(p),
)

/** Whether Chromium is installed. Without it, the browser tests are skipped with a warning. */
export const hasChromium = path !== undefined
if (!hasChromium) console.warn('browser tests skipped: Chromium was not found. Install it, or set CHROMIUM to its path.')

const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]

export const launch = (): Promise<Browser> => chromium.launch({ executablePath: path, args: FLAGS })

export interface WatchedPage {
  readonly page: Page
  readonly errors: string[]
  readonly requests: string[]
  /** Asserts that the console has no errors and that the page requested only itself, then closes it. */
  clean(): Promise<void>
}

export async function openPage(browser: Browser, url: string, options: BrowserContextOptions = {}): Promise<WatchedPage> {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options })
  const page = await context.newPage()
  const errors: string[] = []
  const requests: string[] = []
  page.on('console', (message) => ['error', 'warning'].includes(message.type()) && errors.push(message.text()))
  page.on('pageerror', (error) => errors.push(error.message))
  page.on('request', (request) => requests.push(request.url()))
  await page.goto(url)
  await page.waitForSelector('#panel')
  const clean = async (): Promise<void> => {
    expect(errors).toEqual([])
    const own = url.replace(/#.*/, '')
    expect(requests.filter((r) => !r.startsWith(own) && !r.startsWith('data:') && !r.startsWith('blob:'))).toEqual([])
    await context.close()
  }
  return { page, errors, requests, clean }
}
