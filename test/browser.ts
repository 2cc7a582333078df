/** Debian's Chromium for tests of pages, driven by playwright-core: pages whose complaints are kept, and scans by axe. */
import { existsSync } from 'node:fs'
import AxeBuilder from '@axe-core/playwright'
import { type Browser, type BrowserContext, type BrowserContextOptions, chromium, type Page } from 'playwright-core'

const PLACES = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome']

/** null where there is none: `apt-get install chromium`, or CHROMIUM=path. */
export const chromiumPath: string | null = PLACES.find((path) => path !== undefined && existsSync(path)) ?? null
if (chromiumPath === null)
  console.warn('Tests of pages are skipped: no Chromium (apt-get install chromium, or CHROMIUM=path)')

export async function openBrowser(): Promise<Browser> {
  // the sandbox needs rights that containers do not give, and the pages are our own
  return chromium.launch({ executablePath: chromiumPath ?? '', args: ['--no-sandbox'] })
}

export interface WatchedPage {
  page: Page
  context: BrowserContext
  /** Errors and warnings of the console, uncaught errors, requests that failed or left this machine. */
  complaints: string[]
}

export async function openPage(browser: Browser, options: BrowserContextOptions = {}): Promise<WatchedPage> {
  const context = await browser.newContext({
    viewport: { width: 1280, height: 900 },
    reducedMotion: 'reduce',
    ...options,
  })
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) complaints.push(`console: ${message.text()}`)
  })
  page.on('pageerror', (error) => complaints.push(`uncaught: ${error.message}`))
  page.on('request', (request) => {
    const { protocol, hostname } = new URL(request.url())
    if (protocol !== 'file:' && hostname !== '127.0.0.1') complaints.push(`asked ${request.url()}`)
  })
  page.on('response', (response) => {
    if (response.status() >= 400) complaints.push(`${response.status()}: ${response.url()}`)
  })
  return { page, context, complaints }
}

/** What axe finds serious or critical, a line each; of all its rules, or of some, which takes a fraction of the time. */
export async function seriousFindings(page: Page, rules: readonly string[] = []): Promise<string[]> {
  const axe = new AxeBuilder({ page })
  if (rules.length > 0) axe.withRules([...rules])
  const { violations } = await axe.analyze()
  return violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .flatMap(({ id, nodes }) =>
      nodes.slice(0, 3).map(({ html, failureSummary }) => `${id}: ${html} ${failureSummary ?? ''}`),
    )
}

/** Pixels by which the page is wider than the window. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate('document.documentElement.scrollWidth - window.innerWidth') as Promise<number>
}
