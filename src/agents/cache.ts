/**
 * Answers by content: the same question asked of the same agent is answered once.
 *
 * A key is the hash of everything that decides the answer (agent, model, all that is sent). Requests for the same key that run at the same time
 * share one call, which goes on until nobody waits for it. With `replay`, what was never answered is a failure and nothing is called.
 * Failures are not kept.
 */
import { createHash } from 'node:crypto'
import type { Boundary, Result } from '../types.ts'
import { failed } from './failure.ts'
import type { Store } from './store.ts'

export interface CachedRequest<T> {
  /** Everything that decides the answer; plain JSON. */
  content: unknown
  /** For failures: whose boundary, and what was asked, in a few words. */
  boundary: Boundary
  what: string
  signal?: AbortSignal
  /** Finds the answer; plain JSON. The signal aborts when nobody waits any longer. */
  answer(signal: AbortSignal): Promise<Result<T>>
}

export interface AnswerCache {
  answer<T>(request: CachedRequest<T>): Promise<Result<{ value: T; cached: boolean }>>
}

interface Call {
  outcome: Promise<Result<unknown>>
  waiting: number
  controller: AbortController
}

export function openCache(store: Store, { replay }: { replay: boolean }): AnswerCache {
  const calls = new Map<string, Call>()

  function start<T>(key: string, request: CachedRequest<T>): Call {
    const controller = new AbortController()
    const call: Call = { outcome: finish(), waiting: 0, controller }
    async function finish(): Promise<Result<unknown>> {
      try {
        const result = await request.answer(controller.signal)
        if (result.ok) await store.put(key, result.value)
        return result
      } finally {
        if (calls.get(key) === call) calls.delete(key)
      }
    }
    calls.set(key, call)
    return call
  }

  return {
    async answer<T>(request: CachedRequest<T>) {
      const key = contentKey(request.content)
      const kept = (await store.get(key)) as T | undefined
      if (kept !== undefined) return { ok: true, value: { value: kept, cached: true } }
      if (replay) {
        return failed(
          request.boundary,
          'missing_file',
          `replay: no stored answer for ${request.what}; run once without replay to record it`,
        )
      }
      if (request.signal?.aborted) return failed(request.boundary, 'cancelled', `${request.what} was cancelled`)
      const running = calls.get(key)
      const call = running ?? start(key, request)
      call.waiting++
      const outcome = (await untilAborted(call.outcome, request.signal)) as Result<T> | null
      call.waiting--
      if (outcome === null) {
        if (call.waiting === 0) {
          // A later request must not join a call that is being stopped.
          if (calls.get(key) === call) calls.delete(key)
          call.controller.abort()
        }
        return failed(request.boundary, 'cancelled', `${request.what} was cancelled`)
      }
      return outcome.ok ? { ok: true, value: { value: outcome.value, cached: running !== undefined } } : outcome
    },
  }
}

export function contentKey(content: unknown): string {
  return createHash('sha256').update(JSON.stringify(content)).digest('hex').slice(0, 40)
}

/** The promise's value, or null as soon as the signal aborts. */
export async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T | null> {
  if (!signal) return promise
  let stop: () => void = () => undefined
  const aborted = new Promise<null>((resolve) => {
    stop = () => resolve(null)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
  })
  try {
    return await Promise.race([promise, aborted])
  } finally {
    signal.removeEventListener('abort', stop)
  }
}
