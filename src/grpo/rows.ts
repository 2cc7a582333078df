/** Training rows from scored groups: one per segment, with the advantage of its trajectory. */

import type { ScoredGroup, Segment, Trajectory } from '../types.ts'
import type { GroupAdvantages, PerTrajectory } from './advantage.ts'
import type { GrpoOptions } from './options.ts'

/** What one sequence teaches: `ids`, `actionMask` and `logprobs` as in `Segment`. */
export interface PolicyRow {
  ids: readonly number[]
  actionMask: readonly (0 | 1)[]
  /** Null when the sampler did not tell. */
  logprobs: readonly number[] | null
  advantage: number
  /** On the first row of a trajectory, with a learned baseline: its reward and what the value head predicted. Else null. */
  value: { return: number; predicted: number } | null
}

/** Segments in which the policy sampled at least one token: only these can be trained on, and those of frozen roles never are. */
export function trainableSegments(trajectory: Trajectory): Segment[] {
  return trajectory.segments.filter((segment) => segment.frozen !== true && segment.actionMask.includes(1))
}

/**
 * Rows of all trajectories that have an advantage, in order. Segments in which nothing was sampled give none; with `zeroVariance`
 * `drop`, neither do groups without variance. `values` are those of `trajectoryValues`, or null without a learned baseline.
 */
export function policyRows(
  groups: readonly ScoredGroup[],
  advantages: readonly GroupAdvantages[],
  options: Pick<GrpoOptions, 'zeroVariance'>,
  values: readonly PerTrajectory[] | null = null,
): PolicyRow[] {
  return groups.flatMap(({ group, scored }, index) => {
    const { advantages: ofTrajectories, zeroVariance } = advantages[index]!
    if (zeroVariance && options.zeroVariance === 'drop') return []
    return group.trajectories.flatMap((trajectory, sample) => {
      const advantage = ofTrajectories[sample]
      if (advantage === null || advantage === undefined) return []
      const [reward, predicted] = [scored[sample]?.reward?.total, values?.[index]?.[sample]]
      const value = reward === undefined || typeof predicted !== 'number' ? null : { return: reward, predicted }
      return trainableSegments(trajectory).map(
        ({ ids, actionMask, logprobs }, place): PolicyRow => ({
          ids,
          actionMask,
          logprobs,
          advantage,
          value: place === 0 ? value : null,
        }),
      )
    })
  })
}
