/** The numbers that tell how an update went: per optimizer step, and of the batch as a whole. Pure; changes nothing. */

import { mean, standardDeviation } from 'simple-statistics'
import type { PolicyObjective } from './loss.ts'
import { tokenLosses } from './loss.ts'
import type { PolicyTrainingRow } from './trainer.ts'

/** What one optimizer step did. Means and shares are over the minibatch's sampled tokens. */
export interface StepMetrics {
  loss: number
  /** Mean squared error of the value head; null without one. */
  valueLoss: number | null
  /** Global norm before clipping. */
  gradNorm: number
  learningRate: number
  /** Mean KL to the reference as it stands in the loss, before its coefficient; 0 without a KL term. */
  kl: number
  /** Share of tokens whose gradient the lower clip, the upper clip or the dual clip took away; for cispo the upper one is the share at the cap. */
  clipFractionLow: number
  clipFractionHigh: number
  clipFractionDual: number
  ratioMean: number
  ratioMin: number
  ratioMax: number
  /** Mean entropy of the policy's distribution, in nats. */
  entropy: number
  tokens: number
  /** Share of the positions run through the model that hold no token. */
  padding: number
  /** Share of the rows' tokens that needed no position of their own, since another row begins like theirs. */
  shared: number
}

export interface Spread {
  mean: number
  /** Over n. */
  standardDeviation: number
  min: number
  max: number
}

/** What the loss itself does not tell about a step. Log-probabilities and entropies are per row and token. */
export function describeStep(
  batch: readonly PolicyTrainingRow[],
  logprobs: readonly Float64Array[],
  entropies: readonly Float64Array[],
  objective: PolicyObjective,
): Omit<StepMetrics, 'loss' | 'valueLoss' | 'gradNorm' | 'learningRate' | 'padding' | 'shared'> {
  const tokens = batch.flatMap((row, index) => tokenLosses({ ...row, logprobs: logprobs[index]! }, objective))
  const average = (of: readonly number[]) => of.reduce((sum, value) => sum + value, 0) / Math.max(tokens.length, 1)
  const clipped = (by: string) => average(tokens.map((token) => Number(token.clipped === by)))
  return {
    kl: average(tokens.map(({ kl }) => kl)),
    clipFractionLow: clipped('low'),
    clipFractionHigh: clipped('high'),
    clipFractionDual: clipped('dual'),
    ratioMean: average(tokens.map(({ ratio }) => ratio)),
    ratioMin: tokens.reduce((least, { ratio }) => Math.min(least, ratio), Number.POSITIVE_INFINITY),
    ratioMax: tokens.reduce((most, { ratio }) => Math.max(most, ratio), 0),
    entropy: average(entropies.flatMap((row) => [...row])),
    tokens: tokens.length,
  }
}

/** Null of nothing. */
export function spread(values: readonly number[]): Spread | null {
  if (values.length === 0) return null
  return {
    mean: mean([...values]),
    standardDeviation: standardDeviation([...values]),
    min: values.reduce((least, value) => Math.min(least, value)),
    max: values.reduce((most, value) => Math.max(most, value)),
  }
}
