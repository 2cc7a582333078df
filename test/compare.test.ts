/** Comparisons against a local endpoint: every combination once, resumed after a crash, rebuilt from what is stored, mistakes named. */
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { compare } from '../src/compare.ts'
import { silentProgress } from '../src/progress.ts'
import type { Comparison } from '../src/report/comparison.ts'
import { readOutcomes } from '../src/report/read.ts'
import { writeReport } from '../src/report/write.ts'
import { planSweep, type SweepRequest } from '../src/sweepPlan.ts'
import { findStores } from '../src/trajectory/stores.ts'
import type { Result } from '../src/types.ts'
import { type ChatServer, hangs, says, startChatServer, status } from './agents/server.ts'
import { showrunner, start } from './commandLine.ts'
import { row } from './dataset/folder.ts'

const QUESTIONS = 6
const root = process.cwd()
let server: ChatServer
let folder: string

beforeAll(async () => {
  server = await startChatServer()
})
afterAll(() => server.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'showrunner-compare-'))
  mkdirSync(join(folder, 'data'))
  writeFileSync(
    join(folder, 'data/x_val.json'),
    JSON.stringify(Array.from({ length: QUESTIONS }, (_, qid) => row(qid))),
  )
  writeFileSync(
    join(folder, 'run.yaml'),
    `name: run
seed: 3
dataset: {path: data}
policy: {type: endpoint, baseUrl: '${server.baseUrl}', model: m, retries: 0}
agents: {vision: {type: descriptions}}
rollout: {concurrency: 1}
reward: {alpha: 0.1}
evaluation: {maxTurns: [1, 2]}
`,
  )
  process.chdir(folder)
})
afterEach(() => {
  process.chdir(root)
  rmSync(folder, { recursive: true })
})

const request = (changes: Partial<SweepRequest> = {}): SweepRequest => ({
  config: 'run.yaml',
  overrides: [],
  vary: [],
  policies: [],
  baseline: null,
  ...changes,
})

async function run(changes: Partial<SweepRequest> = {}): Promise<Result<Comparison>> {
  return compare(request(changes), silentProgress, new AbortController().signal)
}

/** Right for the questions whose gold answer is a1, which is said. */
const answer = says('<answer>a1</answer>')

test('every combination is run once, on the same questions; what is stored is not asked again', async () => {
  server.script(answer)
  const first = await run({ vary: ['maxTurns=1,2', 'window=1,3'] })
  expect(first).toMatchObject({ ok: true, value: { name: 'run', questions: QUESTIONS } })
  if (!first.ok) return
  expect(first.value.cells.map(({ label, missing }) => [label, missing])).toEqual([
    ['maxTurns=1 window=1', 0],
    ['maxTurns=1 window=3', 0],
    ['maxTurns=2 window=1', 0],
    ['maxTurns=2 window=3', 0],
  ])
  expect(server.received).toHaveLength(4 * QUESTIONS)

  server.script(status(500))
  expect(await run({ vary: ['maxTurns=1,2', 'window=1,3'] })).toEqual(first)
  // a smaller sweep of the same cells, one of them the baseline
  const part = await run({ vary: ['maxTurns=2'], baseline: 'maxTurns=2' })
  expect(part).toMatchObject({ ok: true, value: { cells: [{ label: 'm maxTurns=2' }] } })
  expect(server.received).toHaveLength(0)

  // a deadline is a budget too, and what differs only in how it runs is compared in its seconds
  server.script(answer)
  const others = await run({ vary: ['deadlineSeconds=5,50', 'agents.threads=1,2', 'maxTurns=1'] })
  expect(others.ok && new Set(others.value.cells.map(({ directory }) => directory)).size).toBe(4)
  expect(server.received).toHaveLength(4 * QUESTIONS)
})

test('report rebuilds comparison and page from what is stored, without a model or the data set', async () => {
  server.script(answer)
  const compared = await run()
  if (!compared.ok) throw new Error(compared.failure.message)
  const written = readFileSync('rollouts/run/comparison.json', 'utf8')
  rmSync('rollouts/run/comparison.json')
  rmSync('data', { recursive: true })
  server.script(status(500))
  expect(await writeReport('rollouts/run')).toMatchObject({ ok: true })
  expect(readFileSync('rollouts/run/comparison.json', 'utf8')).toBe(written)
  expect(readFileSync('rollouts/run/report.html', 'utf8')).toContain('Accuracy by maxTurns')
  expect(server.received).toHaveLength(0)
})

test('an endpoint that goes down stops the comparison; the same command asks only the rest', async () => {
  server.script(answer, answer, answer, answer, answer, answer, answer, status(500, { 'retry-after': '0' }))
  const stopped = await run()
  expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'policy', kind: 'server_error' } })
  if (!stopped.ok)
    expect(stopped.failure.message).toMatch(
      /1 of 6 groups are stored in rollouts\/run\/cells\/\w+; run the same command again to go on$/,
    )
  // a page of what there is says what is missing
  expect(await writeReport('rollouts/run')).toMatchObject({ ok: true })
  expect(readFileSync('rollouts/run/report.html', 'utf8')).toContain('maxTurns=2 (5 questions missing)')
  server.script(answer)
  expect(await run()).toMatchObject({ ok: true, value: { cells: [{ missing: 0 }, { missing: 0 }] } })
  expect(server.received).toHaveLength(5)
})

test('a kill loses what was in flight and nothing else', { timeout: 60_000 }, async () => {
  // four at a time; the eighth question and all after it are never answered
  const overrides = ['--set', 'rollout.concurrency=4']
  server.script(...Array.from({ length: 7 }, () => answer), hangs)
  const { child, ended } = start(folder, 'compare', '--config', 'run.yaml', ...overrides)
  while (server.received.length < 7 + 4) await new Promise((soon) => setTimeout(soon, 20))
  // all that was answered is on disk
  while ((await storedIn('rollouts/run')) !== 7) await new Promise((soon) => setTimeout(soon, 20))
  child.kill('SIGKILL')
  await ended

  server.script(answer)
  const again = await showrunner(folder, 'compare', '--config', 'run.yaml', ...overrides, '--json')
  expect(again.stderr).toContain('comparing')
  expect(again.code).toBe(0)
  expect(JSON.parse(again.stdout).cells.map(({ missing }: { missing: number }) => missing)).toEqual([0, 0])
  expect(server.received).toHaveLength(2 * QUESTIONS - 7)
})

/** Trajectories in the stores below a folder. */
async function storedIn(folder: string): Promise<number> {
  const counts = (await findStores(folder)).map(async (store) => {
    const outcomes = await readOutcomes(join(folder, store))
    return outcomes.ok ? outcomes.value.length : 0
  })
  return (await Promise.all(counts)).reduce((sum, count) => sum + count, 0)
}

test('another master, question file or seed is another cell, though names and paths are the same', async () => {
  server.script(answer)
  await run({ vary: ['maxTurns=1'] })
  const rows = Array.from({ length: QUESTIONS }, (_, qid) => ({ ...row(qid), q: `Who says ${qid} ?` }))
  writeFileSync('data/x_val.json', JSON.stringify(rows))
  for (const overrides of [[], ['seed=4'], ['policy.model=n']]) {
    server.script(answer)
    expect(await run({ vary: ['maxTurns=1'], overrides })).toMatchObject({ ok: true })
    expect(server.received, overrides.join()).toHaveLength(QUESTIONS)
  }
})

test('questions are drawn by seed, and which ones is stored', async () => {
  server.script(answer)
  const drawn = async (seed: number) => {
    const overrides = ['evaluation.questions=3', `seed=${seed}`, `name=drawn-${seed}`]
    expect(await run({ vary: ['maxTurns=1'], overrides })).toMatchObject({ ok: true, value: { questions: 3 } })
    return JSON.parse(readFileSync(`rollouts/drawn-${seed}/sweep.json`, 'utf8')).questions
  }
  const first = await drawn(1)
  expect(first.of).toBe(QUESTIONS)
  expect(first.qids).toHaveLength(3)
  rmSync('rollouts/drawn-1', { recursive: true })
  expect(await drawn(1)).toEqual(first)
  const others = [await drawn(2), await drawn(3), await drawn(4)]
  expect(others.some(({ qids }) => qids.join() !== first.qids.join())).toBe(true)
})

test('prices are applied to what is stored', async () => {
  server.script(says('<answer>a1</answer>', { prompt_tokens: 1000, completion_tokens: 10 }))
  expect(await run({ vary: ['maxTurns=1'] })).toMatchObject({
    ok: true,
    value: { cells: [{ metrics: { usd: { value: 0 } } }] },
  })
  server.script(status(500))
  const overrides = ['prices.master={promptUsdPerMillion: 2, completionUsdPerMillion: 100}']
  const repriced = await run({ vary: ['maxTurns=1'], overrides })
  // 1000 * 2 / 1e6 + 10 * 100 / 1e6
  expect(repriced.ok && repriced.value.cells[0]?.metrics?.usdMaster?.value).toBeCloseTo(0.003)
  expect(server.received).toHaveLength(0)
})

test('several masters: models of the endpoint, and the oracle only where questions say how they are answered', async () => {
  server.script(answer)
  const both = await run({ vary: ['maxTurns=1'], policies: ['m', 'n'], baseline: 'policy=m' })
  expect(both).toMatchObject({ ok: true, value: { cells: [{ label: 'm' }, { label: 'n' }] } })
  const oracle = await run({ vary: ['maxTurns=1'], policies: ['oracle'] })
  expect(oracle).toMatchObject({ ok: false, failure: { boundary: 'config' } })
  if (!oracle.ok) expect(oracle.failure.message).toMatch(/--policy oracle: expected a miniature data set/)
})

describe('what was typed wrongly is named, and nothing is run', () => {
  test.each<[string, Partial<SweepRequest>, RegExp]>([
    [
      'a setting',
      { vary: ['maxturns=1'] },
      /--vary maxturns=1: there is no setting maxturns; did you mean "maxTurns"\?/,
    ],
    [
      'a key',
      { vary: ['rollout.budget.turn=1'] },
      /rollout\.budget\.turn: there is no such key; did you mean "turns"\?/,
    ],
    ['a value', { vary: ['maxTurns=0'] }, /rollout\.budget\.turns: expected/],
    ['no value', { vary: ['maxTurns='] }, /--vary maxTurns=: expected at least one value/],
    ['a value twice', { vary: ['maxTurns=1,1'] }, /expected different values/],
    ['a setting twice', { vary: ['maxTurns=1', 'rollout.budget.turns=2'] }, /rollout\.budget\.turns is varied twice/],
    ['other questions', { vary: ['dataset.path=a,b'] }, /dataset cannot be varied within a comparison/],
    ['a master', { vary: ['policy.model=a,b'] }, /policy cannot be varied .*; give each master by --policy/],
    [
      'the baseline’s setting',
      { baseline: 'window=1' },
      /--baseline window=1: expected setting=value with one of the settings policy, maxTurns/,
    ],
    ['the baseline’s value', { baseline: 'maxTurns=9' }, /no cell of this comparison has these settings/],
    ['a checkpoint', { policies: ['checkpoints/none'] }, /checkpoints\/none cannot be read: .*check the path/],
  ])('%s', async (_, changes, message) => {
    server.script(answer)
    const compared = await run(changes)
    expect(compared.ok).toBe(false)
    if (!compared.ok) {
      expect(compared.failure.message).toMatch(message)
      expect(compared.failure.message).not.toContain('\n')
    }
    expect(server.received).toHaveLength(0)
    expect(existsSync('rollouts')).toBe(false)
  })
})

test('a configuration may name what it varies, several keys at a time', async () => {
  const vary = `[{agents: {none: {system: {name: wholeEpisode}}, both: {}}}, 'window=1,2']`
  const overrides = [`evaluation.vary=${vary}`]
  const plan = await planSweep(request({ overrides, baseline: 'agents=both' }))
  if (!plan.ok) throw new Error(plan.failure.message)
  expect(
    plan.value.cells.map(({ settings, config }) => [settings.agents, settings.window, config.system.name]),
  ).toEqual([
    ['none', 1, 'wholeEpisode'],
    ['none', 2, 'wholeEpisode'],
    ['both', 1, 'longVideoAgent'],
    ['both', 2, 'longVideoAgent'],
  ])
  // what is given on the command line is varied instead
  const other = await planSweep(request({ overrides, vary: ['maxTurns=3'] }))
  expect(other.ok && other.value.cells.map(({ settings }) => settings)).toEqual([{ policy: 'm', maxTurns: 3 }])

  server.script(answer)
  expect(await run({ overrides })).toMatchObject({ ok: true })
  const { setting } = JSON.parse(readFileSync('rollouts/run/sweep.json', 'utf8'))
  expect(Object.keys(setting)).toContain('vision agent')
  expect(Object.keys(setting)).not.toContain('system')
  expect(Object.keys(setting)).not.toContain('clips in view (w)')
})

test.each<[string, string, RegExp]>([
  ['a key', '[{a: {x: {system.visio: false}}}]', /system\.visio: there is no such key; did you mean "vision"\?/],
  ['no value', '[{a: {}}]', /evaluation\.vary: a: expected at least one value/],
  [
    'other questions',
    '[{a: {x: {dataset.path: b}}}]',
    /evaluation\.vary: a: dataset cannot be varied within a comparison/,
  ],
  ['a key twice', "[{a: {x: {rollout.budget.windowClips: 2}, y: {}}}, 'window=1,2']", /windowClips is varied twice/],
])('mistakes in what a configuration varies: %s', async (_, vary, message) => {
  const plan = await planSweep(request({ overrides: [`evaluation.vary=${vary}`] }))
  expect(!plan.ok && plan.failure.message).toMatch(message)
})

test('values may be lists and mappings, and a checkpoint is labelled by run and step', async () => {
  const plan = await planSweep(
    request({
      vary: ['agents.vision={type: descriptions}, {type: embedded, framesPerClip: 2}'],
      policies: ['checkpoints/mine/step-000250', 'm'],
    }),
  )
  if (!plan.ok) throw new Error(plan.failure.message)
  expect(plan.value.cells.map(({ settings }) => settings)).toEqual([
    { policy: 'mine@250', 'agents.vision': '{"type":"descriptions"}' },
    { policy: 'mine@250', 'agents.vision': '{"type":"embedded","framesPerClip":2}' },
    { policy: 'm', 'agents.vision': '{"type":"descriptions"}' },
    { policy: 'm', 'agents.vision': '{"type":"embedded","framesPerClip":2}' },
  ])
  // where turns are not varied: what the configuration says
  expect(plan.value.cells[1]?.config).toMatchObject({
    agents: { vision: { framesPerClip: 2 } },
    rollout: { groupSize: 1, temperature: 0, budget: { turns: null } },
    policy: { type: 'checkpoint', path: 'checkpoints/mine/step-000250' },
  })
})
