/** Options of the policy update and of supervised training: every key and every default, here and nowhere else. */

import { z } from 'zod'

const optimizerKeys = {
  schedule: z
    .enum(['constant', 'linear', 'cosine'])
    .default('constant')
    .describe('Learning rate after warm-up: constant, or to 0 at the last update along a line or half a cosine.'),
  warmupSteps: z
    .number()
    .int()
    .min(0)
    .default(0)
    .describe('Updates over which the learning rate rises from 0 along a line.'),
  maxGradNorm: z.number().positive().default(1).describe('Global L2 norm to which gradients are scaled down.'),
  weightDecay: z
    .number()
    .min(0)
    .default(0)
    .describe('Decoupled weight decay; biases and norm weights are not decayed.'),
  beta1: z.number().min(0).lt(1).default(0.9).describe("Decay of AdamW's first moment."),
  beta2: z.number().min(0).lt(1).default(0.999).describe("Decay of AdamW's second moment."),
  epsilon: z.number().positive().default(1e-8).describe("Added to the root of AdamW's second moment."),
  microBatchTokens: z
    .number()
    .int()
    .positive()
    .default(2048)
    .describe('Padded tokens in one forward and backward pass: bounds memory, does not change the gradient.'),
}

export const grpoOptions = z
  .object({
    learningRate: z.number().positive().default(1e-6).describe('Learning rate after warm-up.'),
    ...optimizerKeys,
    advantageScale: z
      .enum(['group', 'none'])
      .default('group')
      .describe('Divide by the standard deviation of the group (GRPO), or only subtract its mean (Dr. GRPO).'),
    zeroVariance: z
      .enum(['keep', 'drop'])
      .default('keep')
      .describe(
        'Groups whose rewards are all equal: keep them in the batch with advantage 0 (they count in the token denominator and in the KL, as in TRL), or drop them.',
      ),
    lossType: z
      .enum(['dapo', 'grpo'])
      .default('dapo')
      .describe(
        'Aggregation of the token losses: sum over the total of tokens, or mean over sequences of the mean over tokens.',
      ),
    clipLow: z.number().min(0).lte(1).default(0.2).describe('The ratio is clipped below at 1 - clipLow.'),
    clipHigh: z.number().min(0).default(0.2).describe('The ratio is clipped above at 1 + clipHigh.'),
    klCoefficient: z
      .number()
      .min(0)
      .default(0)
      .describe('Weight of the k3 KL to the reference policy; 0 needs no reference.'),
    klBiasCorrection: z
      .boolean()
      .default(true)
      .describe('Multiply the KL of each token by its ratio, as TRL 1.13 does by default.'),
    oldLogprobs: z
      .enum(['recorded', 'recomputed'])
      .default('recorded')
      .describe(
        "Denominator of the ratio: the log-probabilities recorded when sampling, or the trainer's own before the first update of the batch.",
      ),
    epochs: z.number().int().positive().default(1).describe('Passes over each batch of rollouts.'),
    minibatches: z
      .number()
      .int()
      .positive()
      .default(1)
      .describe('Parts into which a batch is divided, with one update each.'),
  })
  .strict()

export type GrpoOptions = z.infer<typeof grpoOptions>

export const supervisedOptions = z
  .object({
    learningRate: z.number().positive().default(1e-3).describe('Learning rate after warm-up.'),
    ...optimizerKeys,
  })
  .strict()

export type SupervisedOptions = z.infer<typeof supervisedOptions>

/** What the optimizer reads; both kinds of training have these keys. */
export type OptimizerOptions = Pick<
  GrpoOptions,
  'learningRate' | 'schedule' | 'warmupSteps' | 'maxGradNorm' | 'weightDecay' | 'beta1' | 'beta2' | 'epsilon'
>
