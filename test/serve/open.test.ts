/** A real checkpoint, loaded from disk, on the engine, behind HTTP: what a client of `showrunner serve` gets. */
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises'
import { createServer as createTcpServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadCheckpoint, saveCheckpoint, stepDirectory } from '../../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { type RunningServer, startServer } from '../../src/serve/open.ts'
import { serveOptions } from '../../src/serve/options.ts'

const golden = resolve(import.meta.dirname, '../golden/trl-grpo')
const engine = engineOptions.parse({ threads: 1 })
const anyPort = serveOptions.parse({ port: 0 })

interface TokenChoice {
  text: string
  token_ids: number[]
  logprobs: { token_logprobs: number[] }
}

/** Asks for token ids, which the client's types do not know. */
async function complete(client: OpenAI, body: Record<string, unknown>): Promise<TokenChoice[]> {
  const request = { model: 'tiny-qwen2', prompt: '', logprobs: 1, return_token_ids: true, ...body }
  return (await client.completions.create(request)).choices as unknown as TokenChoice[]
}

describe('a served checkpoint', () => {
  let server: RunningServer
  let client: OpenAI
  let forward: {
    input_ids: number[][]
    greedy_continuation_of_row_0: number[]
    chat: { messages: never[]; ids: number[] }
  }

  beforeAll(async () => {
    forward = JSON.parse(await readFile(join(golden, 'forward.json'), 'utf8'))
    const started = await startServer(join(golden, 'tiny-qwen2'), engine, anyPort)
    if (!started.ok) throw new Error(started.failure.message)
    server = started.value
    client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: 'none', maxRetries: 0 })
  })
  afterAll(() => server.close())

  test('is named after its folder and tells its context', async () => {
    expect((await client.models.list()).data).toMatchObject([
      { id: 'tiny-qwen2', max_model_len: 1024, policy_version: 'tiny-qwen2@0', root: join(golden, 'tiny-qwen2') },
      { id: 'tiny-qwen2@0', policy_version: 'tiny-qwen2@0', parent: null },
    ])
  })

  test('continues greedily as transformers does', async () => {
    const [choice] = await complete(client, { prompt: forward.input_ids[0], temperature: 0, max_tokens: 20 })
    expect(choice?.token_ids).toEqual(forward.greedy_continuation_of_row_0)
  })

  test('renders a chat as transformers does', async () => {
    const reply = await client.chat.completions.create({
      model: 'tiny-qwen2',
      messages: forward.chat.messages,
      max_tokens: 4,
      ...{ return_token_ids: true },
    })
    expect(reply).toMatchObject({
      prompt_token_ids: forward.chat.ids,
      usage: { prompt_tokens: forward.chat.ids.length },
    })
  })

  test('samples the same again from the same seed, something else from another, and n different ones', async () => {
    const body = { prompt: forward.input_ids[0], temperature: 1, max_tokens: 12, n: 3, seed: 5 }
    const first = await complete(client, body)
    const texts = (choices: TokenChoice[]) => choices.map((choice) => choice.token_ids.join())
    expect(texts(await complete(client, body))).toEqual(texts(first))
    expect(texts(await complete(client, { ...body, seed: 6 }))).not.toEqual(texts(first))
    expect(new Set(texts(first)).size).toBe(3)
    for (const { token_ids, logprobs } of first) {
      expect(logprobs.token_logprobs).toHaveLength(token_ids.length)
      expect(logprobs.token_logprobs.every((logprob) => logprob < 0 && Number.isFinite(logprob))).toBe(true)
    }
  })

  test('answers many prompts at once as it answers each alone', async () => {
    const prompts = forward.input_ids.map((ids, i) => ids.slice(0, 10 + i))
    const together = await complete(client, { prompt: prompts, temperature: 0, max_tokens: 8 })
    const alone = await Promise.all(
      prompts.map(async (prompt) => (await complete(client, { prompt, temperature: 0, max_tokens: 8 }))[0]),
    )
    expect(together.map((choice) => choice.token_ids)).toEqual(alone.map((choice) => choice?.token_ids))
  })

  test('refuses a token id outside the vocabulary, and a prompt that leaves no room', async () => {
    await expect(complete(client, { prompt: [1, 99_999] })).rejects.toMatchObject({
      status: 400,
      message: expect.stringContaining('99999'),
    })
    await expect(complete(client, { prompt: Array(1020).fill(5), max_tokens: 5 })).rejects.toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
      message: expect.stringContaining('1024'),
    })
  })
})

describe('starting', () => {
  let folder: string
  beforeAll(async () => {
    folder = await mkdtemp(join(tmpdir(), 'showrunner-serve-'))
  })
  afterAll(() => rm(folder, { recursive: true }))

  test('a run folder serves its newest whole step, as the run and as run@step', async () => {
    const loaded = await loadCheckpoint(join(golden, 'tiny-qwen2'))
    if (!loaded.ok) throw new Error(loaded.failure.message)
    const run = join(folder, 'demo')
    for (const step of [1, 2]) {
      await saveCheckpoint(stepDirectory(run, step), {
        ...loaded.value,
        training: { state: { step }, optimizer: new Map() },
      })
    }
    // a third that a crash cut short
    await cp(stepDirectory(run, 2), stepDirectory(run, 3), { recursive: true })
    await rm(join(stepDirectory(run, 3), 'training_state.json'))
    const started = await startServer(run, engine, anyPort)
    if (!started.ok) throw new Error(started.failure.message)
    try {
      expect(started.value.model).toBe('demo')
      const client = new OpenAI({ baseURL: `${started.value.url}/v1`, apiKey: 'none' })
      expect(await client.models.retrieve('demo@2')).toMatchObject({ policy_version: 'demo@2' })
      expect(await client.models.retrieve('demo')).toMatchObject({ policy_version: 'demo@2' })
    } finally {
      await started.value.close()
    }
  })

  test('a folder that is no checkpoint is a failure that names it', async () => {
    const started = await startServer(join(folder, 'nowhere'), engine, anyPort)
    expect(started).toMatchObject({
      ok: false,
      failure: { kind: 'missing_file', message: expect.stringContaining('nowhere') },
    })
  })

  test('a name that no header can tell is a failure that says what to do', async () => {
    const options = serveOptions.parse({ port: 0 })
    const started = await startServer(join(golden, 'tiny-qwen2'), engine, options, { name: '\u043a\u043b\u044e\u0447' })
    expect(started).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('give another with --name') },
    })
  })

  test('a port that is taken is a failure that says what to do', async () => {
    const other = createTcpServer()
    await new Promise<void>((listening) => other.listen(0, '127.0.0.1', listening))
    const { port } = other.address() as { port: number }
    const started = await startServer(join(golden, 'tiny-qwen2'), engine, { ...anyPort, port })
    expect(started).toEqual({
      ok: false,
      failure: {
        boundary: 'serve',
        kind: 'bad_request',
        message: `127.0.0.1:${port}: cannot listen: something else listens there already; choose another port, or 0 for any free one`,
      },
    })
    await new Promise((closed) => other.close(closed))
  })
})
