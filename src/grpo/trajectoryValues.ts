/** What the value head predicts for trajectories before they are trained on: the learned baseline of their advantages. */

import type { ScoredGroup } from '../types.ts'
import type { PerTrajectory } from './advantage.ts'
import { trainableSegments } from './rows.ts'
import type { BatchSize, Trainer } from './trainer.ts'

/**
 * One value per trajectory of each group: V at the state before its first sampled token, so that it depends on nothing the policy did.
 * Null where the policy sampled nothing, and where there is no reward.
 */
export async function trajectoryValues(
  trainer: Trainer,
  groups: readonly ScoredGroup[],
  options: BatchSize,
): Promise<PerTrajectory[]> {
  const firsts = groups.map(({ group, scored }) =>
    group.trajectories.map((trajectory, sample) => {
      const [segment] = trainableSegments(trajectory)
      return segment === undefined || scored[sample]?.reward == null ? null : segment
    }),
  )
  const rows = firsts
    .flat()
    .filter((segment) => segment !== null)
    .map(({ ids, actionMask }) => ({ ids, positions: [actionMask.indexOf(1)] }))
  const values = await trainer.values(rows, options)
  let next = 0
  return firsts.map((group) => group.map((segment) => (segment === null ? null : values[next++]!)))
}
