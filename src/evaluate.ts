/**
 * `showrunner evaluate`: one run of the system per question at a turn budget, scored and measured. The same rollout as in training.
 * Trains and stores nothing.
 */
import { loadEvaluationConfig, type RunConfig } from './config.ts'
import { datasetOptions } from './dataset/options.ts'
import { goldFor, mostTurns, openRun } from './open.ts'
import { whileAllAnswer } from './outages.ts'
import { policyOptions } from './policy/options.ts'
import type { Progress } from './progress.ts'
import { type Outcome, outcomeOf, traceOf } from './report/outcome.ts'
import { measure } from './report/summarize.ts'
import type { Measurement } from './report/summary.ts'
import { scoreTrajectory } from './reward/index.ts'
import { rolloutStream } from './rollout/index.ts'
import type { RolloutOptions } from './rollout/options.ts'
import { answerable, noAnswers } from './rollouts.ts'
import { answerKeyOf } from './trajectory/answerKey.ts'
import type { Result } from './types.ts'

export interface EvaluateOptions {
  /** Directory of a checkpoint; null: the policy of the configuration. */
  checkpoint: string | null
  /** Directory of a data set; null: that of the configuration. */
  dataset: string | null
  /** Where system, agents and the other bounds come from. */
  config: string
  overrides: readonly string[]
  /** K; null: the largest that the configuration, or else the system, says. */
  maxTurns: number | null
  /** 0 is greedy. */
  temperature: number
  /** Only the first so many questions; null: as the configuration says of its own data set, all of another. */
  limit: number | null
  progress: Progress
  signal: AbortSignal
}

export async function evaluateCheckpoint(options: EvaluateOptions): Promise<Result<Measurement>> {
  const { progress, signal, maxTurns, temperature, limit } = options
  const loaded = await loadEvaluationConfig(options.config, options.overrides)
  if (!loaded.ok) return loaded
  const config: RunConfig = { ...loaded.value }
  if (options.checkpoint !== null) config.policy = checkpointPolicy(config, options.checkpoint)
  if (options.dataset !== null) config.dataset = datasetOptions.parse({ path: options.dataset })

  const opened = await openRun(config, progress, signal)
  if (!opened.ok) return opened
  const run = opened.value
  try {
    const tasks = answerable(run.dataset, limit ?? config.dataset.limit)
    if (tasks.length === 0) return noAnswers(config.dataset.path)
    progress.stage('evaluating', tasks.length)
    const outcomes: Outcome[] = []
    const key = answerKeyOf(tasks, (task) => goldFor(run.dataset, task))
    const streamed = rolloutStream(tasks, {
      ...run,
      options: evaluationRollouts(config, maxTurns ?? mostTurns(config, run.system), temperature),
      step: 0,
      runSeed: config.seed,
      signal,
    })
    for await (const group of whileAllAnswer(streamed, (text) => progress.line(text))) {
      if (signal.aborted) break
      if (!group.ok) return group
      const { task, trajectories } = group.value
      for (const trajectory of trajectories) {
        const scored = scoreTrajectory(trajectory, goldFor(run.dataset, task), config.reward)
        outcomes.push(outcomeOf(traceOf(scored), key))
        progress.tick()
      }
    }
    progress.done()
    if (signal.aborted) {
      return {
        ok: false,
        failure: {
          boundary: 'policy',
          kind: 'cancelled',
          message: `evaluation was stopped after ${outcomes.length} of ${tasks.length} questions`,
        },
      }
    }
    return { ok: true, value: measure(outcomes, config.prices, config.agents) }
  } finally {
    await run.close()
  }
}

/** One trajectory per question at this budget, the rest as in training. */
export function evaluationRollouts(
  config: Pick<RunConfig, 'rollout'>,
  maxTurns: number,
  temperature: number,
): RolloutOptions {
  return { ...config.rollout, groupSize: 1, temperature, budget: { ...config.rollout.budget, turns: maxTurns } }
}

/** The configuration's policy, or one like it, with this checkpoint's weights. */
export function checkpointPolicy(config: RunConfig, path: string): RunConfig['policy'] {
  return config.policy.type === 'checkpoint'
    ? { ...config.policy, path, adapter: null, lora: null }
    : policyOptions.parse({ type: 'checkpoint', path })
}
