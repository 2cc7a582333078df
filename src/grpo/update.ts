/**
 * One GRPO update from one batch of rollouts: minibatches, epochs, token denominators, the learning rate of each step, and the
 * numbers that tell how it went. Rows and advantages come in; no rollouts, no files.
 */

import { tokenLoss, tokenWeights } from './loss.ts'
import { learningRateAt } from './optimizer.ts'
import type { GrpoOptions } from './options.ts'
import type { PolicyRow } from './rows.ts'
import type { PolicyTrainingRow, Trainer } from './trainer.ts'

export interface UpdateContext {
  /** Temperature at which the rollouts were sampled; 1 for greedy ones. */
  temperature: number
  /** Optimizer steps of the whole run, for the schedule. */
  totalSteps: number
}

/** What one optimizer step did. Means are over the minibatch's sampled tokens. */
export interface StepMetrics {
  loss: number
  /** Global norm before clipping. */
  gradNorm: number
  learningRate: number
  /** Mean k3 to the reference as it stands in the loss; 0 without a KL term. */
  kl: number
  /** Share of tokens whose gradient the clip cut. */
  clipFraction: number
  /** Mean entropy of the policy's distribution, in nats. */
  entropy: number
  tokens: number
}

export interface UpdateMetrics {
  steps: StepMetrics[]
  /** Largest ratio, up or down, in the first pass before any weight moved: 1 when sampler and trainer agree. */
  ratioMax: number
  rows: number
  /** Sampled tokens in the batch. */
  tokens: number
}

/**
 * Trains on one batch of rollouts: `epochs` passes over `minibatches` consecutive parts of the rows, one optimizer step each.
 * Throws `NonFiniteError` on a loss or gradient that is not finite, before that step changes weights. No rows: no steps.
 */
export async function updatePolicy(
  trainer: Trainer,
  rows: readonly PolicyRow[],
  options: GrpoOptions,
  context: UpdateContext,
): Promise<UpdateMetrics> {
  const { temperature, totalSteps } = context
  const sizes = { microBatchTokens: options.microBatchTokens, temperature }
  const prepared = rows.map(sampledPositions)
  const counts = prepared.map(({ positions }) => positions.length)
  const tokens = counts.reduce((sum, count) => sum + count, 0)
  if (tokens === 0) return { steps: [], ratioMax: 1, rows: rows.length, tokens: 0 }

  const old =
    options.oldLogprobs === 'recomputed'
      ? await trainer.score(prepared, { ...sizes, weights: 'policy' })
      : rows.map((row, index) => prepared[index]!.positions.map((position) => row.logprobs[position]!))
  const reference = options.klCoefficient > 0 ? await trainer.score(prepared, { ...sizes, weights: 'reference' }) : null

  const steps: StepMetrics[] = []
  let ratioMax = 1
  for (let epoch = 0; epoch < options.epochs; epoch += 1) {
    for (const part of consecutiveParts(rows.length, options.minibatches)) {
      const weights = tokenWeights(
        part.map((index) => counts[index]!),
        options.lossType,
        tokens / options.minibatches,
      )
      const batch = part.map(
        (index, place): PolicyTrainingRow => ({
          ...prepared[index]!,
          oldLogprobs: old[index]!,
          referenceLogprobs: reference === null ? null : reference[index]!,
          advantage: rows[index]!.advantage,
          tokenWeight: weights[place]!,
        }),
      )
      const { loss, logprobs, entropies } = await trainer.forwardBackward(batch, options, sizes)
      const learningRate = learningRateAt(trainer.step, totalSteps, options)
      const { gradNorm } = await trainer.optimizerStep({ ...options, learningRate })
      const summary = summarise(batch, logprobs, entropies, options)
      if (steps.length === 0) ratioMax = summary.ratioMax
      steps.push({ loss, gradNorm, learningRate, ...summary.metrics })
    }
  }
  return { steps, ratioMax, rows: rows.length, tokens }
}

/** Positions that the policy sampled. Throws on rows that cannot be trained on: these are checked when stored, so it is a programming error. */
function sampledPositions(row: PolicyRow, index: number): { ids: readonly number[]; positions: number[] } {
  const { ids, actionMask, logprobs } = row
  if (actionMask.length !== ids.length || logprobs.length !== ids.length) {
    throw new Error(
      `Row ${index}: ids, actionMask and logprobs have lengths ${ids.length}, ${actionMask.length} and ${logprobs.length}`,
    )
  }
  const positions = [...ids.keys()].filter((position) => actionMask[position] === 1)
  if (positions[0] === 0) throw new Error(`Row ${index}: the first token of a sequence cannot have been sampled`)
  return { ids, positions }
}

/** Indices 0..count-1 in `parts` consecutive parts of nearly equal size; empty ones are left out. */
export function consecutiveParts(count: number, parts: number): number[][] {
  return Array.from({ length: parts }, (_, part) => {
    const [start, end] = [Math.floor((part * count) / parts), Math.floor(((part + 1) * count) / parts)]
    return Array.from({ length: end - start }, (_, offset) => start + offset)
  }).filter((indices) => indices.length > 0)
}

function summarise(
  batch: readonly PolicyTrainingRow[],
  logprobs: readonly Float64Array[],
  entropies: readonly Float64Array[],
  options: GrpoOptions,
): { metrics: Pick<StepMetrics, 'kl' | 'clipFraction' | 'entropy' | 'tokens'>; ratioMax: number } {
  let [tokens, kl, clipped, entropy, ratioMax] = [0, 0, 0, 0, 1]
  batch.forEach((row, index) => {
    row.positions.forEach((_, place) => {
      const reference = row.referenceLogprobs === null ? null : row.referenceLogprobs[place]!
      const token = tokenLoss(
        { logprob: logprobs[index]![place]!, oldLogprob: row.oldLogprobs[place]!, advantage: row.advantage, reference },
        options,
      )
      tokens += 1
      kl += token.kl
      clipped += token.clipped ? 1 : 0
      entropy += entropies[index]![place]!
      ratioMax = Math.max(ratioMax, token.ratio, 1 / token.ratio)
    })
  })
  const share = (sum: number) => sum / Math.max(tokens, 1)
  return { metrics: { tokens, kl: share(kl), clipFraction: share(clipped), entropy: share(entropy) }, ratioMax }
}
