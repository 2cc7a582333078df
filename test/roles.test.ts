/**
 * Several roles, end to end: a system of two roles that is written here, a tiny random master that is trained in one of them, the other
 * played by a script, by a frozen copy of the master, or by the master too. What each leaves in the store, and what is refused.
 */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { readFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { z } from 'zod'
import { compare } from '../src/compare.ts'
import { loadConfig } from '../src/config.ts'
import { evaluateCheckpoint } from '../src/evaluate.ts'
import { silentProgress } from '../src/progress.ts'
import { generateRollouts } from '../src/rollouts.ts'
import { runProgram } from '../src/systems/program.ts'
import { train } from '../src/train.ts'
import { readSegments, readTrajectories } from '../src/trajectory/read.ts'
import type { Result, System } from '../src/types.ts'
import { row } from './dataset/folder.ts'
import { tinyMaster } from './tinyMaster.ts'

const verdict = z.strictObject({ accept: z.boolean() })

/** A writer drafts, a checker accepts or not; twice at most. It measures how many words of a draft begin with a letter up to m. */
const pair: System = {
  name: 'pair',
  roles: ['writer', 'checker'],
  turns: 2,
  measures: ['early'],
  run: (context) =>
    runProgram(context, async (program) => {
      for (let round = 0; round < context.budget.turns; round++) {
        const draft = await program.say('writer', [{ role: 'user', content: context.task.question.text }])
        const words = draft.text.match(/[a-z]+/gi) ?? []
        program.measure('early', words.filter((word) => word < 'n').length / Math.max(1, words.length))
        const checked = await program.ask('checker', [{ role: 'user', content: draft.text }], verdict, { repairs: 1 })
        if (checked.ok && checked.value.accept) {
          draft.step.chose({ kind: 'answer', option: 0 })
          return { option: 0 }
        }
      }
      return null
    }),
}

vi.mock('../src/systems/index.ts', async (original) => ({ ...(await original<object>()), createSystem: () => pair }))

const root = process.cwd()
let folder: string

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), 'showrunner-roles-'))
  process.chdir(folder)
  await tinyMaster('tiny')
  writeFileSync('x_val.json', JSON.stringify(Array.from({ length: 4 }, (_, qid) => row(qid))))
  // well formed at its second try, and accepts the second draft of those that hold an e
  writeFileSync(
    'checker.mjs',
    `export default (messages) =>
  messages.length === 1 ? 'so: {"accept": false}'.slice(0, messages[0].content.length % 2 === 0 ? 3 : 99) : '{"accept": true}'\n`,
  )
  writeFileSync(
    'run.yaml',
    `name: run
seed: 1
dataset: {path: .}
policy: {type: checkpoint, path: tiny}
agents: {vision: {type: descriptions}, cacheDirectory: null}
roles: {checker: {type: scripted, path: checker.mjs}}
rollout: {groupSize: 8, budget: {tokensPerTurn: 6}}
reward: {alpha: 0, extras: {early: 1}}
grpo: {learningRate: 0.01}
training: {steps: 20, tasksPerStep: 4, saveEvery: 20}
`,
  )
}, 60_000)
afterAll(() => {
  process.chdir(root)
  rmSync(folder, { recursive: true })
})

const never = new AbortController().signal
const value = <T>(result: Result<T>): T => {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}
const config = async (...overrides: string[]) => value(await loadConfig('run.yaml', overrides))
const refused = async (...overrides: string[]) => {
  const loaded = await loadConfig('run.yaml', overrides)
  return loaded.ok ? '' : loaded.failure.message
}

async function stored(name: string) {
  const rows = []
  for await (const one of value(await readTrajectories(`rollouts/${name}`))) rows.push(one)
  const segments = []
  for await (const one of value(await readSegments(`rollouts/${name}`))) segments.push(one)
  return { rows, segments }
}

test('the policy learns in its role what the configuration rewards, while a script plays the other', {
  timeout: 120_000,
}, async () => {
  value(await train(await config(), silentProgress, never, { resume: false }))
  const lines = (await readFile('rollouts/run/metrics.jsonl', 'utf8')).trim().split('\n')
  const rewards = lines.map((line) => (JSON.parse(line) as { reward: number }).reward)
  const mean = (some: number[]) => some.reduce((sum, one) => sum + one, 0) / some.length
  expect(mean(rewards.slice(-3))).toBeGreaterThan(mean(rewards.slice(0, 3)) + 0.1)

  const { rows, segments } = await stored('run')
  expect(rows).toHaveLength(20 * 4 * 8)
  for (const { turns, usage, reward, measures, budget, sampledTokens } of rows) {
    expect(budget.turns).toBe(2)
    expect(reward?.extras).toEqual(measures)
    expect(reward?.total).toBeCloseTo((reward?.answer as number) + (measures?.early as number), 12)
    for (const { role, frozen, action, output } of turns) {
      expect(frozen).toBe(role === 'checker' ? true : undefined)
      if (role === 'checker') expect(action.kind === 'invalid').toBe(output === undefined)
    }
    // what a script says has no token ids; what the policy says is all there is to train on
    expect(usage.roles).toMatchObject({ writer: { frozen: false }, checker: { frozen: true } })
    expect(usage.roles?.checker?.calls).toBe(turns.filter(({ role }) => role === 'checker').length)
    expect(usage.master.calls).toBe(usage.roles?.writer?.calls)
    expect(usage.master.completionTokens).toBe(sampledTokens)
  }
  // some were repaired, and the try that could not be read is told with its reason
  const tried = rows.flatMap(({ turns }) => turns).filter(({ action }) => action.kind === 'invalid')
  expect(tried.length).toBeGreaterThan(0)
  expect(new Set(tried.map(({ action }) => action.kind === 'invalid' && action.problem))).toEqual(
    new Set(['there is no JSON']),
  )
  expect(new Set(segments.map(({ role, frozen }) => `${role} ${frozen}`))).toEqual(new Set(['writer undefined']))
})

test('a role that is not trained is played by the policy as it was: its segments are kept, marked, in no loss', {
  timeout: 120_000,
}, async () => {
  const trained = 'trainedRoles=[writer]'
  const copied = await config('name=copied', 'roles={}', trained, 'training.steps=3')
  expect(copied.roles.checker).toMatchObject({ type: 'checkpoint', path: 'tiny', temperature: 0 })
  value(await train(copied, silentProgress, never, { resume: false }))
  const { rows, segments } = await stored('copied')
  const versions = (role: string) =>
    new Set(segments.filter((one) => one.role === role).map(({ policyVersion }) => policyVersion))
  expect(versions('writer')).toEqual(new Set(['copied@0', 'copied@1', 'copied@2']))
  expect(versions('checker')).toEqual(new Set(['tiny@0']))
  for (const { role, frozen } of segments) expect(frozen).toBe(role === 'checker' ? true : undefined)
  const ones = (some: typeof segments) => some.flatMap(({ actionMask }) => actionMask).filter((bit) => bit === 1).length
  expect(rows.reduce((sum, one) => sum + one.sampledTokens, 0)).toBe(ones(segments.filter(({ frozen }) => !frozen)))
  const lines = (await readFile('rollouts/copied/metrics.jsonl', 'utf8')).trim().split('\n')
  const tokens = lines.map((line) => (JSON.parse(line) as { sampledTokens: number }).sampledTokens)
  expect(tokens.reduce((sum, count) => sum + count, 0)).toBe(ones(segments.filter(({ frozen }) => !frozen)))

  // a checkpoint that is measured plays the role that it was trained in
  const measured = await evaluateCheckpoint({
    checkpoint: 'checkpoints/copied/step-000003',
    dataset: null,
    config: 'run.yaml',
    overrides: ['roles={}', trained],
    maxTurns: null,
    temperature: 0,
    limit: null,
    progress: silentProgress,
    signal: never,
  })
  expect(value(measured)).toMatchObject({ n: 4 })
})

test('by default the policy plays all roles; both are trained', async () => {
  value(await generateRollouts(await config('name=both', 'roles={}'), silentProgress, never, { resume: false }))
  const { rows, segments } = await stored('both')
  expect(new Set(segments.map(({ role, frozen }) => `${role} ${frozen}`))).toEqual(
    new Set(['writer undefined', 'checker undefined']),
  )
  for (const { usage, turns } of rows) {
    expect(usage.master.calls).toBe(turns.length)
    expect(usage.master.calls).toBe((usage.roles?.writer?.calls ?? 0) + (usage.roles?.checker?.calls ?? 0))
  }
})

test('comparisons vary the rounds of a system', async () => {
  const request = {
    config: 'run.yaml',
    overrides: ['name=compared'],
    vary: ['maxTurns=1,2'],
    policies: [],
    baseline: null,
  }
  const { cells } = value(await compare(request, silentProgress, never))
  expect(cells.map(({ label, metrics }) => [label, metrics?.turns?.value])).toEqual([
    ['maxTurns=1', 1],
    ['maxTurns=2', expect.any(Number)],
  ])
})

test('roles that the system does not have, and what cannot be trained, are refused by name', async () => {
  expect(await refused('roles={chekcer: {type: scripted, path: x}}')).toBe(
    'run.yaml: roles: system longVideoAgent has no chekcer; it has writer, checker',
  )
  expect(await refused('trainedRoles=[master]')).toMatch(/trainedRoles: system longVideoAgent has no master/)
  expect(await refused('trainedRoles=[checker]')).toMatch(/checker is trained, but roles\.checker gives it to another/)
  expect(await refused('reward.extras={late: 1}')).toMatch(/reward\.extras: .* has no late; it has early/)
  expect(await refused('roles={checker: {type: scripted, path: x, lora: {}}}')).toMatch(/lora: there is no such key/)

  const scripted = '{type: scripted, path: checker.mjs}'
  const frozen = await config('name=frozen', `roles={writer: ${scripted}, checker: ${scripted}}`)
  const trained = await train(frozen, silentProgress, never, { resume: false })
  expect(!trained.ok && trained.failure.message).toMatch(/at least one role of pair that the policy plays/)
  const lost = await config('name=lost', 'roles.checker.path=nowhere.mjs')
  const rolled = await generateRollouts(lost, silentProgress, never, { resume: false })
  expect(!rolled.ok && rolled.failure.message).toMatch(/roles\.checker: nowhere\.mjs: expected a module/)
})
