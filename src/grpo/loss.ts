/**
 * The loss of a policy: twice, as a graph that is trained with and as plain arithmetic that tests and metrics use.
 * It puts together `ratio.ts`, `surrogate.ts` and `kl.ts`, and knows no model: log-probabilities come in.
 *
 * Per token, in the order of TRL 1.13.0: loss = -surrogate * importance weight + klCoefficient * KL (times the ratio with bias correction).
 * The loss of a batch is the sum of token losses times their `tokenWeights`.
 */

import type { Ops } from '../engine/ops.ts'
import { klEstimate, klTerm } from './kl.ts'
import type { GrpoOptions } from './options.ts'
import { type RowMembership, rowMeans, sequenceRatio, tokenRatio } from './ratio.ts'
import {
  type Clipped,
  cispoSurrogate,
  cispoSurrogateTerm,
  clippedSurrogate,
  clippedSurrogateTerm,
} from './surrogate.ts'

/** The options that the loss reads. */
export type PolicyObjective = Pick<
  GrpoOptions,
  | 'lossType'
  | 'importanceSamplingLevel'
  | 'clipLow'
  | 'clipHigh'
  | 'dualClip'
  | 'ratioCap'
  | 'klCoefficient'
  | 'klEstimator'
  | 'klBiasCorrection'
>

/** Tensors of one micro-batch of M tokens, each [M]. */
export interface PolicyLossInputs<V> {
  logprobs: V
  oldLogprobs: V
  advantages: V
  /** Share of each token in the loss: see `tokenWeights`. */
  weights: V
  /** Read with a KL term only. */
  referenceLogprobs: V | null
  /** Null: 1. */
  importanceWeights: V | null
  /** Read with ratios per sequence only. */
  rows: RowMembership<V> | null
}

/** The weighted sum of token losses, as a scalar. */
export function policyLoss<V>(ops: Ops<V>, inputs: PolicyLossInputs<V>, objective: PolicyObjective): V {
  const { logprobs, advantages, importanceWeights } = inputs
  const logRatio = ops.subtract(logprobs, inputs.oldLogprobs)
  const perSequence = objective.importanceSamplingLevel === 'sequence'
  const ratio = ops.exp(perSequence ? rowMeans(ops, logRatio, inputs.rows!) : logRatio)
  const surrogate =
    objective.lossType === 'cispo'
      ? cispoSurrogateTerm(ops, ratio, advantages, logprobs, objective.ratioCap)
      : clippedSurrogateTerm(ops, ratio, advantages, objective)
  let loss = ops.negate(surrogate)
  if (importanceWeights !== null) loss = ops.multiply(loss, importanceWeights)
  if (objective.klCoefficient > 0) {
    const kl = klTerm(ops, objective.klEstimator, logprobs, inputs.referenceLogprobs!)
    const corrected = objective.klBiasCorrection ? ops.multiply(kl, ratio) : kl
    loss = ops.add(loss, ops.multiply(corrected, ops.scalar(objective.klCoefficient)))
  }
  return ops.sum(ops.multiply(loss, inputs.weights), [0], false)
}

/** The sampled tokens of one row. */
export interface RowTokens {
  logprobs: ArrayLike<number>
  oldLogprobs: ArrayLike<number>
  advantage: number
  /** Null without a KL term. */
  referenceLogprobs: ArrayLike<number> | null
  /** Null: 1. */
  importanceWeights: ArrayLike<number> | null
}

export interface TokenLoss {
  loss: number
  ratio: number
  clipped: Clipped
  /** The KL term of the loss before its coefficient; 0 without a reference. */
  kl: number
}

/** The losses of the tokens of one row, before their weights. */
export function tokenLosses(row: RowTokens, objective: PolicyObjective): TokenLoss[] {
  const { logprobs, oldLogprobs, advantage } = row
  const perSequence = objective.importanceSamplingLevel === 'sequence'
  const ofRow = perSequence ? sequenceRatio(logprobs, oldLogprobs) : 1
  return Array.from(logprobs, (logprob, index) => {
    const ratio = perSequence ? ofRow : tokenRatio(logprob, oldLogprobs[index]!)
    const { value, clipped } =
      objective.lossType === 'cispo'
        ? cispoSurrogate(ratio, advantage, logprob, objective.ratioCap)
        : clippedSurrogate(ratio, advantage, objective)
    const weight = row.importanceWeights === null ? 1 : row.importanceWeights[index]!
    const kl =
      row.referenceLogprobs === null
        ? 0
        : klEstimate(objective.klEstimator, logprob, row.referenceLogprobs[index]!) *
          (objective.klBiasCorrection ? ratio : 1)
    return { loss: -value * weight + objective.klCoefficient * kl, ratio, clipped, kl }
  })
}

/**
 * Share of each token in the loss, by row; fixed before a minibatch is divided into micro-batches, so that the division does not change
 * the gradient. `counts` are the sampled tokens of the rows of one minibatch, `batchTokens` those of the whole batch of rollouts.
 * - dapo (Yu et al. 2025, arXiv:2503.14476), cispo: 1 / (batchTokens / minibatches).
 * - grpo (Shao et al. 2024, arXiv:2402.03300): 1 / (rows * tokens of the row); a row without tokens counts as a row.
 * - bnpo: 1 / (tokens of the minibatch). TRL's `bnpo` divides per micro-batch; they agree where a minibatch is one micro-batch.
 * - dr_grpo (Liu et al. 2025, arXiv:2503.20783): 1 / (rows * maxCompletionLength).
 */
export function tokenWeights(
  counts: readonly number[],
  batchTokens: number,
  { lossType, minibatches, maxCompletionLength }: Pick<GrpoOptions, 'lossType' | 'minibatches' | 'maxCompletionLength'>,
): number[] {
  const same = (denominator: number) => counts.map(() => 1 / Math.max(denominator, 1))
  switch (lossType) {
    case 'dapo':
    case 'cispo':
      return same(batchTokens / minibatches)
    case 'bnpo':
      return same(counts.reduce((sum, count) => sum + count, 0))
    case 'dr_grpo':
      return same(counts.length * maxCompletionLength!)
    case 'grpo':
      return counts.map((count) => 1 / (counts.length * Math.max(count, 1)))
  }
}
