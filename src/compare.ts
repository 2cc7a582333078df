/**
 * `showrunner compare`: any budget or setting varied, every combination on the same questions under the same seeds. Each cell's
 * trajectories are stored under `rollouts/<run>/cells/`, in a folder named by all that decides them, so that cells that exist are not
 * run again and a crash loses what was in flight. The numbers are made by `report/comparison.ts` from what is stored.
 */
import { join } from 'node:path'
import type { OpenAgents } from './agents/index.ts'
import { configHash } from './configFile.ts'
import type { Dataset } from './dataset/index.ts'
import type { EngineInUse } from './engine/protocol.ts'
import { policyContent, questionsContent, samplingHash } from './identity.ts'
import { type OpenRun, openAround, openMaster, openQuestions } from './open.ts'
import type { Progress } from './progress.ts'
import { type Comparison, compareCells } from './report/comparison.ts'
import type { Outcome } from './report/outcome.ts'
import { readOutcomes } from './report/read.ts'
import { settingOf } from './report/setting.ts'
import { cellLabel, type Sweep } from './report/sweep.ts'
import { writeComparison, writeSweep } from './report/write.ts'
import type { FrozenRoles } from './rollout/index.ts'
import { answerable, drawnQuestions, noAnswers, rolloutsInto } from './rollouts.ts'
import { recordConfig, recordEngine } from './runFolder.ts'
import { cellDirectories, ORACLE, type PlannedCell, planSweep, type SweepPlan, type SweepRequest } from './sweepPlan.ts'
import { createSystem } from './systems/index.ts'
import { oraclePolicy } from './teacher.ts'
import type { Policy, Result, Task } from './types.ts'

/** Plans the sweep, runs what is not stored, writes `sweep.json` and `comparison.json` into the run's folder. */
export async function compare(
  request: SweepRequest,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<Comparison>> {
  const plan = await planSweep(request)
  return plan.ok ? comparePlan(plan.value, progress, signal) : plan
}

/** The same for a plan that is made already. */
export async function comparePlan(
  plan: SweepPlan,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<Comparison>> {
  const { config } = plan
  const directory = join('rollouts', config.name)
  const dataset = await openQuestions(config.dataset, progress, signal)
  if (!dataset.ok) return dataset
  const all = answerable(dataset.value, config.dataset.limit)
  if (all.length === 0) return noAnswers(config.dataset.path)
  const tasks = drawnQuestions(all, config.evaluation.questions, config.seed)
  const sweep = await sweepOf(plan, dataset.value, all.length, tasks)
  if (!sweep.ok) return sweep
  const written = await writeSweep(directory, sweep.value)
  if (!written.ok) return written

  const stored: (Outcome[] | null)[] = []
  for (const cell of sweep.value.cells) {
    const outcomes = await storedCell(join(directory, cell.directory), tasks)
    if (!outcomes.ok) return outcomes
    stored.push(outcomes.value)
  }
  const missing = plan.cells.filter((_, i) => stored[i] === null)
  if (missing.length < plan.cells.length)
    progress.line(`${plan.cells.length - missing.length} of ${plan.cells.length} cells are stored already`)
  const ran = await runCells(plan, sweep.value, stored, { dataset: dataset.value, tasks, directory, progress, signal })
  if (!ran.ok) return ran
  const comparison = compareCells(sweep.value, ran.value)
  const noted = await writeComparison(directory, comparison)
  return noted.ok ? { ok: true, value: comparison } : noted
}

async function sweepOf(plan: SweepPlan, dataset: Dataset, of: number, tasks: readonly Task[]): Promise<Result<Sweep>> {
  const { config, varied, baseline } = plan
  const questions = await questionsContent(dataset)
  const hashes: string[] = []
  for (const { config, ceiling } of plan.cells) {
    const policy = await policyContent(config)
    if (!policy.ok) return policy
    hashes.push(samplingHash(config, { policy: ceiling ? ORACLE : policy.value, questions }))
  }
  const directories = cellDirectories(plan.cells, hashes)
  const cells = plan.cells.map(({ settings, ceiling }, i) => ({
    settings,
    directory: directories[i] as string,
    ceiling,
  }))
  return {
    ok: true,
    value: {
      name: config.name,
      seed: config.seed,
      varied,
      baseline,
      questions: { dataset: config.dataset.path, split: config.dataset.split, qids: tasks.map(qidOf), of },
      setting: {
        ...shared(plan.cells.map((cell) => settingOf(cell.config))),
        ...(plan.cells.some((cell) => cell.config.agents.oracleBoxes) ? { 'oracle boxes': ORACLE_BOXES } : {}),
      },
      prices: config.prices,
      cells,
    },
  }
}

const qidOf = ({ question }: Task) => question.qid

/** Said of a comparison in which any cell had them: report pages and `comparison.ts` look for it. */
const ORACLE_BOXES = 'shown: the vision agent is told where the right answer is'

/** What does not vary. */
function shared(settings: readonly Sweep['setting'][]): Sweep['setting'] {
  const [first, ...others] = settings as [Sweep['setting'], ...Sweep['setting'][]]
  return Object.fromEntries(
    Object.entries(first).filter(([key, value]) => others.every((other) => other[key] === value)),
  )
}

/** null where questions are missing. */
async function storedCell(directory: string, tasks: readonly Task[]): Promise<Result<Outcome[] | null>> {
  const outcomes = await readOutcomes(directory)
  if (!outcomes.ok) return outcomes.failure.kind === 'missing_file' ? { ok: true, value: null } : outcomes
  const answered = new Set(outcomes.value.map(({ qid }) => qid))
  return { ok: true, value: tasks.every((task) => answered.has(qidOf(task))) ? outcomes.value : null }
}

interface Running {
  dataset: Dataset
  tasks: readonly Task[]
  directory: string
  progress: Progress
  signal: AbortSignal
}

/** Runs the cells that are not stored; the outcomes of all, in the order of the plan. */
async function runCells(
  plan: SweepPlan,
  sweep: Sweep,
  stored: readonly (Outcome[] | null)[],
  { dataset, tasks, directory, progress, signal }: Running,
): Promise<Result<Outcome[][]>> {
  const outcomes: Outcome[][] = []
  const missing = stored.filter((one) => one === null).length
  if (missing > 0) progress.stage('comparing', missing * tasks.length)
  let open: OpenParts | null = null
  let before = 0
  try {
    for (const [i, cell] of plan.cells.entries()) {
      const known = stored[i]
      if (known) {
        outcomes.push(known)
        continue
      }
      const { policy, roles, agents, engine, system } = cell.config
      const key = configHash([cell.ceiling, policy, roles, agents, engine, system.name])
      if (open?.key !== key) {
        await open?.close()
        open = null
        const opened = await openParts(cell, key, dataset, tasks)
        if (!opened.ok) return opened
        open = opened.value
      }
      progress.tick(0, cellLabel(cell.settings, sweep))
      const path = join(directory, sweep.cells[i]?.directory as string)
      const noted = await recordConfig(path, cell.config)
      if (!noted.ok) return noted
      if (open.engine !== null) {
        const recorded = await recordEngine(path, open.engine)
        if (!recorded.ok) return recorded
      }
      const ran = await rolloutsInto(path, true, {
        dataset,
        tasks,
        policy: open.policy,
        roles: open.roles,
        agents: open.agents,
        system: createSystem(cell.config.system),
        options: cell.config.rollout,
        reward: cell.config.reward,
        seed: cell.config.seed,
        signal,
        onGroup: (done) => progress.to(before + done),
        goOn: 'run the same command again to go on',
        warn: (text) => progress.line(text),
      })
      if (!ran.ok) return ran
      before += tasks.length
      const read = await readOutcomes(path)
      if (!read.ok) return read
      outcomes.push(read.value)
    }
  } finally {
    await open?.close()
  }
  progress.done('')
  return { ok: true, value: outcomes }
}

/** What cells share, kept open from one to the next. */
interface OpenParts {
  key: string
  policy: Policy
  roles: FrozenRoles
  agents: OpenAgents
  /** null where no engine of ours computes the master. */
  engine: EngineInUse | null
  close(): Promise<void>
}

async function openParts(
  { config, ceiling }: PlannedCell,
  key: string,
  dataset: Dataset,
  tasks: readonly Task[],
): Promise<Result<OpenParts>> {
  const master = ceiling ? oracleOf(dataset, tasks) : await openMaster(config)
  if (!master.ok) return master
  const { policy, trainable } = master.value
  const engine = trainable?.policy.device.inUse ?? null
  const around = await openAround(createSystem(config.system), config, dataset)
  if (!around.ok) {
    await policy.close()
    return around
  }
  const { roles, agents } = around.value
  const close = async () => {
    await policy.close()
    await around.value.close()
  }
  return { ok: true, value: { key, policy, roles, agents, engine, close } }
}

/** The oracle reads what has to be looked at from the words of miniature questions; for other data sets there is none. */
function oracleOf(
  { directory, questions, gold }: Dataset,
  tasks: readonly Task[],
): Result<Pick<OpenRun, 'policy' | 'trainable'>> {
  if (tasks.every((task) => gold.get(qidOf(task))?.kind))
    return {
      ok: true,
      value: { policy: oraclePolicy(new Map(questions.map((one) => [one.qid, one])), gold), trainable: null },
    }
  const message = `--policy oracle: expected a miniature data set, whose questions say how they are answered; ${directory} is none`
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}
