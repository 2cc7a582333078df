/**
 * The configuration of a run: configs/*.yaml -> RunConfig. Assembles the option schemas that the rooms own; the only defaults that
 * stand here are those of keys that no room owns. Unknown keys are errors (configFile.ts).
 */
import { z } from 'zod'
import { agentsOptions } from './agents/options.ts'
import { cast } from './casting.ts'
import { configHash, readConfigFile } from './configFile.ts'
import { datasetOptions } from './dataset/options.ts'
import { engineOptions } from './engine/options.ts'
import { grpoOptions } from './grpo/options.ts'
import { policyOptions, roleOptions } from './policy/options.ts'
import { pricesOptions } from './report/options.ts'
import { rewardOptions } from './reward/options.ts'
import { rolloutOptions } from './rollout/options.ts'
import { serveOptions } from './serve/options.ts'
import { systemsOptions } from './systems/options.ts'
import type { Result } from './types.ts'

const count = z.number().int().min(1)

const external = z
  .object({
    adapters: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe(
        'Folder in which it leaves the PEFT adapter that each step samples from: step-000001 and so on. It is loaded into the endpoint by /v1/load_lora_adapter. null: the weights behind the endpoint change by other means, and nothing is waited for.',
      ),
    waitSeconds: z.number().positive().default(7200).describe('Longest wait for an adapter.'),
  })
  .strict()

const validation = z
  .object({
    dataset: datasetOptions.describe(
      'Its questions must not be trained on; and since they choose the checkpoint, report on others.',
    ),
    every: count
      .default(20)
      .describe('Steps between evaluations; there is one before the first step and one after the last.'),
    questions: count
      .nullable()
      .default(null)
      .describe('So many of them, drawn by seed, the same each time. null: all.'),
    turns: count.nullable().default(null).describe('K. null: the largest of rollout.budget.turns.'),
    temperature: z.number().min(0).default(0).describe('Sampling temperature; 0 is greedy.'),
  })
  .strict()

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
    roles: z
      .record(z.string(), roleOptions)
      .default({})
      .describe('Who plays roles of the system that the policy does not play, by name of the role: frozen models.'),
    trainedRoles: z
      .array(z.string())
      .min(1)
      .nullable()
      .default(null)
      .describe(
        'Roles that the policy plays, and is trained in. Those that neither this nor `roles` names are then frozen too: the policy as it is before training plays them. null: the policy plays all that `roles` does not name.',
      ),
    rollout: rolloutOptions.prefault({}),
    // a section that is left out lacks alpha, and is told so
    reward: rewardOptions.prefault({} as z.input<typeof rewardOptions>),
    grpo: grpoOptions.prefault({}),
    training: z
      .object({
        steps: count.default(100).describe('Policy updates on fresh rollouts.'),
        tasksPerStep: count.default(16).describe('Tasks per step, each with a group of trajectories.'),
        mostBatches: count
          .default(1)
          .describe(
            'Batches that a step may roll out to make up for groups of equal rewards, which grpo.zeroVariance drop leaves out (dynamic sampling of DAPO).',
          ),
        saveEvery: count.default(10).describe('Steps between checkpoints.'),
        ratiosEvery: count
          .nullable()
          .default(20)
          .describe(
            'Steps between records of how far an update moved each sampled token, for the viewer: one forward pass more. null: never.',
          ),
        keepCheckpoints: count
          .nullable()
          .default(null)
          .describe('Only so many of the newest checkpoints stay, and the best one. null: all.'),
        validation: validation
          .nullable()
          .default(null)
          .describe(
            'Held-out questions that the policy answers while it is trained; the checkpoint that was most accurate on them becomes checkpoints/<name>/best. null: none.',
          ),
        external: external
          .nullable()
          .default(null)
          .describe('Policies behind an endpoint only, and needed there: the trainer that updates them.'),
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
          .array(z.union([z.string(), z.record(z.string(), z.record(z.string(), z.record(z.string(), z.unknown())))]))
          .default([])
          .describe(
            'What `compare` varies without --vary: as written there, such as window=1,2,3, or {setting: {label: {path.to.key: value}}}; none: maxTurns.',
          ),
        set: z
          .array(z.string())
          .default([])
          .describe(
            'What `evaluate` and `compare` do otherwise, as written for --set, such as agents.vision.framesPerLook=15.',
          ),
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
  .superRefine(({ grpo, training }, context) => {
    if (training.mostBatches > 1 && grpo.zeroVariance === 'keep')
      context.addIssue({
        code: 'custom',
        path: ['training', 'mostBatches'],
        message: 'makes up for groups that are dropped: set grpo.zeroVariance to drop',
        input: training.mostBatches,
      })
  })

export type RunConfig = z.output<typeof runConfig>

/** `overrides` are `path.to.key=value`, as given to `--set`; they win over the file. Errors name file, line and key. */
export async function loadConfig(path: string, overrides: readonly string[] = []): Promise<Result<RunConfig>> {
  const read = await readConfigFile(runConfig, path, overrides)
  if (!read.ok) return read
  const whole = cast(read.value)
  return whole.ok ? whole : { ok: false, failure: { ...whole.failure, message: `${path}: ${whole.failure.message}` } }
}

/** The same as evaluation has it: with `evaluation.set`, over which `overrides` win. */
export async function loadEvaluationConfig(
  path: string,
  overrides: readonly string[] = [],
): Promise<Result<RunConfig>> {
  const own = await loadConfig(path, overrides)
  if (!own.ok || own.value.evaluation.set.length === 0) return own
  const held = await loadConfig(path, [...own.value.evaluation.set, ...overrides])
  if (held.ok) return held
  const message = `${held.failure.message} (evaluation.set has it; [] leaves it out)`
  return { ok: false, failure: { ...held.failure, message } }
}

export { configHash }
