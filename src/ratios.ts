/**
 * How far an update moved the policy on what it was trained on: new over old probability of every sampled token, for the viewer. One
 * more forward pass over the rows of a step; says nothing to training.
 */
import { NonFiniteError } from './grpo/nonFinite.ts'
import type { Trainer } from './grpo/trainer.ts'
import { type Ratios, writeRatios } from './trajectory/ratios.ts'
import type { Result, ScoredGroup, Segment } from './types.ts'

/** `temperature`: that of the log-probabilities as recorded. Trajectories without a reward are not trained on and have none. */
export async function recordRatios(
  directory: string,
  step: number,
  groups: readonly ScoredGroup[],
  trainer: Trainer,
  sizes: { microBatchTokens: number; temperature: number },
): Promise<Result<void>> {
  const trained = groups
    .flatMap(({ scored }) => scored)
    .flatMap(({ trajectory, reward }) => (reward === null ? [] : [trajectory]))
  const rows = trained.flatMap(({ segments }) => segments.map(sampledPositions))
  const scored = rows.filter(({ positions }) => positions.length > 0)
  const logprobs = await trainer.score(scored, { ...sizes, weights: 'policy' }).catch((error) => {
    // the next rollouts meet it too, and say which rows it is
    if (error instanceof NonFiniteError) return null
    throw error
  })
  if (logprobs === null) return { ok: true, value: undefined }
  const ofRow = new Map(scored.map(({ segment }, at) => [segment, logprobs[at] as Float64Array]))
  const ratios: Ratios = {}
  for (const { id, segments } of trained) {
    ratios[id] = segments.map((segment) =>
      Array.from(ofRow.get(segment) ?? [], (now, nth) =>
        Math.exp(now - (segment.logprobs[sampledPositions(segment).positions[nth] as number] as number)),
      ),
    )
  }
  return writeRatios(directory, step, ratios)
}

function sampledPositions(segment: Segment): { segment: Segment; ids: readonly number[]; positions: number[] } {
  const { ids, actionMask } = segment
  return { segment, ids, positions: [...ids.keys()].filter((position) => actionMask[position] === 1) }
}
