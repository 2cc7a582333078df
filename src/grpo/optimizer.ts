/** What surrounds AdamW: the learning-rate schedule, clipping by global norm, and which weights decay. The update itself is the engine's. */

import type { OptimizerOptions } from './options.ts'

/**
 * Learning rate of update `step` (from 0) of `totalSteps`. Warm-up: lr step / warmup. After it, with p the share of the remaining
 * updates that is done: lr (1 - p) for `linear`, lr (1 + cos(pi p)) / 2 for `cosine`. As transformers' schedules.
 */
export function learningRateAt(
  step: number,
  totalSteps: number,
  { learningRate, schedule, warmupSteps }: Pick<OptimizerOptions, 'learningRate' | 'schedule' | 'warmupSteps'>,
): number {
  if (step < warmupSteps) return (learningRate * step) / Math.max(1, warmupSteps)
  const progress = Math.min(1, (step - warmupSteps) / Math.max(1, totalSteps - warmupSteps))
  switch (schedule) {
    case 'constant':
      return learningRate
    case 'linear':
      return learningRate * (1 - progress)
    case 'cosine':
      return (learningRate * (1 + Math.cos(Math.PI * progress))) / 2
  }
}

/** Factor on all gradients that brings their global norm down to `maxGradNorm`: min(1, max / (norm + 1e-6)), as torch's `clip_grad_norm_`. */
export function clipCoefficient(norm: number, maxGradNorm: number): number {
  return Math.min(1, maxGradNorm / (norm + 1e-6))
}

/** Biases and norm weights do not decay; embeddings and a tied head do (transformers' `Trainer`). */
export function decays(name: string): boolean {
  return !/bias|layernorm|rmsnorm|(^|\.)norm($|\.)|_norm($|\.)/i.test(name)
}
