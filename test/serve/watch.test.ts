/** A server that follows the folder of a run: new weights while requests run, and folders that are no whole checkpoints. */
import { cpSync, mkdirSync, mkdtempSync, renameSync, rmSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, afterEach, beforeAll, expect, test, vi } from 'vitest'
import { type Checkpoint, loadCheckpoint, saveCheckpoint, stepDirectory } from '../../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { newAdapter } from '../../src/policy/adapter.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { startServer } from '../../src/serve/open.ts'
import { serveOptions } from '../../src/serve/options.ts'
import { type Watch, watchCheckpoints } from '../../src/serve/watch.ts'
import { clientOf } from './captureServer.ts'

const model = resolve(import.meta.dirname, '../golden/trl-grpo/tiny-qwen2')
const engine = engineOptions.parse({ threads: 1 })
const root = mkdtempSync(join(tmpdir(), 'showrunner-watch-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

const watches: Watch[] = []
afterEach(async () => {
  for (const watch of watches.splice(0)) await watch.stop()
})

let base: Checkpoint
beforeAll(async () => {
  const loaded = await loadCheckpoint(model)
  if (!loaded.ok) throw new Error(loaded.failure.message)
  base = loaded.value
})

/** The model with other embeddings for each step. */
function checkpointOf(step: number): Checkpoint {
  const weights = new Map(
    [...base.weights].map(([name, { shape, data }]) => [
      name,
      { shape, data: name.includes('embed') ? data.map((value) => value * (1 + step / 20)) : data },
    ]),
  )
  return { ...base, weights, training: { state: { step }, optimizer: new Map() } }
}

async function save(run: string, step: number) {
  const saved = await saveCheckpoint(stepDirectory(run, step), checkpointOf(step))
  if (!saved.ok) throw new Error(saved.failure.message)
}

/** Watches `run` and keeps what is handed over and said. */
function watching(run: string) {
  const [taken, said]: [number[], string[]] = [[], []]
  const watch = watchCheckpoints(run, 0, 0.05, {
    async take(step, directory, { training }) {
      expect(training?.state).toEqual({ step })
      expect(directory).toBe(stepDirectory(run, step))
      taken.push(step)
      return step === 4
        ? { ok: false, failure: { boundary: 'policy', kind: 'bad_file', message: 'four is bad' } }
        : { ok: true, value: undefined }
    },
    log: (line) => said.push(line),
  })
  watches.push(watch)
  return { watch, taken, said }
}

const patience = { timeout: 20_000 }
const soon = (holds: () => void) => vi.waitFor(holds, patience)
const moments = (count: number) => new Promise((passed) => setTimeout(passed, count * 50))

test('only whole checkpoints are handed over, each once, newer ones only, and never after the end', async () => {
  const run = join(root, 'half')
  // the folder comes later
  const { watch, taken, said } = watching(run)
  await moments(2)
  await save(run, 2)
  await soon(() => expect(taken).toEqual([2]))

  await save(join(root, 'whole'), 3)
  const whole = stepDirectory(join(root, 'whole'), 3)
  const third = stepDirectory(run, 3)
  // as saving, copying and crashes leave it
  cpSync(whole, `${third}.partial`, { recursive: true })
  mkdirSync(third)
  await moments(3)
  cpSync(join(whole, 'model.safetensors'), join(third, 'model.safetensors'))
  cpSync(join(whole, 'config.json'), join(third, 'config.json'))
  await moments(3)
  cpSync(whole, third, { recursive: true })
  truncateSync(join(third, 'model.safetensors'), 1000)
  await moments(3)
  truncateSync(join(third, 'training_state.json'), 3)
  await moments(3)
  await save(run, 1)
  await moments(3)
  expect([taken, said]).toEqual([[2], []])
  rmSync(third, { recursive: true })
  renameSync(`${third}.partial`, third)
  await soon(() => expect(taken).toEqual([2, 3]))

  // one that is refused is told once, and the next is taken
  await save(run, 4)
  await soon(() => expect(said).toEqual(['not served: four is bad']))
  await moments(3)
  await save(join(root, 'whole'), 5)
  rmSync(join(stepDirectory(join(root, 'whole'), 5), 'config.json'))
  renameSync(stepDirectory(join(root, 'whole'), 5), stepDirectory(run, 5))
  await soon(() => expect(said).toHaveLength(2))
  expect(said[1]).toContain(`${stepDirectory(run, 5)} holds no config.json`)
  await save(run, 6)
  await soon(() => expect(taken).toEqual([2, 3, 4, 6]))
  await watch.stop()
  await save(run, 7)
  await moments(3)
  expect(taken).toEqual([2, 3, 4, 6])
  expect(said).toHaveLength(2)
})

test('requests that run while checkpoints come are answered, each by the version that it names', async () => {
  const run = join(root, 'run')
  const steps = [1, 2, 3, 4, 5]
  const ask = {
    model: 'run',
    prompt: [5, 6, 7, 8],
    max_tokens: 24,
    temperature: 1,
    logprobs: 0,
    return_token_ids: true,
  }
  /** By version and seed: what its weights sample. */
  const expected = new Map<string, { ids: readonly number[]; logprobs: readonly number[] }>()
  for (const step of steps) {
    const policy = await openPolicy(checkpointOf(step), engine, { name: 'run', step, rows: 4, cacheTokens: 1024 })
    if (!policy.ok) throw new Error(policy.failure.message)
    for (let seed = 0; seed < 4; seed++) {
      const sampling = { temperature: 1, maxTokens: 24, stop: [] }
      const told = await policy.value.generate({ messages: [], promptIds: ask.prompt, sampling, seed: `${seed}/0/0` })
      if (!told.ok) throw new Error(told.failure.message)
      expected.set(`run@${step}/${seed}`, { ids: told.value.tokenIds!, logprobs: told.value.logprobs! })
    }
    await policy.value.close()
  }
  expect(new Set([...expected.values()].map(({ logprobs }) => logprobs.join())).size).toBe(expected.size)

  await save(run, 1)
  const said: string[] = []
  const options = serveOptions.parse({ port: 0, watchSeconds: 0.05, keepVersions: 1 })
  const started = await startServer(run, engine, options, { log: (line) => said.push(line) })
  if (!started.ok) throw new Error(started.failure.message)
  const server = started.value
  try {
    const client = clientOf(server.url, {})
    let busy = true
    const answers: { version: string; seed: number; ids: number[]; logprobs: number[] }[] = []
    const users = Array.from({ length: 4 }, async (_, seed) => {
      while (busy) {
        const { status, body } = await client.post('/v1/completions', { ...ask, seed })
        expect([status, body]).toMatchObject([200, {}])
        const { policy_version: version, choices } = body as unknown as { policy_version: string; choices: [never] }
        const [{ token_ids, logprobs }] = choices as [{ token_ids: number[]; logprobs: { token_logprobs: number[] } }]
        answers.push({ version, seed, ids: token_ids, logprobs: logprobs.token_logprobs })
      }
    })
    await soon(() => expect(answers.length).toBeGreaterThan(4))
    for (const step of steps.slice(1)) {
      await save(run, step)
      const now = async () => (await (await fetch(`${server.url}/v1/models/run`)).json()) as { policy_version: string }
      await vi.waitFor(async () => expect((await now()).policy_version).toBe(`run@${step}`), patience)
      const before = answers.length
      await soon(() => expect(answers.length).toBeGreaterThan(before + 8))
    }
    busy = false
    await Promise.all(users)
    expect(new Set(answers.map(({ version }) => version))).toEqual(new Set(steps.map((step) => `run@${step}`)))
    for (const { version, seed, ids, logprobs } of answers) {
      const truth = expected.get(`${version}/${seed}`)!
      expect(ids).toEqual(truth.ids)
      for (const [t, logprob] of logprobs.entries()) expect(Math.abs(logprob - truth.logprobs[t]!)).toBeLessThan(1e-4)
    }
    // one earlier version is kept under its own name, those before are gone
    const { body } = await client.post('/v1/completions', { ...ask, model: 'run@4', seed: 0 })
    expect(body).toMatchObject({ policy_version: 'run@4' })
    expect(await client.post('/v1/completions', { ...ask, model: 'run@3' })).toMatchObject({ status: 404 })
    expect(said).toEqual(steps.slice(1).map((step) => `run is now run@${step}`))
    const metrics = await (await fetch(`${server.url}/metrics`)).text()
    expect(metrics).toContain('showrunner_weight_swaps_total 4')

    // trainers delete older checkpoints, also those that are served
    const adapter = newAdapter(base.config, model, { rank: 4, alpha: 8, targets: ['q_proj'] }, 1)
    const folder = join(root, 'adapter')
    await saveCheckpoint(folder, { ...base, adapter, training: null })
    rmSync(run, { recursive: true })
    const loaded = await fetch(`${server.url}/v1/load_lora_adapter`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ lora_name: 'small', lora_path: folder }),
    })
    expect(loaded.status).toBe(200)
    // a new adapter changes nothing
    const adapted = await client.post('/v1/completions', { ...ask, model: 'small', temperature: 0 })
    const plain = await client.post('/v1/completions', { ...ask, temperature: 0 })
    const idsOf = ({ body }: typeof plain) => (body as { choices?: { token_ids: number[] }[] }).choices?.[0]?.token_ids
    expect(idsOf(adapted)).toEqual(idsOf(plain))
  } finally {
    await server.close()
  }
})
