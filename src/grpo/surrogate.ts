/** What is gained per token before KL and aggregation: the clipped surrogate and CISPO's weighted log-probability. As arithmetic, and as a graph. */

import type { Ops } from '../engine/ops.ts'
import type { GrpoOptions } from './options.ts'

export type ClipOptions = Pick<GrpoOptions, 'clipLow' | 'clipHigh' | 'dualClip'>

/** Which bound took a token's gradient away (`low`, `high`, `dual`), or made it smaller (`high` of cispo). */
export type Clipped = 'low' | 'high' | 'dual' | null

export interface Surrogate {
  value: number
  clipped: Clipped
}

/**
 * min(r A, clamp(r, 1 - clipLow, 1 + clipHigh) A) (Schulman et al. 2017, arXiv:1707.06347, eq. 7; two bounds: Yu et al. 2025,
 * arXiv:2503.14476). With `dualClip` c it is at least c A where A < 0 (Ye et al. 2020, arXiv:1912.09729, eq. 7; verl's `clip_ratio_c`,
 * TRL's `delta`).
 */
export function clippedSurrogate(
  ratio: number,
  advantage: number,
  { clipLow, clipHigh, dualClip }: ClipOptions,
): Surrogate {
  const clamped = Math.min(Math.max(ratio, 1 - clipLow), 1 + clipHigh)
  if (clamped * advantage < ratio * advantage)
    return { value: clamped * advantage, clipped: advantage < 0 ? 'low' : 'high' }
  if (dualClip !== null && advantage < 0 && ratio > dualClip) return { value: dualClip * advantage, clipped: 'dual' }
  return { value: ratio * advantage, clipped: null }
}

/** The same for tensors of one shape. c above 1 + clipHigh bounds nothing where A > 0. */
export function clippedSurrogateTerm<V>(
  ops: Ops<V>,
  ratio: V,
  advantages: V,
  { clipLow, clipHigh, dualClip }: ClipOptions,
): V {
  const clamped = ops.clamp(ratio, ops.scalar(1 - clipLow), ops.scalar(1 + clipHigh))
  const bounded = dualClip === null ? ratio : ops.minimum(ratio, ops.scalar(dualClip))
  return ops.minimum(ops.multiply(bounded, advantages), ops.multiply(clamped, advantages))
}

/**
 * min(r, cap) A logp, with no gradient through the ratio: every token keeps a gradient (MiniMax 2025, arXiv:2506.13585, eq. 4, with an upper
 * bound only, as TRL 1.13.0 has it).
 */
export function cispoSurrogate(ratio: number, advantage: number, logprob: number, ratioCap: number): Surrogate {
  return { value: Math.min(ratio, ratioCap) * advantage * logprob, clipped: ratio > ratioCap ? 'high' : null }
}

/** The same for tensors of one shape. */
export function cispoSurrogateTerm<V>(ops: Ops<V>, ratio: V, advantages: V, logprobs: V, ratioCap: number): V {
  const weight = ops.stopGradient(ops.minimum(ratio, ops.scalar(ratioCap)))
  return ops.multiply(ops.multiply(weight, advantages), logprobs)
}
