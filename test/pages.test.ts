/**
 * What people see, in headless Chromium: a real training run is followed live, its trajectories are read, labelled and searched by
 * keyboard, and its report is opened as a file without a network. No page may complain, and axe finds nothing serious.
 */
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import type { Browser, BrowserContextOptions, Locator, Page } from 'playwright-core'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { chromiumPath, openBrowser, openPage, overflow, seriousFindings, type WatchedPage } from './browser.ts'
import { type Ended, showrunner, start } from './commandLine.ts'

let folder: string
let browser: Browser
let training: ReturnType<typeof start>
let viewer: ReturnType<typeof start>
let base: string
let ended: Ended | null = null

/** The base master, so that all tools are used; two episodes and many small steps. */
const configuration = `
name: watched
seed: 5
dataset:
  path: datasets/watched
  miniature: { seed: 4, episodes: 2, words: training, split: train, questionsPerEpisode: 8 }
policy: { type: checkpoint, path: ${resolve('checkpoints/base')} }
agents: { vision: { type: embedded, framesPerClip: 1, width: 384 } }
rollout: { groupSize: 4, budget: { turns: [3, 5], tokensPerTurn: 12 } }
reward: { alpha: 0.1, aggregation: mean, turnCost: 0.05 }
system: { initialGrounding: none, forceAnswerNotice: never }
grpo: { learningRate: 0.0002 }
training: { steps: 40, tasksPerStep: 2, saveEvery: 40, ratiosEvery: 1 }
`

describe.skipIf(chromiumPath === null)('pages', { timeout: 240_000 }, () => {
  let watched: WatchedPage
  let page: Page

  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'showrunner-pages-'))
    await writeFile(join(folder, 'watched.yaml'), configuration)
    training = start(folder, 'train', '--config', 'watched.yaml')
    training.ended.then((how) => {
      ended = how
    })
    browser = await openBrowser()
    await until(() => ended !== null || existsSync(join(folder, 'rollouts/watched/metrics.jsonl')))
    viewer = start(folder, 'view', 'rollouts/watched', '--port', '0')
    base = await addressOf(viewer)
  }, 240_000)
  afterAll(async () => {
    training?.child.kill('SIGKILL')
    viewer?.child.kill('SIGTERM')
    await viewer?.ended
    await browser?.close()
    await rm(folder, { recursive: true, force: true })
  })

  const open = async (address: string, options = {}): Promise<Page> => {
    watched = await openPage(browser, options)
    page = watched.page
    await page.goto(address)
    return page
  }
  afterEach(async () => {
    expect(watched.complaints).toEqual([])
    await watched.context.close()
  })

  test('live: the page follows the run by itself, to its end', async () => {
    await open(`${base}/training`)
    const status = page.locator('[role=status]')
    const steps = async () => Number(/Step (\d+) of 40/.exec(await text(status))?.[1] ?? 0)
    const first = await steps()
    if (ended === null) expect(await text(status)).toContain('Running')
    await until(async () => (await steps()) > first || ended !== null)
    if (ended === null) {
      expect(await page.locator('.tiles dt').allTextContents()).toEqual(
        expect.arrayContaining(['reward', 'accuracy', 'tokens / s', 'per step', 'to go']),
      )
      expect(await page.locator('.groups > li').count()).toBeGreaterThan(0)
    }
    const { code, stderr } = await training.ended
    expect([code, stderr]).toEqual([0, expect.stringMatching(/training: 40 to do\n(.*\n)*training: 40 of 40/)])
    await until(async () => (await text(status)).includes('The run is complete'))
    expect(await steps()).toBe(40)
    expect(await page.locator('.curves svg').count()).toBeGreaterThan(6)
  })

  test('by keyboard from the list to a trajectory, its turns, gold, group mates, tokens and back', async () => {
    await open(`${base}/?turns=3`)
    await page.keyboard.press('j')
    await page.keyboard.press('j')
    const question = await text(page.locator(':focus'))
    await page.keyboard.press('Enter')
    await page.waitForURL(/\/t\/.*turns=3/)
    expect(await text(page.locator('h1'))).toBe(question)
    expect(await text(page.locator('.place'))).toMatch(/^2 of /)

    // gold is not in the page before it is asked for
    expect(await page.locator('#main').innerHTML()).not.toMatch(/right answer|class="outcome|advantage|class="band/)
    await page.keyboard.press('j')
    expect(await page.locator(':focus').getAttribute('id')).toBe('turn-1')
    await go(() => page.keyboard.press('g'))
    expect(await text(page.locator('.mark.gold'))).toBe('RIGHT ANSWER'.toLowerCase())
    expect(await page.locator('.timeline .band').count()).toBeGreaterThan(0)
    const sum = async (row: string) =>
      Number((await text(page.locator('table.rewards tr', { hasText: row }).locator('.number'))).replace('−', '-'))
    expect((await sum('answer')) + (await sum('format')) + (await sum('turn cost'))).toBeCloseTo(await sum('total'), 1)
    // the advantages of a group have mean 0
    const advantages = await page.locator('table.mates td.number:last-child').allTextContents()
    expect(advantages).toHaveLength(4)
    expect(advantages.reduce((all, one) => all + Number(one.replace('−', '-')), 0)).toBeCloseTo(0, 1)

    await go(() => page.keyboard.press('n'))
    expect(await text(page.locator('.place'))).toMatch(/^3 of /)
    await go(() => page.keyboard.press('p'))
    const before = page.url()
    await go(() => page.keyboard.press('m'))
    expect(page.url()).not.toBe(before)
    await page.keyboard.press('t')
    await page.locator('.stream .tok.sampled').first().waitFor()
    await page.locator('input[value=ratio]').check()
    expect(await page.locator('.stream .tok.sampled').first().getAttribute('title')).toMatch(
      /log-probability −.*ratio \d/,
    )
    const shade = (selector: string) =>
      page
        .locator(selector)
        .first()
        .evaluate((one) => getComputedStyle(one).backgroundColor)
    expect(await shade('.stream .tok.sampled')).not.toBe(await shade('.stream .tok:not(.sampled)'))
    expect(await seriousFindings(page)).toEqual([])
    await go(() => page.keyboard.press('u'))
    expect(new URL(page.url()).pathname).toBe('/')
  })

  test('the frame that the vision agent saw is shown, and larger on demand', async () => {
    await open(`${base}/`)
    const looked = page.locator('tr', { has: page.locator('.chip.ground + .chip.look') }).first()
    await go(() => looked.locator('td.question a').click())
    const frame = page.locator('.frames img').first()
    await frame.scrollIntoViewIfNeeded()
    await until(() => frame.evaluate((image) => (image as HTMLImageElement).naturalWidth > 0))
    expect(await frame.evaluate((image) => (image as HTMLImageElement).naturalWidth)).toBe(384)
    await frame.click()
    expect(await page.locator('dialog[open] img').isVisible()).toBe(true)
    await page.keyboard.press('Escape')
    expect(await page.locator('dialog[open]').count()).toBe(0)
  })

  test('search, filters and help', async () => {
    await open(`${base}/`)
    const [, all] = /([\d,]+) trajectories/.exec(await text(page.locator('.tally'))) ?? []
    expect(all).toBe('320')
    await page.keyboard.press('/')
    await page.keyboard.type('what does')
    await go(() => page.keyboard.press('Enter'))
    await until(async () => !(await text(page.locator('.tally'))).includes('searching'))
    const questions = await page.locator('td.question a').allTextContents()
    expect(questions.length).toBeGreaterThan(0)
    for (const question of questions) expect(question).toContain('what does')
    await go(() => page.locator('select[name=outcome]').selectOption('wrong').then())
    expect(new Set(await page.locator('td .outcome').allTextContents())).toEqual(new Set(['✕ wrong']))
    await page.keyboard.press('Escape')
    await page.locator('h1').click({ force: true })
    await page.keyboard.press('?')
    expect(await page.locator('#help').isVisible()).toBe(true)
    expect(await seriousFindings(page)).toEqual([])
    await page.keyboard.press('Escape')
    expect(await page.locator('#help').isVisible()).toBe(false)
  })

  test('a label is saved as it is given, without gold, and stands in the report', async () => {
    await open(`${base}/`)
    await go(() => page.locator('td.question a').first().click())
    await page.keyboard.press('2')
    await until(async () => (await text(page.locator('.saved'))) === 'Saved')
    await page.keyboard.press('o')
    await page.keyboard.type('the sign is cut off')
    await page.locator('form.label button').click()
    await until(async () => {
      const lines = (await readFile(join(folder, 'rollouts/watched/labels.jsonl'), 'utf8')).trim().split('\n')
      const last = JSON.parse(lines.at(-1) as string)
      return last.note === 'the sign is cut off' && last.kinds.join() === 'vision_wrong' && last.goldShown === false
    })
    await go(() => page.locator('nav >> text=Report').click())
    expect(await text(page.locator('#labels'))).toContain('the sign is cut off')
    // an example in the report leads into the viewer
    await page.locator('details summary').first().click()
    await go(() => page.locator('details a').first().click())
    expect(new URL(page.url()).pathname).toMatch(/^\/t\//)
    expect(page.url().startsWith(base)).toBe(true)
  })

  test.each<[string, BrowserContextOptions, string[]]>([
    ['light', {}, []],
    // what differs from the light page on a wide screen
    ['dark', { colorScheme: 'dark' }, ['color-contrast']],
    ['phone', { viewport: { width: 390, height: 800 } }, ['color-contrast', 'scrollable-region-focusable']],
  ])('%s: nothing serious, nothing beside the window', async (_, options, rules) => {
    await open(`${base}/?gold=1`, options)
    const first = (await page.locator('td.question a').first().getAttribute('href')) as string
    for (const path of ['/?gold=1', first, first.replace('/t/', '/tokens/'), '/training', '/report']) {
      await page.goto(base + path)
      expect(await overflow(page), path).toBeLessThanOrEqual(0)
      expect(await seriousFindings(page, rules), path).toEqual([])
    }
  })

  test('the report is a file that needs no network: definitions by hover and by keyboard, every chart with its table', async () => {
    expect((await showrunner(folder, 'report', 'rollouts/watched')).code).toBe(0)
    watched = await openPage(browser)
    page = watched.page
    await watched.context.setOffline(true)
    const asked: string[] = []
    page.on('request', (request) => asked.push(request.url()))
    await page.goto(`file://${folder}/rollouts/watched/report.html`)
    expect(asked).toHaveLength(1)
    const term = page.locator('button.term').first()
    expect((await term.getAttribute('title'))?.length).toBeGreaterThan(20)
    await term.focus()
    await page.keyboard.press('Enter')
    expect(await text(page.locator('[popover]:popover-open'))).toContain((await term.getAttribute('title')) as string)
    await page.keyboard.press('Escape')
    for (const section of await page.locator('section:has(figure)').all())
      expect(await section.locator('table').count()).toBeGreaterThan(0)
    await page.emulateMedia({ media: 'print', colorScheme: 'dark' })
    const paper = await page.evaluate(() => getComputedStyle(document.body).backgroundColor)
    expect(paper).toBe('rgb(255, 255, 255)')
    expect(await page.locator('nav').isVisible()).toBe(false)
  })

  /** Waits for the page that a key or a click leads to. */
  async function go(act: () => Promise<unknown>): Promise<void> {
    await Promise.all([page.waitForNavigation(), act()])
  }
})

const text = async (one: Locator): Promise<string> => (await one.textContent()) ?? ''

async function until(condition: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await condition())) await new Promise((wake) => setTimeout(wake, 50))
}

/** As the viewer tells it on standard error. */
async function addressOf({ child }: ReturnType<typeof start>): Promise<string> {
  return new Promise((found, failed) => {
    let said = ''
    child.stderr?.on('data', (chunk) => {
      said += chunk
      const address = /http:\/\/127\.0\.0\.1:\d+/.exec(said)?.[0]
      if (address) found(address)
    })
    child.on('close', () => failed(new Error(`the viewer ended: ${said}`)))
  })
}
