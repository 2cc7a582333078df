/**
 * One policy update from one batch of rollouts: old log-probabilities, minibatches, epochs, token denominators and the learning rate of
 * each step. Rows and advantages come in; no rollouts, no files.
 */

import type { WeightSet } from '../policy/weights.ts'
import { tokenWeights } from './loss.ts'
import type { Spread, StepMetrics } from './metrics.ts'
import { describeStep, spread } from './metrics.ts'
import type { UpdateObjective } from './nonFinite.ts'
import { allFinite, explained, NonFiniteError } from './nonFinite.ts'
import { learningRateAt } from './optimizer.ts'
import type { GrpoOptions } from './options.ts'
import { truncatedImportanceWeight } from './ratio.ts'
import type { PolicyRow } from './rows.ts'
import type { PolicyTrainingRow, ScoreRow, Trainer, Work } from './trainer.ts'
import { explainedVariance } from './value.ts'

export interface UpdateContext {
  /** Temperature at which the rollouts were sampled; 1 for greedy ones. */
  temperature: number
  /** Optimizer steps of the whole run, for the schedule. */
  totalSteps: number
}

export interface UpdateMetrics {
  steps: StepMetrics[]
  /** Largest ratio, up or down, in the first pass before any weight moved: 1 when sampler and trainer agree. */
  ratioMax: number
  /** Over rows; null of none. */
  advantages: Spread | null
  /** Truncated importance weights over tokens, and the share of them at the cap; null when they are not used. */
  importanceWeights: (Spread & { truncated: number }) | null
  /** Of the value head's predictions before the update: see `explainedVariance`. Null without a value head. */
  explainedVariance: number | null
  rows: number
  /** Sampled tokens in the batch. */
  tokens: number
}

/**
 * Trains on one batch of rollouts: `epochs` passes over `minibatches` consecutive parts of the rows, one optimizer step each.
 * Throws `NonFiniteError`, with the rows that cause it, when a log-probability, loss or gradient is not finite: before that step changes
 * weights. No rows: no steps.
 */
export async function updatePolicy(
  trainer: Trainer,
  rows: readonly PolicyRow[],
  options: GrpoOptions,
  context: UpdateContext,
): Promise<UpdateMetrics> {
  const { temperature, totalSteps } = context
  const { importanceSamplingCap: cap } = options
  const sizes = { microBatchTokens: options.microBatchTokens, temperature }
  const prepared = rows.map(sampledPositions)
  const counts = prepared.map(({ positions }) => positions.length)
  const tokens = counts.reduce((sum, count) => sum + count, 0)
  const metrics = { ...describeBatch(rows), rows: rows.length, tokens }
  if (tokens === 0) return { ...metrics, steps: [], ratioMax: 1, importanceWeights: null }

  const recorded =
    options.oldLogprobs === 'recorded' || cap !== null
      ? rows.map((row, index) => recordedLogprobs(row, index, options, temperature))
      : null
  const score = (weights: WeightSet) =>
    explained(
      trainer,
      () => trainer.score(prepared, { ...sizes, weights }),
      { phase: 'score', weights, temperature, indices: [...prepared.keys()], rows: prepared },
      options.microBatchTokens,
    )
  const old = options.oldLogprobs === 'recorded' ? recorded! : await score('policy')
  const reference = options.klCoefficient > 0 ? await score('reference') : null
  const importance =
    cap === null
      ? null
      : recorded!.map((row, index) =>
          row.map((sampled, place) => truncatedImportanceWeight(old[index]![place]!, sampled, cap)),
        )

  const steps: StepMetrics[] = []
  for (let epoch = 0; epoch < options.epochs; epoch += 1) {
    for (const part of consecutiveParts(rows.length, options.minibatches)) {
      const weights = tokenWeights(
        part.map((index) => counts[index]!),
        tokens,
        options,
      )
      const predictions = part.filter((index) => rows[index]!.value !== null).length
      const batch = part.map((index, place): PolicyTrainingRow => {
        const { advantage, value } = rows[index]!
        return {
          ...prepared[index]!,
          oldLogprobs: old[index]!,
          referenceLogprobs: reference?.[index] ?? null,
          importanceWeights: importance?.[index] ?? null,
          advantage,
          tokenWeight: weights[place]!,
          value: value === null ? null : { return: value.return, weight: 1 / predictions },
        }
      })
      const learningRate = learningRateAt(trainer.step, totalSteps, options)
      const valueLearningRate = (learningRate / options.learningRate) * options.valueLearningRate
      const { gradNorm, loss, valueLoss, logprobs, entropies, work } = await explained(
        trainer,
        async () => ({
          ...(await trainer.forwardBackward(batch, options, sizes)),
          ...(await trainer.optimizerStep({ ...options, learningRate, valueLearningRate })),
        }),
        { phase: 'update', objective: options, temperature, indices: part, rows: batch },
        options.microBatchTokens,
      )
      steps.push({
        loss,
        valueLoss,
        gradNorm,
        learningRate,
        ...describeStep(batch, logprobs, entropies, options),
        ...shares(work),
      })
    }
  }
  const [first] = steps
  return {
    ...metrics,
    steps,
    ratioMax: Math.max(first!.ratioMax, 1 / first!.ratioMin),
    importanceWeights: cap === null ? null : describeImportance(importance!.flat(), cap),
  }
}

function shares({ positions, tokens, unshared }: Work): Pick<StepMetrics, 'padding' | 'shared'> {
  return { padding: 1 - tokens / positions, shared: 1 - tokens / unshared }
}

/** Positions that the policy sampled. Throws on rows that cannot be trained on: these are checked when stored, so it is a programming error. */
function sampledPositions(row: PolicyRow, index: number): ScoreRow {
  const { ids, actionMask, logprobs } = row
  if (actionMask.length !== ids.length || (logprobs !== null && logprobs.length !== ids.length)) {
    throw new Error(
      `Row ${index}: ids, actionMask and logprobs have lengths ${ids.length}, ${actionMask.length} and ${logprobs?.length}`,
    )
  }
  const positions = [...ids.keys()].filter((position) => actionMask[position] === 1)
  if (positions[0] === 0) throw new Error(`Row ${index}: the first token of a sequence cannot have been sampled`)
  return { ids, positions }
}

/** The sampler's log-probabilities of the sampled tokens. Throws when they are absent, and a `NonFiniteError` when one is not finite. */
function recordedLogprobs(row: PolicyRow, index: number, objective: UpdateObjective, temperature: number): number[] {
  const { ids, actionMask, logprobs, advantage } = row
  const positions = [...ids.keys()].filter((position) => actionMask[position] === 1)
  if (logprobs === null)
    throw new Error(
      `Row ${index}: token ${positions[0]} has no log-probability from its sampler, which oldLogprobs recorded and importanceSamplingCap need; set oldLogprobs to recomputed and importanceSamplingCap to null, or sample with log-probabilities`,
    )
  const sampled = positions.map((position) => logprobs[position]!)
  if (allFinite(sampled)) return sampled
  const unused = { referenceLogprobs: null, importanceWeights: null, tokenWeight: 1, value: null }
  throw new NonFiniteError('oldLogprobs', `as sampled, row ${index} of the batch`, {
    phase: 'update',
    objective,
    temperature,
    indices: [index],
    rows: [{ ids, positions, oldLogprobs: sampled, advantage, ...unused }],
  })
}

function describeBatch(rows: readonly PolicyRow[]): Pick<UpdateMetrics, 'advantages' | 'explainedVariance'> {
  const values = rows.flatMap(({ value }) => (value === null ? [] : [value]))
  return {
    advantages: spread(rows.map(({ advantage }) => advantage)),
    explainedVariance: explainedVariance(
      values.map(({ predicted }) => predicted),
      values.map((value) => value.return),
    ),
  }
}

function describeImportance(weights: readonly number[], cap: number): UpdateMetrics['importanceWeights'] {
  return { ...spread(weights)!, truncated: weights.filter((weight) => weight >= cap).length / weights.length }
}

/** Indices 0..count-1 in `parts` consecutive parts of nearly equal size; empty ones are left out. */
export function consecutiveParts(count: number, parts: number): number[][] {
  return Array.from({ length: parts }, (_, part) => {
    const [start, end] = [Math.floor((part * count) / parts), Math.floor(((part + 1) * count) / parts)]
    return Array.from({ length: end - start }, (_, offset) => start + offset)
  }).filter((indices) => indices.length > 0)
}
