import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { frequentPatterns, otherShare, runningMean } from '../../src/report/charts.ts'
import { reportPage } from '../../src/report/html.ts'
import { type Measurement, type Summary, summary } from '../../src/report/summary.ts'
import { writeReport } from '../../src/report/write.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { madeGroup } from '../trajectory/groups.ts'

function measurement(accuracy: number): Measurement {
  return {
    n: 240,
    accuracy,
    accuracyCi95: [accuracy - 0.05, accuracy + 0.05],
    groundingAccuracy: 0.931,
    formatRate: 0.987,
    meanTurns: 2.5,
    meanTokens: 8,
    secondsPerQuestion: 1.25,
    failures: 3,
  }
}

const full: Summary = summary.parse({
  name: 'quick<start> & "co"',
  seed: 7,
  setting: { 'held-out episodes': 24 },
  heldOut: {
    before: { greedy: measurement(0.21), sampled: measurement(0.26) },
    after: { greedy: measurement(0.88), sampled: measurement(0.79) },
    difference: { greedy: null, sampled: { n: 240, difference: 0.53, ci95: [0.45, 0.61] } },
  },
  budgets: [1, 2, 3].map((maxTurns) => ({
    ...measurement(0.25 * maxTurns),
    maxTurns,
    oracleAccuracy: maxTurns === 1 ? null : 0.3 * maxTurns,
  })),
  actionPatterns: {
    before: { dialogue: { a: 0.6, ga: 0.4 } },
    after: { dialogue: { ga: 0.95, gga: 0.05 }, visual: { gva: 1 } },
  },
  regrounding: { before: null, after: { wrongFirstClip: 18, groundedAgain: 0.944, found: 0.944, accuracy: 0.889 } },
  asked: {
    url: 'http://127.0.0.1:40000/v1',
    question: 'what does the sign say in the kitchen ?',
    turns: ['<request_grounding/>', '<answer>a2</answer>'],
    answer: 'harbor',
    correct: true,
  },
  training: {
    steps: 30,
    rollouts: 3840,
    sampledTokens: 81_234,
    seconds: 412,
    curve: Array.from({ length: 30 }, (_, step) => ({ step, reward: step / 30, accuracy: step / 40 })),
  },
})

describe('the page', () => {
  const page = reportPage(full)

  test('is one file that asks the network for nothing', () => {
    const addresses = page.match(/https?:\/\/[^"' ]+/g) ?? []
    // named, not asked
    const named = ['http://www.w3.org/', 'http://127.0.0.1:40000/v1']
    expect(addresses.filter((address) => !named.some((one) => address.startsWith(one)))).toEqual([])
    expect(page).not.toMatch(/<(script|link|img|iframe)\b|@import|url\((?!#)/i)
  })

  test('has a chart in two widths and a table of the same numbers in every section', () => {
    expect(page.match(/<h2>(.*?)<\/h2>/g)?.map((heading) => heading.slice(4, -5))).toEqual([
      'Setting',
      'Before and after training',
      'Step budgets',
      'Training',
      'What the master does, by kind of question',
      'After a wrong clip',
      'Asked over the endpoint',
    ])
    expect(page.match(/<svg /g)).toHaveLength(8)
    expect(page.match(/<table/g)).toHaveLength(7)
    for (const number of ['88.0', '83.0–93.0', '93.1', '98.7', '81,234', '94.4', '60.0', '95.0'])
      expect(page).toContain(number)
  })

  test('says the result first, with decode modes and intervals', () => {
    const text = page.replace(/\u00a0/g, ' ')
    expect(text).toContain(
      '<strong>88 %</strong> right after training (greedy, 95 % interval 83.0–93.0 %), and 21 % before',
    )
    expect(text).toContain(
      'Sampled at temperature 1 it gained +53.0 points (95 % interval +45.0 points to +61.0 points)',
    )
  })

  test('names its axes', () => {
    for (const axis of [
      'accuracy',
      'step budget K (turns)',
      'training step',
      'share of trajectories',
      'reward; accuracy (share of 1)',
    ]) {
      expect(page).toMatch(new RegExp(`<text[^>]*>${axis.replace(/[()]/g, '\\$&')}</text>`))
    }
  })

  test('escapes what it is given', () => {
    expect(page).toContain('quick&lt;start&gt; &amp; &quot;co&quot;')
    expect(page).toContain('<td>&lt;answer&gt;a2&lt;/answer&gt;</td>')
    expect(page).not.toMatch(/<start>|<answer>/)
  })

  test('leaves out what was not measured', () => {
    const page = reportPage(summary.parse({ name: 'x', seed: 1 }))
    expect(page.match(/<h2>/g)).toHaveLength(1)
    expect(page).not.toContain('undefined')
  })
})

test('the patterns shown are the most frequent ones, and the rest adds up', () => {
  const before = { dialogue: { a: 0.5, ga: 0.3, gva: 0.2 }, visual: { a: 0.4, gvva: 0.3, vva: 0.2, xx: 0.1 } }
  const shown = frequentPatterns([before])
  expect(shown).toEqual(['a', 'ga', 'gvva', 'gva', 'vva'])
  expect(otherShare(before.visual, shown)).toBeCloseTo(0.1)
})

test('a running mean reaches a twentieth to either side, and stays inside', () => {
  expect(runningMean([1, 2, 6])).toEqual([1.5, 3, 4])
  expect(runningMean([5])).toEqual([5])
})

describe('writeReport', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'showrunner-report-'))
  })
  afterAll(() => rm(folder, { recursive: true }))

  test('from summary.json', async () => {
    await writeFile(join(folder, 'summary.json'), JSON.stringify(full))
    expect(await writeReport(folder)).toEqual({ ok: true, value: join(folder, 'report.html') })
    expect(await readFile(join(folder, 'report.html'), 'utf8')).toBe(reportPage(full))
  })

  test('of a summary that is none: names the file and the key', async () => {
    const broken = async (text: string) => {
      await writeFile(join(folder, 'summary.json'), text)
      const written = await writeReport(folder)
      return written.ok ? '' : written.failure.message
    }
    expect(await broken('{"name":')).toMatch(/summary\.json: expected JSON: /)
    expect(await broken('{"name": "x"}')).toMatch(/summary\.json: seed: /)
    expect(await broken(JSON.stringify({ ...full, budgets: [{ maxTurns: 'two' }] }))).toMatch(
      /summary\.json: budgets\.0\./,
    )
  })

  test('from stored trajectories where there is no summary', async () => {
    const run = await mkdtemp(join(folder, 'run-'))
    const store = await openStore(run, { resume: false })
    if (!store.ok) throw new Error(store.failure.message)
    const groups = [0, 1, 2].map((step) => madeGroup(step, step))
    for (const group of groups) expect(await store.value.append([group])).toMatchObject({ ok: true })
    // not closed: a run that still goes on, or crashed, has a report too
    expect(await writeReport(run)).toMatchObject({ ok: true })
    const page = (await readFile(join(run, 'report.html'), 'utf8')).replace(/\u00a0/g, ' ')
    expect(page).toContain('<th scope="row">trajectories</th><td>9</td>')
    expect(page).toContain('<th scope="row">failed outside the policy</th><td>3</td>')
    expect(page).toMatch(/<th scope="row">accuracy<\/th><td>66\.7 % \(95 % interval/)
    expect(page).toContain('<th scope="row">seed</th><td>7</td>')
    expect(page).toContain('<h2>Training</h2>')
    await store.value.close()
  })

  test('of a folder with nothing in it', async () => {
    const empty = await mkdtemp(join(folder, 'empty-'))
    expect(await writeReport(empty)).toMatchObject({ ok: false, failure: { boundary: 'store', kind: 'missing_file' } })
  })
})
