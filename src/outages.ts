/**
 * What fails outside the program while rollouts run: told to the person at once, and a reason to stop when the policy or an agent cannot
 * be asked at all, since every further question would only be stored as a failure. Scores and stores nothing.
 */
import type {
  Boundary,
  Failure,
  FailureKind,
  Result,
  ScoredGroup,
  StopReason,
  Trajectory,
  TrajectoryGroup,
} from './types.ts'

/** So many groups in a row that ended by an outage mean that somebody is down, not that a question is hard. */
const DOWN_AFTER_GROUPS = 3

/** Failures that are as likely at the next question. An agent refuses single pictures with a bad request, so that tells nothing of it. */
const OUTAGES: Partial<Record<StopReason, ReadonlySet<FailureKind>>> = {
  policy_error: new Set<FailureKind>(['unreachable', 'timeout', 'rate_limited', 'server_error', 'bad_request']),
  agent_error: new Set<FailureKind>(['unreachable', 'timeout', 'rate_limited', 'server_error']),
}

/**
 * Passes groups on until the policy or an agent is down; the last result is then its failure. Groups that ended by an outage are held
 * back until whoever was out answers again: when nobody does they are not passed on, so that a resumed run asks again. `warn` is called
 * as in `tellFailures`.
 */
export async function* whileAllAnswer(
  groups: AsyncIterable<TrajectoryGroup>,
  warn: (text: string) => void,
): AsyncGenerator<Result<TrajectoryGroup>> {
  const tell = tellFailures(warn)
  const heldBack: TrajectoryGroup[] = []
  let answered = false
  /** The first one of those held back. */
  let failure: Failure | null = null
  for await (const group of groups) {
    const outage = outageOf(group)
    if (outage !== null) {
      heldBack.push(group)
      failure ??= outage
      if (heldBack.length < DOWN_AFTER_GROUPS) continue
      yield { ok: false, failure: outage }
      return
    }
    answered = true
    const again = failure === null || answers(group, failure.boundary) ? heldBack.splice(0) : []
    if (heldBack.length === 0) failure = null
    for (const one of [...again, group]) {
      tell(one)
      yield { ok: true, value: one }
    }
  }
  if (failure === null) return
  // no question makes a server unreachable: the last ones are not stored as its victims either
  if (!answered || failure.kind === 'unreachable') yield { ok: false, failure }
  else
    for (const one of heldBack) {
      tell(one)
      yield { ok: true, value: one }
    }
}

/** Whether a group without an outage shows that whoever was out is there again: one that never asked an agent tells nothing of it. */
function answers({ trajectories }: TrajectoryGroup, boundary: Boundary): boolean {
  if (boundary !== 'grounding' && boundary !== 'vision') return true
  return trajectories.some(({ usage }) => usage[boundary].calls > usage[boundary].cached)
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

/** The first failure of a group in which every trajectory ended by an outage; null for any other group. */
function outageOf({ trajectories }: TrajectoryGroup): Failure | null {
  const allOut = trajectories.every(
    ({ stopReason, failure }) => failure !== null && OUTAGES[stopReason]?.has(failure.kind) === true,
  )
  return allOut ? (trajectories[0]?.failure ?? null) : null
}

function failuresOf({ failure, turns }: Trajectory): Failure[] {
  return [failure, ...turns.map((turn) => turn.failure)].filter((one) => one !== null)
}
