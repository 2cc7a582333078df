import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runConfig } from '../../src/config.ts'
import { frequentPatterns, otherShare } from '../../src/report/charts/bars.ts'
import { runningMean } from '../../src/report/charts/curves.ts'
import { compareCells } from '../../src/report/comparison.ts'
import type { Report } from '../../src/report/gather.ts'
import { metrics } from '../../src/report/metrics.ts'
import { reportPage } from '../../src/report/page.ts'
import { type Measurement, type Summary, summary } from '../../src/report/summary.ts'
import { writeReport } from '../../src/report/write.ts'
import { answerKeyOf, writeAnswerKey } from '../../src/trajectory/answerKey.ts'
import { appendLabel } from '../../src/trajectory/labels.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { madeGroup } from '../trajectory/groups.ts'
import { madeSweep } from './sweeps.ts'

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
    metrics: { groundingAnyVisited: { value: 0.931, ci95: [0.9, 0.95], n: 240 } },
  }
}

const summarised: Summary = summary.parse({
  name: 'quick<start> & "co"',
  seed: 7,
  setting: { 'held-out episodes': 24 },
  heldOut: {
    before: { greedy: measurement(0.21), sampled: measurement(0.26) },
    after: { greedy: measurement(0.88), sampled: measurement(0.79) },
    difference: { greedy: null, sampled: { n: 240, difference: 0.53, ci95: [0.45, 0.61] } },
  },
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
  training: { steps: 30, rollouts: 3840, sampledTokens: 81_234, seconds: 412 },
})

const { sweep, outcomes } = madeSweep({ baseline: { maxTurns: 2 } })
const comparison = compareCells(sweep, outcomes)
const full: Report = {
  name: summarised.name,
  directory: 'rollouts/x',
  summary: summarised,
  compared: { sweep, comparison },
  groups: comparison.cells.map(({ metrics: measures, directory, ...cell }) => ({
    ...cell,
    directory: `rollouts/x/${directory}`,
    n: 60,
    metrics: measures ?? {},
  })),
  training: Array.from({ length: 30 }, (_, step) => ({ step, reward: step / 30, accuracy: step / 40, entropy: 2 })),
  labels: [
    {
      trajectoryId: '0/q3/0',
      kinds: ['vision_wrong'],
      note: 'saw <b>red</b>',
      by: 'ada',
      at: '2026-01-01T00:00:00Z',
      goldShown: false,
      directory: 'rollouts/x',
    },
  ],
  validations: [
    { step: 0, n: 40, accuracy: 0.25, accuracyLow: 0.125, accuracyHigh: 0.4, turns: 5 },
    { step: 20, n: 40, accuracy: 0.75, accuracyLow: 0.6, accuracyHigh: 0.875, turns: 2.5 },
    { step: 30, n: 40, accuracy: 0.7, accuracyLow: 0.55, accuracyHigh: 0.825, turns: 2.25 },
  ],
  setting: { master: 'checkpoints/base', 'held-out episodes': 1 },
  engines: ['onnxruntime 1.30.0 on cpu'],
  oracleBoxes: false,
}

describe('the page', () => {
  const page = reportPage(full)
  const text = page.replaceAll('\u00a0', ' ')

  test('is one file that asks the network for nothing, runs no script and is small', () => {
    const addresses = page.match(/https?:\/\/[^"' ]+/g) ?? []
    // named, not asked: name spaces, what was served, and links to a viewer that a person may start
    const named = ['http://www.w3.org/', 'http://127.0.0.1:']
    expect(addresses.filter((address) => !named.some((one) => address.startsWith(one)))).toEqual([])
    expect(page).not.toMatch(/<(script|link|img|iframe)\b|@import|url\((?!#)|\son\w+=/i)
    expect(page.length).toBeLessThan(1_000_000)
  })

  test('has, section by section, charts in two widths and a table of the same numbers', () => {
    expect(page.match(/<h2>(.*?)<\/h2>/g)?.map((heading) => heading.slice(4, -5))).toEqual([
      'Accuracy by maxTurns',
      'Differences from the baseline',
      'Accuracy against cost',
      'Before and after training',
      'Held-out questions while it was trained',
      'Training',
      'What the master does, by kind of question',
      'After a wrong clip',
      'Tool use',
      'Finding the evidence',
      'Why runs ended',
      'Where wrong answers come from',
      'What people said',
      'Asked over the endpoint',
      'Setting',
      'Definitions and methods',
    ])
    for (const section of page.split('<section ').slice(1)) {
      if (section.includes('<figure')) expect(section).toContain('<table')
    }
    expect(page.match(/class="wide"/g)?.length).toBe(page.match(/class="narrow"/g)?.length)
    for (const number of ['88.0', '83.0–93.0', '93.1', '81,234', '94.4', '60.0', '95.0']) expect(text).toContain(number)
  })

  test('asks the question and says the answer first, with intervals', () => {
    expect(text).toMatch(/<h1>What did training teach the master.*<\/h1>\n<p class="answer">On 240 held-out questions/)
    expect(text).toContain('88.0 % right after training (greedy, 95 % interval 83.0–93.0 %), and 21.0 % before')
    expect(text).toContain('it gained 53.0 points (95 % interval 45.0 to 61.0)')
    const alone = reportPage({ ...full, summary: null, training: [], validations: [] })
    expect(alone).toContain('<h1>How does accuracy change with maxTurns (1, 2, 3)?</h1>')
  })

  test('every number of a metric tells its definition: on hover, by keyboard and touch, and on paper', () => {
    const definition = metrics.groundingAnyVisited.definition
    expect(page).toContain(`<td title="right clip shown: ${definition}`)
    const targets = [...page.matchAll(/popovertarget="([^"]+)"/g)].map((match) => match[1])
    expect(targets.length).toBeGreaterThan(20)
    for (const target of targets) expect(page).toContain(`<div popover id="${target}">`)
    expect(page).toContain(`<dt>right clip shown</dt><dd>${definition}</dd>`)
  })

  test('held-out questions: the first, the last and the best visit, each with its interval', () => {
    const trained = reportPage({ ...full, summary: null, compared: null }).replaceAll('\u00a0', ' ')
    expect(trained).toContain('<h1>How did training go?</h1>')
    expect(trained).toContain(
      'On 40 held-out questions: 25.0 % (95 % interval 12.5–40.0 %) after 0 steps, 70.0 % (95 % interval 55.0–82.5 %) after 30 steps; the best was 75.0 % (95 % interval 60.0–87.5 %) after 20 steps.',
    )
    expect(trained).toMatch(
      /<th scope="row">20<\/th><td title="[^"]+">75\.0 % \(60\.0–87\.5\)<\/td><td title="[^"]+">2\.50<\/td>/,
    )
  })

  test('trajectories of no comparison have a table of accuracy and cost as well', () => {
    expect(page).not.toContain('<h2>Accuracy and cost</h2>')
    const alone = reportPage({ ...full, summary: null, compared: null })
    expect(alone).toContain('<h2>Accuracy and cost</h2>')
    expect(alone).toMatch(/<caption>Accuracy and cost per question.*>US dollars<.*<\/thead>/s)
  })

  test('the setting: what the summary says, and what the run recorded besides', () => {
    expect(page).toContain('<th scope="row">master</th><td>checkpoints/base</td>')
    expect(page).toContain('<th scope="row">held-out episodes</th><td>24</td>')
  })

  test('names its axes', () => {
    for (const axis of [
      'accuracy',
      'step budget K: turns at most',
      'training step',
      'share of runs',
      'tokens per question',
    ])
      expect(page).toMatch(new RegExp(`<text[^>]*>${axis}</text>`))
  })

  test('marks the Pareto set, says what cannot be told, and where the curve stops rising', () => {
    expect(page).toContain('title="in the Pareto set">★')
    expect(text).toMatch(
      /not distinguishable from maxTurns=2; a true difference of this size would take about [\d,]+ questions/,
    )
    expect(text).toMatch(/no gain beyond chance was seen above maxTurns = \d/)
  })

  test('failures link to the viewer, with the command that starts it', () => {
    expect(page).toContain('npm run showrunner -- view rollouts/x')
    expect(page).toMatch(/<a href="http:\/\/127\.0\.0\.1:8100\/in\/cells~1\/t\/0\/q\d+\/0">/)
  })

  test('escapes what it is given', () => {
    expect(page).toContain('quick&lt;start&gt; &amp; &quot;co&quot;')
    expect(page).toContain('<td>&lt;answer&gt;a2&lt;/answer&gt;</td>')
    expect(page).toContain('saw &lt;b&gt;red&lt;/b&gt;')
    expect(page).not.toMatch(/<start>|<answer>|<b>red/)
  })

  test('a run with the oracle of boxes says so first', () => {
    expect(page).not.toContain('Oracle:')
    const marked = reportPage({ ...full, oracleBoxes: true })
    expect(marked.indexOf('Oracle:')).toBeGreaterThan(0)
    expect(marked.indexOf('Oracle:')).toBeLessThan(marked.indexOf('<nav'))
  })

  test('leaves out what was not measured', () => {
    const page = reportPage({
      name: 'x',
      directory: 'x',
      summary: null,
      compared: null,
      groups: [],
      training: [],
      validations: [],
      setting: {},
      labels: [],
      engines: [],
      oracleBoxes: false,
    })
    expect(page.match(/<h2>/g)).toHaveLength(2)
    for (const written of [page, reportPage(full)])
      expect(/.{60}(undefined|NaN).{60}/.exec(written)?.[0]).toBeUndefined()
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
    await writeFile(join(folder, 'summary.json'), JSON.stringify(summarised))
    expect(await writeReport(folder)).toEqual({ ok: true, value: join(folder, 'report.html') })
    expect(await readFile(join(folder, 'report.html'), 'utf8')).toContain('Before and after training')
  })

  test('of a summary or a sweep that is none: names the file and the key', async () => {
    const broken = async (name: string, text: string) => {
      const run = await mkdtemp(join(folder, 'broken-'))
      await writeFile(join(run, name), text)
      const written = await writeReport(run)
      return written.ok ? '' : written.failure.message
    }
    expect(await broken('summary.json', '{"name":')).toMatch(/summary\.json: expected JSON: /)
    expect(await broken('summary.json', '{"name": "x"}')).toMatch(/summary\.json: seed: /)
    expect(await broken('summary.json', JSON.stringify({ ...summarised, budgets: [{ maxTurns: 'two' }] }))).toMatch(
      /summary\.json: budgets\.0\./,
    )
    expect(await broken('sweep.json', '{"name": "x"}')).toMatch(/sweep\.json: seed: .*sweep of a comparison/)
  })

  test('from stored trajectories alone, also while they are being written, with what people said', async () => {
    const run = await mkdtemp(join(folder, 'run-'))
    const store = await openStore(run, { resume: false })
    if (!store.ok) throw new Error(store.failure.message)
    const groups = [0, 1, 2].map((step) => madeGroup(step, step))
    for (const group of groups) expect(await store.value.append([group])).toMatchObject({ ok: true })
    const tasks = groups.map(({ group }) => group.task)
    const gold = { answer: 0, clipId: 'e1_seg01_clip_00', span: null, kind: null }
    await writeAnswerKey(
      run,
      answerKeyOf(tasks, ({ question }) => ({ ...gold, qid: question.qid })),
    )
    const label = { kinds: ['other' as const], note: 'odd', by: 'ada', at: '2026-01-01T00:00:00Z', goldShown: true }
    await appendLabel(run, { trajectoryId: '0/q0/0', ...label })
    expect(await writeReport(run)).toMatchObject({ ok: true })
    const page = (await readFile(join(run, 'report.html'), 'utf8')).replaceAll('\u00a0', ' ')
    expect(page).toContain('66.7 % of 9 runs (all trajectories) were answered right')
    expect(page).toContain('3 runs failed outside the master and count as wrong')
    expect(page).toContain('https://example.test answered 500')
    expect(page).toContain('<h2>Training</h2>')
    expect(page).toContain('1 trajectory was labelled by hand')
    await store.value.close()
  })

  test('takes setting and prices from the configuration that the run keeps, and held-out visits from below it', async () => {
    const run = await mkdtemp(join(folder, 'kept-'))
    const config = runConfig.parse({
      name: 'kept',
      seed: 5,
      dataset: { path: 'datasets/kept' },
      policy: { type: 'endpoint', baseUrl: 'http://127.0.0.1:9/v1', model: 'kept-master' },
      reward: { alpha: 0.1 },
      prices: { master: { completionUsdPerMillion: 1_000_000 } },
    })
    await writeFile(join(run, 'config.json'), JSON.stringify(config))
    const visit = join(run, 'validation/step-000000')
    for (const path of [run, visit]) {
      await mkdir(path, { recursive: true })
      const store = await openStore(path, { resume: false })
      if (!store.ok) throw new Error(store.failure.message)
      expect(await store.value.append([madeGroup(0, 0)])).toMatchObject({ ok: true })
      await store.value.close()
    }
    const record = { step: 0, n: 3, accuracy: 0.5, accuracyLow: 0.25, accuracyHigh: 0.75 }
    await writeFile(join(run, 'validation.jsonl'), `${JSON.stringify(record)}\n{"step": 20, "n"`)
    expect(await writeReport(run)).toMatchObject({ ok: true })
    const page = (await readFile(join(run, 'report.html'), 'utf8')).replaceAll('\u00a0', ' ')
    for (const [key, value] of [
      ['master', 'kept-master'],
      ['data', 'datasets/kept'],
      ['engine', 'endpoint http://127.0.0.1:9/v1'],
      ['seed', '5'],
    ])
      expect(page).toContain(`<th scope="row">${key}</th><td>${value}</td>`)
    expect(page).toContain('held out, after 0 steps')
    expect(page).toContain('href="http://127.0.0.1:8100/in/validation~step-000000/t/')
    // a dollar for each token written
    const written = madeGroup(0, 0).scored.map(({ trajectory }) => trajectory.usage.master.completionTokens)
    const mean = written.reduce((sum, tokens) => sum + tokens, 0) / written.length
    expect(mean).toBeGreaterThan(0)
    expect(page).toContain(`$${mean.toFixed(3)}`)
  })

  test('from the metrics alone where the trajectories of a training run lie step by step below it', async () => {
    const run = await mkdtemp(join(folder, 'external-'))
    const steps = [0, 1].map((step) => JSON.stringify({ step, reward: step, toolRate: 0.5, at: 'now' }))
    await writeFile(join(run, 'metrics.jsonl'), `${steps.join('\n')}\n`)
    expect(await writeReport(run)).toMatchObject({ ok: true })
    const page = await readFile(join(run, 'report.html'), 'utf8')
    expect(page).toContain('How did training go?')
    expect(page).toMatch(/>runs with a tool</)
  })

  test('of a file: says that a folder is expected', async () => {
    await writeFile(join(folder, 'file'), '')
    const written = await writeReport(join(folder, 'file'))
    expect(!written.ok && written.failure.message).toBe(
      `${join(folder, 'file')}: expected the folder of a run, found a file`,
    )
  })

  test('of a folder with nothing in it', async () => {
    const empty = await mkdtemp(join(folder, 'empty-'))
    expect(await writeReport(empty)).toMatchObject({ ok: false, failure: { boundary: 'store', kind: 'missing_file' } })
  })
})
