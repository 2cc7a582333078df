/**
 * Rollouts into a store, without training: every task once, group by group, resumable after a crash with nothing lost and nothing
 * twice. Evaluation that is to be kept goes through here too.
 */
import { join } from 'node:path'
import type { RunConfig } from './config.ts'
import type { Dataset } from './dataset/index.ts'
import { Dice } from './dataset/miniature/story.ts'
import { policyContent, questionsContent, samplingHash } from './identity.ts'
import { goldFor, openRun } from './open.ts'
import { whileAllAnswer } from './outages.ts'
import type { Progress } from './progress.ts'
import { readOutcomes } from './report/read.ts'
import { measure } from './report/summarize.ts'
import type { Measurement } from './report/summary.ts'
import { scoreGroup } from './reward/index.ts'
import type { RewardOptions } from './reward/options.ts'
import { type FrozenRoles, rolloutStream } from './rollout/index.ts'
import type { RolloutOptions } from './rollout/options.ts'
import { claimRunFolder, recordConfig, recordEngine } from './runFolder.ts'
import { answerKeyOf, writeAnswerKey } from './trajectory/answerKey.ts'
import { openStore, type Store } from './trajectory/store.ts'
import type { Agents, Policy, Result, System, Task } from './types.ts'

export interface StoredRollouts {
  dataset: Dataset
  tasks: readonly Task[]
  system: System
  policy: Policy
  roles: FrozenRoles
  agents: Agents
  options: RolloutOptions
  reward: RewardOptions
  seed: string | number
  signal: AbortSignal
  /** Called with the number of groups done, those that were stored before included. */
  onGroup?: (done: number) => void
  /** What to do where a run stops early, such as `continue with --resume`. */
  goOn: string
  /** Called with what a person should know meanwhile, such as an endpoint that cannot be reached. */
  warn: (text: string) => void
}

/** `showrunner rollout`. */
export async function generateRollouts(
  config: RunConfig,
  progress: Progress,
  signal: AbortSignal,
  { resume }: { resume: boolean },
): Promise<Result<Measurement>> {
  const opened = await openRun(config, progress, signal)
  if (!opened.ok) return opened
  const run = opened.value
  try {
    const tasks = answerable(run.dataset, config.dataset.limit)
    if (tasks.length === 0) return noAnswers(config.dataset.path)
    const directory = join('rollouts', config.name)
    const policy = await policyContent(config)
    if (!policy.ok) return policy
    const contents = { policy: policy.value, questions: await questionsContent(run.dataset) }
    const claimed = await claimRunFolder(directory, samplingHash(config, contents))
    if (!claimed.ok) return claimed
    const recorded = await recordConfig(directory, config)
    if (!recorded.ok) return recorded
    if (run.trainable !== null) {
      const engine = await recordEngine(directory, run.trainable.policy.device.inUse)
      if (!engine.ok) return engine
    }
    progress.stage('rollouts', tasks.length)
    const stored = await rolloutsInto(directory, resume, {
      ...run,
      tasks,
      options: config.rollout,
      reward: config.reward,
      seed: config.seed,
      signal,
      onGroup: (done) => progress.to(done),
      goOn: 'continue with --resume',
      warn: (text) => progress.line(text),
    })
    if (!stored.ok) return stored
    const outcomes = await readOutcomes(directory)
    if (!outcomes.ok) return outcomes
    const measured = measure(outcomes.value, config.prices, config.agents)
    progress.done(`accuracy ${measured.accuracy.toFixed(3)}, stored in ${directory}`)
    return { ok: true, value: measured }
  } finally {
    await run.close()
  }
}

/**
 * Runs the tasks that the store in `directory` does not have yet. Ends the store only when all are done; stops early when the user
 * asks for it or when the policy or an agent is down.
 */
export async function rolloutsInto(directory: string, resume: boolean, run: StoredRollouts): Promise<Result<void>> {
  const opened = await openStore(directory, { resume })
  if (!opened.ok) return opened
  const store = opened.value
  try {
    const keyed = await writeAnswerKey(
      directory,
      answerKeyOf(run.tasks, (task) => goldFor(run.dataset, task)),
    )
    if (!keyed.ok) return keyed
    const filled = await fillStore(store, directory, run)
    return filled.ok ? await store.close() : filled
  } finally {
    await store.release()
  }
}

async function fillStore(store: Store, directory: string, run: StoredRollouts): Promise<Result<void>> {
  const step = 0
  const missing = run.tasks.filter((task) => !store.groupIds.has(`${step}/${task.question.qid}`))
  let done = run.tasks.length - missing.length
  const soFar = () => `${done} of ${run.tasks.length} groups are stored in ${directory}; ${run.goOn}`
  run.onGroup?.(done)
  const groups = rolloutStream(missing, { ...run, step, runSeed: run.seed, order: 'completion' })
  for await (const group of whileAllAnswer(groups, run.warn)) {
    if (!group.ok) return { ok: false, failure: { ...group.failure, message: `${group.failure.message}; ${soFar()}` } }
    // what the user cut short is run again on resume; what was done by then is kept
    if (group.value.trajectories.some(({ stopReason }) => stopReason === 'cancelled')) continue
    const stored = await store.append([scoreGroup(group.value, goldFor(run.dataset, group.value.task), run.reward)])
    if (!stored.ok) return stored
    done++
    run.onGroup?.(done)
  }
  if (done === run.tasks.length) return { ok: true, value: undefined }
  return { ok: false, failure: { boundary: 'policy', kind: 'cancelled', message: `stopped: ${soFar()}` } }
}

/** The tasks that can be scored, in the order of the data set. */
export function answerable(dataset: Dataset, limit: number | null): Task[] {
  return dataset
    .tasks()
    .filter((task) => dataset.gold.has(task.question.qid))
    .slice(0, limit ?? undefined)
}

/** All of them, or so many drawn by seed, in their own order. */
export function drawnQuestions(tasks: readonly Task[], count: number | null, seed: number): readonly Task[] {
  if (count === null || count >= tasks.length) return tasks
  const drawn = new Set(new Dice(`questions/${seed}`).sample(tasks, count))
  return tasks.filter((task) => drawn.has(task))
}

export function noAnswers(path: string): {
  ok: false
  failure: { boundary: 'dataset'; kind: 'bad_file'; message: string }
} {
  return {
    ok: false,
    failure: {
      boundary: 'dataset',
      kind: 'bad_file',
      message: `${path}: no question has an answer to score against; expected rows with "answer"`,
    },
  }
}
