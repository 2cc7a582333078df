/** Advantages: what each trajectory's reward is compared to, and what the difference is divided by. Pure; rewards are read, never changed. */

import { mean, sampleStandardDeviation } from 'simple-statistics'
import type { ScoredGroup } from '../types.ts'
import type { GrpoOptions } from './options.ts'

/** Keeps the division finite; TRL's value. */
const STANDARD_DEVIATION_FLOOR = 1e-4

/** Below this a group counts as having no variance (`torch.isclose` to 0). */
const ZERO_VARIANCE = 1e-8

export interface GroupAdvantages {
  /** One per reward; null where the reward is null, or a value that it would be compared to. */
  advantages: (number | null)[]
  /** All rewards that count are equal, or there is at most one. */
  zeroVariance: boolean
}

export type AdvantageOptions = Pick<GrpoOptions, 'advantageBaseline' | 'advantageScale'>

/** Rewards of one group, or what belongs to each of them. Null takes no part. */
export type PerTrajectory = readonly (number | null)[]

/**
 * A_i = (R_i - b_i) / d, for all groups of a batch.
 *
 * Baseline b: the mean of the group (Shao et al. 2024, arXiv:2402.03300); the mean of the others in it (leave-one-out: Kool et al. 2019,
 * Ahmadian et al. 2024, arXiv:2402.14740); or the learned value V_i, given as `values`.
 * Divisor d: standard deviation over n - 1 of the group's rewards or of the batch's, plus 1e-4 (the constants of TRL 1.13.0); or 1
 * (Liu et al. 2025, arXiv:2503.20783). Where there is no deviation, for want of a second reward, d is the 1e-4 alone; a reward that nothing
 * compares to has advantage 0.
 */
export function batchAdvantages(
  groups: readonly PerTrajectory[],
  { advantageBaseline, advantageScale }: AdvantageOptions,
  values: readonly PerTrajectory[] | null = null,
): GroupAdvantages[] {
  const batchDeviation = deviation(groups.flatMap(counted))
  return groups.map((rewards, index) => {
    const groupDeviation = deviation(counted(rewards))
    const scale = { group: groupDeviation, batch: batchDeviation, none: null }[advantageScale]
    const divisor = scale === null ? 1 : scale + STANDARD_DEVIATION_FLOOR
    const baselines = baselinesOf(rewards, advantageBaseline, values?.[index] ?? null)
    return {
      advantages: rewards.map((reward, sample) => {
        const baseline = baselines[sample]!
        return reward === null || baseline === null ? null : (reward - baseline) / divisor
      }),
      zeroVariance: groupDeviation <= ZERO_VARIANCE,
    }
  })
}

function baselinesOf(
  rewards: PerTrajectory,
  baseline: GrpoOptions['advantageBaseline'],
  values: PerTrajectory | null,
): PerTrajectory {
  switch (baseline) {
    case 'group_mean':
      return groupMean(rewards)
    case 'leave_one_out':
      return leaveOneOut(rewards)
    case 'value':
      if (values === null) throw new Error('advantageBaseline value needs the values of all trajectories')
      return values
  }
}

/** The mean of the rewards that count, for each of them. */
export function groupMean(rewards: PerTrajectory): PerTrajectory {
  const present = counted(rewards)
  return rewards.map((reward) => (reward === null ? null : mean(present)))
}

/** For each reward the mean of the others: (n mean - R_i) / (n - 1). Alone, it is compared to itself. */
export function leaveOneOut(rewards: PerTrajectory): PerTrajectory {
  const present = counted(rewards)
  if (present.length < 2) return rewards
  const sum = present.reduce((total, reward) => total + reward, 0)
  return rewards.map((reward) => (reward === null ? null : (sum - reward) / (present.length - 1)))
}

/** Standard deviation over n - 1; 0 of fewer than two. */
function deviation(rewards: readonly number[]): number {
  return rewards.length < 2 ? 0 : sampleStandardDeviation([...rewards])
}

function counted(rewards: PerTrajectory): number[] {
  return rewards.filter((reward) => reward !== null)
}

/** Advantages of each scored group, by its total rewards; `values` are those of `trajectoryValues`, for the learned baseline. */
export function scoredGroupAdvantages(
  groups: readonly ScoredGroup[],
  options: AdvantageOptions,
  values: readonly PerTrajectory[] | null = null,
): GroupAdvantages[] {
  return batchAdvantages(
    groups.map(({ scored }) => scored.map(({ reward }) => reward?.total ?? null)),
    options,
    values,
  )
}
