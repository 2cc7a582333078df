/**
 * Ratios between the policy that is trained and the one that sampled: as arithmetic, and as a graph.
 * Importance weights correct a sampler that computes other log-probabilities than the trainer.
 */

import type { Ops } from '../engine/ops.ts'

/** r = exp(logp - old) (Schulman et al. 2017, arXiv:1707.06347). */
export function tokenRatio(logprob: number, oldLogprob: number): number {
  return Math.exp(logprob - oldLogprob)
}

/**
 * One ratio for a whole row: exp of the mean over its sampled tokens of logp - old (Zheng et al. 2025, arXiv:2507.18071, eq. 7).
 * 1 for a row without any.
 */
export function sequenceRatio(logprobs: ArrayLike<number>, oldLogprobs: ArrayLike<number>): number {
  let sum = 0
  for (let index = 0; index < logprobs.length; index += 1) sum += logprobs[index]! - oldLogprobs[index]!
  return Math.exp(sum / Math.max(logprobs.length, 1))
}

/**
 * Truncated importance sampling: min(exp(old - sampled), cap), with `old` the trainer's own log-probability before the update and `sampled`
 * the one that the sampler recorded (Yao et al. 2025, https://fengyao.notion.site/off-policy-rl; TRL 1.13.0 `token_truncate`).
 */
export function truncatedImportanceWeight(oldLogprob: number, sampledLogprob: number, cap: number): number {
  return Math.min(Math.exp(oldLogprob - sampledLogprob), cap)
}

/** Which row of a micro-batch of B each of its M tokens belongs to. */
export interface RowMembership<V> {
  /** Integers [M], each one of `indices`. */
  rowOfToken: V
  /** Integers [B]: 0, 1, ..., B - 1. */
  indices: V
  /** [M]: 1 / (tokens of the row). */
  shares: V
}

/** Log-ratios [M] -> for each token the mean over its row [M]. The gradient of a mean reaches every token of its row. */
export function rowMeans<V>(ops: Ops<V>, logRatios: V, { rowOfToken, indices, shares }: RowMembership<V>): V {
  const [tokens] = ops.shapeOf(logRatios)
  const [rows] = ops.shapeOf(indices)
  const belongs = ops.equal(ops.reshape(rowOfToken, [tokens!, 1]), ops.reshape(indices, [1, rows!]))
  const means = ops.matmul(belongs, ops.reshape(ops.multiply(logRatios, shares), [tokens!, 1]), { transposeLeft: true })
  return ops.reshape(ops.matmul(belongs, means), [tokens!])
}
