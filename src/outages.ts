/**
 * What fails outside the program while rollouts run: told to the person at once, and a reason to stop when the policy cannot be asked
 * at all, since every further question would only be stored as a failure. Scores and stores nothing.
 */
import type { Failure, FailureKind, Result, ScoredGroup, Trajectory, TrajectoryGroup } from './types.ts'

/** So many groups in a row that could not ask the policy mean that it is down, not that a question is hard for it. */
const DOWN_AFTER_GROUPS = 3

/** Failures of a policy that are as likely at the next question. */
const OUTAGES: ReadonlySet<FailureKind> = new Set<FailureKind>([
  'unreachable',
  'timeout',
  'rate_limited',
  'server_error',
  'bad_request',
])

/**
 * Passes groups on until the policy is down; the last result is then its failure. Groups that could not ask it are held back until one
 * could: when it is down they are not passed on, so that a resumed run asks again. `warn` is called as in `tellFailures`.
 */
export async function* whilePolicyAnswers(
  groups: AsyncIterable<TrajectoryGroup>,
  warn: (text: string) => void,
): AsyncGenerator<Result<TrajectoryGroup>> {
  const tell = tellFailures(warn)
  const heldBack: TrajectoryGroup[] = []
  let answered = false
  function* passOn(): Generator<Result<TrajectoryGroup>> {
    for (const group of heldBack.splice(0)) {
      tell(group)
      yield { ok: true, value: group }
    }
  }
  let failure: Failure | null = null
  for await (const group of groups) {
    const outage = outageOf(group)
    heldBack.push(group)
    failure ??= outage
    if (outage === null) {
      answered = true
      failure = null
      yield* passOn()
    } else if (heldBack.length === DOWN_AFTER_GROUPS) {
      yield { ok: false, failure: outage }
      return
    }
  }
  if (answered || failure === null) yield* passOn()
  else yield { ok: false, failure }
}

/** Calls `warn` with a line about each kind of failure at each boundary, when it first occurs. */
export function tellFailures(warn: (text: string) => void): (group: TrajectoryGroup) => void {
  const told = new Set<string>()
  return ({ trajectories }) => {
    for (const { boundary, kind, message } of trajectories.flatMap(failuresOf)) {
      if (kind === 'cancelled' || told.has(`${boundary} ${kind}`)) continue
      told.add(`${boundary} ${kind}`)
      warn(`warning: ${message}`)
    }
  }
}

/** The failure of a step in which no trajectory could be scored, so that nothing can be learnt from it; null for any other. */
export function noneScored(groups: readonly ScoredGroup[], step: number): Failure | null {
  const all = groups.flatMap(({ scored }) => scored)
  if (all.some(({ reward }) => reward !== null)) return null
  const first = all.flatMap(({ trajectory }) => failuresOf(trajectory))[0]
  if (first === undefined) return null
  return {
    ...first,
    message: `${first.message}; none of the ${all.length} rollouts of step ${step} could be scored, so training stopped; put that right and continue with --resume`,
  }
}

/** The first failure of a group in which no trajectory could ask the policy; null for any other group. */
function outageOf({ trajectories }: TrajectoryGroup): Failure | null {
  const failures = trajectories.map(({ stopReason, failure }) => (stopReason === 'policy_error' ? failure : null))
  return failures.every((failure) => failure !== null && OUTAGES.has(failure.kind)) ? (failures[0] ?? null) : null
}

function failuresOf({ failure, turns }: Trajectory): Failure[] {
  return [failure, ...turns.map((turn) => turn.failure)].filter((one) => one !== null)
}
