/**
 * Evaluation while training goes on: the same held-out questions under the same seeds at every visit, with the policy as it stands, in
 * the setting of evaluation. Trains nothing and chooses no checkpoint.
 */
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import type { RunConfig } from './config.ts'
import { evaluationRollouts } from './evaluate.ts'
import { mostTurns, type OpenRun, openHelpers, openQuestions } from './open.ts'
import type { Progress } from './progress.ts'
import { readOutcomes } from './report/read.ts'
import { measure } from './report/summarize.ts'
import { answerable, drawnQuestions, noAnswers, rolloutsInto } from './rollouts.ts'
import { runFileFailure } from './runFolder.ts'
import { createSystem } from './systems/index.ts'
import type { Policy, Result } from './types.ts'

/** Over all held-out questions; one that failed counts as wrong. */
export interface ValidationRecord {
  /** Updates that the policy had seen. */
  step: number
  /** When it ended, ISO 8601. */
  at: string
  n: number
  accuracy: number
  /** 95 % interval, clustered by episode. */
  accuracyLow: number
  accuracyHigh: number
  grounded: number
  /** Share of turns. */
  formatRate: number
  turns: number
  meanTokens: number
  /** Questions that failed outside the policy. */
  failures: number
  seconds: number
}

export interface Validation {
  isDue(step: number): boolean
  /** Stores the trajectories under `validation/step-000020/` of the run's folder. */
  measure(step: number, policy: Policy): Promise<Result<ValidationRecord>>
  close(): Promise<void>
}

export interface ValidationParts {
  /** Folder of the run. */
  directory: string
  run: Pick<OpenRun, 'agents' | 'dataset' | 'roles'>
  progress: Progress
  signal: AbortSignal
}

/** null where the configuration asks for none. Fails when a question that is held out is trained on. */
export async function openValidation(
  config: RunConfig,
  { directory, run, progress, signal }: ValidationParts,
): Promise<Result<Validation | null>> {
  const options = config.training.validation
  if (options === null) return { ok: true, value: null }
  const dataset = await openQuestions(options.dataset, progress, signal)
  if (!dataset.ok) return dataset
  const all = answerable(dataset.value, options.dataset.limit)
  if (all.length === 0) return noAnswers(options.dataset.path)
  const tasks = drawnQuestions(all, options.questions, config.seed)
  const trained = new Map(answerable(run.dataset, config.dataset.limit).map(({ question }) => [question.qid, question]))
  const both = tasks.filter(({ question: { qid, episodeId, text } }) => {
    const same = trained.get(qid)
    return same !== undefined && same.episodeId === episodeId && same.text === text
  })
  if (both.length > 0) {
    const message = `training.validation.dataset: expected questions that are not trained on, but ${both.length} of ${tasks.length} are, such as ${both[0]?.question.qid}; name another data set or split`
    return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
  }
  // boxes belong to a data set; without them the agents are the same
  const own = config.agents.oracleBoxes ? await openHelpers(config, dataset.value) : null
  if (own !== null && !own.ok) return own
  const turns = options.turns ?? mostTurns(config, createSystem(config.system))

  return {
    ok: true,
    value: {
      isDue: (step) => step % options.every === 0 || step === config.training.steps,
      async measure(step, policy) {
        const folder = join(directory, 'validation', `step-${String(step).padStart(6, '0')}`)
        const began = performance.now()
        try {
          // what a crash left of it was sampled from weights that are gone
          await rm(folder, { recursive: true, force: true })
        } catch (error) {
          return runFileFailure(folder, error)
        }
        const stored = await rolloutsInto(folder, false, {
          dataset: dataset.value,
          tasks,
          system: createSystem(config.system),
          policy,
          roles: run.roles,
          agents: own === null ? run.agents : own.value,
          options: evaluationRollouts(config, turns, options.temperature),
          reward: config.reward,
          seed: config.seed,
          signal,
          goOn: 'continue with --resume',
          warn: (text) => progress.line(text),
        })
        if (!stored.ok) return stored
        const outcomes = await readOutcomes(folder)
        if (!outcomes.ok) return outcomes
        const measured = measure(outcomes.value, config.prices)
        return {
          ok: true,
          value: {
            step,
            at: new Date().toISOString(),
            n: measured.n,
            accuracy: measured.accuracy,
            accuracyLow: measured.accuracyCi95[0],
            accuracyHigh: measured.accuracyCi95[1],
            grounded: measured.groundingAccuracy,
            formatRate: measured.formatRate,
            turns: measured.meanTurns,
            meanTokens: measured.meanTokens,
            failures: measured.failures,
            seconds: (performance.now() - began) / 1000,
          },
        }
      },
      close: async () => own?.value.close(),
    },
  }
}
