/**
 * Calls of an OpenAI-compatible endpoint, with a time limit per attempt, a deadline over all, and retries with back-off. Knows neither what
 * is asked nor what is answered, and caches nothing.
 */
import OpenAI, { APIConnectionError, APIConnectionTimeoutError, APIError, APIUserAbortError } from 'openai'
import PQueue from 'p-queue'
import type { Boundary, FailureKind, Result } from '../types.ts'
import { untilAborted } from './cache.ts'
import type { Failed } from './failure.ts'
import { failed, reasonOf } from './failure.ts'
import type { EndpointOptions } from './options.ts'

export interface EndpointCalls {
  /** `send` makes one attempt, `read` takes its reply: a failure that it finds is retried like any other of its kind. */
  call<Reply, T>(
    send: (client: OpenAI, signal: AbortSignal) => Promise<Reply>,
    read: (reply: Reply) => Result<T>,
    caller: AbortSignal | undefined,
  ): Promise<Result<T>>
}

const retried: ReadonlySet<FailureKind> = new Set<FailureKind>([
  'timeout',
  'unreachable',
  'rate_limited',
  'server_error',
])

/** Fails when the environment variable with the key is not set. */
export function openEndpointCalls(boundary: Boundary, options: EndpointOptions): Result<EndpointCalls> {
  const key = options.apiKeyEnv === null ? 'none' : process.env[options.apiKeyEnv]
  if (!key)
    return failed(
      boundary,
      'bad_request',
      `${options.baseUrl}: environment variable ${options.apiKeyEnv} is not set; put the API key there`,
    )
  // Retries are ours: the client's own would sleep past the deadline.
  const client = new OpenAI({
    baseURL: options.baseUrl,
    apiKey: key,
    organization: null,
    project: null,
    maxRetries: 0,
    timeout: options.attemptSeconds * 1000 + 1000,
  })
  const queue = new PQueue({ concurrency: options.concurrency })

  async function attempt<Reply, T>(
    send: (client: OpenAI, signal: AbortSignal) => Promise<Reply>,
    read: (reply: Reply) => Result<T>,
    signal: AbortSignal,
  ): Promise<Result<T>> {
    // The client's own limit ends with the headers; a body that never comes has to be given up here.
    const limit = AbortSignal.timeout(options.attemptSeconds * 1000)
    const ended = AbortSignal.any([signal, limit])
    let reply: { came: Reply } | null
    try {
      reply = await untilAborted(
        send(client, ended).then((came) => ({ came })),
        ended,
      )
    } catch (error) {
      if (!limit.aborted || signal.aborted) throw error
      reply = null
    }
    if (reply === null) throw signal.aborted ? new APIUserAbortError() : new APIConnectionTimeoutError()
    return read(reply.came)
  }

  return {
    ok: true,
    value: {
      async call(send, read, caller) {
        const deadlineAt = performance.now() + options.deadlineSeconds * 1000
        const deadline = AbortSignal.timeout(options.deadlineSeconds * 1000)
        const signal = caller ? AbortSignal.any([caller, deadline]) : deadline
        for (let retry = 0; ; retry++) {
          let failure: Failed
          let pause = backOff(retry)
          try {
            const result = await queue.add(() => attempt(send, read, signal), { signal })
            if (result.ok) return result
            failure = result
          } catch (error) {
            failure = failureOf(error, boundary, options, caller)
            pause = retryAfter(error) ?? pause
          }
          const again =
            retried.has(failure.failure.kind) && retry < options.retries && performance.now() + pause < deadlineAt
          if (!again)
            return retry === 0
              ? failure
              : failed(boundary, failure.failure.kind, `${failure.failure.message} (${retry + 1} attempts)`)
          if (!(await sleep(pause, signal))) return failureOf(new APIUserAbortError(), boundary, options, caller)
        }
      },
    },
  }
}

function failureOf(
  error: unknown,
  boundary: Boundary,
  options: EndpointOptions,
  caller: AbortSignal | undefined,
): Failed {
  const { baseUrl, model } = options
  const fail = (kind: FailureKind, problem: string) =>
    failed(boundary, kind, `${baseUrl} (${model}): ${problem}`.slice(0, 400))
  if (caller?.aborted) return fail('cancelled', 'cancelled by the caller')
  if (error instanceof APIConnectionTimeoutError)
    return fail('timeout', `no answer within ${options.attemptSeconds} s; raise attemptSeconds or check the server`)
  if (error instanceof APIUserAbortError || (error instanceof Error && /Abort|Timeout/.test(error.name))) {
    return fail(
      'timeout',
      `no answer within ${options.deadlineSeconds} s, retries included; raise deadlineSeconds or check the server`,
    )
  }
  if (error instanceof APIConnectionError)
    return fail('unreachable', `cannot be reached (${deepestCause(error)}); check the URL and that the server runs`)
  if (error instanceof APIError) {
    const { status, message } = error
    if (status === 429) return fail('rate_limited', `${message}; lower the concurrency or wait`)
    if (status === 408) return fail('timeout', message)
    if (status !== undefined && status >= 500) return fail('server_error', `${message}; the server's log may say why`)
    if (status === 401 || status === 403)
      return fail('bad_request', `${message}; check the API key in ${options.apiKeyEnv ?? 'apiKeyEnv (none is named)'}`)
    if (error.code === 'context_length_exceeded') return fail('context_limit', message)
    return fail('bad_request', `${message}; check the URL, the model's name and what the server accepts`)
  }
  if (error instanceof SyntaxError)
    return fail(
      'bad_response',
      `the reply is no JSON (${error.message}); is this an OpenAI-compatible URL (usually ending in /v1)?`,
    )
  // The connection broke while the body was read.
  if (error instanceof TypeError)
    return fail('unreachable', `connection lost (${deepestCause(error)}); check that the server still runs`)
  throw error
}

function deepestCause(error: Error): string {
  let deepest: Error & { code?: unknown } = error
  while (deepest.cause instanceof Error) deepest = deepest.cause
  return String(deepest.code ?? reasonOf(deepest))
}

/** Milliseconds: half a second, doubled each time up to 8 s, less up to a quarter so that callers spread. */
function backOff(retry: number): number {
  return Math.min(500 * 2 ** retry, 8000) * (1 - Math.random() / 4)
}

/** Milliseconds that the server asks to wait; null when it does not say. */
function retryAfter(error: unknown): number | null {
  const header = error instanceof APIError ? error.headers?.get('retry-after') : null
  if (!header) return null
  const seconds = Number(header)
  const wait = Number.isFinite(seconds) ? seconds * 1000 : Date.parse(header) - Date.now()
  return wait >= 0 ? wait : null
}

/** False when the signal ended the pause. */
function sleep(milliseconds: number, signal: AbortSignal): Promise<boolean> {
  return new Promise((resolve) => {
    if (signal.aborted) return resolve(false)
    const timer = setTimeout(() => {
      signal.removeEventListener('abort', stop)
      resolve(true)
    }, milliseconds)
    const stop = () => {
      clearTimeout(timer)
      resolve(false)
    }
    signal.addEventListener('abort', stop, { once: true })
  })
}
