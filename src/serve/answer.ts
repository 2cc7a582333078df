/**
 * Answers one request for completions: finds its model, queues and samples, sends the answer whole or as it comes, counts, and records it
 * where sessions are captured. Ends the sampling when the client goes away.
 */
import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { Policy } from '../types.ts'
import { abortFor } from './abort.ts'
import type { Capture, Session } from './capture.ts'
import { ApiError } from './errors.ts'
import { type Choice, checkRoom, generateChoices, type RenderedPrompt, renderPrompts } from './generate.ts'
import type { Keys } from './keys.ts'
import type { Metrics } from './metrics.ts'
import { type ModelRegistry, type ServedModel, versionOf } from './models.ts'
import type { ServeOptions } from './options.ts'
import { type FairQueue, QueueFull } from './queue.ts'
import type { ServeRequest } from './requests.ts'
import { type Endpoint, type ResponseHead, responseBody, versionsOf } from './responses.ts'
import { refused } from './schema.ts'
import { StreamedAnswer } from './streamed.ts'

/** What requests of one server share. */
export interface Shared {
  options: ServeOptions
  models: ModelRegistry
  queue: FairQueue
  metrics: Metrics
  capture: Capture | null
  keys: Keys
  /** Aborted when the server stops waiting for running requests. */
  closing: AbortSignal
  log(line: string): void
}

export async function answer(
  endpoint: Endpoint,
  asked: ServeRequest,
  http: FastifyRequest,
  reply: FastifyReply,
  shared: Shared,
) {
  const { options, models, queue, metrics, closing } = shared
  const begun = performance.now()
  const lease = models.use(asked.model)
  const seconds = () => (performance.now() - begun) / 1000
  const session = shared.capture?.session(http.headers) ?? null
  try {
    const { model } = lease
    const { policy } = model
    const request = withModelStops(asked, model)
    checkSize(request, options)
    if (request.parseTools && policy.tokenizer?.toolSyntax === 'other')
      throw refused(
        'tools',
        `calls as the chat template of ${model.name} writes them are not read; ask with "tool_choice": "none"`,
      )
    const prompts = continued(renderPrompts(request, policy), request, policy, session)
    refuseWhenFull(queue, prompts.length * request.n, metrics)

    const head: ResponseHead = {
      endpoint,
      id: `${endpoint === 'chat' ? 'chatcmpl' : 'cmpl'}-${randomUUID()}`,
      created: Math.floor(Date.now() / 1000),
      request,
      tokenizer: policy.tokenizer,
    }
    const abort = abortFor(reply, closing, options.deadlineSeconds, `Not done within ${options.deadlineSeconds} s.`)
    const { signal } = abort
    reply.raw.on('close', () => {
      if (!reply.raw.writableEnded) metrics.left.inc()
    })
    let streaming: StreamedAnswer | null = null
    let hasToken = false
    const choices = generateChoices(request, prompts, {
      policy,
      queue,
      client: clientOf(http, request, shared.keys),
      session: request.n === 1 && prompts.length === 1 ? sessionKey(http, model) : null,
      signal,
      onToken(index, token) {
        if (!hasToken) metrics.firstToken.observe({ route: endpoint }, seconds())
        hasToken = true
        streaming?.push(index, token)
      },
    })
    // what is refused is refused before a stream has begun
    if (request.stream) streaming = new StreamedAnswer(head, reply, versionOf(model), prompts)
    // one failure fails the request: stop the samples that still run
    for (const choice of choices) choice.catch((error) => abort.abort(error))
    const finished = (all: readonly Choice[]) => {
      metrics.duration.observe({ route: endpoint }, seconds())
      count(metrics, all)
      if (session) record(session, request, head, all, seconds())
      if (shared.capture) metrics.captured.inc({ outcome: session ? 'recorded' : 'no_session' })
      logTexts(shared, head, all)
    }
    if (streaming) {
      await streaming.send(choices, finished)
      return reply
    }
    const all = await Promise.all(choices)
    finished(all)
    reply.header('x-policy-version', versionsOf(all))
    return responseBody(head, all)
  } finally {
    lease.done()
  }
}

/** The stop strings of the model itself belong to what it says, so they are kept in the text. */
function withModelStops(request: ServeRequest, { stopStrings }: ServedModel): ServeRequest {
  return request.stop.length === 0 && stopStrings.length > 0
    ? { ...request, stop: stopStrings, includeStop: true }
    : request
}

function checkSize({ prompts, n }: ServeRequest, { maxSequences }: ServeOptions) {
  const count = prompts.length * n
  if (count > maxSequences)
    throw refused(
      'n',
      `${prompts.length} prompts times ${n} samples is ${count} sequences; at most ${maxSequences} are allowed`,
    )
}

function refuseWhenFull(queue: FairQueue, sequences: number, metrics: Metrics) {
  try {
    queue.check(sequences)
  } catch (error) {
    if (!(error instanceof QueueFull)) throw error
    metrics.refused.inc()
    throw new ApiError(429, `${error.waiting} sequences wait already; try again in ${error.retrySeconds} s.`, {
      code: 'queue_full',
      retrySeconds: error.retrySeconds,
    })
  }
}

/** A captured conversation goes on from the ids that were sampled, where its messages are the same (spec/pitfalls.md, rows 1-5). */
function continued(
  prompts: readonly RenderedPrompt[],
  request: ServeRequest,
  policy: Policy,
  session: Session | null,
): readonly RenderedPrompt[] {
  const [only] = prompts
  if (!session || !policy.tokenizer || only?.ids == null || only.prompt.kind !== 'messages') return prompts
  const { opening = 'new message', tools, variables } = only.prompt.settings
  const earlier = session.continuation(only.prompt.messages)
  if (earlier === null || opening !== 'new message' || tools || variables) return prompts
  if (earlier.ids.every((id, t) => only.ids?.[t] === id)) return prompts
  const added = policy.tokenizer.encodeContinuation(earlier.added)
  // a policy that sampled its own end-of-message token has already written what the continuation begins with
  if (added[0] === earlier.ids.at(-1)) added.shift()
  const ids = [...earlier.ids, ...added]
  checkRoom(request, only.prompt, ids.length, policy)
  return [{ ...only, ids }]
}

/** What a session keeps of a call. A policy without token ids cannot be trained on: 502. */
function record(session: Session, request: ServeRequest, head: ResponseHead, all: readonly Choice[], seconds: number) {
  const [first] = all
  if (first === undefined || all.some(({ ids, logprobs, prompt }) => !ids || !logprobs || !prompt.ids))
    throw new ApiError(502, `${request.model} tells no token ids, so a session cannot be captured from it.`, {
      code: 'bad_response',
    })
  const { prompt } = first
  session.record({
    promptText: head.tokenizer?.decode(prompt.ids ?? []) ?? '',
    messages: prompt.prompt.kind === 'messages' ? prompt.prompt.messages : null,
    seed: request.seed === null ? '' : String(request.seed),
    maxTokens: request.maxTokens ?? 0,
    seconds,
    answers: all.map(({ ids, logprobs, prompt, ...choice }) => ({
      promptIds: prompt.ids ?? [],
      tokenIds: ids ?? [],
      logprobs: logprobs ?? [],
      version: choice.version,
      text: choice.text,
      finishReason: choice.finishReason,
    })),
  })
}

/** Who takes turns with whom: keys where they are asked for, else what a client calls itself, else its address. */
function clientOf(http: FastifyRequest, { user }: ServeRequest, { required }: Keys): string {
  return (required ? http.headers.authorization : user) ?? http.ip
}

function sessionHeader(http: FastifyRequest): string | null {
  const value = http.headers['x-session-id']
  return typeof value === 'string' && value !== '' ? value : null
}

/** Caches of one conversation under one set of weights. */
function sessionKey(http: FastifyRequest, model: ServedModel): string | null {
  const session = sessionHeader(http)
  return session === null ? null : `${model.name}/${http.headers.authorization ?? ''}/${session}`
}

function count(metrics: Metrics, choices: readonly Choice[]) {
  const prompts = new Map(choices.map((choice) => [choice.prompt, choice.promptTokens]))
  for (const tokens of prompts.values()) metrics.tokens.inc({ kind: 'prompt' }, tokens)
  for (const { completionTokens } of choices) metrics.tokens.inc({ kind: 'sampled' }, completionTokens)
}

function logTexts({ options, log }: Shared, { id, request, tokenizer }: ResponseHead, choices: readonly Choice[]) {
  if (options.log !== 'texts') return
  const prompts = request.prompts.map((prompt) =>
    prompt.kind === 'text' ? prompt.text : prompt.kind === 'ids' ? tokenizer?.decode(prompt.ids) : prompt.messages,
  )
  log(JSON.stringify({ id, prompts, answers: choices.map(({ text }) => text) }))
}
