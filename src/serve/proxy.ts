/**
 * Passes requests on to another endpoint (vLLM, or one of ours) and stores what sessions sample there as trajectories. Token ids and
 * log-probabilities must come from that endpoint: calls of a session without them are refused with 502 and counted, since what cannot be
 * trained on should not look as if it were (spec/pitfalls.md, rows 5 and 22). Samples nothing, renders nothing, and retries nothing.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { ChatMessage, Result } from '../types.ts'
import { abortFor } from './abort.ts'
import { type Capture, openCapture, type Session } from './capture.ts'
import type { CapturedAnswer } from './conversation.ts'
import { ApiError } from './errors.ts'
import { createHttpServer } from './http.ts'
import { type Keys, readKeys } from './keys.ts'
import { createMetrics, type Metrics } from './metrics.ts'
import { listenFailure, type ServeSettings, warnStrangers } from './open.ts'
import type { ServeOptions } from './options.ts'
import { FairQueue } from './queue.ts'
import { rewardCall } from './rewards.ts'
import { eventStream } from './stream.ts'

type Body = Record<string, unknown>

/** What we read of an answer. Servers send more, which is passed on as it is. */
const ids = z.array(z.number().int().min(0))
const finite = z.number().refine((value) => value > LOWEST)
const answerShape = z.object({
  model: z.string().optional(),
  prompt_token_ids: ids.nullish(),
  weight_version: z.union([z.string(), z.number()]).nullish(),
  choices: z
    .array(
      z.object({
        index: z.number().int().optional(),
        finish_reason: z.string(),
        text: z.string().optional(),
        message: z.object({ content: z.string().nullish(), tool_calls: z.array(z.unknown()).nullish() }).optional(),
        prompt_token_ids: ids.nullish(),
        token_ids: ids,
        logprobs: z.union([
          z.object({ content: z.array(z.object({ logprob: finite })) }),
          z.object({ token_logprobs: z.array(finite) }),
        ]),
      }),
    )
    .min(1),
})

/** vLLM writes minus infinity as -9999; a token of probability 0 cannot have been sampled. */
const LOWEST = -9998

/** Log-probabilities must be of the distribution that was sampled from; these would make it another (spec/pitfalls.md, row 6). */
const NEUTRAL: Readonly<Record<string, readonly unknown[]>> = {
  top_p: [1],
  top_k: [0, -1],
  min_p: [0],
  logit_bias: [],
  presence_penalty: [0],
  frequency_penalty: [0],
  repetition_penalty: [1],
  min_tokens: [0],
  response_format: [],
  structured_outputs: [],
  bad_words: [],
  allowed_token_ids: [],
}

/** Passed on in either direction; whatever else there is belongs to one connection. */
const REQUEST_HEADERS = ['x-session-id', 'x-request-id', 'accept'] as const
const ANSWER_HEADERS = ['content-type', 'retry-after', 'x-policy-version', 'x-request-id'] as const

export interface RunningProxy {
  url: string
  /** The endpoint that requests are passed on to. */
  model: string
  /** Fails when captured sessions could not be stored. */
  close(): Promise<Result<void>>
}

export async function startProxy(
  options: ServeOptions,
  { log = () => {} }: ServeSettings = {},
): Promise<Result<RunningProxy>> {
  const target = targetOf(options)
  if (!target.ok) return target
  const keys = await readKeys(options)
  if (!keys.ok) return keys
  const captured = await openCapture(options)
  if (!captured.ok) return captured
  const server = createProxy(options, target.value, keys.value, captured.value?.capture, log)
  const close = async (): Promise<Result<void>> => {
    await server.close()
    return (await captured.value?.close()) ?? { ok: true, value: undefined }
  }
  try {
    const url = await server.listen({ host: options.host, port: options.port })
    warnStrangers(options, keys.value, log)
    return { ok: true, value: { url, model: target.value, close } }
  } catch (error) {
    await close()
    return { ok: false, failure: listenFailure(error as NodeJS.ErrnoException, options) }
  }
}

function createProxy(
  options: ServeOptions,
  target: string,
  keys: Keys,
  capture: Capture | undefined,
  log: (line: string) => void,
) {
  const metrics = createMetrics(new FairQueue({ places: options.concurrency, mostWaiting: options.maxWaiting }))
  const { server, closing } = createHttpServer({ options, keys, metrics, log }, () => {})
  const upstream: Upstream = { target, key: process.env[options.proxyKeyVariable] ?? null, options, closing }

  server.get('/health', async () => ({ status: 'ok' }))
  server.get('/metrics', async (_request, reply) => {
    reply.type(metrics.registry.contentType)
    return metrics.registry.metrics()
  })
  server.post('/v1/rewards', async (request) => rewardCall(capture, request.body, request.headers))
  for (const route of ['/v1/chat/completions', '/v1/completions'])
    server.post(route, async (request, reply) => {
      const session = capture?.session(request.headers) ?? null
      if (capture && !session) metrics.captured.inc({ outcome: 'no_session' })
      return session ? sample(request, reply, session, upstream, metrics) : passOn(request, reply, upstream)
    })
  // whatever else the endpoint has
  server.all('/*', (request, reply) => passOn(request, reply, upstream))
  return server
}

interface Upstream {
  target: string
  key: string | null
  options: ServeOptions
  closing: AbortSignal
}

/** Asks for ids and log-probabilities, records them, and gives the client what it asked for. */
async function sample(
  request: FastifyRequest,
  reply: FastifyReply,
  session: Session,
  upstream: Upstream,
  metrics: Metrics,
) {
  const begun = performance.now()
  const asked = (request.body ?? {}) as Body
  checkDistribution(asked)
  const isChat = request.url.includes('/chat/')
  const { response, text } = await ask(request, reply, upstream, wanted(asked, isChat), (response) => response.text())
  if (!response.ok) return withHeaders(reply, response).send(text)
  const body = objectIn(text)
  const answers = body === null ? 'it is no JSON object' : answersOf(body, isChat)
  if (body === null || typeof answers === 'string') {
    metrics.captured.inc({ outcome: 'refused' })
    throw new ApiError(
      502,
      `${upstream.target} answered without what a trajectory needs: ${answers}. It must know return_token_ids and logprobs (vLLM 0.10.2 and later); without an X-Session-ID nothing is captured, and its answer is passed on as it is.`,
      { code: 'bad_response' },
    )
  }
  const messages = isChat ? ((asked.messages ?? []) as ChatMessage[]) : null
  session.record({
    promptText: typeof asked.prompt === 'string' ? asked.prompt : messages ? JSON.stringify(messages) : '',
    messages: null,
    seed: asked.seed == null ? '' : String(asked.seed),
    maxTokens: Number(asked.max_completion_tokens ?? asked.max_tokens ?? 0),
    seconds: (performance.now() - begun) / 1000,
    answers,
  })
  metrics.captured.inc({ outcome: 'recorded' })
  const answer = asAsked(body, asked)
  if (asked.stream === true) return streamed(reply, answer, asked)
  return withHeaders(reply, response).send(answer)
}

/** What the endpoint is asked for: the same, whole, with ids and log-probabilities. */
function wanted(asked: Body, isChat: boolean): Body {
  const { stream_options, ...rest } = asked
  const logprobs = isChat ? true : typeof asked.logprobs === 'number' ? asked.logprobs : 1
  return { ...rest, stream: false, return_token_ids: true, logprobs }
}

function objectIn(text: string): Body | null {
  try {
    const body: unknown = JSON.parse(text)
    return typeof body === 'object' && body !== null && !Array.isArray(body) ? (body as Body) : null
  } catch {
    return null
  }
}

function checkDistribution(asked: Body) {
  for (const [name, neutral] of Object.entries(NEUTRAL)) {
    const value = asked[name]
    const isEmpty = value == null || (typeof value === 'object' && Object.keys(value).length === 0)
    const isText = name === 'response_format' && (value as Body | null)?.type === 'text'
    if (isEmpty || isText || neutral.includes(value)) continue
    throw new ApiError(
      400,
      `${name}: a captured session must be sampled from the whole distribution, of which its log-probabilities are; leave it out or give ${neutral[0] ?? 'nothing'}.`,
      { param: name },
    )
  }
}

/** What was sampled; what is missing, where something is. */
function answersOf(body: Body, isChat: boolean): CapturedAnswer[] | string {
  const parsed = answerShape.safeParse(body)
  if (!parsed.success) {
    const [issue] = parsed.error.issues
    return `${issue?.path.join('.')}: ${issue?.message}`
  }
  const { choices, prompt_token_ids, weight_version, model } = parsed.data
  const answers: CapturedAnswer[] = []
  for (const { logprobs, token_ids, finish_reason, ...choice } of choices) {
    if (finish_reason === 'abort') return 'the endpoint gave up in the middle of it'
    const values = 'content' in logprobs ? logprobs.content.map(({ logprob }) => logprob) : logprobs.token_logprobs
    const promptIds =
      (isChat ? prompt_token_ids : choice.prompt_token_ids) ?? prompt_token_ids ?? choice.prompt_token_ids
    if (!promptIds) return 'prompt_token_ids are missing'
    if (values.length !== token_ids.length)
      return `${token_ids.length} token ids and ${values.length} log-probabilities`
    answers.push({
      promptIds,
      tokenIds: token_ids,
      logprobs: values,
      version: String(weight_version ?? model ?? 'unknown'),
      text: choice.text ?? writtenIn(choice.message),
      finishReason: finish_reason,
    })
  }
  return answers
}

/** For readers: calls of tools as they were taken out of the text. */
function writtenIn(message: { content?: string | null; tool_calls?: unknown[] | null } = {}): string {
  return [message.content ?? '', ...(message.tool_calls ?? []).map((call) => JSON.stringify(call))].join('\n').trim()
}

/** Without what only we asked for. */
function asAsked(body: Body, asked: Body): Body {
  const { prompt_token_ids, ...rest } = body
  const choices = (body.choices as Body[]).map(({ token_ids, prompt_token_ids: ofChoice, logprobs, ...choice }) => ({
    ...choice,
    logprobs: asked.logprobs == null || asked.logprobs === false ? null : logprobs,
    ...(asked.return_token_ids === true ? { token_ids, ...(ofChoice ? { prompt_token_ids: ofChoice } : {}) } : {}),
  }))
  return { ...rest, choices, ...(asked.return_token_ids === true && prompt_token_ids ? { prompt_token_ids } : {}) }
}

/** The whole answer as a stream, each choice in one chunk. */
function streamed(reply: FastifyReply, answer: Body, asked: Body) {
  const { choices, usage, object, ...rest } = answer
  const isChat = object === 'chat.completion'
  const head = { ...rest, object: isChat ? 'chat.completion.chunk' : object }
  reply.hijack()
  const events = eventStream(reply.raw, {})
  for (const { message, ...choice } of choices as (Body & { message?: Body })[]) {
    const calls = (message?.tool_calls as Body[] | undefined)?.map((call, index) => ({ index, ...call }))
    const delta = message ? { delta: { ...message, ...(calls ? { tool_calls: calls } : {}) } } : {}
    events.send({ ...head, choices: [{ ...choice, ...delta }] })
  }
  if ((asked.stream_options as Body | undefined)?.include_usage === true) events.send({ ...head, choices: [], usage })
  events.end()
  return reply
}

/** The request and its answer as they are. */
async function passOn(request: FastifyRequest, reply: FastifyReply, upstream: Upstream) {
  const { response } = await ask(request, reply, upstream, request.body as Body | undefined)
  return withHeaders(reply, response).send(response.body)
}

function withHeaders(reply: FastifyReply, response: Response): FastifyReply {
  reply.code(response.status)
  for (const name of ANSWER_HEADERS) {
    const value = response.headers.get(name)
    if (value !== null) reply.header(name, value)
  }
  return reply
}

/** Resolves when the answer begins, or with `read` when that is done: until then whatever goes wrong is an `ApiError`. */
async function ask(
  request: FastifyRequest,
  reply: FastifyReply,
  { target, key, options, closing }: Upstream,
  body: Body | undefined,
  read: (response: Response) => Promise<string> = async () => '',
): Promise<{ response: Response; text: string }> {
  const authorization = key === null ? request.headers.authorization : `Bearer ${key}`
  const headers: Record<string, string> = authorization === undefined ? {} : { authorization }
  if (body !== undefined) headers['content-type'] = 'application/json'
  for (const name of REQUEST_HEADERS) {
    const value = request.headers[name]
    if (typeof value === 'string') headers[name] = value
  }
  const seconds = options.deadlineSeconds
  const { signal } = abortFor(reply, closing, seconds, `${target} did not answer within ${seconds} s.`)
  try {
    const response = await fetch(urlFor(target, request.url), {
      method: request.method,
      headers,
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      signal,
    })
    return { response, text: await read(response) }
  } catch (error) {
    if (error instanceof ApiError) throw error
    const { cause, message } = error as Error & { cause?: { code?: string; message?: string } }
    throw new ApiError(502, `${target} cannot be reached (${cause?.code ?? cause?.message ?? message}).`, {
      code: 'unreachable',
    })
  }
}

/** `/v1/...` lies under the base URL; what else a server has (`/tokenize`, `/load_lora_adapter`) beside it. */
function urlFor(target: string, path: string): string {
  return path.startsWith('/v1/') ? target + path.slice(3) : target.replace(/\/v1$/, '') + path
}

function targetOf({ proxy }: ServeOptions): Result<string> {
  const url = proxy === null ? null : URL.parse(proxy)
  if (url !== null && /^https?:$/.test(url.protocol)) return { ok: true, value: String(url).replace(/\/+$/, '') }
  return {
    ok: false,
    failure: {
      boundary: 'serve',
      kind: 'bad_request',
      message: `serve.proxy: expected the base URL of an endpoint, such as http://gpu:8000/v1, got ${JSON.stringify(proxy)}`,
    },
  }
}
