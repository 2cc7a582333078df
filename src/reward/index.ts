/**
 * Rewards: pure functions from trajectories and the secret answer to named parts. They read the policy's own turns as the one parser
 * judged them, never a prompt, an observation or flat text, so nothing an agent says can earn anything.
 * Advantages are computed elsewhere and never written back here.
 *
 *   R = alpha * agg_t r_fmt(t) + r_ans - turnCost * turns
 *
 * r_fmt(t) = 1 when turn t is well formed, r_ans = 1 when the run was answered with the right option (arXiv 2512.20618, section on
 * rewards; spec longvideoagent.md 1.9 and section 5, rows 5-8, 13, 29).
 */
import type { Gold, Reward, ScoredGroup, ScoredTrajectory, StopReason, Trajectory, TrajectoryGroup } from '../types.ts'
import type { RewardOptions } from './options.ts'

/** The reward of one trajectory, whatever it stopped for. */
export function rewardOf(
  trajectory: Pick<Trajectory, 'turns' | 'answer' | 'stopReason'>,
  gold: Pick<Gold, 'answer'>,
  options: RewardOptions,
): Reward {
  const turns = trajectory.turns.length
  const wellFormed = trajectory.turns.filter((turn) => turn.wellFormed).length
  const share = options.aggregation === 'sum' ? wellFormed : wellFormed / Math.max(1, turns)
  const format = options.alpha * share
  const answer = isCorrect(trajectory, gold) ? 1 : 0
  const pays = options.turnCost > 0 && (options.turnCostOf === 'all' || answer === 1)
  const turnCost = pays ? -options.turnCost * turns : 0
  return { total: format + answer + turnCost, format, answer, turnCost }
}

/** `reward` is null where the run failed outside the policy: such a run is left out of training, not given 0. */
export function scoreTrajectory(trajectory: Trajectory, gold: Gold, options: RewardOptions): ScoredTrajectory {
  return {
    trajectory,
    reward: failedOutside(trajectory.stopReason, options) ? null : rewardOf(trajectory, gold, options),
    correct: isCorrect(trajectory, gold),
    grounded: trajectory.visited.includes(gold.clipId),
    kind: gold.kind,
  }
}

/** Scores every trajectory of a group, in order. Throws when `gold` belongs to another question. */
export function scoreGroup(group: TrajectoryGroup, gold: Gold, options: RewardOptions): ScoredGroup {
  const { qid } = group.task.question
  if (gold.qid !== qid)
    throw new Error(`scoreGroup: expected the gold answer of question ${qid}, got that of ${gold.qid}`)
  return { group, scored: group.trajectories.map((trajectory) => scoreTrajectory(trajectory, gold, options)) }
}

/** What is unwise about these options for runs of up to `turns` turns; empty when nothing is. */
export function rewardWarnings(options: RewardOptions, turns: number): string[] {
  const most = options.alpha * turns
  if (options.aggregation !== 'sum' || most < 1) return []
  return [
    `reward: alpha * turns = ${options.alpha} * ${turns} = ${most} is not below 1, so well-formed turns can earn as much as the right answer; lower reward.alpha below ${1 / turns} or set reward.aggregation to mean`,
  ]
}

function isCorrect(trajectory: Pick<Trajectory, 'answer' | 'stopReason'>, gold: Pick<Gold, 'answer'>): boolean {
  return trajectory.stopReason === 'answered' && trajectory.answer === gold.answer
}

function failedOutside(stopReason: StopReason, options: RewardOptions): boolean {
  switch (stopReason) {
    case 'agent_error':
    case 'policy_error':
    case 'cancelled':
      return true
    case 'deadline':
      return options.deadline === 'exclude'
    case 'answered':
    case 'invalid_action':
    case 'turn_limit':
    case 'token_limit':
    case 'context_limit':
      return false
  }
}
