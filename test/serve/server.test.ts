import type { FastifyInstance } from 'fastify'
import OpenAI, { APIError } from 'openai'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { openEndpoint } from '../../src/policy/endpoint.ts'
import { endpointPolicyOptions } from '../../src/policy/options.ts'
import { type Script, ScriptedPolicy } from '../../src/policy/scripted.ts'
import { keysOf } from '../../src/serve/keys.ts'
import { ModelRegistry } from '../../src/serve/models.ts'
import { serveOptions } from '../../src/serve/options.ts'
import { createServer } from '../../src/serve/server.ts'
import type { GenerateRequest, Generation, Policy, Result } from '../../src/types.ts'
import { letters } from './letters.ts'

const running: FastifyInstance[] = []
afterEach(async () => {
  await Promise.all(running.splice(0).map((server) => server.close()))
})

/** Starts a server over `policy` on a free port. */
async function serve(
  policy: Policy,
  options: Record<string, unknown> = {},
  { stopStrings = [], keys = [] }: { stopStrings?: string[]; keys?: string[] } = {},
) {
  const created = new Date('2026-01-02T03:04:05Z')
  const models = new ModelRegistry()
  models.add({ name: 'master', policy, created, root: null, parent: null, stopStrings })
  const server = createServer(serveOptions.parse(options), { models, keys: keysOf(keys) })
  running.push(server)
  const url = await server.listen({ host: '127.0.0.1', port: 0 })
  return { url, server, client: new OpenAI({ baseURL: `${url}/v1`, apiKey: 'any', maxRetries: 0 }) }
}

function scripted(script: Script, contextLength: number | null = 200) {
  return new TellingPolicy(script, { tokenizer: letters, contextLength })
}

/** Says each token as it is sampled, and tells its alternatives: there are none, since a script is certain. */
class TellingPolicy extends ScriptedPolicy {
  override async generate(request: GenerateRequest): Promise<Result<Generation>> {
    const result = await super.generate(request)
    if (!result.ok) return result
    const told = (result.value.tokenIds ?? []).map((id) => ({ id, logprob: 0, rank: 1, alternatives: [] }))
    for (const token of told) request.onToken?.(token)
    return { ok: true, value: { ...result.value, ...(request.tellSampled === undefined ? {} : { told }) } }
  }
}

/** A policy that returns what it is given, for answers that no well-behaved policy gives. */
function returning(result: Result<Partial<Generation>>): Policy {
  const base: Generation = {
    text: 'ab',
    tokenIds: [97, 98],
    logprobs: [-0.5, -0.25],
    finishReason: 'stop',
    version: 'v1',
    usage: { calls: 1, promptTokens: 3, completionTokens: 2, frames: 0, seconds: 0, costUsd: 0, cached: 0 },
  }
  return {
    name: 'returning',
    version: 'v1',
    tokenizer: letters,
    contextLength: 200,
    generate: async () => (result.ok ? { ok: true, value: { ...base, ...result.value } } : result),
    close: async () => {},
  }
}

/** A raw request, for what the client would not send. */
async function post(url: string, path: string, body: unknown, headers: Record<string, string> = {}) {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
  return {
    status: response.status,
    body: (await response.json()) as { error?: unknown; choices?: unknown[]; usage?: unknown },
    headers: response.headers,
  }
}

/** A chunk with vLLM's additions. */
type ChatChunk = Omit<OpenAI.ChatCompletionChunk, 'choices'> & {
  prompt_token_ids?: number[]
  choices: (OpenAI.ChatCompletionChunk.Choice & { token_ids?: number[] })[]
}

type CompletionPiece = OpenAI.CompletionChoice & { token_ids: number[]; prompt_token_ids?: number[] }

const hello = { model: 'master', messages: [{ role: 'user' as const, content: 'hello' }] }
const answerA1 = () => '<answer>a1</answer>'

describe('models and health', () => {
  test('models tell name, context length and version', async () => {
    const { client, url } = await serve(scripted(answerA1))
    const models = await client.models.list()
    expect(models.data).toEqual([
      {
        id: 'master',
        object: 'model',
        created: 1_767_323_045,
        owned_by: 'showrunner',
        max_model_len: 200,
        root: 'master',
        parent: null,
        policy_version: 'scripted',
      },
    ])
    expect((await client.models.retrieve('master')).id).toBe('master')
    expect((await fetch(`${url}/health`)).status).toBe(200)
  })
})

describe('chat', () => {
  test('answers with text, finish reason, usage and the policy version in body and header', async () => {
    const { client } = await serve(scripted((messages) => `${messages.at(-1)?.content}!`))
    const { data, response } = await client.chat.completions.create(hello).withResponse()
    expect(data).toMatchObject({ object: 'chat.completion', model: 'master', policy_version: 'scripted' })
    expect(data.choices).toEqual([
      {
        index: 0,
        message: { role: 'assistant', content: 'hello!', refusal: null },
        finish_reason: 'stop',
        stop_reason: null,
        logprobs: null,
      },
    ])
    const prompt = 'user:hello\nassistant:'.length
    expect(data.usage).toEqual({ prompt_tokens: prompt, completion_tokens: 6, total_tokens: prompt + 6 })
    expect(response.headers.get('x-policy-version')).toBe('scripted')
  })

  test('gives token ids of prompt and samples, and one finite log-probability per id', async () => {
    const { client } = await serve(returning({ ok: true, value: {} }))
    const body = { ...hello, logprobs: true, return_token_ids: true }
    const data = await client.chat.completions.create(body)
    expect(data).toMatchObject({
      prompt_token_ids: letters.encode('user:hello\nassistant:'),
      choices: [{ token_ids: [97, 98] }],
    })
    expect(data.choices[0]?.logprobs?.content).toEqual([
      { token: 'a', logprob: -0.5, bytes: [97], top_logprobs: [] },
      { token: 'b', logprob: -0.25, bytes: [98], top_logprobs: [] },
    ])
  })

  test('ends at a stop string, leaves it out of the text, keeps its ids, and says which it was', async () => {
    const { client } = await serve(scripted(() => 'look</vq> and more'))
    const body = { ...hello, stop: ['</vq>', '</answer>'], return_token_ids: true }
    const { choices } = await client.chat.completions.create(body)
    expect(choices).toMatchObject([
      {
        finish_reason: 'stop',
        stop_reason: '</vq>',
        message: { content: 'look' },
        token_ids: letters.encode('look</vq>'),
      },
    ])
    const kept = { ...body, include_stop_str_in_output: true }
    expect((await client.chat.completions.create(kept)).choices[0]?.message.content).toBe('look</vq>')
  })

  test('stops at max_tokens with finish reason length; without a limit it may fill the context', async () => {
    const { client } = await serve(scripted(() => 'x'.repeat(500)))
    const limited = await client.chat.completions.create({ ...hello, max_completion_tokens: 7 })
    expect(limited.choices[0]).toMatchObject({ finish_reason: 'length', message: { content: 'xxxxxxx' } })
    const full = await client.chat.completions.create(hello)
    expect(full.usage?.total_tokens).toBe(200)
  })

  test('passes on messages, temperature and seed; n samples have seeds of their own', async () => {
    const seen: { seed: string; temperature: number; ids: number }[] = []
    const { client } = await serve(
      scripted((_, { seed, sampling, promptIds }) => {
        seen.push({ seed, temperature: sampling.temperature, ids: promptIds?.length ?? 0 })
        return seed
      }),
    )
    const body = { ...hello, n: 3, seed: 11, temperature: 0.5 }
    const first = await client.chat.completions.create(body)
    expect(first.choices.map((choice) => [choice.index, choice.message.content])).toEqual([
      [0, '11/0/0'],
      [1, '11/0/1'],
      [2, '11/0/2'],
    ])
    expect(seen[0]).toEqual({ seed: '11/0/0', temperature: 0.5, ids: 'user:hello\nassistant:'.length })
    expect(await client.chat.completions.create(body).then((again) => again.choices)).toEqual(first.choices)
    await client.chat.completions.create(hello)
    await client.chat.completions.create(hello)
    expect(seen.at(-1)?.seed).not.toBe(seen.at(-2)?.seed)
    expect(first.usage?.prompt_tokens).toBe('user:hello\nassistant:'.length)
  })

  test('reads text parts and the developer role', async () => {
    const { client } = await serve(scripted((messages) => messages.map((m) => `${m.role}=${m.content}`).join(' ')))
    const { choices } = await client.chat.completions.create({
      model: 'master',
      messages: [
        { role: 'developer', content: 'be brief' },
        {
          role: 'user',
          content: [
            { type: 'text', text: 'one ' },
            { type: 'text', text: 'two' },
          ],
        },
      ],
    })
    expect(choices[0]?.message.content).toBe('system=be brief user=one two')
  })

  test('works over a policy without token ids', async () => {
    const { client, url } = await serve(new ScriptedPolicy(answerA1))
    expect((await client.chat.completions.create({ ...hello, max_tokens: 20 })).choices[0]?.message.content).toBe(
      '<answer>a1</answer>',
    )
    const refused = await post(url, '/v1/chat/completions', { ...hello, max_tokens: 20, return_token_ids: true })
    expect(refused).toMatchObject({ status: 400, body: { error: { param: 'return_token_ids' } } })
  })
})

describe('completions', () => {
  const echo = scripted(
    (_, { promptIds, seed }) => `${letters.decode(promptIds ?? [])}#${seed.split('/').slice(1).join('.')}`,
  )

  test('take a string, a list, token ids and lists of them; choices are prompt-major', async () => {
    const { client } = await serve(echo)
    const text = async (prompt: string | string[] | number[] | number[][], n = 1) =>
      (await client.completions.create({ model: 'master', prompt, n, seed: 1 })).choices.map(
        ({ index, text }) => `${index}:${text}`,
      )
    expect(await text('hi')).toEqual(['0:hi#0.0'])
    expect(await text([104, 105])).toEqual(['0:hi#0.0'])
    expect(await text(['hi', 'yo'], 2)).toEqual(['0:hi#0.0', '1:hi#0.1', '2:yo#1.0', '3:yo#1.1'])
    expect(await text([[104, 105], [121]])).toEqual(['0:hi#0.0', '1:y#1.0'])
  })

  test('give prompt ids, sampled ids and log-probabilities in the shape that trainers read', async () => {
    const { url } = await serve(returning({ ok: true, value: {} }))
    const prompt = [[104, 105], [121]]
    const request = {
      model: 'master',
      prompt,
      n: 2,
      logprobs: 0,
      return_token_ids: true,
      return_tokens_as_token_ids: true,
    }
    const { body } = await post(url, '/v1/completions', request)
    expect(body.choices).toHaveLength(4)
    expect(body.choices?.[2]).toEqual({
      index: 2,
      text: 'ab',
      finish_reason: 'stop',
      stop_reason: null,
      token_ids: [97, 98],
      prompt_token_ids: [121],
      logprobs: {
        tokens: ['token_id:97', 'token_id:98'],
        token_logprobs: [-0.5, -0.25],
        top_logprobs: [{ 'token_id:97': -0.5 }, { 'token_id:98': -0.25 }],
        text_offset: [0, 1],
      },
    })
    expect(body.usage).toEqual({ prompt_tokens: 3, completion_tokens: 8, total_tokens: 11 })
  })

  test('take 16 tokens when no limit is given', async () => {
    const { client } = await serve(scripted(() => 'x'.repeat(50)))
    const { choices } = await client.completions.create({ model: 'master', prompt: 'hi' })
    expect(choices[0]).toMatchObject({ text: 'x'.repeat(16), finish_reason: 'length' })
  })
})

describe('streams', () => {
  test('chat: role first, then tokens with ids and log-probabilities as they come, all of them at the end, then usage', async () => {
    const { client } = await serve(scripted((_, { seed }) => seed))
    const stream = await client.chat.completions.create({
      ...hello,
      n: 2,
      seed: 5,
      stream: true,
      logprobs: true,
      stream_options: { include_usage: true },
      ...{ return_token_ids: true },
    })
    const chunks: ChatChunk[] = []
    for await (const chunk of stream) chunks.push(chunk as ChatChunk)
    expect(new Set(chunks.map((chunk) => `${chunk.object} ${chunk.id}`)).size).toBe(1)
    expect(chunks.slice(0, 2).map(({ choices }) => choices[0]?.delta)).toEqual([
      { role: 'assistant', content: '' },
      { role: 'assistant', content: '' },
    ])
    expect(chunks[0]?.prompt_token_ids).toEqual(letters.encode('user:hello\nassistant:'))
    expect(chunks.slice(1).every((chunk) => chunk.prompt_token_ids === undefined)).toBe(true)
    for (const [index, said] of ['5/0/0', '5/0/1'].entries()) {
      const pieces = chunks.flatMap(({ choices }) => choices.filter((choice) => choice.index === index)).slice(1)
      expect(pieces[0]?.delta.content).toBe(said[0])
      expect(pieces.map(({ delta }) => delta.content).join('')).toBe(said)
      expect(pieces.flatMap(({ token_ids }) => token_ids)).toEqual(letters.encode(said))
      expect(pieces.flatMap(({ logprobs }) => logprobs?.content?.map(({ logprob }) => logprob))).toEqual(
        [...said].map(() => 0),
      )
      expect(pieces.slice(0, -1).every((piece) => piece.finish_reason === null)).toBe(true)
      expect(pieces.at(-1)).toMatchObject({
        finish_reason: 'stop',
        all_token_ids: letters.encode(said),
        all_token_logprobs: [...said].map(() => 0),
      })
    }
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 10 } })
    expect(chunks.slice(0, -1).every((chunk) => chunk.usage === null)).toBe(true)
  })

  test('completions: the same text and ids as without streaming, and nothing of the stop string', async () => {
    const { client } = await serve(scripted(() => 'look</vq> and more'))
    const body = { model: 'master', prompt: ['a', 'b'], stop: '</vq>', ...{ return_token_ids: true } }
    const whole = (await client.completions.create(body)).choices as CompletionPiece[]
    const pieces: CompletionPiece[] = []
    for await (const chunk of await client.completions.create({ ...body, stream: true })) {
      expect(chunk).toMatchObject({ policy_version: 'scripted' })
      expect(chunk.usage).toBeUndefined()
      pieces.push(...(chunk.choices as CompletionPiece[]))
    }
    for (const choice of whole) {
      const own = pieces.filter((piece) => piece.index === choice.index)
      expect(own.map(({ text }) => text).join('')).toBe('look')
      expect(own[0]?.prompt_token_ids).toEqual(choice.prompt_token_ids)
      expect(own.flatMap(({ token_ids }) => token_ids)).toEqual(choice.token_ids)
      expect(own.at(-1)).toMatchObject({
        finish_reason: 'stop',
        stop_reason: '</vq>',
        all_token_ids: choice.token_ids,
      })
    }
  })

  test('an error after the start comes as an event that the client raises', async () => {
    const { client } = await serve(
      returning({
        ok: false,
        failure: { boundary: 'policy', kind: 'unreachable', message: 'http://gpu:8000: refused' },
      }),
    )
    const read = async () => {
      for await (const _ of await client.chat.completions.create({ ...hello, stream: true })) void _
    }
    await expect(read()).rejects.toThrow(/gpu:8000: refused/)
  })
})

describe('bad requests', () => {
  const cases: [string, unknown, number, RegExp, string | null][] = [
    ['an unknown parameter', { ...hello, temprature: 1 }, 400, /Unsupported parameter: temprature/, 'temprature'],
    [
      'a penalty',
      { ...hello, presence_penalty: 0.5 },
      400,
      /presence_penalty: only 0 is supported/,
      'presence_penalty',
    ],
    ['top_p of nothing', { ...hello, top_p: 0 }, 400, /top_p/, 'top_p'],
    [
      'a picture',
      { ...hello, messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      400,
      /messages\.0\.content: expected text/,
      'messages.0.content',
    ],
    ['no messages', { model: 'master', messages: [] }, 400, /messages/, 'messages'],
    ['a negative limit', { ...hello, max_tokens: -5 }, 400, /max_tokens: .*>=1/, 'max_tokens'],
    ['two limits', { ...hello, max_tokens: 5, max_completion_tokens: 6 }, 400, /give one of them/, 'max_tokens'],
    [
      'a temperature that is text',
      { ...hello, temperature: 'hot' },
      400,
      /temperature: expected number/,
      'temperature',
    ],
    [
      'stream options without a stream',
      { ...hello, stream_options: { include_usage: true } },
      400,
      /"stream": true/,
      'stream_options',
    ],
    ['too many samples', { ...hello, n: 2000 }, 400, /2000 sequences; at most 1024/, 'n'],
    ['an unknown model', { ...hello, model: 'mater' }, 404, /no model "mater" here; served: master/, 'model'],
    ['no JSON', '{"model":', 400, /JSON/i, null],
    ['a list', '[]', 400, /body: expected object/, null],
  ]
  test.each(cases)('%s', async (_, body, status, message, param) => {
    const { url } = await serve(scripted(answerA1))
    const reply = await post(url, '/v1/chat/completions', body)
    expect(reply.status).toBe(status)
    expect(reply.body.error).toMatchObject({
      type: 'invalid_request_error',
      param,
      message: expect.stringMatching(message),
    })
  })

  test('a prompt that leaves no room is refused with the numbers, never truncated', async () => {
    let called = false
    const { client } = await serve(
      scripted(() => {
        called = true
        return ''
      }),
    )
    const long = { model: 'master', messages: [{ role: 'user' as const, content: 'x'.repeat(150) }] }
    const tokens = 'user:\nassistant:'.length + 150
    await expect(client.chat.completions.create({ ...long, max_tokens: 60 })).rejects.toMatchObject({
      status: 400,
      code: 'context_length_exceeded',
      message: expect.stringContaining(
        `200 tokens, but the prompt has ${tokens} and the answer may take 60: ${tokens + 60} together`,
      ),
    })
    await expect(client.completions.create({ model: 'master', prompt: 'x'.repeat(200) })).rejects.toBeInstanceOf(
      APIError,
    )
    expect(called).toBe(false)
    await client.chat.completions.create({ ...long, max_tokens: 200 - tokens })
    expect(called).toBe(true)
  })

  test('an empty prompt, an empty list, a list of lists of nothing', async () => {
    const { url } = await serve(scripted(answerA1))
    for (const prompt of ['', [], [[]], [''], [-1], [1.5], 7, null]) {
      expect(await post(url, '/v1/completions', { model: 'master', prompt }), JSON.stringify(prompt)).toMatchObject({
        status: 400,
        body: { error: { param: expect.stringMatching(/^prompt/) } },
      })
    }
  })

  test('a body over the limit, another content type, another path', async () => {
    const { url } = await serve(scripted(answerA1), { bodyLimitBytes: 1000 })
    const large = await post(url, '/v1/chat/completions', { ...hello, user: 'x'.repeat(2000) })
    expect(large).toMatchObject({ status: 413, body: { error: { type: 'invalid_request_error' } } })
    const type = await post(url, '/v1/chat/completions', 'hello', { 'content-type': 'text/csv' })
    expect(type).toMatchObject({ status: 415, body: { error: { type: 'invalid_request_error' } } })
    const path = await post(url, '/v1/embeddings', {})
    expect(path).toMatchObject({
      status: 404,
      body: { error: { message: expect.stringContaining('/v1/chat/completions') } },
    })
  })
})

describe('a policy that fails', () => {
  test.each([
    ['context_limit', 400, 'context_length_exceeded'],
    ['rate_limited', 429, 'rate_limited'],
    ['timeout', 504, 'timeout'],
    ['unreachable', 502, 'unreachable'],
  ] as const)('%s becomes a %i', async (kind, status, code) => {
    const { url } = await serve(
      returning({ ok: false, failure: { boundary: 'policy', kind, message: 'what happened' } }),
    )
    const reply = await post(url, '/v1/chat/completions', hello)
    expect(reply).toMatchObject({ status, body: { error: { message: 'what happened', code } } })
  })

  test('a NaN among the log-probabilities, or one too few, is an error and not a null', async () => {
    for (const logprobs of [[-0.5, Number.NaN], [-0.5, Number.NEGATIVE_INFINITY], [-0.5]]) {
      const { url } = await serve(returning({ ok: true, value: { logprobs } }))
      const reply = await post(url, '/v1/chat/completions', { ...hello, logprobs: true })
      expect(reply).toMatchObject({ status: 500, body: { error: { code: 'bad_response' } } })
    }
  })

  test('a bug inside it is a 500 that tells nothing of the inside, which goes to the log', async () => {
    const log = vi.spyOn(console, 'error').mockImplementation(() => {})
    const { url } = await serve(
      scripted(() => {
        throw new Error('secret detail')
      }),
    )
    const reply = await post(url, '/v1/chat/completions', hello)
    expect(reply).toMatchObject({ status: 500, body: { error: { type: 'server_error' } } })
    expect(JSON.stringify(reply.body)).not.toContain('secret')
    expect(String(log.mock.calls[0]?.[0])).toContain('secret detail')
    log.mockRestore()
  })
})

describe('cancelling', () => {
  /** Generates until its signal aborts, and says so. */
  function endless() {
    let aborted: () => void = () => {}
    const wasAborted = new Promise<void>((resolve) => {
      aborted = resolve
    })
    let started: () => void = () => {}
    const hasStarted = new Promise<void>((resolve) => {
      started = resolve
    })
    const policy = scripted(
      (_, { signal }) =>
        new Promise<string>((resolve) => {
          started()
          signal?.addEventListener('abort', () => {
            aborted()
            resolve('cut')
          })
        }),
    )
    return { policy, hasStarted, wasAborted }
  }

  test.each([false, true])('a client that goes away stops the generation (stream: %s)', async (stream) => {
    const { policy, hasStarted, wasAborted } = endless()
    const { client } = await serve(policy)
    const leaving = new AbortController()
    const request = client.chat.completions.create({ ...hello, stream }, { signal: leaving.signal })
    request.catch(() => {})
    await hasStarted
    leaving.abort()
    await wasAborted
  })

  test('a request over its deadline gets 504 and its generation is stopped', async () => {
    const { policy, wasAborted } = endless()
    const { url } = await serve(policy, { deadlineSeconds: 0.2 })
    const reply = await post(url, '/v1/chat/completions', hello)
    expect(reply).toMatchObject({ status: 504, body: { error: { code: 'timeout' } } })
    await wasAborted
  })

  test('closing lets a running request finish', async () => {
    let finish: (text: string) => void = () => {}
    let begun: () => void = () => {}
    const hasBegun = new Promise<void>((resolve) => {
      begun = resolve
    })
    const { server, client } = await serve(
      scripted(() => {
        begun()
        return new Promise<string>((resolve) => {
          finish = resolve
        })
      }),
    )
    const request = client.chat.completions.create(hello)
    await hasBegun
    const closed = server.close()
    finish('done')
    expect((await request).choices[0]?.message.content).toBe('done')
    await closed
  })

  test('closing answers with 503 what is not done within the grace time', async () => {
    const { policy, hasStarted } = endless()
    const { server, url } = await serve(policy, { graceSeconds: 0.1 })
    const request = post(url, '/v1/chat/completions', hello)
    await hasStarted
    await server.close()
    expect((await request).status).toBe(503)
  })
})

test('with keys, requests without one of them are refused, except for health', async () => {
  const { url } = await serve(scripted(answerA1), {}, { keys: ['other', 'right'] })
  expect((await post(url, '/v1/chat/completions', hello)).status).toBe(401)
  const wrong = await post(url, '/v1/chat/completions', hello, { authorization: 'Bearer wrong' })
  expect(wrong).toMatchObject({
    status: 401,
    body: { error: { type: 'authentication_error', code: 'invalid_api_key' } },
  })
  expect((await post(url, '/v1/chat/completions', hello, { authorization: 'Bearer right' })).status).toBe(200)
  expect((await fetch(`${url}/health`)).status).toBe(200)
  expect((await fetch(`${url}/v1/models`)).status).toBe(401)
})

test('our own endpoint policy reads back the ids, log-probabilities and version that the server gave', async () => {
  const { url } = await serve(scripted(() => '<visual_query>sign</visual_query> rest'))
  const options = { type: 'endpoint', baseUrl: `${url}/v1`, model: 'master', returnTokenIds: true }
  const opened = openEndpoint(endpointPolicyOptions.parse(options), letters)
  if (!opened.ok) throw new Error(opened.failure.message)
  for (const promptIds of [undefined, letters.encode('user:hello\nassistant:')]) {
    const generated = await opened.value.generate({
      messages: hello.messages,
      promptIds,
      sampling: { temperature: 1, maxTokens: 100, stop: ['</visual_query>'] },
      seed: 's',
    })
    const text = '<visual_query>sign</visual_query>'
    expect(generated).toMatchObject({
      ok: true,
      value: { text, tokenIds: letters.encode(text), version: expect.stringContaining('scripted') },
    })
  }
})

test('a model with stop strings of its own ends there and keeps them, unless the request names others', async () => {
  const policy = scripted(() => 'see <answer>a1</answer> and more')
  const { client } = await serve(policy, {}, { stopStrings: ['</answer>'] })
  const ask = async (rest: object) => {
    const body = { model: 'master', messages: [{ role: 'user' as const, content: 'q' }], max_tokens: 100, ...rest }
    return (await client.chat.completions.create(body)).choices[0]?.message.content
  }
  expect(await ask({})).toBe('see <answer>a1</answer>')
  expect(await ask({ stop: ['<answer>'] })).toBe('see ')
})
