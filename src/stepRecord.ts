/** What a training step was like, in numbers: one line of `metrics.jsonl`, one point of every curve. Pure; writes nothing. */
import type { StepMetrics } from './grpo/metrics.ts'
import type { UpdateMetrics } from './grpo/update.ts'
import type { ScoredGroup, StopReason, Trajectory } from './types.ts'

/** Means over the step's trajectories that have a reward, unless said otherwise. */
export interface StepRecord {
  /** From 0: how many updates the policy had seen that was rolled out. */
  step: number
  /** When it ended, ISO 8601. */
  at: string
  reward: number
  accuracy: number
  grounded: number
  /** Share of turns. */
  formatRate: number
  turns: number
  /** Tokens that the master sampled per trajectory, and in the longest one. */
  meanTokens: number
  maxTokens: number
  /** Share that a limit on turns or tokens cut off. */
  truncated: number
  /** Calls of each tool per trajectory, and the share of trajectories with any. */
  grounds: number
  looks: number
  toolRate: number
  loss: number
  gradNorm: number
  learningRate: number
  kl: number
  clipFractionLow: number
  clipFractionHigh: number
  clipFractionDual: number
  entropy: number
  ratioMean: number
  /** Largest ratio of the first pass: 1 when sampler and trainer agree. */
  ratioMax: number
  /** Over training rows. */
  advantageMean: number
  advantageDeviation: number
  /** Truncated importance weights; null where `grpo.importanceSamplingCap` is. */
  importanceWeightMean: number | null
  importanceWeightMin: number | null
  /** Share of tokens whose importance weight is at the cap. */
  importanceTruncated: number | null
  /** Of the value head; null with another baseline. */
  valueLoss: number | null
  explainedVariance: number | null
  zeroVarianceGroups: number
  excluded: number
  sampledTokens: number
  /** Share of the positions run through the model that hold no token, and of the rows' tokens that were run with another row's. */
  padding: number
  shared: number
  secondsRollout: number
  secondsUpdate: number
}

const LIMITS: ReadonlySet<StopReason> = new Set<StopReason>(['turn_limit', 'token_limit', 'context_limit', 'deadline'])

export function describeRollouts(groups: readonly ScoredGroup[]) {
  const all = groups.flatMap((group) => group.scored)
  const scored = all.flatMap((one) => (one.reward === null ? [] : [{ ...one, reward: one.reward }]))
  const trajectories = scored.map((one) => one.trajectory)
  const own = trajectories.map((one) => one.turns.filter(({ frozen }) => frozen !== true))
  const turns = own.flat()
  const tokens = trajectories.map((one) => one.usage.master.completionTokens)
  const calls = (trajectory: Trajectory, kind: 'ground' | 'look') =>
    trajectory.turns.filter((turn) => turn.action.kind === kind).length
  const grounds = trajectories.map((one) => calls(one, 'ground'))
  const looks = trajectories.map((one) => calls(one, 'look'))
  return {
    reward: mean(scored.map((one) => one.reward.total)),
    accuracy: mean(scored.map((one) => Number(one.correct))),
    grounded: mean(scored.map((one) => Number(one.grounded))),
    formatRate: mean(turns.map((turn) => Number(turn.wellFormed))),
    turns: mean(own.map((one) => one.length)),
    meanTokens: mean(tokens),
    maxTokens: tokens.reduce((most, count) => Math.max(most, count), 0),
    truncated: mean(trajectories.map((one) => Number(LIMITS.has(one.stopReason)))),
    grounds: mean(grounds),
    looks: mean(looks),
    toolRate: mean(trajectories.map((_, i) => Number((grounds[i] as number) + (looks[i] as number) > 0))),
    excluded: all.length - scored.length,
  }
}

export function describeUpdate({
  steps,
  ratioMax,
  tokens,
  advantages,
  importanceWeights,
  explainedVariance,
}: UpdateMetrics) {
  const each = (key: Exclude<keyof StepMetrics, 'valueLoss'>) => mean(steps.map((step) => step[key]))
  const valueLosses = steps.flatMap(({ valueLoss }) => (valueLoss === null ? [] : [valueLoss]))
  return {
    loss: each('loss'),
    gradNorm: each('gradNorm'),
    learningRate: each('learningRate'),
    kl: each('kl'),
    clipFractionLow: each('clipFractionLow'),
    clipFractionHigh: each('clipFractionHigh'),
    clipFractionDual: each('clipFractionDual'),
    entropy: each('entropy'),
    ratioMean: each('ratioMean'),
    ratioMax,
    advantageMean: advantages?.mean ?? 0,
    advantageDeviation: advantages?.standardDeviation ?? 0,
    importanceWeightMean: importanceWeights?.mean ?? null,
    importanceWeightMin: importanceWeights?.min ?? null,
    importanceTruncated: importanceWeights?.truncated ?? null,
    valueLoss: valueLosses.length === 0 ? null : mean(valueLosses),
    explainedVariance,
    sampledTokens: tokens,
    padding: each('padding'),
    shared: each('shared'),
  }
}

/** 0 of none, so that a step without a scored trajectory can be written down. */
function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length
}
