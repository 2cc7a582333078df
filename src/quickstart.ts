/**
 * The whole loop on a small data set: render videos, measure the base master on held-out episodes, train it, measure it again,
 * compare step budgets, serve it and ask it a question, write summary and report.
 *
 * Every stage leaves its result on disk and takes up what is there, so a second run resumes. Computes nothing itself.
 */
import { join } from 'node:path'
import { comparePlan } from './compare.ts'
import { configHash, type RunConfig } from './config.ts'
import { openDataset } from './dataset/index.ts'
import { isHeldOut } from './dataset/miniature/words.ts'
import { evaluationRollouts } from './evaluate.ts'
import { renderMiniature } from './miniature.ts'
import { goldFor, type OpenRun, openHelpers, openRun } from './open.ts'
import { openEndpoint } from './policy/endpoint.ts'
import { policyOptions } from './policy/options.ts'
import type { Progress } from './progress.ts'
import type { Comparison } from './report/comparison.ts'
import type { Outcome } from './report/outcome.ts'
import { readOutcomes } from './report/read.ts'
import { accuracyGain, actionPatterns, measure, regrounding } from './report/summarize.ts'
import type { Summary } from './report/summary.ts'
import { readSummary, writeReport } from './report/write.ts'
import { scoreGroup } from './reward/index.ts'
import { rollout } from './rollout/index.ts'
import { answerable, noAnswers, rolloutsInto } from './rollouts.ts'
import { claimRunFolder, replaceFile, runFileFailure } from './runFolder.ts'
import { startServer } from './serve/open.ts'
import { budgetSweep } from './sweepPlan.ts'
import { type TrainReport, train } from './train.ts'
import type { Failure, Result, Task } from './types.ts'

export async function quickstart(config: RunConfig, progress: Progress, signal: AbortSignal): Promise<Result<Summary>> {
  if (config.evaluation.dataset === null) return fail('evaluation.dataset: expected a held-out data set, got null')
  const directory = join('rollouts', config.name)
  const hash = configHash(config)
  // the configuration of a run that has begun must be the same
  const claimed = await claimRunFolder(directory, hash)
  if (!claimed.ok) return claimed
  const summaryPath = join(directory, 'summary.json')
  const finished = await readSummary(summaryPath)
  if (finished !== null) {
    if (!finished.ok) return finished
    progress.line(
      `nothing to do: ${summaryPath} is there; delete ${directory} and checkpoints/${config.name} to run again`,
    )
    return reported(finished.value, directory, progress)
  }

  for (const prepared of [config, heldOutConfig(config)]) {
    const seen = await watch(prepared, progress, signal)
    if (!seen.ok) return seen
  }
  const before = await measureHeldOut(config, 'before', progress, signal)
  if (!before.ok) return before
  const trained = await train(config, progress, signal, { resume: true })
  if (!trained.ok) return trained
  const after = await measureTrained(trainedConfig(config, trained.value), progress, signal)
  if (!after.ok) return after

  const summary = summarise(config, hash, before.value, after.value, trained.value)
  const written = await writeSummary(summaryPath, summary)
  if (!written.ok) return written
  return reported(summary, directory, progress)
}

/** The page and the numbers; also of a run that was done before, since it may have ended before its page was written. */
async function reported(summary: Summary, directory: string, progress: Progress): Promise<Result<Summary>> {
  const report = await writeReport(directory)
  if (!report.ok) return report
  printSummary(summary, directory, progress)
  return { ok: true, value: summary }
}

/** Lets the agents see and read a data set ahead, which is faster than clip by clip when questions come. What they saw is cached. */
async function watch(config: RunConfig, progress: Progress, signal: AbortSignal): Promise<Result<void>> {
  const { path, miniature } = config.dataset
  if (miniature !== null) {
    const rendered = await renderMiniature({ out: path, miniature, progress, signal })
    if (!rendered.ok) return rendered
  }
  const dataset = await openDataset(path)
  if (!dataset.ok) return dataset
  const agents = await openHelpers(config, dataset.value)
  if (!agents.ok) return agents
  try {
    const episodes = [...dataset.value.episodes.values()]
    progress.stage(
      `agents watch ${path}`,
      episodes.reduce((sum, episode) => sum + episode.clips.length, 0),
    )
    const failures = await agents.value.prepare(episodes, { signal, onProgress: (done) => progress.to(done) })
    const failure = failures[0]
    if (failure !== undefined) return { ok: false, failure }
    if (signal.aborted)
      return {
        ok: false,
        failure: {
          boundary: 'vision',
          kind: 'cancelled',
          message: 'stopped while the agents watched; what they saw is cached; run the same command to go on',
        },
      }
    progress.done()
    return { ok: true, value: undefined }
  } finally {
    await agents.value.close()
  }
}

interface HeldOut {
  greedy: Outcome[]
  sampled: Outcome[]
  /** Questions whose right answer is a word that training episodes never use. */
  unmet: ReadonlySet<string>
}

interface Trained extends HeldOut {
  budgets: Summary['budgets']
  asked: NonNullable<Summary['asked']>
}

/** One greedy and one sampled run per held-out question, stored under `heldout/<when>-<mode>/`. */
async function measureHeldOut(
  config: RunConfig,
  when: 'before' | 'after',
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<HeldOut>> {
  const run = await openRun(heldOutConfig(config), progress, signal)
  if (!run.ok) return run
  try {
    return await heldOutRuns(config, run.value, when, progress, signal)
  } finally {
    await run.value.close()
  }
}

async function heldOutRuns(
  config: RunConfig,
  run: OpenRun,
  when: string,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<HeldOut>> {
  const tasks = answerable(run.dataset, heldOutConfig(config).dataset.limit)
  if (tasks.length === 0) return noAnswers(run.dataset.directory)
  const runs: Record<string, Outcome[]> = {}
  const maxTurns = Math.max(...config.evaluation.maxTurns)
  progress.stage(`held-out questions, ${when} training`, 2 * tasks.length)
  for (const [i, [mode, temperature]] of (
    [
      ['greedy', 0],
      ['sampled', 1],
    ] as const
  ).entries()) {
    const directory = join('rollouts', config.name, 'heldout', `${when}-${mode}`)
    const stored = await rolloutsInto(directory, true, {
      ...run,
      tasks,
      options: evaluationRollouts(config, maxTurns, temperature),
      reward: config.reward,
      seed: config.seed,
      signal,
      onGroup: (done) => progress.to(i * tasks.length + done),
      goOn: 'run the same command again to go on',
      warn: (text) => progress.line(text),
    })
    if (!stored.ok) return stored
    const read = await readOutcomes(directory)
    if (!read.ok) return read
    runs[mode] = read.value
  }
  const { greedy, sampled } = runs as Record<'greedy' | 'sampled', Outcome[]>
  const { prices } = config
  progress.done(
    `greedy ${measure(greedy, prices).accuracy.toFixed(3)}, sampled ${measure(sampled, prices).accuracy.toFixed(3)}`,
  )
  const unmet = tasks.filter((task) => isHeldOut(task.question.options[goldFor(run.dataset, task).answer] as string))
  return { ok: true, value: { greedy, sampled, unmet: new Set(unmet.map((task) => task.question.qid)) } }
}

async function measureTrained(config: RunConfig, progress: Progress, signal: AbortSignal): Promise<Result<Trained>> {
  const opened = await openRun(heldOutConfig(config), progress, signal)
  if (!opened.ok) return opened
  const run = opened.value
  try {
    const heldOut = await heldOutRuns(config, run, 'after', progress, signal)
    if (!heldOut.ok) return heldOut
    const tasks = answerable(run.dataset, heldOutConfig(config).dataset.limit)
    const compared = await comparePlan(budgetSweep(config), progress, signal)
    if (!compared.ok) return compared
    const asked = await askEndpoint(config, run, tasks[0] as Task, progress, signal)
    if (!asked.ok) return asked
    return { ok: true, value: { ...heldOut.value, budgets: budgetPoints(compared.value), asked: asked.value } }
  } finally {
    await run.close()
  }
}

/** The master's curve beside the oracle's. */
function budgetPoints({ cells }: Comparison): Summary['budgets'] {
  const oracle = new Map(cells.flatMap((cell) => (cell.ceiling ? [[cell.settings.maxTurns, cell] as const] : [])))
  return cells.flatMap(({ ceiling, settings, metrics }) => {
    if (ceiling || !metrics?.accuracy) return []
    const { accuracy, turns, sampledTokens, seconds } = metrics
    return [
      {
        maxTurns: Number(settings.maxTurns),
        n: accuracy.n,
        accuracy: accuracy.value,
        accuracyCi95: accuracy.ci95 ?? [0, 1],
        meanTurns: turns?.value ?? 0,
        meanTokens: sampledTokens?.value ?? 0,
        secondsPerQuestion: seconds?.value ?? 0,
        oracleAccuracy: oracle.get(settings.maxTurns)?.metrics?.accuracy?.value ?? null,
      },
    ]
  })
}

/** Serves the trained checkpoint on this machine and runs one question with the endpoint as the master, through the `openai` client. */
async function askEndpoint(
  config: RunConfig,
  run: OpenRun,
  task: Task,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<NonNullable<Summary['asked']>>> {
  if (config.policy.type !== 'checkpoint') return fail('policy.type: expected checkpoint')
  progress.stage('asking the endpoint one question')
  const server = await startServer(
    config.policy.path,
    config.engine,
    { ...config.serve, port: 0 },
    { name: config.name },
  )
  if (!server.ok) return server
  const baseUrl = `${server.value.url}/v1`
  try {
    const options = policyOptions.parse({ type: 'endpoint', baseUrl, model: config.name })
    const policy = options.type === 'endpoint' ? openEndpoint(options) : fail('expected an endpoint')
    if (!policy.ok) return policy
    const maxTurns = Math.max(...config.evaluation.maxTurns)
    const [group] = await rollout([task], {
      ...run,
      policy: policy.value,
      options: evaluationRollouts(config, maxTurns, 0),
      step: 0,
      runSeed: config.seed,
      signal,
    })
    if (group === undefined) return fail('stopped before the question was asked')
    const scored = scoreGroup(group, goldFor(run.dataset, task), config.reward).scored[0]
    const trajectory = group.trajectories[0]
    if (trajectory === undefined || scored === undefined)
      throw new Error('askEndpoint: a group of one has one trajectory')
    if (trajectory.failure !== null) return { ok: false, failure: trajectory.failure }
    await policy.value.close()
    progress.done(`${task.question.text} -> ${trajectory.turns.map((turn) => turn.response).join('  ')}`)
    const answer = trajectory.answer === null ? null : (task.question.options[trajectory.answer] ?? null)
    return {
      ok: true,
      value: {
        url: baseUrl,
        question: task.question.text,
        turns: trajectory.turns.map((turn) => turn.response),
        answer,
        correct: scored.correct,
      },
    }
  } finally {
    await server.value.close()
  }
}

function heldOutConfig(config: RunConfig): RunConfig {
  return { ...config, dataset: config.evaluation.dataset ?? config.dataset }
}

function trainedConfig(config: RunConfig, { checkpoint }: TrainReport): RunConfig {
  return config.policy.type === 'checkpoint' ? { ...config, policy: { ...config.policy, path: checkpoint } } : config
}

function unmetAnswers({ prices }: RunConfig, before: HeldOut, after: HeldOut): Pick<Summary, 'unmetAnswers'> {
  const among = ({ greedy, unmet }: HeldOut) => greedy.filter((run) => unmet.has(run.qid))
  if (after.unmet.size === 0) return {}
  const { accuracy, n } = measure(among(after), prices)
  return { unmetAnswers: { n, before: measure(among(before), prices).accuracy, after: accuracy } }
}

function summarise(config: RunConfig, hash: string, before: HeldOut, after: Trained, trained: TrainReport): Summary {
  const modes = (runs: HeldOut) => ({
    greedy: measure(runs.greedy, config.prices),
    sampled: measure(runs.sampled, config.prices),
  })
  const { steps, rollouts, sampledTokens, seconds, metrics } = trained
  return {
    name: config.name,
    seed: config.seed,
    configHash: hash,
    setting: {
      system: config.system.name,
      'base master': config.policy.type === 'checkpoint' ? config.policy.path : config.policy.model,
      'training data': config.dataset.path,
      'held-out data': heldOutConfig(config).dataset.path,
      'turns at most': Math.max(...config.evaluation.maxTurns),
      'group size': config.rollout.groupSize,
      'tasks per step': config.training.tasksPerStep,
      'learning rate': config.grpo.learningRate,
    },
    heldOut: {
      before: modes(before),
      after: modes(after),
      difference: {
        greedy: accuracyGain(before.greedy, after.greedy),
        sampled: accuracyGain(before.sampled, after.sampled),
      },
    },
    ...unmetAnswers(config, before, after),
    budgets: after.budgets,
    actionPatterns: { before: actionPatterns(before.greedy), after: actionPatterns(after.greedy) },
    regrounding: {
      before: regrounding(before.greedy),
      after: regrounding(after.greedy),
    },
    training: {
      steps,
      rollouts,
      sampledTokens,
      seconds,
      curve: metrics.map(({ step, reward, accuracy }) => ({ step, reward, accuracy })),
    },
    asked: after.asked,
  }
}

async function writeSummary(path: string, summary: Summary): Promise<Result<void>> {
  try {
    await replaceFile(path, `${JSON.stringify(summary, null, 2)}\n`)
    return { ok: true, value: undefined }
  } catch (error) {
    return runFileFailure(path, error)
  }
}

function printSummary({ heldOut, budgets }: Summary, directory: string, progress: Progress): void {
  const share = (value: number) => value.toFixed(3)
  if (heldOut !== undefined) {
    for (const mode of ['greedy', 'sampled'] as const) {
      const { accuracy, accuracyCi95, n } = heldOut.after[mode]
      const [low, high] = accuracyCi95
      progress.line(
        `${mode}: ${share(heldOut.before[mode].accuracy)} before, ${share(accuracy)} after (95 % ${share(low)} to ${share(high)}; ${n} held-out questions)`,
      )
    }
  }
  for (const { maxTurns, accuracy, oracleAccuracy, meanTurns } of budgets) {
    progress.line(
      `K = ${maxTurns}: ${share(accuracy)}${oracleAccuracy === null ? '' : `, oracle ${share(oracleAccuracy)}`}, ${meanTurns.toFixed(1)} turns`,
    )
  }
  progress.line(`${join(directory, 'summary.json')}  ${join(directory, 'report.html')}`)
}

function fail(message: string): { ok: false; failure: Failure } {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}
