/** Supervised training: one optimizer step on a batch of sequences with a weight per target token. Knows no lessons and no files. */

import { learningRateAt } from './optimizer.ts'
import type { SupervisedOptions } from './options.ts'
import type { SupervisedTrainingRow, Trainer } from './trainer.ts'

/** `weights[t]` is the weight of predicting `ids[t]` from what precedes it; 0 where nothing is taught. Same length as `ids`. */
export interface SupervisedRow {
  ids: readonly number[]
  weights: readonly number[]
  /** Metrics are also given per kind. */
  kind?: string
}

export interface SupervisedMetrics {
  /** Cross-entropy in nats, weighted: sum w (-log p) / sum w. */
  loss: number
  gradNorm: number
  learningRate: number
  /** Over the taught tokens of each kind: share whose likeliest prediction is right, mean cross-entropy, and their number. */
  kinds: Record<string, { accuracy: number; loss: number; tokens: number }>
}

/**
 * One update on these rows. The loss is divided by the total weight of the batch before it is split into micro-batches.
 * Throws `NonFiniteError` before weights change when the loss or a gradient is not finite.
 */
export async function superviseBatch(
  trainer: Trainer,
  rows: readonly SupervisedRow[],
  options: SupervisedOptions,
  context: { totalSteps: number },
): Promise<SupervisedMetrics> {
  const total = rows.reduce((sum, { weights }) => sum + weights.reduce((a, b) => a + b, 0), 0)
  if (!(total > 0)) throw new Error('A supervised batch needs at least one token with a weight above 0')
  const batch = rows.map(({ ids, weights }, index): SupervisedTrainingRow => {
    if (weights.length !== ids.length) throw new Error(`Row ${index}: ${ids.length} ids but ${weights.length} weights`)
    if (weights[0] !== 0) throw new Error(`Row ${index}: the first token of a sequence cannot be taught`)
    const positions = [...ids.keys()].filter((position) => weights[position] !== 0)
    return { ids, positions, tokenWeights: positions.map((position) => weights[position]! / total) }
  })
  const { loss, logprobs, correct } = await trainer.forwardBackwardSupervised(batch, options)
  const learningRate = learningRateAt(trainer.step, context.totalSteps, options)
  const { gradNorm } = await trainer.optimizerStep({ ...options, learningRate })

  const kinds: SupervisedMetrics['kinds'] = {}
  rows.forEach(({ kind = 'all' }, index) => {
    const sums = kinds[kind] ?? { accuracy: 0, loss: 0, tokens: 0 }
    kinds[kind] = sums
    logprobs[index]!.forEach((logprob, place) => {
      sums.tokens += 1
      sums.loss -= logprob
      sums.accuracy += correct[index]![place]!
    })
  })
  for (const sums of Object.values(kinds)) {
    sums.loss /= Math.max(sums.tokens, 1)
    sums.accuracy /= Math.max(sums.tokens, 1)
  }
  return { loss, gradNorm, learningRate, kinds }
}
