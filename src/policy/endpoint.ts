/**
 * Any OpenAI-compatible endpoint as a policy, for rollouts and evaluation (contract: chat completions, and vLLM's additions for
 * token ids). Every call ends: an attempt has a time limit, the call with its retries has a deadline.
 * Does not limit how many calls run at once, and caches nothing.
 */
import OpenAI, { APIConnectionError, APIConnectionTimeoutError, APIError, APIUserAbortError } from 'openai'
import seedrandom from 'seedrandom'
import { z } from 'zod'
import type { Failure, FailureKind, GenerateRequest, Generation, Policy, Result } from '../types.ts'
import { openHttpClient } from './httpClient.ts'
import type { EndpointPolicyOptions } from './options.ts'
import type { TextTokenizer } from './tokenizer.ts'

/** What we read of a reply. Servers send more; OpenAI sends null where vLLM sends nothing. */
const usageShape = z.object({ prompt_tokens: z.number(), completion_tokens: z.number() }).nullish()
const versionShape = z.union([z.string(), z.number()]).nullish()
const tokenIdsShape = z.array(z.number().int().nonnegative()).nullish()
const chatShape = z.object({
  choices: z
    .array(
      z.object({
        message: z.object({ content: z.string().nullish() }),
        finish_reason: z.string().nullish(),
        token_ids: tokenIdsShape,
        logprobs: z.object({ content: z.array(z.object({ logprob: z.number().nullable() })).nullish() }).nullish(),
      }),
    )
    .min(1),
  usage: usageShape,
  weight_version: versionShape,
})
const textShape = z.object({
  choices: z
    .array(
      z.object({
        text: z.string(),
        finish_reason: z.string().nullish(),
        token_ids: tokenIdsShape,
        logprobs: z.object({ token_logprobs: z.array(z.number().nullable()).nullish() }).nullish(),
      }),
    )
    .min(1),
  usage: usageShape,
  weight_version: versionShape,
})

interface Reply {
  text: string
  finishReason: string | null
  tokenIds: number[] | null
  logprobs: (number | null)[] | null
  promptTokens: number
  completionTokens: number
  weightVersion: string | null
}

/** vLLM writes minus infinity as -9999 in chat replies; a token of probability 0 cannot have been sampled. */
const LOWEST_LOGPROB = -9998

/**
 * @param tokenizer of the model behind the endpoint, for callers that keep token ids; needs `options.returnTokenIds`.
 */
export function openEndpoint(options: EndpointPolicyOptions, tokenizer?: TextTokenizer): Result<Policy> {
  if (tokenizer && !options.returnTokenIds)
    throw new Error('a tokenizer needs an endpoint that returns token ids (returnTokenIds: true)')
  const key = options.apiKeyEnv === null ? 'none' : process.env[options.apiKeyEnv]
  if (!key) {
    return {
      ok: false,
      failure: {
        boundary: 'policy',
        kind: 'bad_request',
        message: `${options.baseUrl}: environment variable ${options.apiKeyEnv} is not set; put the API key there`,
      },
    }
  }
  const http = openHttpClient()
  // Retries are ours: the client's own would sleep past the deadline.
  const client = new OpenAI({
    baseURL: options.baseUrl,
    apiKey: key,
    organization: null,
    project: null,
    maxRetries: 0,
    timeout: options.attemptSeconds * 1000,
    fetch: http.fetch,
  })
  return {
    ok: true,
    value: {
      name: `endpoint:${options.model}`,
      version: options.model,
      ...(tokenizer ? { tokenizer } : {}),
      contextLength: options.contextLength,
      generate: (request) => generate(client, options, request),
      close: () => http.close(),
    },
  }
}

async function generate(
  client: OpenAI,
  options: EndpointPolicyOptions,
  request: GenerateRequest,
): Promise<Result<Generation>> {
  const begin = performance.now()
  const deadline = begin + options.deadlineSeconds * 1000
  // one timer and one listener: signals made of signals cost more than the rest of a call
  const controller = new AbortController()
  const { signal } = controller
  const abort = () => controller.abort()
  const timer = setTimeout(abort, options.deadlineSeconds * 1000)
  if (request.signal?.aborted) abort()
  request.signal?.addEventListener('abort', abort, { once: true })
  try {
    for (let attempt = 0; ; attempt++) {
      let reply: Reply
      try {
        reply = await ask(client, options, request, signal)
      } catch (error) {
        const failure = failureOf(error, options, request)
        const pause = pauseSeconds(error, attempt) * 1000
        const pointless =
          !RETRIED.has(failure.kind) || attempt >= options.retries || performance.now() + pause >= deadline
        if (pointless)
          return { ok: false, failure: { ...failure, message: `${failure.message} (attempt ${attempt + 1})` } }
        if (!(await sleep(pause, signal)))
          return { ok: false, failure: failureOf(new APIUserAbortError(), options, request) }
        continue
      }
      return toGeneration(reply, options, request, (performance.now() - begin) / 1000)
    }
  } finally {
    clearTimeout(timer)
    request.signal?.removeEventListener('abort', abort)
  }
}

async function ask(
  client: OpenAI,
  options: EndpointPolicyOptions,
  request: GenerateRequest,
  signal: AbortSignal,
): Promise<Reply> {
  const { sampling, promptIds } = request
  // The client's fields are OpenAI's; vLLM's additions travel as they are.
  const body: Record<string, unknown> = {
    model: options.model,
    temperature: sampling.temperature,
    // Log-probabilities must be those of the whole distribution, whatever defaults the server has for its model.
    top_p: 1,
    [options.maxTokensField]: sampling.maxTokens,
    seed: Math.floor(seedrandom(request.seed).quick() * 2 ** 31),
  }
  if (options.returnTokenIds) {
    Object.assign(body, {
      return_token_ids: true,
      include_stop_str_in_output: true,
      skip_special_tokens: false,
      top_k: -1,
    })
    if (sampling.stop.length > 0) body.stop = sampling.stop
  }
  if (promptIds && options.returnTokenIds) {
    const raw: unknown = await client.completions.create(
      { ...body, max_tokens: sampling.maxTokens, prompt: [...promptIds], logprobs: 1 } as never,
      { signal },
    )
    const { choices, usage, weight_version } = textShape.parse(raw)
    const { text, finish_reason, token_ids, logprobs } = choices[0]!
    return toReply(text, finish_reason, token_ids, logprobs?.token_logprobs, usage, weight_version)
  }
  if (options.returnTokenIds) body.logprobs = true
  const raw: unknown = await client.chat.completions.create({ ...body, messages: request.messages } as never, {
    signal,
  })
  const { choices, usage, weight_version } = chatShape.parse(raw)
  const { message, finish_reason, token_ids, logprobs } = choices[0]!
  return toReply(
    message.content ?? '',
    finish_reason,
    token_ids,
    logprobs?.content?.map((token) => token.logprob),
    usage,
    weight_version,
  )
}

function toReply(
  text: string,
  finishReason: string | null | undefined,
  tokenIds: number[] | null | undefined,
  logprobs: (number | null)[] | null | undefined,
  usage: z.infer<typeof usageShape>,
  version: z.infer<typeof versionShape>,
): Reply {
  return {
    text,
    finishReason: finishReason ?? null,
    tokenIds: tokenIds ?? null,
    logprobs: logprobs ?? null,
    promptTokens: usage?.prompt_tokens ?? 0,
    completionTokens: usage?.completion_tokens ?? tokenIds?.length ?? 0,
    weightVersion: version == null ? null : String(version),
  }
}

function toGeneration(
  reply: Reply,
  options: EndpointPolicyOptions,
  request: GenerateRequest,
  seconds: number,
): Result<Generation> {
  const bad = (problem: string): Result<Generation> => ({
    ok: false,
    failure: { boundary: 'policy', kind: 'bad_response', message: `${options.baseUrl} (${options.model}): ${problem}` },
  })
  if (reply.finishReason !== 'stop' && reply.finishReason !== 'length')
    return bad(`finish_reason is ${JSON.stringify(reply.finishReason)}, expected "stop" or "length"`)
  let { text, finishReason }: { text: string; finishReason: 'stop' | 'length' } = {
    text: reply.text,
    finishReason: reply.finishReason,
  }
  let tokens: Pick<Generation, 'tokenIds' | 'logprobs'> = { tokenIds: null, logprobs: null }
  if (options.returnTokenIds) {
    const { tokenIds, logprobs } = reply
    if (!tokenIds || !logprobs)
      return bad(
        'no token ids or log-probabilities in the reply; set returnTokenIds: false or use a server that returns them',
      )
    if (tokenIds.length !== logprobs.length)
      return bad(`${tokenIds.length} token ids but ${logprobs.length} log-probabilities`)
    const finite = logprobs.filter(
      (logprob): logprob is number => logprob !== null && Number.isFinite(logprob) && logprob > LOWEST_LOGPROB,
    )
    if (finite.length !== logprobs.length) return bad('a log-probability is not finite')
    tokens = { tokenIds, logprobs: finite }
  } else {
    // Plain endpoints swallow the stop string, so they are not told about it: we cut behind it ourselves.
    const ends = request.sampling.stop.flatMap((stop) => (text.includes(stop) ? text.indexOf(stop) + stop.length : []))
    if (ends.length > 0) [text, finishReason] = [text.slice(0, Math.min(...ends)), 'stop']
  }
  return {
    ok: true,
    value: {
      text,
      ...tokens,
      finishReason,
      version: reply.weightVersion === null ? options.model : `${options.model}@${reply.weightVersion}`,
      usage: {
        calls: 1,
        promptTokens: reply.promptTokens,
        completionTokens: reply.completionTokens,
        frames: 0,
        seconds,
        costUsd:
          (reply.promptTokens * options.promptUsdPerMillion +
            reply.completionTokens * options.completionUsdPerMillion) /
          1e6,
        cached: 0,
      },
    },
  }
}

const RETRIED: ReadonlySet<FailureKind> = new Set<FailureKind>([
  'timeout',
  'unreachable',
  'rate_limited',
  'server_error',
])

function failureOf(error: unknown, options: EndpointPolicyOptions, request: GenerateRequest): Failure {
  const failure = (kind: FailureKind, problem: string): Failure => ({
    boundary: 'policy',
    kind,
    message: `${options.baseUrl} (${options.model}): ${problem}`.replace(/\s+/g, ' ').slice(0, 400),
  })
  if (request.signal?.aborted) return failure('cancelled', 'cancelled by the caller')
  if (error instanceof APIUserAbortError)
    return failure(
      'timeout',
      `no answer within ${options.deadlineSeconds} s, retries included; raise deadlineSeconds or check the server`,
    )
  if (error instanceof APIConnectionTimeoutError)
    return failure('timeout', `no answer within ${options.attemptSeconds} s; raise attemptSeconds or check the server`)
  if (error instanceof APIConnectionError)
    return failure('unreachable', `cannot be reached (${causeOf(error)}); check the URL and that the server runs`)
  if (error instanceof APIError) return httpFailure(error, options, failure)
  if (error instanceof z.ZodError) {
    const issue = error.issues[0]
    return failure(
      'bad_response',
      `reply is no completion: at ${issue?.path.join('.') || 'the root'}: ${issue?.message}; is this an OpenAI-compatible URL (usually ending in /v1)?`,
    )
  }
  if (error instanceof SyntaxError)
    return failure(
      'bad_response',
      `reply is no JSON (${error.message}); is this an OpenAI-compatible URL (usually ending in /v1)?`,
    )
  // The body broke off, or the deadline came while it was read.
  if (error instanceof Error && error.name === 'AbortError')
    return failure(
      'timeout',
      `no whole answer within ${options.deadlineSeconds} s; raise deadlineSeconds or check the server`,
    )
  if (error instanceof TypeError)
    return failure('unreachable', `connection lost (${causeOf(error)}); check that the server still runs`)
  throw error
}

function httpFailure(
  error: APIError,
  options: EndpointPolicyOptions,
  failure: (kind: FailureKind, problem: string) => Failure,
): Failure {
  const { status, message } = error
  if (status === 429) return failure('rate_limited', `${message}; lower the concurrency or wait`)
  if (status === 408) return failure('timeout', message)
  if (status !== undefined && status >= 500) return failure('server_error', `${message}; the server's log may say why`)
  if (status === 401 || status === 403)
    return failure('bad_request', `${message}; check the API key in ${options.apiKeyEnv ?? 'apiKeyEnv (none given)'}`)
  const overflow =
    error.code === 'context_length_exceeded' || /context (length|window)|maximum.*(length|tokens)/i.test(message)
  if (overflow) return failure('context_limit', message)
  return failure('bad_request', `${message}; check the URL, the model's name and what the server accepts`)
}

function causeOf(error: Error): string {
  let deepest: Error & { code?: unknown } = error
  while (deepest.cause instanceof Error) deepest = deepest.cause
  return String(deepest.code ?? deepest.message)
}

/** What the server asks for in Retry-After, else 0.5 s, doubled each time up to 8 s, less up to a quarter so that callers spread. */
function pauseSeconds(error: unknown, attempt: number): number {
  const header = error instanceof APIError ? error.headers?.get('retry-after') : null
  if (header) {
    const seconds = Number(header)
    const asked = Number.isFinite(seconds) ? seconds : (Date.parse(header) - Date.now()) / 1000
    if (asked >= 0) return asked
  }
  return Math.min(0.5 * 2 ** attempt, 8) * (1 - Math.random() / 4)
}

/** False when the signal ended the pause. */
function sleep(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false)
    const stop = () => {
      clearTimeout(timer)
      resolve(false)
    }
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop)
      resolve(true)
    }, milliseconds)
    signal.addEventListener('abort', stop, { once: true })
  })
}
