/**
 * `npm run bench -- rewardShapes [seed ...]`: what the format reward does to a master (default seeds 1 2 3). The recipe of the quickstart
 * with nothing but `reward` changed, trained once per shape and seed, then held against the held-out questions at the largest budget,
 * greedy and sampled. Prints a JSON line per run, the oracle's and the untrained master's first; one per shape with means and 95 %
 * intervals over seeds (Student's t); and one per shape with the difference of its greedy accuracy to that of `mean` on the same questions and
 * seeds (bootstrap over episodes). Resumes what is there.
 */
import { mkdir } from 'node:fs/promises'
import { join } from 'node:path'
import jStat from 'jstat'
import { mean, sampleStandardDeviation } from 'simple-statistics'
import { latestCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { loadConfig, type RunConfig } from '../src/config.ts'
import { openDataset } from '../src/dataset/index.ts'
import { checkpointPolicy, evaluationRollouts } from '../src/evaluate.ts'
import { renderMiniature } from '../src/miniature.ts'
import { openHelpers, openRun } from '../src/open.ts'
import { createProgress } from '../src/progress.ts'
import type { Outcome } from '../src/report/outcome.ts'
import { readOutcomes } from '../src/report/read.ts'
import { type Observation, pairedDifference } from '../src/report/statistics.ts'
import { byQuestion } from '../src/report/summarize.ts'
import { answerable, rolloutsInto } from '../src/rollouts.ts'
import { oraclePolicy } from '../src/teacher.ts'
import { train } from '../src/train.ts'
import type { Policy, Result } from '../src/types.ts'

const CONFIG = 'configs/quickstart.yaml'
/** Each a whole reward section. */
const SHAPES: Record<string, readonly string[]> = {
  // R = 0.1 * (well-formed turns) + answer: the paper's
  sum: ['aggregation=sum', 'turnCost=0'],
  // R = 0.1 * (share of well-formed turns) + answer
  mean: ['aggregation=mean', 'turnCost=0'],
  // the mean, less 0.05 a turn where the answer is right: the quickstart's
  cost: ['aggregation=mean', 'turnCost=0.05', 'turnCostOf=correct'],
}

const given = process.argv.slice(2).map(Number)
const seeds = given.length > 0 ? given : [1, 2, 3]
const progress = createProgress()
const signal = new AbortController().signal

type Row = Record<string, number>

await watched(must(await loadConfig(CONFIG)))
const untrained = must(await loadConfig(CONFIG, [`seed=${seeds[0]}`, 'name=reward-untrained']))
print({ shape: 'oracle', ...(await heldOut({ ...untrained, name: 'reward-oracle' }, true)).row })
print({ shape: 'untrained', ...(await heldOut(untrained, false)).row })
const rows = new Map<string, Row[]>()
/** By shape, then by seed and question: right or wrong, greedily. */
const answers = new Map<string, Map<string, Observation>>()
for (const seed of seeds) {
  for (const [shape, reward] of Object.entries(SHAPES)) {
    const name = `reward-${shape}-${seed}`
    const overrides = [`seed=${seed}`, `name=${name}`, ...reward.map((one) => `reward.${one}`)]
    const config = must(await loadConfig(CONFIG, overrides))
    const { metrics } = must(await train(config, progress, signal, { resume: true }))
    const last = metrics.slice(-20)
    const checkpoint = (await latestCheckpoint(join('checkpoints', name)))?.directory ?? fail(`${name}: no checkpoint`)
    const { row: measured, greedy } = await heldOut({ ...config, policy: checkpointPolicy(config, checkpoint) }, false)
    const row = {
      seed,
      ...measured,
      trainingTurns: mean(last.map((record) => record.turns)),
      trainingZeroVarianceGroups: mean(last.map((record) => record.zeroVarianceGroups)),
    }
    rows.set(shape, [...(rows.get(shape) ?? []), row])
    const known = answers.get(shape) ?? new Map<string, Observation>()
    for (const [qid, answer] of byQuestion(greedy)) known.set(`${seed}/${qid}`, answer)
    answers.set(shape, known)
    print({ shape, ...row })
  }
}
for (const [shape, runs] of rows) {
  const keys = Object.keys(runs[0] ?? {}).filter((key) => key !== 'seed')
  const over = keys.map((key) => [key, meanInterval(runs.map((run) => run[key] as number))])
  print({ shape, seeds: runs.length, ...Object.fromEntries(over) })
}
const reference = answers.get('mean') ?? fail('no runs')
for (const [shape, own] of answers)
  if (own !== reference) print({ shape, greedyAccuracyLessMean: pairedDifference(reference, own) })

/** Renders the data sets and lets the agents see them, once for all runs. */
async function watched(config: RunConfig): Promise<void> {
  for (const options of [config.dataset, config.evaluation.dataset ?? fail('no held-out data set')]) {
    const { path: out, miniature } = options
    if (miniature !== null) must(await renderMiniature({ out, miniature, progress, signal }))
    const dataset = must(await openDataset(out))
    const agents = must(await openHelpers(config, dataset))
    const [failure] = await agents.prepare([...dataset.episodes.values()], { signal })
    await agents.close()
    if (failure !== undefined) fail(failure.message)
  }
}

/** One greedy and one sampled run per held-out question, stored in the run's folder. */
async function heldOut(config: RunConfig, oracle: boolean): Promise<{ row: Row; greedy: readonly Outcome[] }> {
  const dataset = config.evaluation.dataset ?? fail('no held-out data set')
  const run = must(await openRun({ ...config, dataset }, progress, signal))
  try {
    const tasks = answerable(run.dataset, null)
    const policy: Policy = oracle
      ? oraclePolicy(new Map(run.dataset.questions.map((one) => [one.qid, one])), run.dataset.gold)
      : run.policy
    const most = Math.max(...config.evaluation.maxTurns)
    const row: Row = {}
    let greedy: readonly Outcome[] = []
    for (const [mode, temperature] of [
      ['greedy', 0],
      ['sampled', 1],
    ] as const) {
      const directory = join('rollouts', config.name, mode)
      await mkdir(directory, { recursive: true })
      const options = evaluationRollouts(config, most, temperature)
      const stored = { ...run, policy, tasks, options, reward: config.reward, seed: config.seed, signal }
      const goOn = 'run the same command again to go on'
      must(await rolloutsInto(directory, true, { ...stored, goOn, warn: (text) => progress.line(text) }))
      const outcomes = must(await readOutcomes(directory))
      if (mode === 'greedy') greedy = outcomes
      for (const [key, value] of Object.entries(describe(outcomes, most)))
        row[`${mode}${key[0]?.toUpperCase()}${key.slice(1)}`] = value
    }
    return { row, greedy }
  } finally {
    await run.close()
  }
}

function describe(outcomes: readonly Outcome[], most: number): Row {
  const share = (holds: (one: Outcome) => boolean) => mean(outcomes.map((one) => Number(holds(one))))
  return {
    accuracy: share((one) => one.correct),
    turns: mean(outcomes.map((one) => one.turns)),
    usedAllTurns: share((one) => one.turns === most),
    // looking twice at what a clip shows says nothing new; a miniature clip shows the same things throughout
    lookedAgain: share((one) => one.pattern.includes('vv')),
    wellFormed: mean(outcomes.map((one) => one.wellFormed / Math.max(1, one.turns))),
  }
}

function meanInterval(values: readonly number[]): { mean: number; ci95: [number, number] | null } {
  const center = mean([...values])
  if (values.length < 2) return { mean: center, ci95: null }
  const t = jStat.studentt.inv(0.975, values.length - 1)
  const half = (t * sampleStandardDeviation([...values])) / Math.sqrt(values.length)
  return { mean: center, ci95: [center - half, center + half] }
}

function print(row: object): void {
  console.log(JSON.stringify(row))
}

function must<T>(result: Result<T>): T {
  return result.ok ? result.value : fail(result.failure.message)
}

function fail(message: string): never {
  throw new Error(message)
}
