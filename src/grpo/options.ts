/** Options of the policy update and of supervised training: every key, every default, and which go together, here and nowhere else. */

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

const grpoKeys = z
  .object({
    learningRate: z.number().positive().default(1e-6).describe('Learning rate after warm-up.'),
    ...optimizerKeys,
    advantageBaseline: z
      .enum(['group_mean', 'leave_one_out', 'value'])
      .default('group_mean')
      .describe(
        'What a reward is compared to: the mean of its group (GRPO), the mean of the others in its group (RLOO), or what a value head predicts at the last prompt token of the trajectory.',
      ),
    advantageScale: z
      .enum(['group', 'batch', 'none'])
      .default('group')
      .describe(
        'Divide by the standard deviation of the rewards in the group (GRPO), in the whole batch, or by nothing (Dr. GRPO).',
      ),
    zeroVariance: z
      .enum(['keep', 'drop'])
      .default('keep')
      .describe(
        'Groups whose rewards are all equal: keep them in the batch with advantage 0 (they count in the denominators and in the KL, as in TRL), or drop them.',
      ),
    lossType: z
      .enum(['dapo', 'grpo', 'dr_grpo', 'bnpo', 'cispo'])
      .default('dapo')
      .describe(
        'Aggregation of the token losses: dapo divides their sum by the tokens of the batch over the number of minibatches, bnpo by the tokens of the minibatch, dr_grpo by rows times maxCompletionLength; grpo is the mean over rows of the mean over tokens. cispo aggregates as dapo and weighs log-probabilities by a capped ratio instead of clipping.',
      ),
    importanceSamplingLevel: z
      .enum(['token', 'sequence'])
      .default('token')
      .describe('One ratio per token, or one per row: the exponential of its mean log-ratio (GSPO).'),
    clipLow: z.number().min(0).lte(1).default(0.2).describe('The ratio is clipped below at 1 - clipLow.'),
    clipHigh: z.number().min(0).default(0.2).describe('The ratio is clipped above at 1 + clipHigh.'),
    dualClip: z
      .number()
      .positive()
      .nullable()
      .default(null)
      .describe(
        "Upper bound of the ratio where the advantage is negative (verl's clip_ratio_c, there 3; TRL's delta); null: none.",
      ),
    ratioCap: z
      .number()
      .positive()
      .default(5)
      .describe("cispo only: upper bound of the ratio that weighs a token (TRL's epsilon_high of cispo)."),
    maxCompletionLength: z
      .number()
      .int()
      .positive()
      .nullable()
      .default(null)
      .describe('dr_grpo only, and needed there: the constant length that the loss of every row is divided by.'),
    klCoefficient: z
      .number()
      .min(0)
      .default(0)
      .describe('Weight of the KL to the reference policy in the loss; 0 needs no reference.'),
    klEstimator: z
      .enum(['k1', 'k2', 'k3'])
      .default('k3')
      .describe(
        'KL of a sampled token, with d = log-probability minus that of the reference: k1 = d (its gradient has mean 0 unless it is corrected), k2 = d²/2, k3 = exp(-d) + d - 1.',
      ),
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
    importanceSamplingCap: z
      .number()
      .positive()
      .nullable()
      .default(null)
      .describe(
        'Truncated importance sampling: the loss of each token is multiplied by min(exp(recomputed - recorded log-probability), cap); null: not. Needs oldLogprobs recomputed.',
      ),
    valueCoefficient: z
      .number()
      .positive()
      .default(0.1)
      .describe('advantageBaseline value only: weight of the mean squared error of the value head in the loss.'),
    valueLearningRate: z
      .number()
      .positive()
      .default(1e-3)
      .describe('advantageBaseline value only: learning rate of the value head; the schedule is that of learningRate.'),
    epochs: z.number().int().positive().default(1).describe('Passes over each batch of rollouts.'),
    minibatches: z
      .number()
      .int()
      .positive()
      .default(1)
      .describe('Parts into which a batch is divided, with one update each.'),
  })
  .strict()

export type GrpoOptions = z.output<typeof grpoKeys>

const DEFAULTS = grpoKeys.parse({})

interface Contradiction {
  key: keyof GrpoOptions
  problem: string
}

type Rule = [keys: readonly (keyof GrpoOptions)[], holds: (options: GrpoOptions) => boolean, problem: string]

/** Keys that are read only where the condition holds. */
const READ_ONLY_WHERE: readonly Rule[] = [
  [
    ['clipLow', 'clipHigh', 'dualClip'],
    ({ lossType }) => lossType !== 'cispo',
    'lossType cispo clips no ratio; it caps it at ratioCap',
  ],
  [['ratioCap'], ({ lossType }) => lossType === 'cispo', 'is read only with lossType cispo'],
  [['maxCompletionLength'], ({ lossType }) => lossType === 'dr_grpo', 'is read only with lossType dr_grpo'],
  [
    ['klEstimator', 'klBiasCorrection'],
    ({ klCoefficient }) => klCoefficient > 0,
    'is read only with a klCoefficient above 0',
  ],
  [
    ['valueCoefficient', 'valueLearningRate'],
    ({ advantageBaseline }) => advantageBaseline === 'value',
    'is read only with advantageBaseline value',
  ],
]

/** What a key needs of another. */
const NEEDS: readonly Rule[] = [
  [
    ['maxCompletionLength'],
    ({ lossType, maxCompletionLength }) => lossType !== 'dr_grpo' || maxCompletionLength !== null,
    'lossType dr_grpo divides by this length: set it, for example to the tokens that a trajectory may have',
  ],
  [
    ['dualClip'],
    ({ dualClip, clipHigh }) => dualClip === null || dualClip > 1 + clipHigh,
    'must be above 1 + clipHigh, where the ordinary clip ends',
  ],
  [
    ['advantageScale'],
    ({ advantageBaseline, advantageScale }) => advantageBaseline !== 'value' || advantageScale === 'none',
    'advantageBaseline value is R - V, which is not divided by a deviation: set advantageScale to none',
  ],
  [
    ['advantageScale'],
    ({ advantageBaseline, advantageScale }) => advantageBaseline !== 'leave_one_out' || advantageScale !== 'group',
    'advantageBaseline leave_one_out with advantageScale group is group_mean times a constant: set advantageScale to none or batch',
  ],
  [
    ['zeroVariance'],
    ({ advantageBaseline, zeroVariance }) => advantageBaseline !== 'value' || zeroVariance === 'keep',
    'advantageBaseline value learns from groups of equal rewards too: set zeroVariance to keep',
  ],
  [
    ['importanceSamplingCap'],
    ({ importanceSamplingCap, oldLogprobs }) => importanceSamplingCap === null || oldLogprobs === 'recomputed',
    'corrects recorded log-probabilities to recomputed ones: set oldLogprobs to recomputed',
  ],
]

/**
 * Combinations that make no sense, or in which a key would silently not be read. A key counts as set when it differs from its default.
 */
function contradictions(options: GrpoOptions): Contradiction[] {
  const isSet = (key: keyof GrpoOptions) => options[key] !== DEFAULTS[key]
  return [
    ...READ_ONLY_WHERE.flatMap(([keys, holds, problem]) =>
      holds(options) ? [] : keys.filter(isSet).map((key) => ({ key, problem })),
    ),
    ...NEEDS.flatMap(([keys, holds, problem]) => (holds(options) ? [] : keys.map((key) => ({ key, problem })))),
  ]
}

/** The keys above, in combinations that make sense. */
export const grpoOptions = grpoKeys.superRefine((options, context) => {
  for (const { key, problem } of contradictions(options))
    context.addIssue({ code: 'custom', path: [key], message: problem, input: options[key] })
})

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
