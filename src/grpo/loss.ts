/**
 * The GRPO loss: twice, as a graph that is trained with and as plain arithmetic that tests and metrics use.
 * It knows no model: log-probabilities come in.
 *
 * Per token, with r = exp(logp - old) and A the advantage of the sequence (Schulman et al. 2017, arXiv:1707.06347, eq. 7; KL as in
 * Shao et al. 2024, arXiv:2402.03300, eq. 4, the k3 estimator of http://joschu.net/blog/kl-approx.html):
 *   loss = -min(r A, clamp(r, 1 - clipLow, 1 + clipHigh) A) + klCoefficient * k3
 *   k3   = exp(ref - logp) - (ref - logp) - 1,  times r with bias correction (TRL 1.13.0 `use_bias_correction_kl`)
 */

import type { Ops } from '../engine/ops.ts'
import type { GrpoOptions } from './options.ts'

/** Tensors of one micro-batch of M tokens, each [M] unless it says scalar. */
export interface PolicyLossInputs<V> {
  logprobs: V
  oldLogprobs: V
  advantages: V
  /** Share of each token in the loss: see `tokenWeights`. */
  weights: V
  /** Scalars: 1 - clipLow and 1 + clipHigh. */
  ratioFloor: V
  ratioCeiling: V
  kl: { referenceLogprobs: V /** scalar */; coefficient: V; biasCorrection: boolean } | null
}

/** The weighted sum of token losses, as a scalar. */
export function policyLoss<V>(ops: Ops<V>, inputs: PolicyLossInputs<V>): V {
  const { logprobs, oldLogprobs, advantages, weights, ratioFloor, ratioCeiling, kl } = inputs
  const ratio = ops.exp(ops.subtract(logprobs, oldLogprobs))
  const clipped = ops.clamp(ratio, ratioFloor, ratioCeiling)
  let loss = ops.negate(ops.minimum(ops.multiply(ratio, advantages), ops.multiply(clipped, advantages)))
  if (kl !== null) {
    const difference = ops.subtract(kl.referenceLogprobs, logprobs)
    const k3 = ops.subtract(ops.subtract(ops.exp(difference), difference), ops.scalar(1))
    const corrected = kl.biasCorrection ? ops.multiply(k3, ratio) : k3
    loss = ops.add(loss, ops.multiply(corrected, kl.coefficient))
  }
  return ops.sum(ops.multiply(loss, weights), [0], false)
}

export interface TokenLoss {
  loss: number
  ratio: number
  /** The clip cut the gradient of this token. */
  clipped: boolean
  /** The KL term of the loss before its coefficient; 0 without a reference. */
  kl: number
}

/** The loss of one token. `reference` is null when there is no KL term. */
export function tokenLoss(
  token: { logprob: number; oldLogprob: number; advantage: number; reference: number | null },
  options: Pick<GrpoOptions, 'clipLow' | 'clipHigh' | 'klCoefficient' | 'klBiasCorrection'>,
): TokenLoss {
  const ratio = Math.exp(token.logprob - token.oldLogprob)
  const clamped = Math.min(Math.max(ratio, 1 - options.clipLow), 1 + options.clipHigh)
  const surrogate = Math.min(ratio * token.advantage, clamped * token.advantage)
  const kl = token.reference === null ? 0 : k3(token.logprob, token.reference) * (options.klBiasCorrection ? ratio : 1)
  return {
    loss: -surrogate + options.klCoefficient * kl,
    ratio,
    clipped: clamped * token.advantage < ratio * token.advantage,
    kl,
  }
}

/** Estimate of KL(policy || reference) from one token that the policy sampled: never negative. */
export function k3(logprob: number, reference: number): number {
  return Math.exp(reference - logprob) - (reference - logprob) - 1
}

/**
 * Share of each token in the loss, by row; fixed before a batch is divided into micro-batches, so that the division does not change
 * the gradient. `counts` are the sampled tokens of the rows of one minibatch.
 * dapo (Yu et al. 2025, arXiv:2503.14476): 1 / denominator, the tokens of the whole batch of rollouts over the number of minibatches.
 * grpo: 1 / (rows of the minibatch * tokens of the row).
 */
export function tokenWeights(
  counts: readonly number[],
  lossType: GrpoOptions['lossType'],
  denominator: number,
): number[] {
  if (lossType === 'dapo') return counts.map(() => 1 / Math.max(denominator, 1))
  return counts.map((count) => 1 / (counts.length * Math.max(count, 1)))
}
