/** Options of the reward: defaults live here and only here. */
import { z } from 'zod'

export const rewardOptions = z
  .object({
    alpha: z
      .number()
      .min(0)
      .default(0.1)
      .describe('Weight of the format reward (the paper does not publish its value).'),
    aggregation: z
      .enum(['sum', 'mean'])
      .default('sum')
      .describe(
        "How the format reward of the turns is aggregated: `sum` is the paper's, which pays for turns; `mean` is bounded by alpha.",
      ),
    turnCost: z.number().min(0).default(0).describe('Subtracted once per turn.'),
    turnCostOf: z
      .enum(['all', 'correct'])
      .default('all')
      .describe(
        'Which trajectories pay for turns. `correct` only: groups divided by their own standard deviation magnify the smallest differences, and where all are wrong a cost rewards giving up early.',
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
