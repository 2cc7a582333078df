/**
 * Training behind an endpoint, on LongTVQA+ rows: our own server samples, and the test is the external trainer that reads what a step left
 * and answers with a PEFT adapter.
 */
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { loadConfig } from '../src/config.ts'
import { engineOptions } from '../src/engine/options.ts'
import { trainExternally } from '../src/externalTraining.ts'
import { newAdapter } from '../src/policy/adapter.ts'
import { silentProgress } from '../src/progress.ts'
import { type RunningServer, startServer } from '../src/serve/open.ts'
import { serveOptions } from '../src/serve/options.ts'
import { readSegments, readTrajectories } from '../src/trajectory/read.ts'
import type { Result } from '../src/types.ts'
import { row } from './dataset/folder.ts'
import { tinyMaster } from './tinyMaster.ts'

const root = process.cwd()
const signal = new AbortController().signal
let folder: string
let server: RunningServer

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-external-'))
  process.chdir(folder)
  await tinyMaster('checkpoints/tiny')
  // the tokenizer alone, as somebody has it whose weights are on another machine
  await mkdir('tokenizer')
  for (const name of ['tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'])
    await cp(join('checkpoints/tiny', name), join('tokenizer', name))
  await mkdir('data')
  await writeFile('data/x_val.json', JSON.stringify(Array.from({ length: 4 }, (_, qid) => row(qid))))
  server = must(await startServer('checkpoints/tiny', engineOptions.parse({}), serveOptions.parse({ port: 0 })))
  await writeFile(
    'run.yaml',
    `
name: run
dataset: { path: data }
policy: { type: endpoint, baseUrl: '${server.url}/v1', model: tiny, returnTokenIds: true, tokenizer: tokenizer }
agents: { vision: { type: descriptions }, cacheDirectory: null }
system: { initialGrounding: none }
rollout: { groupSize: 2, budget: { turns: 2, tokensPerTurn: 6 } }
reward: { alpha: 0.1 }
training: { steps: 2, tasksPerStep: 2, external: { adapters: adapters, waitSeconds: 60 } }
`,
  )
})
afterAll(async () => {
  await server.close()
  process.chdir(root)
  await rm(folder, { recursive: true })
})

test('each step is stored for the trainer, and the next one samples from the adapter that it leaves', {
  timeout: 60_000,
}, async () => {
  const config = must(await loadConfig('run.yaml'))
  if (config.policy.type !== 'endpoint') throw new Error('expected an endpoint')
  const training = trainExternally(config, config.policy, silentProgress, signal, { resume: false })

  await until(() => existsSync('rollouts/run/steps/step-000000/segments.arrows'))
  const first = await stored('rollouts/run/steps/step-000000')
  expect(first.trajectories).toHaveLength(4)
  for (const { advantage, reward } of first.trajectories) {
    expect(Number.isFinite(advantage)).toBe(true)
    expect(reward).not.toBeNull()
  }
  const lengths = first.segments.flatMap(({ ids, actionMask, logprobs }) => [
    ids.length,
    actionMask.length,
    logprobs.length,
  ])
  expect(lengths.length).toBeGreaterThanOrEqual(3 * 4)
  for (const { ids, actionMask, logprobs, policyVersion } of first.segments) {
    expect([actionMask.length, logprobs.length]).toEqual([ids.length, ids.length])
    expect(policyVersion).toMatch(/^tiny/)
    for (const [t, mask] of actionMask.entries()) {
      if (mask === 1) expect(logprobs[t]).toBeLessThan(0)
      else expect(logprobs[t]).toBe(0)
    }
    expect(actionMask).toContain(1)
  }
  // not before its adapter is there
  expect(existsSync('rollouts/run/steps/step-000001')).toBe(false)

  await leaveAdapter('adapters/step-000001')
  expect(await training).toEqual({ ok: true, value: { steps: 2, rollouts: 8 } })
  const second = await stored('rollouts/run/steps/step-000001')
  for (const { policyVersion } of second.segments) expect(policyVersion).toMatch(/^run-step-000001/)
  const metrics = (await readFile('rollouts/run/metrics.jsonl', 'utf8')).trim().split('\n')
  expect(metrics.map((line) => JSON.parse(line).step)).toEqual([0, 1])

  expect(await trainExternally(config, config.policy, silentProgress, signal, { resume: false })).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('--resume') },
  })
  expect(await trainExternally(config, config.policy, silentProgress, signal, { resume: true })).toEqual({
    ok: true,
    value: { steps: 2, rollouts: 0 },
  })
})

test.each([
  ['training.external=null', 'training.external has to say'],
  ['policy.tokenizer=null', 'policy.returnTokenIds'],
  ['training.external.waitSeconds=0.3', 'the trainer has left no whole PEFT adapter there'],
])('with %s it says what is missing', async (override, words) => {
  const config = must(
    await loadConfig(
      'run.yaml',
      ['name=other', override, 'training.external.adapters=none'].slice(0, override.endsWith('null') ? 2 : 3),
    ),
  )
  if (config.policy.type !== 'endpoint') throw new Error('expected an endpoint')
  const stopped = await trainExternally(config, config.policy, silentProgress, signal, { resume: false })
  expect(stopped).toMatchObject({ ok: false, failure: { message: expect.stringContaining(words) } })
})

/** What a trainer would make: a LoRA adapter on the served model that changes what it samples. */
async function leaveAdapter(directory: string): Promise<void> {
  const model = must(await loadCheckpoint('checkpoints/tiny'))
  const adapter = newAdapter(
    model.config,
    join(folder, 'checkpoints/tiny'),
    { rank: 2, alpha: 4, targets: ['q_proj'] },
    1,
  )
  for (const { data } of adapter.weights.values()) for (let i = 0; i < data.length; i++) data[i] = Math.sin(i) / 4
  must(await saveCheckpoint(directory, { ...model, adapter }))
}

async function stored(directory: string) {
  const trajectories = []
  for await (const one of must(await readTrajectories(directory))) trajectories.push(one)
  const segments = []
  for await (const one of must(await readSegments(directory))) segments.push(one)
  return { trajectories, segments }
}

function must<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((wake) => setTimeout(wake, 20))
}
