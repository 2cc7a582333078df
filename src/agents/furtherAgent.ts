/**
 * What every further agent has in common: its name stands in its failures, the time that it took in its usage, and a model that did not
 * run is a failure that says what to do. Knows no agent.
 */
import { setMaxListeners } from 'node:events'
import type { Agent, AgentAnswer, AgentKind, CallOptions, Result, Usage } from '../types.ts'
import { failed, reasonOf } from './failure.ts'
import { oneCall, secondsSince } from './usage.ts'

/** `usage.seconds` is filled in around it. */
export type Body<Request, Answer extends AgentAnswer> = (
  request: Request,
  options: CallOptions,
) => Promise<Result<Answer>>

export function furtherAgent<Request, Answer extends AgentAnswer>(
  kind: AgentKind,
  name: string,
  body: Body<Request, Answer>,
): Agent<Request, Answer> {
  return {
    name,
    async ask(request, options) {
      const begin = performance.now()
      const answered = await guarded(body, request, options)
      if (!answered.ok) {
        const { kind: why, message } = answered.failure
        return failed('agent', why, `${kind} (${name}): ${message}`)
      }
      const { usage } = answered.value
      return { ok: true, value: { ...answered.value, usage: { ...usage, seconds: secondsSince(begin) } } }
    },
  }
}

/** Rejections come from the perception threads alone: a damaged installation, or agents that were closed. */
async function guarded<Request, Answer extends AgentAnswer>(
  body: Body<Request, Answer>,
  request: Request,
  options: CallOptions,
): Promise<Result<Answer>> {
  const { signal: caller } = options
  if (caller?.aborted) return cancelled()
  // One listener on the caller's signal, however many pictures and calls an answer takes.
  const controller = new AbortController()
  const stop = () => controller.abort()
  setMaxListeners(0, controller.signal)
  caller?.addEventListener('abort', stop, { once: true })
  try {
    return await body(request, { ...options, signal: controller.signal })
  } catch (error) {
    return failed(
      'agent',
      'missing_file',
      `an embedded model did not run (${reasonOf(error)}); reinstall the packages with npm ci`,
    )
  } finally {
    caller?.removeEventListener('abort', stop)
  }
}

export function cancelled(): Result<never> {
  return failed('agent', 'cancelled', 'cancelled by the caller')
}

/** Usage of one answer that several calls were made for; none were: one call. */
export function summed(parts: readonly Usage[]): Usage {
  if (parts.length === 0) return oneCall({})
  return parts.reduce((a, b) => ({
    calls: a.calls + b.calls,
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    frames: a.frames + b.frames,
    seconds: a.seconds + b.seconds,
    costUsd: a.costUsd + b.costUsd,
    cached: a.cached + b.cached,
  }))
}
