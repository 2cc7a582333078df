/** Many clients, clients that leave or are slow, and the end of a server: over HTTP, with a real model where sampling matters. */
import { Agent, type ClientRequest, request as httpRequest, type IncomingMessage } from 'node:http'
import { connect } from 'node:net'
import { join } from 'node:path'
import OpenAI, { RateLimitError } from 'openai'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { loadCheckpoint } from '../../src/checkpoint/checkpoint.ts'
import { PAGE_SIZE } from '../../src/policy/decodeGraph.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { ScriptedPolicy } from '../../src/policy/scripted.ts'
import { type Keys, keysOf } from '../../src/serve/keys.ts'
import { ModelRegistry } from '../../src/serve/models.ts'
import { warnStrangers } from '../../src/serve/open.ts'
import { serveOptions } from '../../src/serve/options.ts'
import { createServer, type PolicyServer } from '../../src/serve/server.ts'
import type { Policy } from '../../src/types.ts'
import { start } from '../commandLine.ts'
import { letters } from './letters.ts'
import { engine, golden, post } from './tinyServer.ts'

const running: PolicyServer[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.close()))
})

async function serve(policy: Policy, options: Record<string, unknown> = {}, keys: Keys = keysOf([])) {
  const models = new ModelRegistry()
  models.add({ name: 'master', policy, created: new Date(), root: null, parent: null, stopStrings: [] })
  const said: string[] = []
  const server = createServer(serveOptions.parse({ graceSeconds: 1, ...options }), {
    models,
    keys,
    log: (line) => said.push(line),
  })
  running.push(server)
  return { server, said, url: await server.listen({ host: '127.0.0.1', port: 0 }) }
}

/** A scripted policy whose answers end when the test says so, in the order that they began. */
function held() {
  const begun: { prompt: string; finish(): void }[] = []
  const policy = new ScriptedPolicy(
    (_, { promptIds = [], signal }) =>
      new Promise<string>((resolve) => {
        begun.push({ prompt: letters.decode(promptIds), finish: () => resolve('done') })
        signal?.addEventListener('abort', () => resolve('cut'))
      }),
    { tokenizer: letters, contextLength: 10_000 },
  )
  return { policy, begun, hasBegun: (count: number) => vi.waitFor(() => expect(begun).toHaveLength(count)) }
}

const ask = (prompt: string, more: object = {}) => ({ model: 'master', prompt, max_tokens: 4, ...more })

describe('a full server', () => {
  test('answers 429 with Retry-After, which the client understands, and goes on with what it took', async () => {
    const { policy, begun, hasBegun } = held()
    const { url, server } = await serve(policy, { concurrency: 2, maxWaiting: 1 })
    const taken = [1, 2, 3].map((i) => post(url, '/v1/completions', ask(`${i}`)))
    await hasBegun(2)
    await vi.waitFor(async () => expect(await server.metrics.registry.metrics()).toContain('sequences_waiting 1'))
    const refused = await post(url, '/v1/completions', ask('4'))
    expect(refused).toMatchObject({ status: 429, body: { error: { type: 'rate_limit_error', code: 'queue_full' } } })
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThanOrEqual(1)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    await expect(client.completions.create(ask('5'))).rejects.toBeInstanceOf(RateLimitError)
    for (const one of begun) one.finish()
    await hasBegun(3)
    begun[2]?.finish()
    expect((await Promise.all(taken)).map(({ status }) => status)).toEqual([200, 200, 200])
    expect((await post(url, '/health', {})).status).toBe(404)
    expect(await server.metrics.registry.metrics()).toContain('showrunner_requests_refused_total 2')
  })

  test('more sequences than may ever wait are refused too', async () => {
    const { url } = await serve(held().policy, { concurrency: 2, maxWaiting: 3 })
    expect(await post(url, '/v1/completions', ask('x', { n: 6 }))).toMatchObject({ status: 429 })
  })

  test('clients take turns: one with few requests does not wait behind one with many', async () => {
    const { policy, begun, hasBegun } = held()
    const { url, server } = await serve(policy, { concurrency: 1 }, keysOf(['many', 'few']))
    const send = (key: string, prompt: string) =>
      post(url, '/v1/completions', ask(prompt), { authorization: `Bearer ${key}` })
    const many = Array.from({ length: 6 }, (_, i) => send('many', `many ${i}`))
    await hasBegun(1)
    await vi.waitFor(async () => expect(await server.metrics.registry.metrics()).toContain('sequences_waiting 5'))
    const few = ['few 0', 'few 1'].map((prompt) => send('few', prompt))
    await vi.waitFor(async () => expect(await server.metrics.registry.metrics()).toContain('sequences_waiting 7'))
    for (let i = 0; i < 8; i++) {
      await hasBegun(i + 1)
      begun[i]?.finish()
    }
    await Promise.all([...many, ...few])
    const order = begun.map(({ prompt }) => prompt.split(' ')[0])
    expect(order).toEqual(['many', 'few', 'many', 'few', 'many', 'many', 'many', 'many'])
  })
})

describe('a client that leaves', () => {
  test.each([false, true])('gives its row back within two decode steps (stream: %s)', async (stream) => {
    const loaded = await loadCheckpoint(join(golden, 'tiny-qwen2'))
    if (!loaded.ok) throw new Error(loaded.failure.message)
    const opened = await openPolicy(loaded.value, engine, { name: 'tiny', rows: 4, cacheTokens: 4096 })
    if (!opened.ok) throw new Error(opened.failure.message)
    const policy = opened.value
    /** Tokens of the one that stays when the other's signal was aborted, and when its pages were seen to be free. */
    let [aborted, freed, stayed, left]: (number | null)[] = [null, null, 0, 0]
    const generate = policy.generate.bind(policy)
    policy.generate = (request) => {
      const leaves = request.promptIds?.[0] === 9
      if (leaves)
        request.signal?.addEventListener('abort', () => {
          aborted = stayed
        })
      return generate({
        ...request,
        onToken(token) {
          request.onToken?.(token)
          if (leaves) {
            left!++
            if (aborted !== null) throw new Error('sampled for a client that is gone')
            return
          }
          stayed!++
          const own = Math.ceil((3 + stayed!) / PAGE_SIZE)
          if (aborted !== null && policy.statistics().pagesUsed <= own) freed ??= stayed
        },
      })
    }
    const { url, server } = await serve(policy)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const endless = { model: 'master', max_tokens: 800, ...{ ignore_eos: true } }
    const stays = client.completions.create({ ...endless, prompt: [5, 6, 7] })
    const leaving = new AbortController()
    // several pages, so that what it holds is more than what the other one takes meanwhile
    const prompt = [9, ...Array.from({ length: 8 * PAGE_SIZE }, (_, i) => 3 + (i % 300))]
    const leaves = client.completions.create(
      { ...endless, max_tokens: 300, prompt, stream },
      { signal: leaving.signal },
    )
    const gone = (async () => {
      const answer = await leaves
      if (Symbol.asyncIterator in answer) for await (const _ of answer) void _
    })().catch(() => {})
    await vi.waitFor(() => expect(left).toBeGreaterThan(5))
    leaving.abort()
    await gone
    await vi.waitFor(() => expect(freed).not.toBeNull())
    expect(freed! - aborted!).toBeLessThanOrEqual(2)
    expect((await stays).usage?.completion_tokens).toBe(800)
    expect(await server.metrics.registry.metrics()).toContain('showrunner_clients_left_total 1')
    await running.splice(0)[0]?.close()
    await policy.close()
  })

  test('while it waits, and leaves its turn to others', async () => {
    const { policy, begun, hasBegun } = held()
    const { url, server } = await serve(policy, { concurrency: 1 })
    const first = post(url, '/v1/completions', ask('first'))
    await hasBegun(1)
    const leaving = new AbortController()
    const second = fetch(`${url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(ask('second')),
      signal: leaving.signal,
    }).catch(() => {})
    const waiting = async (count: number) =>
      await vi.waitFor(async () =>
        expect(await server.metrics.registry.metrics()).toContain(`sequences_waiting ${count}`),
      )
    await waiting(1)
    leaving.abort()
    await second
    await waiting(0)
    const third = post(url, '/v1/completions', ask('third'))
    await waiting(1)
    begun[0]?.finish()
    await hasBegun(2)
    begun[1]?.finish()
    expect((await Promise.all([first, third])).map(({ status }) => status)).toEqual([200, 200])
    expect(begun.map(({ prompt }) => prompt)).toEqual(['first', 'third'])
  })
})

describe('connections', () => {
  test('are kept for the next request', async () => {
    const { url } = await serve(new ScriptedPolicy(() => 'hi', { tokenizer: letters, contextLength: 100 }))
    const agent = new Agent({ keepAlive: true, maxSockets: 1 })
    const send = () =>
      new Promise<boolean>((resolve, reject) => {
        const sent: ClientRequest = httpRequest(
          `${url}/v1/completions`,
          { agent, method: 'POST', headers: { 'content-type': 'application/json' } },
          (response: IncomingMessage) => response.resume().on('end', () => resolve(sent.reusedSocket)),
        )
        sent.on('error', reject).end(JSON.stringify(ask('x')))
      })
    expect([await send(), await send(), await send()]).toEqual([false, true, true])
    agent.destroy()
  })

  test('whose headers do not come within the time are closed with 408', async () => {
    const { url } = await serve(held().policy, { headerSeconds: 0.5 })
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    socket.write('POST /v1/completions HTTP/1.1\r\nHost: here\r\nX-Slow: ')
    let got = ''
    socket.on('data', (data) => {
      got += data
    })
    await new Promise((closed) => socket.on('close', closed))
    expect(got).toMatch(/^HTTP\/1\.1 408 /)
  })

  test('whose body does not come within the time are closed too', async () => {
    const { url } = await serve(held().policy, { headerSeconds: 0.2, bodySeconds: 0.5 })
    const socket = connect(Number(new URL(url).port), '127.0.0.1')
    socket.write(
      'POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{',
    )
    socket.resume()
    await new Promise((closed) => socket.on('close', closed))
  })
})

describe('what is written about requests', () => {
  const secret = 'nobody may read this'
  const send = async (log: string) => {
    const { url, said } = await serve(
      new ScriptedPolicy(() => 'an answer', { tokenizer: letters, contextLength: 1000 }),
      { log },
    )
    await post(url, '/v1/completions', ask(secret))
    await post(url, '/v1/chat/completions', { model: 'master', messages: [{ role: 'user', content: secret }] })
    await post(url, '/v1/completions', ask(secret, { best_of: 3 }))
    await post(url, '/v1/completions', ask(secret, { model: 'other' }))
    return said
  }

  test('nothing, unless it is asked for', async () => {
    const outputs = [
      vi.spyOn(console, 'log'),
      vi.spyOn(console, 'error'),
      vi.spyOn(process.stdout, 'write'),
      vi.spyOn(process.stderr, 'write'),
    ]
    const said = await send('none')
    const written = outputs.map((output) => JSON.stringify(output.mock.calls)).join()
    for (const output of outputs) output.mockRestore()
    expect(said).toEqual([])
    expect(written).not.toContain(secret)
  })

  test('a line for each, without texts', async () => {
    const said = await send('requests')
    await vi.waitFor(() => expect(said).toHaveLength(4))
    expect(said[0]).toMatch(/^127\.0\.0\.1 POST \/v1\/completions 200 \d+ ms$/)
    expect(said.join()).not.toContain(secret)
  })

  test('the texts, when they are asked for', async () => {
    const said = await send('texts')
    expect(said.some((line) => line.includes(secret) && line.includes('an answer'))).toBe(true)
  })
})

test('a client that does not read its answer is not kept for ever', async () => {
  // more than connections of this machine hold
  const long = new ScriptedPolicy(() => 'x'.repeat(30_000_000))
  const { url, server } = await serve(long, { deadlineSeconds: 2, bodySeconds: 1 })
  const body = JSON.stringify({ model: 'master', messages: [{ role: 'user', content: 'a' }], max_tokens: 9 })
  const socket = connect(Number(new URL(url).port), '127.0.0.1').on('error', () => {})
  socket.pause()
  socket.write(
    `POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\n\r\n${body}`,
  )
  const connections = () => new Promise<number>((told) => server.server.getConnections((_, count) => told(count)))
  await vi.waitFor(async () => expect(await connections()).toBe(1))
  await vi.waitFor(async () => expect(await connections()).toBe(0), { timeout: 30_000, interval: 200 })
  socket.destroy()
}, 40_000)

test('a server that others can reach without a key says so', () => {
  const said: string[] = []
  const warn = (host: string, keys: string[] = []) =>
    warnStrangers(serveOptions.parse({ host }), keysOf(keys), (line) => said.push(line))
  for (const host of ['127.0.0.1', 'localhost', '::1', '127.1.2.3']) warn(host)
  warn('0.0.0.0', ['key'])
  expect(said).toEqual([])
  warn('0.0.0.0')
  warn('::')
  expect(said.map((line) => /warning: whoever can reach (\S+) /.exec(line)?.[1])).toEqual(['0.0.0.0', '::'])
})

test('a server that others can reach without a key loads no adapters', async () => {
  const models = new ModelRegistry()
  const policy = new ScriptedPolicy(() => 'x')
  models.add({ name: 'master', policy, created: new Date(), root: null, parent: null, stopStrings: [] })
  let loaded = false
  const server = createServer(serveOptions.parse({ host: '0.0.0.0' }), {
    models,
    keys: keysOf([]),
    async loadAdapter() {
      loaded = true
      throw new Error('not reached')
    },
  })
  running.push(server)
  const url = await server.listen({ host: '127.0.0.1', port: 0 })
  const reply = await post(url, '/v1/load_lora_adapter', { lora_name: 'a', lora_path: '/etc' })
  expect([reply.status, loaded]).toEqual([403, false])
})

test('Ctrl-C lets a running answer finish, answers no new ones, and ends the process', async () => {
  const { child, ended } = start(golden, 'serve', 'tiny-qwen2', '--port', '0')
  let said = ''
  child.stderr?.on('data', (chunk) => {
    said += chunk
  })
  await vi.waitFor(() => expect(said).toMatch(/http:\/\/127\.0\.0\.1:\d+/), { timeout: 30_000, interval: 50 })
  const url = /http:\/\/127\.0\.0\.1:\d+/.exec(said)![0]
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
  const stream = await client.completions.create({
    model: 'tiny-qwen2',
    prompt: [5, 6, 7],
    max_tokens: 600,
    stream: true,
    ...{ ignore_eos: true, return_token_ids: true },
  })
  let tokens = 0
  let finished = ''
  for await (const { choices } of stream) {
    const [choice] = choices as unknown as { token_ids?: number[]; finish_reason: string | null }[]
    if (tokens === 0 && choice?.token_ids?.length) child.kill('SIGINT')
    tokens += choice?.token_ids?.length ?? 0
    finished = choice?.finish_reason ?? finished
  }
  expect([tokens, finished]).toEqual([600, 'length'])
  await ended
  await expect(client.completions.create({ model: 'tiny-qwen2', prompt: 'x' })).rejects.toThrow(/Connection error/)
}, 60_000)
