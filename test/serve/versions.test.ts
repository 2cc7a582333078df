/** Weights that change while serving: swaps by a trainer in this process, immutable names behind an alias that moves, and adapters. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type OpenAI from 'openai'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { type Checkpoint, loadCheckpoint, saveCheckpoint } from '../../src/checkpoint/checkpoint.ts'
import { adaptedConfig, newAdapter } from '../../src/policy/adapter.ts'
import { type EmbeddedPolicy, openPolicy } from '../../src/policy/embedded.ts'
import { uploadWeights } from '../../src/policy/weights.ts'
import { engine, golden, startTiny, type TinyServer } from './tinyServer.ts'

const folder = mkdtempSync(join(tmpdir(), 'showrunner-versions-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

let base: Checkpoint
/** Scores texts under any weights, on a device of its own. */
let judge: EmbeddedPolicy
beforeAll(async () => {
  const loaded = await loadCheckpoint(join(golden, 'tiny-qwen2'))
  if (!loaded.ok) throw new Error(loaded.failure.message)
  base = loaded.value
  const opened = await openPolicy(base, engine, { name: 'judge', rows: 8, cacheTokens: 4096 })
  if (!opened.ok) throw new Error(opened.failure.message)
  judge = opened.value
})
afterAll(() => judge.close())

/** The model with other weights for each step, so different that an answer fits one of them only. */
function checkpointOf(step: number): Checkpoint {
  const weights = new Map(
    [...base.weights].map(([name, { shape, data }]) => [
      name,
      { shape, data: data.map((value, i) => value * (1 + 0.2 * Math.sin(i + 7 * step))) },
    ]),
  )
  return { ...base, weights }
}

interface Answer {
  version: string
  prompt: number[]
  ids: number[]
  logprobs: number[]
}

async function ask({ client }: TinyServer, body: Record<string, unknown>): Promise<Answer> {
  const request = { model: 'tiny', prompt: [5, 6, 7], max_tokens: 12, logprobs: 0, return_token_ids: true, ...body }
  const parsed = (completion: OpenAI.Completion) => completion as unknown as { policy_version: string } & Stream
  interface Stream {
    choices: { prompt_token_ids: number[]; token_ids: number[]; logprobs: { token_logprobs: number[] } | null }[]
  }
  const all: Answer = { version: '', prompt: [], ids: [], logprobs: [] }
  const add = ({ policy_version, choices: [choice] }: ReturnType<typeof parsed>) => {
    expect(['', policy_version]).toContain(all.version)
    all.version = policy_version
    all.prompt = choice?.prompt_token_ids ?? all.prompt
    all.ids.push(...(choice?.token_ids ?? []))
    all.logprobs.push(...(choice?.logprobs?.token_logprobs ?? []))
  }
  if (body.stream) {
    const stream = await client.completions.create({ ...request, stream: true })
    for await (const chunk of stream) add(parsed(chunk))
  } else add(parsed(await client.completions.create(request)))
  expect(all.ids.length).toBeGreaterThan(0)
  expect(all.logprobs).toHaveLength(all.ids.length)
  return all
}

/** Largest difference to the log-probabilities that the judge's weights give the answer. */
async function difference({ prompt, ids, logprobs }: Answer): Promise<number> {
  const scored = await judge.generate({
    messages: [],
    promptIds: [...prompt, ...ids],
    sampling: { temperature: 1, maxTokens: 1, stop: [] },
    seed: 'judge',
    tellPrompt: 0,
  })
  if (!scored.ok) throw new Error(scored.failure.message)
  const told = scored.value.toldPrompt!.slice(prompt.length)
  return Math.max(...logprobs.map((logprob, t) => Math.abs(logprob - told[t]!.logprob)))
}

test('200 requests during 20 swaps: none fails, and the weights of the version that each names reproduce it', async () => {
  const server = await startTiny({ keepVersions: 1 })
  const answers: Answer[] = []
  /** How many were answered by a version that was no longer the newest when they ended. */
  let older = 0
  let newest = 0
  try {
    const swaps = (async () => {
      for (let step = 1; step <= 20; step++) {
        while (answers.length < step * 9) await new Promise((resolve) => setTimeout(resolve, 2))
        const published = await server.publish(step, checkpointOf(step))
        if (!published.ok) throw new Error(published.failure.message)
        newest = step
      }
    })()
    let asked = 0
    const clients = Array.from({ length: 8 }, async (_, client) => {
      while (asked < 200) {
        const seed = asked++
        const prompt = Array.from({ length: 3 + (seed % 20) }, (_, i) => 3 + ((seed * 31 + i * 7) % 340))
        const answer = await ask(server, { prompt, seed, max_tokens: 4 + (seed % 30), stream: client % 2 === 0 })
        expect(answer.prompt).toEqual(prompt)
        if (answer.version !== `tiny@${newest}`) older++
        answers.push(answer)
      }
    })
    await Promise.all([swaps, ...clients])
    expect(answers).toHaveLength(200)
    // the alias and one earlier version are left
    expect((await server.client.models.list()).data.map(({ id }) => id)).toEqual(['tiny', 'tiny@20', 'tiny@19'])
    expect(await server.post('/v1/completions', { model: 'tiny@18', prompt: 'x' })).toMatchObject({ status: 404 })
  } finally {
    await server.close()
  }
  expect(older).toBeGreaterThan(0)
  expect(new Set(answers.map(({ version }) => version)).size).toBeGreaterThan(15)

  const wrong: number[] = []
  for (let step = 0; step <= 20; step++) {
    const own = answers.filter(({ version }) => version === `tiny@${step}`)
    await uploadWeights(judge.device, judge.config, step === 0 ? base.weights : checkpointOf(step).weights)
    judge.bumpVersion(step)
    for (const answer of own) expect(await difference(answer)).toBeLessThan(1e-4)
    const other = answers.find(({ version }) => version !== `tiny@${step}`)!
    wrong.push(await difference(other))
  }
  // the test can tell versions apart
  expect(Math.min(...wrong)).toBeGreaterThan(1e-2)
})

test('a request that runs when the weights change ends on those it began with; a name is never used twice', async () => {
  const server = await startTiny({ keepVersions: 0 })
  try {
    const body = { max_tokens: 400, ignore_eos: true, seed: 1, logprobs: 0, return_token_ids: true }
    const stream = (await server.client.completions.create({
      model: 'tiny',
      prompt: [5, 6, 7],
      stream: true,
      ...body,
    } as OpenAI.CompletionCreateParamsStreaming)) as unknown as AsyncIterable<{
      policy_version: string
      choices: { token_ids: number[] }[]
    }>
    const ids: number[] = []
    const versions = new Set<string>()
    let swapped = false
    for await (const { policy_version, choices } of stream) {
      if (ids.length >= 5 && !swapped) {
        swapped = true
        expect(await server.publish(1, checkpointOf(1))).toMatchObject({ ok: true })
        // nothing is kept of the old version for those who come now
        expect((await ask(server, {})).version).toBe('tiny@1')
        expect(await server.post('/v1/completions', { model: 'tiny@0', prompt: 'x' })).toMatchObject({ status: 404 })
      }
      versions.add(policy_version)
      ids.push(...choices.flatMap(({ token_ids }) => token_ids))
    }
    expect([...versions]).toEqual(['tiny@0'])
    const again = await startTiny()
    expect((await ask(again, body)).ids).toEqual(ids)
    await again.close()
    expect(await server.publish(1, checkpointOf(2))).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('tiny@1 has been served already') },
    })
    const other = { ...checkpointOf(3), config: { ...base.config, num_hidden_layers: 1 } }
    expect(await server.publish(3, other)).toMatchObject({ ok: false, failure: { message: /config\.json/ } })
    expect((await ask(server, {})).version).toBe('tiny@1')
  } finally {
    await server.close()
  }
})

/** An adapter folder whose B is not zero, so that it changes the answers. */
async function adapterFolder(name: string, seed: number): Promise<{ path: string; files: Checkpoint }> {
  const adapter = newAdapter(
    base.config,
    join(golden, 'tiny-qwen2'),
    { rank: 4, alpha: 8, targets: ['q_proj', 'v_proj', 'up_proj'] },
    seed,
  )
  const weights = new Map(
    [...adapter.weights].map(([key, { shape, data }]) => [
      key,
      { shape, data: data.map((value, i) => (key.includes('lora_B') ? Math.sin(i * (seed + 1)) : value)) },
    ]),
  )
  const files = { ...base, adapter: { ...adapter, weights } }
  const saved = await saveCheckpoint(join(folder, name), files)
  if (!saved.ok) throw new Error(saved.failure.message)
  return { path: join(folder, name), files }
}

test("adapters load and unload as vLLM's do, beside their base, and sample what they sample alone", async () => {
  const server = await startTiny()
  try {
    const one = await adapterFolder('one', 1)
    const two = await adapterFolder('two', 2)
    const load = (lora_name: string, lora_path: string, more = {}) =>
      server.post('/v1/load_lora_adapter', { lora_name, lora_path, ...more })
    for (const [name, { path }] of [
      ['one', one],
      ['two', two],
    ] as const) {
      const response = await fetch(`${server.url}/v1/load_lora_adapter`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ lora_name: name, lora_path: path }),
      })
      expect([response.status, await response.text()]).toEqual([
        200,
        `Success: LoRA adapter '${name}' added successfully.`,
      ])
    }
    const { data } = await server.client.models.list()
    expect(data.find(({ id }) => id === 'one')).toMatchObject({ root: one.path, parent: 'tiny@0', max_model_len: 1024 })

    const before = await ask(server, { seed: 3 })
    const [first, second, plain] = await Promise.all(
      ['one', 'two', 'tiny'].map((model) => ask(server, { model, seed: 3 })),
    )
    expect(plain).toEqual(before)
    for (const [answer, { files }] of [
      [first, one],
      [second, two],
    ] as const) {
      const alone = await openPolicy(files, engine, { name: 'alone', rows: 2, cacheTokens: 1024 })
      if (!alone.ok) throw new Error(alone.failure.message)
      expect(adaptedConfig(files).lora?.rank).toBe(4)
      const told = await alone.value.generate({
        messages: [],
        promptIds: [5, 6, 7],
        sampling: { temperature: 1, maxTokens: 12, stop: [] },
        seed: '3/0/0',
      })
      await alone.value.close()
      if (!told.ok) throw new Error(told.failure.message)
      expect(answer!.ids).toEqual(told.value.tokenIds)
      for (const [t, logprob] of answer!.logprobs.entries())
        expect(Math.abs(logprob - told.value.logprobs![t]!)).toBeLessThan(1e-5)
    }
    expect(first!.ids).not.toEqual(second!.ids)

    // a name that is taken, a base's, a version's, one that no header can tell, a folder that is none, a parameter that is not known
    for (const [reply, param] of [
      [await load('one', two.path), 'lora_name'],
      [await load('tiny', two.path), 'lora_name'],
      [await load('tiny@7', two.path), 'lora_name'],
      [await load('\u043a\u043b\u044e\u0447', two.path), 'lora_name'],
      [await load('three', join(folder, 'nowhere')), 'lora_path'],
      [await load('three', two.path, { load_inplace: true }), 'load_inplace'],
    ] as const)
      expect(reply).toMatchObject({ status: 400, body: { error: { param } } })

    // requests that it answers go on when it is unloaded; its name may be used again, as another version
    const running = ask(server, { model: 'one', max_tokens: 300, ignore_eos: true, seed: 5 })
    const begun = Date.now()
    while (!(await (await fetch(`${server.url}/metrics`)).text()).includes('showrunner_sequences_running 1'))
      expect(Date.now() - begun).toBeLessThan(10_000)
    const unload = () =>
      fetch(`${server.url}/v1/unload_lora_adapter`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ lora_name: 'one' }),
      })
    expect((await unload()).status).toBe(200)
    expect(await server.post('/v1/completions', { model: 'one', prompt: 'x' })).toMatchObject({ status: 404 })
    expect((await unload()).status).toBe(404)
    await fetch(`${server.url}/v1/load_lora_adapter`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ lora_name: 'one', lora_path: two.path }),
    })
    const reloaded = await ask(server, { model: 'one', seed: 3 })
    expect(reloaded).toEqual({ ...second, version: 'one@1' })
    expect(await running).toMatchObject({ version: 'one@0' })
    expect((await running).ids).toHaveLength(300)
  } finally {
    await server.close()
  }
})
