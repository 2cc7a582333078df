/**
 * The configuration of a run: configs/*.yaml -> RunConfig. Assembles the option schemas that the rooms own; the only defaults that
 * stand here are those of keys that no room owns. Unknown keys are errors (configFile.ts).
 */
import { z } from 'zod'
import { agentsOptions } from './agents/options.ts'
import { configHash, readConfigFile } from './configFile.ts'
import { datasetOptions } from './dataset/options.ts'
import { engineOptions } from './engine/options.ts'
import { grpoOptions } from './grpo/options.ts'
import { policyOptions } from './policy/options.ts'
import { pricesOptions } from './report/options.ts'
import { rewardOptions } from './reward/options.ts'
import { rolloutOptions } from './rollout/options.ts'
import { serveOptions } from './serve/options.ts'
import { systemsOptions } from './systems/options.ts'
import type { Result } from './types.ts'

const count = z.number().int().min(1)

export const runConfig = z
  .object({
    name: z
      .string()
      .regex(/^[a-z0-9][a-z0-9_-]*$/i, { error: 'expected letters, digits, - and _, since folders are named after it' })
      .describe('Names the run: rollouts/<name>/ and checkpoints/<name>/.'),
    seed: z.number().int().min(0).default(0).describe('Seed of everything that is random in the run.'),
    dataset: datasetOptions.describe('What the policy is trained on, or rollouts are generated for.'),
    policy: policyOptions.describe('The master: what is trained or asked.'),
    engine: engineOptions.prefault({}),
    agents: agentsOptions.prefault({}),
    system: systemsOptions.prefault({}),
    rollout: rolloutOptions.prefault({}),
    // a section that is left out lacks alpha, and is told so
    reward: rewardOptions.prefault({} as z.input<typeof rewardOptions>),
    grpo: grpoOptions.prefault({}),
    training: z
      .object({
        steps: count.default(100).describe('Policy updates on fresh rollouts.'),
        tasksPerStep: count.default(16).describe('Tasks per step, each with a group of trajectories.'),
        saveEvery: count.default(10).describe('Steps between checkpoints.'),
        memoryGiB: z
          .number()
          .positive()
          .nullable()
          .default(null)
          .describe(
            'Memory that training may take in all, in GiB: micro-batches are made small enough. null: as large as grpo.microBatchTokens says.',
          ),
      })
      .strict()
      .prefault({}),
    evaluation: z
      .object({
        dataset: datasetOptions.nullable().default(null).describe('Held-out questions; null: those of `dataset`.'),
        maxTurns: z.array(count).min(1).default([1, 2, 3, 4, 5]).describe('Step budgets K that are compared.'),
        vary: z
          .array(z.string())
          .default([])
          .describe('What `compare` varies without --vary, as written there, such as window=1,2,3; none: maxTurns.'),
        temperature: z.number().min(0).default(0).describe('Sampling temperature of comparisons; 0 is greedy.'),
        questions: count
          .nullable()
          .default(null)
          .describe('Compare on so many questions, drawn by seed; which ones is stored. null: all.'),
      })
      .strict()
      .prefault({}),
    serve: serveOptions.prefault({}),
    prices: pricesOptions
      .prefault({})
      .describe('What tokens and pictures of each role cost, for reports; changing it changes no rollout.'),
  })
  .strict()

export type RunConfig = z.output<typeof runConfig>

/** `overrides` are `path.to.key=value`, as given to `--set`; they win over the file. Errors name file, line and key. */
export function loadConfig(path: string, overrides: readonly string[] = []): Promise<Result<RunConfig>> {
  return readConfigFile(runConfig, path, overrides)
}

export { configHash }
