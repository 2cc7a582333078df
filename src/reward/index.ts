/**
 * Rewards: pure functions from trajectories and the secret answer to named parts. They read the policy's own turns as the one parser
 * judged them, never a prompt, an observation or flat text, so nothing an agent says can earn anything.
 * Advantages are computed elsewhere and never written back here.
 *
 *   R = alpha * agg_t r_fmt(t) + r_ans - turnCost * turns + sum_m extras(m) * m
 *
 * Turns are those of the policy; what frozen roles wrote neither earns nor costs. m are what a system measures of itself, such as a clue
 * that was verified. r_fmt(t) = 1 when turn t is well formed, r_ans = 1 when the run was answered with the right option (arXiv 2512.20618, section on
 * rewards; spec longvideoagent.md 1.9 and section 5, rows 5-8, 13, 27, 29). The released code has 0.2 for reasoning tags, 0.2 for answer
 * tags and 1 for the answer: alpha 0.4 with aggregation `tags`.
 */
import type {
  Gold,
  Reward,
  ScoredGroup,
  ScoredTrajectory,
  StopReason,
  Trajectory,
  TrajectoryGroup,
  Turn,
} from '../types.ts'
import type { RewardOptions } from './options.ts'

/** The reward of one trajectory, whatever it stopped for. */
export function rewardOf(
  trajectory: Pick<Trajectory, 'turns' | 'answer' | 'stopReason' | 'measures'>,
  gold: Pick<Gold, 'answer'>,
  options: RewardOptions,
): Reward {
  const turns = trajectory.turns.filter((turn) => turn.frozen !== true)
  const format = options.alpha * formatShare(turns, options.aggregation)
  const answer = isCorrect(trajectory, gold) ? 1 : 0
  const pays = options.turnCost > 0 && (options.turnCostOf === 'all' || answer === 1)
  const turnCost = pays ? -options.turnCost * turns.length : 0
  const extras = extrasOf(trajectory.measures ?? {}, answer, options)
  const total = Object.values(extras).reduce((sum, extra) => sum + extra, format + answer + turnCost)
  return { total, format, answer, turnCost, ...(Object.keys(extras).length === 0 ? {} : { extras }) }
}

/** Each measure that has a weight, times it; 0 where it was not measured, or only right answers earn it and this is none. */
function extrasOf(
  measures: Readonly<Record<string, number>>,
  answer: number,
  { extras, extrasOf: of }: RewardOptions,
): Record<string, number> {
  const earned = of === 'all' || answer === 1
  return Object.fromEntries(
    Object.entries(extras).map(([name, weight]) => [name, earned ? weight * (measures[name] ?? 0) : 0]),
  )
}

/** What alpha is multiplied by. */
function formatShare(turns: readonly Turn[], aggregation: RewardOptions['aggregation']): number {
  const wellFormed = turns.filter((turn) => turn.wellFormed).length
  switch (aggregation) {
    case 'sum':
      return wellFormed
    case 'mean':
      return wellFormed / Math.max(1, turns.length)
    case 'tags':
      return (Number(hasBlock(turns, 'reasoning')) + Number(hasBlock(turns, 'answer'))) / 2
  }
}

/** Whether some turn of the policy has the tag and, later, the one that closes it. */
function hasBlock(turns: readonly Turn[], tag: string): boolean {
  return turns.some(({ response }) => {
    const open = response.indexOf(`<${tag}>`)
    return open >= 0 && response.indexOf(`</${tag}>`, open) >= 0
  })
}

/** `reward` is null where the run failed outside the policy, or as the options say: such a run is left out of training, not given 0. */
export function scoreTrajectory(trajectory: Trajectory, gold: Gold, options: RewardOptions): ScoredTrajectory {
  return {
    trajectory,
    reward: isExcluded(trajectory.stopReason, options) ? null : rewardOf(trajectory, gold, options),
    correct: isCorrect(trajectory, gold),
    grounded: gold.clipId !== null && trajectory.visited.includes(gold.clipId),
    kind: gold.kind,
    ...(gold.categories === undefined ? {} : { categories: gold.categories }),
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

function isExcluded(stopReason: StopReason, options: RewardOptions): boolean {
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
      return false
    case 'token_limit':
    case 'context_limit':
      return options.overflow === 'exclude'
  }
}
