/**
 * An OpenAI-compatible endpoint over policies: `/v1/models`, `/v1/chat/completions`, `/v1/completions`, `/health`.
 *
 * Offers only what it does exactly: an unknown or unsupported parameter is a 400 that names it, and nothing is truncated to fit.
 * It does not load checkpoints (open.ts), swap weights, or keep sessions between requests.
 */

import { createHash, randomUUID, timingSafeEqual } from 'node:crypto'
import type { ServerResponse } from 'node:http'
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import type { Policy } from '../types.ts'
import { ApiError, errorBody } from './errors.ts'
import { type Choice, generateChoices, renderPrompts } from './generate.ts'
import type { ServeOptions } from './options.ts'
import { parseChatRequest, parseCompletionRequest, type ServeRequest } from './requests.ts'
import {
  choiceChunk,
  type Endpoint,
  openingChunks,
  type ResponseHead,
  responseBody,
  usageChunk,
  versionOf,
} from './responses.ts'
import { eventStream } from './stream.ts'

export interface ServedPolicy {
  /** What clients write as `model`. */
  name: string
  policy: Policy
  created: Date
  /** Where generation ends when a request names no stop; the stop string is then kept in the text, since it belongs to what the model says. */
  stopStrings?: readonly string[]
}

export interface ServerOptions extends ServeOptions {
  policies: readonly ServedPolicy[]
}

/**
 * The server, not listening yet: `await server.listen({ host, port })`.
 * `close()` lets running requests finish for `graceSeconds`, then answers them with 503. Policies stay open; whoever opened them
 * closes them.
 */
export function createServer(options: ServerOptions): FastifyInstance {
  const server = fastify({
    bodyLimit: options.bodyLimitBytes,
    requestTimeout: 60_000,
    logger: false,
    // after preClose only connections without a request are left; clients keep spare ones open
    forceCloseConnections: true,
  })
  const served = new Map(options.policies.map((one) => [one.name, one]))
  const closing = new AbortController()

  const active = new Set<ServerResponse>()

  server.addHook('onRequest', async (_request, reply) => {
    active.add(reply.raw)
    reply.raw.on('close', () => active.delete(reply.raw))
  })
  server.addHook('preClose', async () => {
    const done = Promise.all([...active].map((response) => new Promise((resolve) => response.on('close', resolve))))
    const grace = setTimeout(
      () => closing.abort(new ApiError(503, 'The server is closing.')),
      options.graceSeconds * 1000,
    )
    // a client that does not read its answer is not waited for
    const unread = new Promise((resolve) =>
      closing.signal.addEventListener('abort', () => setTimeout(resolve, 1000).unref()),
    )
    await Promise.race([done, unread])
    clearTimeout(grace)
  })
  const key = process.env[options.apiKeyVariable]
  if (key) server.addHook('onRequest', async (request) => requireKey(request, key))
  server.setErrorHandler((error: FastifyError | ApiError, _request, reply) => answerError(error, reply))
  server.setNotFoundHandler((request, reply) => {
    const message = `There is no ${request.method} ${request.url} here; try /v1/models, /v1/chat/completions, /v1/completions or /health.`
    return reply.code(404).send(errorBody(404, message, null, 'not_found'))
  })

  server.get('/health', async () => ({ status: 'ok' }))
  server.get('/v1/models', async () => ({ object: 'list', data: [...served.values()].map(modelCard) }))
  server.get<{ Params: { '*': string } }>('/v1/models/*', async (request) => modelCard(find(request.params['*'])))
  server.post('/v1/chat/completions', (request, reply) => answer('chat', parseChatRequest(request.body), reply))
  server.post('/v1/completions', (request, reply) => answer('completions', parseCompletionRequest(request.body), reply))
  return server

  function find(name: string): ServedPolicy {
    const found = served.get(name)
    if (found) return found
    throw new ApiError(404, `There is no model "${name}" here; served: ${[...served.keys()].join(', ')}.`, {
      param: 'model',
      code: 'model_not_found',
    })
  }

  async function answer(endpoint: Endpoint, asked: ServeRequest, reply: FastifyReply) {
    const { policy, stopStrings = [] } = find(asked.model)
    const request: ServeRequest =
      asked.stop.length === 0 && stopStrings.length > 0 ? { ...asked, stop: stopStrings, includeStop: true } : asked
    const count = request.prompts.length * request.n
    if (count > options.maxSequences) {
      throw new ApiError(
        400,
        `n: ${request.prompts.length} prompts times ${request.n} samples is ${count} sequences; at most ${options.maxSequences} are allowed.`,
        { param: 'n' },
      )
    }
    const prompts = renderPrompts(request, policy)
    const head: ResponseHead = {
      endpoint,
      id: `${endpoint === 'chat' ? 'chatcmpl' : 'cmpl'}-${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      request,
      tokenizer: policy.tokenizer,
    }
    const abort = new AbortController()
    const deadline = setTimeout(() => {
      abort.abort(new ApiError(504, `Not done within ${options.deadlineSeconds} s.`, { code: 'timeout' }))
    }, options.deadlineSeconds * 1000)
    reply.raw.on('close', () => {
      clearTimeout(deadline)
      if (!reply.raw.writableEnded) abort.abort(new ApiError(499, 'The client went away.'))
    })
    const signal = AbortSignal.any([abort.signal, closing.signal])
    const choices = generateChoices(request, prompts, policy, signal)
    // one failure fails the request: stop the samples that still run
    for (const choice of choices) choice.catch((error) => abort.abort(error))
    if (request.stream) return stream(head, choices, policy.version, prompts[0]?.ids ?? null, reply)
    const all = await Promise.all(choices)
    reply.header('x-policy-version', versionOf(all))
    return responseBody(head, all)
  }
}

async function stream(
  head: ResponseHead,
  choices: readonly Promise<Choice>[],
  version: string,
  promptIds: readonly number[] | null,
  reply: FastifyReply,
) {
  reply.hijack()
  const events = eventStream(reply.raw, { 'x-policy-version': version })
  try {
    for (const chunk of openingChunks(head, choices.length, version, promptIds)) events.send(chunk)
    const all = await Promise.all(
      choices.map(async (promise) => {
        const choice = await promise
        events.send(choiceChunk(head, choice))
        return choice
      }),
    )
    if (head.request.includeUsage) events.send(usageChunk(head, all))
    events.end()
  } catch (error) {
    const { body } = describeError(error as Error)
    events.fail(body)
  }
}

function modelCard({ name, policy, created }: ServedPolicy) {
  return {
    id: name,
    object: 'model',
    created: Math.floor(created.getTime() / 1000),
    owned_by: 'showrunner',
    max_model_len: policy.contextLength,
    policy_version: policy.version,
  }
}

/** Compares digests, so that the time taken tells nothing about the key. */
function requireKey(request: FastifyRequest, key: string) {
  if (request.url === '/health') return
  const digest = (text: string) => createHash('sha256').update(text).digest()
  const given = request.headers.authorization?.replace(/^Bearer /i, '') ?? ''
  if (!timingSafeEqual(digest(given), digest(key))) {
    throw new ApiError(401, 'The API key is missing or wrong: send it as "Authorization: Bearer KEY".', {
      code: 'invalid_api_key',
    })
  }
}

function answerError(error: FastifyError | ApiError, reply: FastifyReply) {
  const { statusCode, body } = describeError(error)
  return reply.code(statusCode).send(body)
}

/** What a client is told: our own errors and the framework's about the request as they are, anything else as a bug of ours. */
function describeError(error: Error & { statusCode?: number; code?: string | null; param?: string | null }) {
  const statusCode = error.statusCode ?? 500
  if (error instanceof ApiError)
    return { statusCode, body: errorBody(statusCode, error.message, error.param, error.code) }
  if (statusCode < 500) return { statusCode, body: errorBody(statusCode, error.message, null, error.code ?? null) }
  console.error(error)
  return { statusCode: 500, body: errorBody(500, 'The server failed; its log says why.') }
}
