/**
 * The end that comes from outside: a trajectory's deadline or the user's cancellation. Races every call to a policy or an agent
 * against it, so that a callee that never returns cannot hold a trajectory; whatever such a callee still says later is ignored.
 *
 * It does not decide what the trajectory does next, and it cannot stop a callee that disregards its signal.
 */
import type { Boundary, Failure, Result } from '../types.ts'

export interface Cutoff {
  /** Aborted at the cut-off. Given to policies and agents. */
  readonly signal: AbortSignal
  /** Why the trajectory was cut off; null while it was not. */
  readonly reason: 'deadline' | 'cancelled' | null
  /** Names who was being waited for at the cut-off; null while there was none. */
  readonly failure: Failure | null
  /** The callee's result, or a failure value when it was cut off or threw. */
  race<T>(boundary: Boundary, name: string, call: () => Promise<Result<T>>): Promise<Result<T>>
  cancel(): void
  /** Clears the timer. */
  dispose(): void
}

/** Starts the clock. `label` names the trajectory in messages. */
export function startCutoff(label: string, deadlineSeconds: number | null): Cutoff {
  const controller = new AbortController()
  let reason: Cutoff['reason'] = null
  let failure: Failure | null = null
  let release!: () => void
  const reached = new Promise<void>((resolve) => {
    release = resolve
  })

  const stop = (why: 'deadline' | 'cancelled'): void => {
    if (reason !== null) return
    reason = why
    release()
    controller.abort(new Error(`trajectory ${label}: ${why}`))
  }
  // An own timer, not AbortSignal.timeout: that one would not keep the process alive while a callee hangs.
  const timer = deadlineSeconds === null ? undefined : setTimeout(() => stop('deadline'), deadlineSeconds * 1000)

  const cutOff = (boundary: Boundary, name: string): Failure => {
    failure ??=
      reason === 'deadline'
        ? {
            boundary,
            kind: 'timeout',
            message: `trajectory ${label}: ${name} had not answered at the deadline of ${deadlineSeconds} s; raise budget.deadlineSeconds or look into ${name}`,
          }
        : { boundary, kind: 'cancelled', message: `trajectory ${label}: cancelled while waiting for ${name}` }
    return failure
  }

  return {
    signal: controller.signal,
    get reason() {
      return reason
    },
    get failure() {
      return failure
    },
    async race(boundary, name, call) {
      if (reason !== null) return { ok: false, failure: cutOff(boundary, name) }
      const result = await Promise.race([reached, guarded(boundary, name, call)])
      if (reason !== null || result === undefined) return { ok: false, failure: cutOff(boundary, name) }
      return result
    },
    cancel: () => stop('cancelled'),
    dispose: () => clearTimeout(timer),
  }
}

/** A callee that throws breaks its contract; that is its failure, not the end of everybody's run. */
async function guarded<T>(boundary: Boundary, name: string, call: () => Promise<Result<T>>): Promise<Result<T>> {
  try {
    return await call()
  } catch (error) {
    const [line] = String(error instanceof Error ? (error.stack ?? error.message) : error).split('\n')
    return {
      ok: false,
      failure: {
        boundary,
        kind: 'server_error',
        message: `${name} threw instead of returning a failure: ${line}; this is a defect of ${name}`,
      },
    }
  }
}
