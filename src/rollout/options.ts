/** Options of the rollout: defaults live here and only here. */
import { z } from 'zod'

const turns = z.number().int().min(1).max(1000)

const budget = z
  .object({
    turns: z
      .union([turns, z.array(turns).min(1)])
      .nullable()
      .default(null)
      .describe(
        "K: rounds of the system; for longVideoAgent how many times the master may write, the answer included. null: the system's own number (longVideoAgent 5). A list: each task draws its K from it, by seed; a group shares it.",
      ),
    windowClips: z
      .number()
      .int()
      .min(1)
      .default(1)
      .describe('w: clips in view at once, around the one that grounding chose.'),
    windowWithin: z
      .enum(['episode', 'segment'])
      .default('episode')
      .describe('What the window is cut off at: the ends of the episode, or of the segment of the clip.'),
    tokensPerTurn: z.number().int().min(1).default(256).describe('Most tokens the master may write in one turn.'),
    tokensPerObservation: z
      .number()
      .int()
      .min(8)
      .nullable()
      .default(null)
      .describe('Longest observation in tokens; a longer one keeps its head and its closing tag. null: no bound.'),
    tokensPerTrajectory: z
      .number()
      .int()
      .min(1)
      .nullable()
      .default(null)
      .describe('Most tokens after the first prompt, written and observed together. null: no bound.'),
    deadlineSeconds: z
      .number()
      .positive()
      .max(2_000_000)
      .nullable()
      .default(600)
      .describe('Wall-clock bound on one trajectory. null: no bound.'),
  })
  .strict()

export const rolloutOptions = z
  .object({
    groupSize: z.number().int().min(1).default(8).describe('G: trajectories per task.'),
    concurrency: z.number().int().min(1).default(64).describe('Trajectories that run at the same time.'),
    temperature: z.number().min(0).default(1).describe('Sampling temperature of the master; 0 is greedy.'),
    budget: budget.prefault({}).describe('Bounds on one trajectory.'),
  })
  .strict()

export type RolloutOptions = z.infer<typeof rolloutOptions>
