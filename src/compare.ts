/**
 * Step budgets compared: the policy, greedy, at each K on the same held-out questions, beside a scripted oracle with the same agents.
 * Every trajectory is stored under `rollouts/<run>/budgets/`, in a folder for each policy and setting, so that a comparison goes on where
 * it stopped and the curve can be drawn again without a model.
 */
import { join } from 'node:path'
import type { RunConfig } from './config.ts'
import { evaluationRollouts } from './evaluate.ts'
import { type OpenRun, openRun } from './open.ts'
import type { Progress } from './progress.ts'
import { measure } from './report/summarize.ts'
import type { Summary } from './report/summary.ts'
import { answerable, noAnswers, readRuns, rolloutsInto, samplingHash } from './rollouts.ts'
import { oraclePolicy } from './teacher.ts'
import type { Policy, Result, Task } from './types.ts'

export type BudgetPoint = Summary['budgets'][number]

/** `showrunner compare`: on the held-out data set when the configuration has one. */
export async function compareBudgets(
  config: RunConfig,
  maxTurns: readonly number[],
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<BudgetPoint[]>> {
  const dataset = config.evaluation.dataset ?? config.dataset
  const measured = { ...config, dataset }
  const opened = await openRun(measured, progress, signal)
  if (!opened.ok) return opened
  try {
    return await budgetCurve(
      measured,
      opened.value,
      answerable(opened.value.dataset, dataset.limit),
      maxTurns,
      progress,
      signal,
    )
  } finally {
    await opened.value.close()
  }
}

/** The curve of an open run's policy over these tasks, in the order of `maxTurns`. `config` is the one that the run was opened with. */
export async function budgetCurve(
  config: RunConfig,
  run: OpenRun,
  tasks: readonly Task[],
  maxTurns: readonly number[],
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<BudgetPoint[]>> {
  if (tasks.length === 0) return noAnswers(run.dataset.directory)
  const oracle = miniatureOracle(run, tasks)
  progress.stage('comparing step budgets', maxTurns.length * tasks.length * (oracle === null ? 1 : 2))
  const points: BudgetPoint[] = []
  let before = 0
  for (const K of maxTurns) {
    const at = async (policy: Policy, name: string) => {
      const directory = join('rollouts', config.name, 'budgets', samplingHash(config), `${name}-k${K}`)
      const stored = await rolloutsInto(directory, true, {
        ...run,
        tasks,
        policy,
        options: evaluationRollouts(config, K, 0),
        reward: config.reward,
        seed: config.seed,
        signal,
        onGroup: (done) => progress.to(before + done),
        warn: (text) => progress.line(text),
      })
      if (!stored.ok) return stored
      before += tasks.length
      const runs = await readRuns(directory)
      return runs.ok ? { ok: true as const, value: measure(runs.value) } : runs
    }
    const policy = await at(run.policy, 'policy')
    if (!policy.ok) return policy
    const ceiling = oracle === null ? null : await at(oracle, 'oracle')
    if (ceiling !== null && !ceiling.ok) return ceiling
    const { n, accuracy, accuracyCi95, meanTurns, meanTokens, secondsPerQuestion } = policy.value
    points.push({
      maxTurns: K,
      n,
      accuracy,
      accuracyCi95,
      meanTurns,
      meanTokens,
      secondsPerQuestion,
      oracleAccuracy: ceiling?.value.accuracy ?? null,
    })
  }
  progress.done()
  return { ok: true, value: points }
}

/** The oracle reads what has to be looked at from the words of miniature questions; other data sets have none. */
function miniatureOracle({ dataset }: OpenRun, tasks: readonly Task[]): Policy | null {
  const gold = tasks.map((task) => dataset.gold.get(task.question.qid))
  if (gold.some((secret) => secret === undefined || secret.kind === null)) return null
  return oraclePolicy(new Map(dataset.questions.map((question) => [question.qid, question])), dataset.gold)
}
