/**
 * The trainer as its users see it: weights, their gradients and the optimizer's state behind four verbs: score, forward-backward,
 * optimizer step, save. It knows no rollouts, rewards or schedules. `deviceTrainer.ts` is the one that trains on an engine; another may
 * stand behind the same interface.
 */

import type { WeightSet, WeightTensor } from '../policy/weights.ts'
import type { PolicyObjective } from './loss.ts'
import type { GrpoOptions, OptimizerOptions } from './options.ts'

/** A sequence and what is asked at some of its positions (from 1, ascending): everything below is per position. */
export interface ScoreRow {
  ids: readonly number[]
  positions: readonly number[]
}

export interface PolicyTrainingRow extends ScoreRow {
  oldLogprobs: ArrayLike<number>
  /** Null without a KL term. */
  referenceLogprobs: ArrayLike<number> | null
  /** Factors on the token losses; null for 1. All rows of a call have them, or none. */
  importanceWeights: ArrayLike<number> | null
  advantage: number
  /** Share of each token in the loss. */
  tokenWeight: number
  /** What the value head should predict before the first position, and the weight of its squared error; null where nothing is predicted. */
  value: { return: number; weight: number } | null
}

export interface SupervisedTrainingRow extends ScoreRow {
  tokenWeights: readonly number[]
}

export interface BatchSize {
  /** Padded tokens in one pass. */
  microBatchTokens: number
}

/** What micro-batches ran through the model. */
export interface Work {
  /** Positions, padding included. */
  positions: number
  /** Those that hold a token. */
  tokens: number
  /** What it would have been had nothing been shared: the tokens of all rows, up to their last target. */
  unshared: number
}

export interface TrainerState {
  /** What is trained: all weights, or those of the adapter. */
  weights: Map<string, WeightTensor>
  /** AdamW's moments, `first/<weight>` and `second/<weight>`, and the value head; empty before the first step. */
  optimizer: Map<string, WeightTensor>
  /** Optimizer steps taken. */
  step: number
}

export interface Trainer {
  /** Optimizer steps taken. */
  readonly step: number
  /** Log-probability of the token at each position of each row, at a temperature, under the current weights or the kept reference. */
  score(
    rows: readonly ScoreRow[],
    options: BatchSize & { temperature: number; weights: WeightSet },
  ): Promise<Float64Array[]>
  /** What the value head predicts before the first position of each row. Throws without a head. */
  values(rows: readonly ScoreRow[], options: BatchSize): Promise<number[]>
  /**
   * Adds the gradient of the policy loss over these rows, and of the value head's squared error, to what is accumulated.
   * Log-probabilities and entropies are per row and position. `valueLoss` is null without a value head.
   */
  forwardBackward(
    rows: readonly PolicyTrainingRow[],
    objective: PolicyObjective & Pick<GrpoOptions, 'valueCoefficient'>,
    options: BatchSize & { temperature: number },
  ): Promise<{
    loss: number
    valueLoss: number | null
    logprobs: Float64Array[]
    entropies: Float64Array[]
    work: Work
  }>
  /** The same for cross-entropy. `correct` is 1 where the likeliest token is the right one. */
  forwardBackwardSupervised(
    rows: readonly SupervisedTrainingRow[],
    options: BatchSize,
  ): Promise<{ loss: number; logprobs: Float64Array[]; correct: Float64Array[] }>
  /**
   * One AdamW update with the accumulated gradients, which are then forgotten. Throws, without touching the weights, when a gradient
   * is not finite. Resolves to the global norm of the policy's gradients before clipping; a value head is clipped by its own norm.
   */
  optimizerStep(options: OptimizerStepOptions): Promise<{ gradNorm: number }>
  /** What the first accumulated gradient that is not finite is called, `gradient of <weight>`; null when all are finite. */
  nonFiniteGradient(): Promise<string | null>
  /** Forgets accumulated gradients. */
  discardGradients(): Promise<void>
  /** Keeps a copy of the current weights, or of these, as the reference policy. An adapter's reference is always the model without it. */
  keepReference(weights?: ReadonlyMap<string, WeightTensor>): Promise<void>
  save(): Promise<TrainerState>
  /** Continues from a saved state. A state without moments starts the optimizer afresh. */
  load(state: {
    weights: ReadonlyMap<string, WeightTensor>
    optimizer?: ReadonlyMap<string, WeightTensor>
    step?: number
  }): Promise<void>
  /** Frees the sessions; the weights stay on the device. */
  close(): Promise<void>
}

export type OptimizerStepOptions = Omit<OptimizerOptions, 'schedule' | 'warmupSteps'> & {
  /** Needed with a value head. */
  valueLearningRate?: number
}
