/** Training rows from scored groups: one per segment, with the advantage of its trajectory. */

import type { ScoredGroup, Segment } from '../types.ts'
import type { GroupAdvantages } from './advantage.ts'
import type { GrpoOptions } from './options.ts'

/** What one sequence teaches: `ids`, `actionMask` and `logprobs` as in `Segment`. */
export interface PolicyRow {
  ids: readonly number[]
  actionMask: readonly (0 | 1)[]
  logprobs: readonly number[]
  advantage: number
}

export function policyRow(segment: Segment, advantage: number): PolicyRow {
  return { ids: segment.ids, actionMask: segment.actionMask, logprobs: segment.logprobs, advantage }
}

/**
 * Rows of all trajectories that have an advantage, in order. Segments in which nothing was sampled give none; with `zeroVariance`
 * `drop`, neither do groups without variance.
 */
export function policyRows(
  groups: readonly ScoredGroup[],
  advantages: readonly GroupAdvantages[],
  options: Pick<GrpoOptions, 'zeroVariance'>,
): PolicyRow[] {
  return groups.flatMap(({ group }, index) => {
    const { advantages: ofTrajectories, zeroVariance } = advantages[index]!
    if (zeroVariance && options.zeroVariance === 'drop') return []
    return group.trajectories.flatMap((trajectory, sample) => {
      const advantage = ofTrajectories[sample]
      if (advantage === null || advantage === undefined) return []
      return trajectory.segments
        .filter((segment) => segment.actionMask.includes(1))
        .map((segment) => policyRow(segment, advantage))
    })
  })
}
