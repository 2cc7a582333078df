/** A capturing proxy in front of a real endpoint of ours, and in front of servers made here that answer as no good one would. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest'
import { loadCheckpoint } from '../../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { type RunningServer, startServer } from '../../src/serve/open.ts'
import { type ServeOptions, serveOptions } from '../../src/serve/options.ts'
import { type RunningProxy, startProxy } from '../../src/serve/proxy.ts'
import { clientOf, storedIn } from './captureServer.ts'

const model = resolve(import.meta.dirname, '../golden/trl-grpo/tiny-qwen2')
const engine = engineOptions.parse({ threads: 1 })
const root = mkdtempSync(join(tmpdir(), 'showrunner-proxy-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

const running: RunningProxy[] = []
const upstreams: Server[] = []
afterEach(async () => {
  for (const proxy of running.splice(0)) await proxy.close()
  for (const upstream of upstreams.splice(0)) {
    upstream.closeAllConnections()
    await new Promise((closed) => upstream.close(closed))
  }
  delete process.env.SHOWRUNNER_PROXY_KEY
})

let runs = 0
async function proxyTo(url: string, options: Partial<ServeOptions> = {}) {
  const directory = join(root, `run${++runs}`)
  const started = await startProxy({ ...serveOptions.parse({ port: 0 }), capture: directory, proxy: url, ...options })
  if (!started.ok) throw new Error(started.failure.message)
  running.push(started.value)
  return { url: started.value.url, directory }
}

/** An endpoint that does what a test says. */
async function upstreamThat(answer: (request: IncomingMessage, response: ServerResponse, body: string) => void) {
  const upstream = createServer((request, response) => {
    let body = ''
    request.on('data', (part) => {
      body += part
    })
    request.on('end', () => answer(request, response, body))
  })
  upstreams.push(upstream)
  await new Promise<void>((listening) => upstream.listen(0, '127.0.0.1', listening))
  return `http://127.0.0.1:${(upstream.address() as AddressInfo).port}/v1`
}

const session = { 'x-session-id': 'a' }
const hello = { model: 'm', messages: [{ role: 'user', content: 'hello' }] }

describe('in front of a real endpoint', () => {
  let server: RunningServer
  let messages: { role: 'user'; content: string }[]
  beforeAll(async () => {
    const started = await startServer(model, engine, serveOptions.parse({ port: 0 }))
    if (!started.ok) throw new Error(started.failure.message)
    server = started.value
    messages = JSON.parse(readFileSync(join(model, '../forward.json'), 'utf8')).chat.messages
  })
  afterAll(() => server.close())

  test('ids and log-probabilities are those of the endpoint; the client sees the answer that it asked for', async () => {
    const { url, directory } = await proxyTo(`${server.url}/v1`)
    const ask = { model: 'tiny-qwen2', messages, seed: 3, max_tokens: 12, temperature: 1 }
    const direct = await clientOf(server.url, {}).post('/v1/chat/completions', {
      ...ask,
      logprobs: true,
      return_token_ids: true,
    })
    const { id: _, created: __, choices, prompt_token_ids, ...rest } = direct.body as Record<string, unknown>
    const [{ token_ids, logprobs, ...choice }] = choices as [{ token_ids: number[]; logprobs: { content: never[] } }]

    const client = clientOf(url, session)
    const plain = await client.post('/v1/chat/completions', ask)
    expect(plain.headers.get('x-policy-version')).toBe('tiny-qwen2@0')
    const { id: ___, created: ____, ...seen } = plain.body as Record<string, unknown>
    expect(seen).toEqual({ ...rest, choices: [{ ...choice, logprobs: null }] })
    const whole = await client.post('/v1/chat/completions', { ...ask, logprobs: true, return_token_ids: true })
    expect(whole.body).toMatchObject({ prompt_token_ids, choices: [{ token_ids, logprobs }] })
    await client.reward(1)

    const { segments, trajectories } = await storedIn(directory)
    const prompt = prompt_token_ids as number[]
    expect(segments).toHaveLength(2)
    for (const segment of segments) {
      expect(segment).toMatchObject({
        ids: [...prompt, ...token_ids],
        promptLength: prompt.length,
        policyVersion: 'tiny-qwen2@0',
      })
      const told = logprobs.content.map(({ logprob }) => logprob)
      expect(segment.logprobs.slice(prompt.length)).toEqual([...Float32Array.from(told)])
    }
    expect(trajectories).toMatchObject([{ seed: '3', reward: { total: 1 }, question: JSON.stringify(messages) }])
  })

  test('what was captured is on policy: the first update on it sees ratios of 1', async () => {
    const { url, directory } = await proxyTo(`${server.url}/v1`)
    for (const id of ['up', 'down']) {
      const client = clientOf(url, { 'x-session-id': id, 'x-group-id': 'g', 'x-group-size': '2' })
      const body = { model: 'tiny-qwen2', max_tokens: 16, return_token_ids: true }
      const first = await client.post('/v1/completions', { ...body, prompt: [5, 6, 7, 8] })
      const [{ token_ids }] = (first.body as Record<string, unknown>).choices as [{ token_ids: number[] }]
      // an agent that keeps ids goes on from them
      await client.post('/v1/completions', { ...body, prompt: [5, 6, 7, 8, ...token_ids, 9, 10] })
      expect((await client.reward(id === 'up' ? 1 : -1)).body).toMatchObject({ calls: 2, segments: 1 })
    }
    const { segments, trajectories } = await storedIn(directory)
    const rows = segments.map((segment) => ({
      ...segment,
      advantage: trajectories.find(({ trajectoryId }) => trajectoryId === segment.trajectoryId)!.reward!.total,
      value: null,
    }))
    expect(rows.map(({ advantage }) => advantage)).toEqual([1, -1])
    const loaded = await loadCheckpoint(model)
    if (!loaded.ok) throw new Error(loaded.failure.message)
    const policy = await openPolicy(loaded.value, engine, { name: 'trained', rows: 2, cacheTokens: 2048 })
    if (!policy.ok) throw new Error(policy.failure.message)
    const trainer = await openTrainer(policy.value.device, policy.value.config)
    const update = await updatePolicy(trainer, rows, grpoOptions.parse({}), { temperature: 1, totalSteps: 1 })
    await trainer.close()
    await policy.value.close()
    expect(update.tokens).toBe(rows.reduce((sum, { actionMask }) => sum + actionMask.filter(Boolean).length, 0))
    expect(Math.abs(update.ratioMax - 1)).toBeLessThan(1e-4)
  })

  test('a streaming client of a session gets its answer as a stream, and it is recorded', async () => {
    const { url, directory } = await proxyTo(`${server.url}/v1`)
    const client = new OpenAI({
      baseURL: `${url}/v1`,
      apiKey: 'any',
      defaultHeaders: { ...session, authorization: null },
    })
    const ask = { model: 'tiny-qwen2', messages, seed: 4, max_tokens: 10, n: 2 }
    const whole = await client.chat.completions.create(ask)
    const stream = await client.chat.completions.create({
      ...ask,
      stream: true,
      stream_options: { include_usage: true },
    })
    const texts = ['', '']
    let usage: unknown
    for await (const chunk of stream) {
      for (const { index, delta } of chunk.choices) texts[index] += delta.content ?? ''
      usage = chunk.usage ?? usage
    }
    expect(texts).toEqual(whole.choices.map(({ message }) => message.content))
    expect(usage).toEqual(whole.usage)
    await clientOf(url, session).reward(1)
    expect((await storedIn(directory)).trajectories).toMatchObject([
      { sampledTokens: 2 * (whole.usage?.completion_tokens ?? 0) },
    ])
  })

  test('without a session everything passes as it is: streams, lists, errors', async () => {
    const { url, directory } = await proxyTo(`${server.url}/v1`)
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 })
    expect((await client.models.list()).data[0]).toMatchObject({ id: 'tiny-qwen2', max_model_len: 1024 })
    expect(await clientOf(url, {}).post('/tokenize', { prompt: 'a' })).toMatchObject({
      status: 200,
      body: { count: 1 },
    })
    let chunks = 0
    const ask = { model: 'tiny-qwen2', prompt: [1, 2, 3], max_tokens: 8 }
    for await (const _ of await client.completions.create({ ...ask, stream: true, top_p: 0.5 })) chunks++
    expect(chunks).toBeGreaterThan(2)
    const wrong = { ...ask, max_tokens: 5000 }
    const refused = await clientOf(url, {}).post('/v1/completions', wrong)
    expect(refused).toMatchObject({
      status: 400,
      body: (await clientOf(server.url, {}).post('/v1/completions', wrong)).body,
    })
    // and so do the errors of a session
    const { status, body } = await clientOf(url, session).post('/v1/completions', wrong)
    expect({ status, body }).toEqual({ status: 400, body: refused.body })
    expect((await storedIn(directory)).trajectories).toEqual([])
  })

  test('a cut of the distribution is refused in a session, since log-probabilities would not be of what was sampled', async () => {
    const { url } = await proxyTo(`${server.url}/v1`)
    const client = clientOf(url, session)
    for (const [name, value] of Object.entries({
      top_p: 0.9,
      top_k: 5,
      min_p: 0.1,
      logit_bias: { 5: 1 },
      presence_penalty: 1,
      min_tokens: 2,
      response_format: { type: 'json_object' },
      structured_outputs: { regex: 'a' },
    }))
      expect(await client.post('/v1/completions', { model: 'tiny-qwen2', prompt: [1], [name]: value })).toMatchObject({
        status: 400,
        body: { error: { param: name } },
      })
    const neutral = { top_p: 1, top_k: -1, min_p: 0, logit_bias: {}, response_format: { type: 'text' } }
    const { status } = await client.post('/v1/completions', {
      model: 'tiny-qwen2',
      prompt: [1],
      max_tokens: 2,
      ...neutral,
    })
    expect(status).toBe(200)
  })
})

describe('in front of an endpoint that', () => {
  /** As vLLM answers when it is asked for ids; `choice` and `more` take the place of what is there. */
  const vllm = (choice: object = {}, more: object = {}) => ({
    id: 'x',
    object: 'chat.completion',
    created: 1,
    model: 'm',
    prompt_token_ids: [1, 2],
    choices: [
      {
        index: 0,
        message: { role: 'assistant', content: 'hi' },
        finish_reason: 'stop',
        token_ids: [3, 4],
        logprobs: {
          content: [
            { token: 'h', logprob: -0.5 },
            { token: 'i', logprob: -1 },
          ],
        },
        ...choice,
      },
    ],
    usage: { prompt_tokens: 2, completion_tokens: 2, total_tokens: 4 },
    ...more,
  })
  const json = (response: ServerResponse, body: unknown, status = 200, headers: Record<string, string> = {}) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body))

  test('gives no ids, or log-probabilities that are none, is refused with a notice that says what is missing', async () => {
    let answer: unknown
    const { url, directory } = await proxyTo(await upstreamThat((_, response) => json(response, answer)))
    const cases: [unknown, string][] = [
      [vllm({ token_ids: null }), 'choices.0.token_ids'],
      [vllm({}, { prompt_token_ids: null }), 'prompt_token_ids are missing'],
      [vllm({ logprobs: null }), 'choices.0.logprobs'],
      [vllm({ logprobs: { content: [{ logprob: null }, { logprob: -1 }] } }), 'logprobs'],
      [vllm({ logprobs: { content: [{ logprob: -9999 }, { logprob: -1 }] } }), 'logprobs'],
      [vllm({ token_ids: [3] }), '1 token ids and 2 log-probabilities'],
      [vllm({ finish_reason: 'abort' }), 'gave up'],
      [{ choices: [] }, 'choices'],
      ['hello', 'no JSON object'],
    ]
    for (const [body, problem] of cases) {
      answer = body
      const told = await clientOf(url, session).post('/v1/chat/completions', hello)
      expect(told).toMatchObject({ status: 502, body: { error: { code: 'bad_response' } } })
      expect(JSON.stringify(told.body)).toContain(problem)
      // not captured, not refused
      expect(await clientOf(url, {}).post('/v1/chat/completions', hello)).toMatchObject({ status: 200, body })
    }
    answer = vllm()
    await clientOf(url, session).post('/v1/chat/completions', hello)
    await clientOf(url, session).reward(1)
    expect((await storedIn(directory)).segments).toMatchObject([
      { ids: [1, 2, 3, 4], actionMask: [0, 0, 1, 1], policyVersion: 'm' },
    ])
    const metrics = await (await fetch(`${url}/metrics`)).text()
    expect(metrics).toContain(`showrunner_captured_calls_total{outcome="refused"} ${cases.length}`)
    expect(metrics).toContain('showrunner_captured_calls_total{outcome="recorded"} 1')
  })

  test('has other weights in the middle of a session: the segment ends there', async () => {
    let version = 1
    const { url, directory } = await proxyTo(
      await upstreamThat((_, response, body) => {
        const { messages } = JSON.parse(body) as { messages: unknown[] }
        const prompt = messages.length === 1 ? [1, 2] : [1, 2, 3, 4, 5]
        json(response, vllm({}, { prompt_token_ids: prompt, weight_version: version++ }))
      }),
    )
    const client = clientOf(url, session)
    await client.post('/v1/chat/completions', hello)
    await client.post('/v1/chat/completions', { ...hello, messages: [...hello.messages, ...hello.messages] })
    await client.reward(1)
    const { segments } = await storedIn(directory)
    expect(segments.map(({ ids, policyVersion }) => [ids, policyVersion])).toEqual([
      [[1, 2, 3, 4], '1'],
      [[1, 2, 3, 4, 5, 3, 4], '2'],
    ])
  })

  test('is asked for ids and log-probabilities, whole, with its own key', async () => {
    process.env.SHOWRUNNER_PROXY_KEY = 'theirs'
    const seen: { url?: string; headers: IncomingMessage['headers']; body: string }[] = []
    const target = await upstreamThat((request, response, body) => {
      seen.push({ ...(request.url ? { url: request.url } : {}), headers: request.headers, body })
      json(response, vllm())
    })
    const { url } = await proxyTo(target)
    const client = clientOf(url, { ...session, authorization: 'Bearer ours' })
    await client
      .post('/v1/chat/completions', { ...hello, stream: true, stream_options: { include_usage: true } })
      .catch(() => {})
    await client.post('/v1/completions', { model: 'm', prompt: 'x', logprobs: false })
    expect(seen.map(({ url, body }) => [url, JSON.parse(body)])).toEqual([
      ['/v1/chat/completions', { ...hello, stream: false, return_token_ids: true, logprobs: true }],
      ['/v1/completions', { model: 'm', prompt: 'x', stream: false, return_token_ids: true, logprobs: 1 }],
    ])
    for (const { headers } of seen)
      expect(headers).toMatchObject({ authorization: 'Bearer theirs', 'x-session-id': 'a' })
  })

  test('is too busy, broken, or no endpoint at all: the client is told as it is', async () => {
    let answer: (response: ServerResponse) => void
    const target = await upstreamThat((_, response) => answer(response))
    const { url } = await proxyTo(target)
    for (const headers of [session, {}]) {
      const post = () => clientOf(url, headers).post('/v1/chat/completions', hello)
      const busy = { error: { message: 'busy', type: 'rate_limit_error', param: null, code: null } }
      answer = (response) => json(response, busy, 429, { 'retry-after': '7' })
      const refused = await post()
      expect([refused.status, refused.body, refused.headers.get('retry-after')]).toEqual([429, busy, '7'])
      answer = (response) => response.writeHead(500, { 'content-type': 'text/html' }).end('<h1>no</h1>')
      const broken = await fetch(`${url}/v1/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
        body: '{}',
      })
      expect([broken.status, await broken.text()]).toEqual([500, '<h1>no</h1>'])
    }
    answer = (response) => {
      response.writeHead(200, { 'content-length': '1000' }).write('{"choices":')
      response.destroy()
    }
    expect(await clientOf(url, session).post('/v1/completions', {})).toMatchObject({
      status: 502,
      body: { error: { code: 'unreachable' } },
    })
  })

  test('is down, or does not answer in time', async () => {
    const target = await upstreamThat(() => {})
    const { url } = await proxyTo(target, { deadlineSeconds: 0.3 })
    for (const headers of [session, {}])
      expect(await clientOf(url, headers).post('/v1/chat/completions', hello)).toMatchObject({
        status: 504,
        body: { error: { message: `${target} did not answer within 0.3 s.` } },
      })
    const [upstream] = upstreams.splice(0) as [Server]
    upstream.closeAllConnections()
    await new Promise((closed) => upstream.close(closed))
    for (const headers of [session, {}])
      expect(await clientOf(url, headers).post('/v1/chat/completions', hello)).toMatchObject({
        status: 502,
        body: { error: { message: `${target} cannot be reached (ECONNREFUSED).` } },
      })
    expect((await fetch(`${url}/health`)).status).toBe(200)
  })

  test('works for a client that has gone: it is told to stop', async () => {
    let left = 0
    const target = await upstreamThat((request) => request.socket.on('close', () => left++))
    const { url } = await proxyTo(target)
    const abort = new AbortController()
    const asked = fetch(`${url}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...session },
      body: JSON.stringify(hello),
      signal: abort.signal,
    }).catch(() => {})
    await new Promise((sent) => setTimeout(sent, 100))
    abort.abort()
    await asked
    await vi.waitFor(() => expect(left).toBe(1), { timeout: 20_000 })
  })
})

test('an address that is none is told', async () => {
  const started = await startProxy({ ...serveOptions.parse({ port: 0 }), proxy: 'gpu:8000' })
  expect(started).toMatchObject({
    ok: false,
    failure: { boundary: 'serve', message: expect.stringContaining('gpu:8000') },
  })
})
