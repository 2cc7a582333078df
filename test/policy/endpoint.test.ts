import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterEach, describe, expect, test } from 'vitest'
import { openEndpoint } from '../../src/policy/endpoint.ts'
import { endpointPolicyOptions } from '../../src/policy/options.ts'
import type { GenerateRequest, Generation, Policy, Result } from '../../src/types.ts'

type Handler = (body: Record<string, unknown>, response: ServerResponse, request: IncomingMessage) => void

const closers: (() => void)[] = []
afterEach(() => closers.splice(0).forEach((close) => close()))

/** A real server that answers the n-th request with the n-th handler, and every later one with the last. */
async function serve(
  ...handlers: Handler[]
): Promise<{ url: string; bodies: Record<string, unknown>[]; paths: string[] }> {
  const bodies: Record<string, unknown>[] = []
  const paths: string[] = []
  const server = createServer((request, response) => {
    let text = ''
    request.on('data', (chunk) => (text += chunk))
    request.on('end', () => {
      const handler = handlers[Math.min(bodies.length, handlers.length - 1)]!
      bodies.push(JSON.parse(text) as Record<string, unknown>)
      paths.push(request.url!)
      handler(bodies.at(-1)!, response, request)
    })
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  closers.push(() => {
    server.closeAllConnections()
    server.close()
  })
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, bodies, paths }
}

function json(status: number, value: unknown, headers: Record<string, string> = {}): Handler {
  return (_body, response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers })
    response.end(JSON.stringify(value))
  }
}

const usage = { prompt_tokens: 1000, completion_tokens: 10, total_tokens: 1010 }

function chat(content: string, extra: Record<string, unknown> = {}, finish_reason = 'stop'): Handler {
  return json(200, { choices: [{ index: 0, message: { role: 'assistant', content }, finish_reason, ...extra }], usage })
}

function open(baseUrl: string, options: Record<string, unknown> = {}): Policy {
  const result = openEndpoint(endpointPolicyOptions.parse({ type: 'endpoint', baseUrl, model: 'master', ...options }))
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

const request: GenerateRequest = {
  messages: [{ role: 'user', content: 'what colour is the mug?' }],
  sampling: { temperature: 0.7, maxTokens: 20, stop: ['</answer>', '</visual_query>'] },
  seed: 'run/3/q1/0',
}

function expectFailure(result: Result<Generation>, kind: string, ...words: string[]) {
  expect(result).toMatchObject({ ok: false, failure: { boundary: 'policy', kind } })
  if (result.ok) return
  for (const word of words) expect(result.failure.message).toContain(word)
  expect(result.failure.message).not.toContain('\n')
}

describe('a good answer', () => {
  test('is text with usage and cost; the request carries the sampling settings', async () => {
    const { url, bodies } = await serve(chat('<answer>a2'))
    const result = await open(url, { promptUsdPerMillion: 2, completionUsdPerMillion: 100 }).generate(request)
    expect(result).toMatchObject({
      ok: true,
      value: {
        text: '<answer>a2',
        tokenIds: null,
        logprobs: null,
        finishReason: 'stop',
        version: 'master',
        usage: { calls: 1, promptTokens: 1000, completionTokens: 10 },
      },
    })
    if (result.ok) expect(result.value.usage.costUsd).toBeCloseTo(0.003, 10)
    expect(bodies[0]).toMatchObject({
      model: 'master',
      temperature: 0.7,
      max_tokens: 20,
      top_p: 1,
      messages: request.messages,
    })
    expect(Number.isInteger(bodies[0]!.seed)).toBe(true)
    // A plain endpoint would swallow the stop string.
    expect(bodies[0]).not.toHaveProperty('stop')
    expect(bodies[0]).not.toHaveProperty('return_token_ids')
  })

  test('is cut behind the first stop string', async () => {
    const { url } = await serve(chat('<answer>a2</answer> and <visual_query>x</visual_query>', {}, 'length'))
    expect(await open(url).generate(request)).toMatchObject({
      ok: true,
      value: { text: '<answer>a2</answer>', finishReason: 'stop' },
    })
  })

  test('the same seed asks for the same number, another seed for another', async () => {
    const { url, bodies } = await serve(chat('x'))
    const policy = open(url)
    for (const seed of ['a', 'a', 'b']) await policy.generate({ ...request, seed })
    expect(bodies[0]!.seed).toBe(bodies[1]!.seed)
    expect(bodies[2]!.seed).not.toBe(bodies[0]!.seed)
  })
})

describe('token ids', () => {
  const logprobs = {
    content: [
      { token: 'token_id:5', logprob: -0.5 },
      { token: 'token_id:6', logprob: -0.25 },
    ],
  }

  test('come with log-probabilities and the version of the weights', async () => {
    const { url, bodies } = await serve(
      json(200, {
        choices: [{ message: { content: 'a2</answer>' }, finish_reason: 'stop', token_ids: [5, 6], logprobs }],
        usage,
        weight_version: 12,
      }),
    )
    expect(await open(url, { returnTokenIds: true }).generate(request)).toMatchObject({
      ok: true,
      value: { tokenIds: [5, 6], logprobs: [-0.5, -0.25], version: 'master@12' },
    })
    expect(bodies[0]).toMatchObject({
      return_token_ids: true,
      logprobs: true,
      include_stop_str_in_output: true,
      stop: request.sampling.stop,
    })
  })

  test('given as a prompt go to /completions as they are', async () => {
    const { url, bodies, paths } = await serve(
      json(200, {
        choices: [{ text: 'a2', finish_reason: 'length', token_ids: [5, 6], logprobs: { token_logprobs: [-1, -2] } }],
        usage,
      }),
    )
    expect(await open(url, { returnTokenIds: true }).generate({ ...request, promptIds: [1, 2, 3] })).toMatchObject({
      ok: true,
      value: { tokenIds: [5, 6], logprobs: [-1, -2], finishReason: 'length' },
    })
    expect(bodies[0]).toMatchObject({ prompt: [1, 2, 3], max_tokens: 20 })
    expect(paths[0]).toBe('/v1/completions')
  })

  test.each([
    ['absent', {}, 'no token ids'],
    ['of another length', { token_ids: [5], logprobs }, '1 token ids but 2 log-probabilities'],
    ['null', { token_ids: [5], logprobs: { content: [{ logprob: null }] } }, 'not finite'],
    ['floored', { token_ids: [5], logprobs: { content: [{ logprob: -9999 }] } }, 'not finite'],
  ])('%s: the trajectory fails at the boundary', async (_name, extra, words) => {
    const { url } = await serve(chat('x', extra))
    expectFailure(await open(url, { returnTokenIds: true }).generate(request), 'bad_response', words, url)
  })
})

describe('failures name the URL', () => {
  test('a 429 is tried again after what Retry-After asks for', async () => {
    const { url, bodies } = await serve(
      json(429, { error: { message: 'slow down' } }, { 'retry-after': '0.3' }),
      chat('fine'),
    )
    const begin = performance.now()
    expect(await open(url).generate(request)).toMatchObject({ ok: true, value: { text: 'fine' } })
    expect(performance.now() - begin).toBeGreaterThan(290)
    expect(bodies).toHaveLength(2)
  })

  test('a 429 that does not end', async () => {
    const { url, bodies } = await serve(json(429, { error: { message: 'slow\ndown' } }, { 'retry-after': '0' }))
    expectFailure(await open(url, { retries: 2 }).generate(request), 'rate_limited', url, 'slow down', 'attempt 3')
    expect(bodies).toHaveLength(3)
  })

  test('a wait beyond the deadline is not begun', async () => {
    const { url } = await serve(json(429, { error: { message: 'come back tomorrow' } }, { 'retry-after': '86400' }))
    const begin = performance.now()
    expectFailure(await open(url).generate(request), 'rate_limited', url)
    expect(performance.now() - begin).toBeLessThan(2000)
  })

  test('a 500 is tried again, then given up', async () => {
    const { url, bodies } = await serve(json(500, { error: { message: 'out of memory' } }, { 'retry-after': '0' }))
    expectFailure(await open(url, { retries: 1 }).generate(request), 'server_error', url, 'out of memory')
    expect(bodies).toHaveLength(2)
  })

  test('a refused key and an unknown model are not tried again', async () => {
    const { url, bodies } = await serve(
      json(401, { error: { message: 'bad key' } }),
      json(404, { error: { message: 'no such model' } }),
    )
    expectFailure(await open(url).generate(request), 'bad_request', url, 'bad key', 'apiKeyEnv')
    expectFailure(await open(url).generate(request), 'bad_request', url, 'no such model')
    expect(bodies).toHaveLength(2)
  })

  test('a prompt that is too long is a context limit', async () => {
    const { url } = await serve(json(400, { error: { message: "This model's maximum context length is 512 tokens" } }))
    expectFailure(await open(url).generate(request), 'context_limit', url)
  })

  test('a server that never answers', async () => {
    const { url, bodies } = await serve(() => undefined)
    const begin = performance.now()
    expectFailure(
      await open(url, { attemptSeconds: 0.2, retries: 1, deadlineSeconds: 3 }).generate(request),
      'timeout',
      url,
      '0.2 s',
    )
    expect(performance.now() - begin).toBeLessThan(2500)
    expect(bodies).toHaveLength(2)
  })

  test('a server that hangs in the middle of its answer', async () => {
    const { url } = await serve((_body, response) => {
      response.writeHead(200, { 'content-type': 'application/json' })
      response.write('{"choices":')
    })
    const begin = performance.now()
    expectFailure(await open(url, { deadlineSeconds: 0.4 }).generate(request), 'timeout', url, '0.4 s')
    expect(performance.now() - begin).toBeLessThan(2000)
  })

  test('nobody listens', async () => {
    const { url } = await serve(chat('x'))
    closers.splice(0).forEach((close) => close())
    expectFailure(await open(url, { retries: 0 }).generate(request), 'unreachable', url, 'ECONNREFUSED')
  })

  test.each([
    ['text instead of JSON', (_body: unknown, response: ServerResponse) => response.end('<html>welcome</html>')],
    [
      'JSON that is broken',
      (_body: unknown, response: ServerResponse) =>
        response.writeHead(200, { 'content-type': 'application/json' }).end('{"choices":'),
    ],
    ['JSON of another kind', json(200, { hello: 'world' })],
    ['no choices', json(200, { choices: [], usage })],
    ['a filtered answer', chat('', {}, 'content_filter')],
  ])('%s', async (_name, handler) => {
    const { url } = await serve(handler as Handler)
    expectFailure(await open(url).generate(request), 'bad_response', url)
  })

  test('cancelled by the caller, while waiting and before a retry', async () => {
    const { url } = await serve(() => undefined)
    expectFailure(await open(url).generate({ ...request, signal: AbortSignal.timeout(100) }), 'cancelled', url)
    const busy = await serve(json(503, {}, { 'retry-after': '5' }))
    expectFailure(
      await open(busy.url).generate({ ...request, signal: AbortSignal.timeout(100) }),
      'cancelled',
      busy.url,
    )
  })

  test('a key that is not in the environment', () => {
    const options = endpointPolicyOptions.parse({
      type: 'endpoint',
      baseUrl: 'http://127.0.0.1:9/v1',
      model: 'm',
      apiKeyEnv: 'SHOWRUNNER_NO_SUCH_KEY',
    })
    expect(openEndpoint(options)).toMatchObject({
      ok: false,
      failure: { message: expect.stringContaining('SHOWRUNNER_NO_SUCH_KEY') },
    })
  })
})
