/** Options of the reward: defaults live here and only here. */
import { z } from 'zod'

const alpha = (issue: { input: unknown }) =>
  issue.input === undefined
    ? 'expected a number: the paper does not publish its value, and no other is right for every run; 0.1 with K = 5 keeps well-formed turns worth less than an answer'
    : undefined

export const rewardOptions = z
  .object({
    alpha: z
      .number({ error: alpha })
      .min(0)
      .describe('Weight of the format reward. Has no default: the paper does not publish its value.'),
    aggregation: z
      .enum(['sum', 'mean', 'tags'])
      .default('sum')
      .describe(
        "What alpha is multiplied by: the `sum` of well-formed turns (the paper's, which pays for turns); their `mean`, at most 1; or, as in the released code, half for closed reasoning tags and half for closed answer tags anywhere in what the master wrote (`tags`).",
      ),
    turnCost: z.number().min(0).default(0).describe('Subtracted once per turn.'),
    turnCostOf: z
      .enum(['all', 'correct'])
      .default('all')
      .describe(
        'Which trajectories pay for turns. `correct` only: groups divided by their own standard deviation magnify the smallest differences, and where all are wrong a cost rewards giving up early.',
      ),
    extras: z
      .record(z.string(), z.number())
      .default({})
      .describe('Weight of each measure that the system takes of itself, by name (docs/systems.md); none by default.'),
    extrasOf: z
      .enum(['all', 'correct'])
      .default('all')
      .describe(
        'Which trajectories earn extras. `correct` only: a role that reports its own success then gains nothing by claiming it.',
      ),
    overflow: z
      .enum(['score', 'exclude'])
      .default('score')
      .describe(
        'A trajectory that ran out of tokens (stop reason token_limit or context_limit): `score` it as any other without an answer, or `exclude` it from training (the overlong filtering of DAPO).',
      ),
    deadline: z
      .enum(['exclude', 'score'])
      .default('exclude')
      .describe(
        'A trajectory that ran out of wall-clock time: `exclude` it from training like other outside failures, or `score` it as a truncation.',
      ),
  })
  .strict()

export type RewardOptions = z.infer<typeof rewardOptions>
