/** Advantages of GRPO: rewards compared within a group of runs of one task. Pure; rewards are read, never changed. */

import type { ScoredGroup } from '../types.ts'
import type { GrpoOptions } from './options.ts'

/** Keeps the division finite; TRL's value. */
const STANDARD_DEVIATION_FLOOR = 1e-4

/** Below this a group counts as having no variance (`torch.isclose` to 0). */
const ZERO_VARIANCE = 1e-8

export interface GroupAdvantages {
  /** One per reward; null where the reward is null. */
  advantages: (number | null)[]
  /** All rewards that count are equal, or there is at most one. */
  zeroVariance: boolean
}

/**
 * A_i = (R_i - mean) / (std + 1e-4), with the standard deviation over n - 1 (Shao et al. 2024, arXiv:2402.03300; the constants of
 * TRL 1.13.0); scale `none` leaves out the division (Liu et al. 2025, arXiv:2503.20783). A reward of null takes no part.
 * A single reward has advantage 0: nothing compares to it.
 */
export function groupAdvantages(
  rewards: readonly (number | null)[],
  scale: GrpoOptions['advantageScale'],
): GroupAdvantages {
  const counted = rewards.filter((reward) => reward !== null)
  const mean = counted.reduce((sum, reward) => sum + reward, 0) / counted.length
  if (counted.length < 2)
    return { advantages: rewards.map((reward) => (reward === null ? null : 0)), zeroVariance: true }
  const variance = counted.reduce((sum, reward) => sum + (reward - mean) ** 2, 0) / (counted.length - 1)
  const deviation = Math.sqrt(variance)
  const divisor = scale === 'group' ? deviation + STANDARD_DEVIATION_FLOOR : 1
  return {
    advantages: rewards.map((reward) => (reward === null ? null : (reward - mean) / divisor)),
    zeroVariance: deviation <= ZERO_VARIANCE,
  }
}

/** Advantages of each scored group, by its total rewards. */
export function scoredGroupAdvantages(
  groups: readonly ScoredGroup[],
  options: Pick<GrpoOptions, 'advantageScale'>,
): GroupAdvantages[] {
  return groups.map(({ scored }) =>
    groupAdvantages(
      scored.map(({ reward }) => reward?.total ?? null),
      options.advantageScale,
    ),
  )
}
