/** The settings of a run in golden.json, under the names that TRL gives them, and what they are among our options. A setting that is not known is an error. */

import { z } from 'zod'
import type { AdvantageOptions } from '../../src/grpo/advantage.ts'
import { type GrpoOptions, grpoOptions } from '../../src/grpo/options.ts'

const count = z.number().int().positive()

const step = z.looseObject({
  loss: z.number(),
  grad_norm: z.number(),
  learning_rate: z.number(),
  kl: z.number().optional(),
})

/** Defaults are those of TRL 1.13.0. Literals are the only values that the comparison knows. */
export const goldenRun = z
  .object({
    loss_type: z.enum(['grpo', 'dapo', 'dr_grpo', 'bnpo', 'cispo']),
    importance_sampling_level: z.enum(['token', 'sequence']).default('token'),
    scale_rewards: z.union([z.enum(['group', 'batch', 'none']), z.boolean()]).default('group'),
    beta: z.number().min(0).default(0),
    use_bias_correction_kl: z.boolean().default(true),
    epsilon: z.number().default(0.2),
    epsilon_high: z.number().nullable().default(null),
    delta: z.number().nullable().default(null),
    temperature: z.number().positive().default(1),
    learning_rate: z.number().positive(),
    lr_schedule: z
      .string()
      .regex(/^(constant|linear|cosine)( to 0)?(, (no|\d+) warm-up( steps?)?)?$/)
      .default('linear'),
    adamw: z
      .object({
        betas: z.tuple([z.number(), z.number()]),
        eps: z.number(),
        weight_decay: z.number(),
        no_decay: z.literal('biases and norm weights').optional(),
      })
      .strict(),
    max_grad_norm: z.number().positive().default(1),
    num_generations: count.optional(),
    num_iterations: count.default(1),
    optimizer_steps: count,
    max_completion_length: count.default(512),
    gradient_accumulation_steps: z.literal(1).optional(),
    steps_per_generation: z.literal(1).optional(),
    mask_truncated_completions: z.literal(false).optional(),
    top_entropy_quantile: z.literal(1).optional(),
    multi_objective_aggregation: z.literal('sum_then_normalize').optional(),
    seed: z.number().optional(),
    max_parameter_move: z.number().optional(),
    steps: z.array(step).min(1),
  })
  .strict()
  .refine((run) => run.loss_type !== 'cispo' || run.delta === null, {
    error: 'cispo does not read it',
    path: ['delta'],
  })
  .refine((run) => run.steps.length === run.optimizer_steps && run.optimizer_steps % run.num_iterations === 0, {
    error: 'expected as many as steps, and a multiple of num_iterations',
    path: ['optimizer_steps'],
  })

export type GoldenRun = z.output<typeof goldenRun>

/** TRL's cispo reads epsilon_high as the cap itself, and as epsilon when it is not given; the other losses clip at 1 + epsilon_high. */
export function optionsOf(run: GoldenRun): GrpoOptions {
  const high = run.epsilon_high ?? run.epsilon
  const [, schedule, , , warmup] = /^(\w+)( to 0)?(, (no|\d+) warm-up.*)?$/.exec(run.lr_schedule)!
  return grpoOptions.parse({
    lossType: run.loss_type,
    importanceSamplingLevel: run.importance_sampling_level,
    ...(run.loss_type === 'cispo' ? { ratioCap: high } : { clipLow: run.epsilon, clipHigh: high, dualClip: run.delta }),
    ...(run.loss_type === 'dr_grpo' && { maxCompletionLength: run.max_completion_length }),
    ...(run.beta > 0 && { klCoefficient: run.beta, klBiasCorrection: run.use_bias_correction_kl }),
    ...advantageOptionsOf(run),
    learningRate: run.learning_rate,
    schedule,
    warmupSteps: Number(warmup === undefined || warmup === 'no' ? 0 : warmup),
    beta1: run.adamw.betas[0],
    beta2: run.adamw.betas[1],
    epsilon: run.adamw.eps,
    weightDecay: run.adamw.weight_decay,
    maxGradNorm: run.max_grad_norm,
    epochs: run.num_iterations,
    oldLogprobs: 'recomputed',
  })
}

function advantageOptionsOf({ scale_rewards: scale }: GoldenRun): AdvantageOptions {
  const advantageScale = typeof scale === 'string' ? scale : scale ? 'group' : 'none'
  return { advantageBaseline: 'group_mean', advantageScale }
}
