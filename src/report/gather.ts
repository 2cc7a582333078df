/**
 * Collects what a run's folder holds for its page: stored trajectories by group, training and held-out metrics, the setting, what people
 * said. Draws nothing.
 */
import { readFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { z } from 'zod'
import { type Label, readLabels } from '../trajectory/labels.ts'
import type { Result } from '../types.ts'
import { type CellResult, type Comparison, countsOf, failureTable } from './comparison.ts'
import { type Measures, measureAll } from './metrics.ts'
import type { Prices } from './options.ts'
import type { Outcome } from './outcome.ts'
import { readOutcomes } from './read.ts'
import { recordedSetting, type Setting } from './setting.ts'
import { trainingCurve } from './summarize.ts'
import type { Summary } from './summary.ts'
import type { Sweep } from './sweep.ts'

/** Trajectories that belong together, such as a cell of a comparison. */
export interface Group {
  label: string
  /** Their store, in or below the folder of the run. */
  directory: string
  n: number
  metrics: Measures
  /** Counts. */
  stopReasons: Record<string, number>
  /** Counts; see `CellResult`. */
  patterns: Record<string, number>
  failureKinds: CellResult['failureKinds']
  failed: CellResult['failed']
}

/** What a person said about a trajectory. */
export interface GivenLabel extends Label {
  directory: string
}

export type StepNumbers = { step: number } & Record<string, number>

/** What the policy reached on held-out questions after so many steps; other numbers of a record come along. */
export type Validation = StepNumbers & { n: number; accuracy: number; accuracyLow: number; accuracyHigh: number }

export interface Report {
  name: string
  /** The folder of the run, as it is given to `showrunner view`. */
  directory: string
  summary: Summary | null
  compared: { sweep: Sweep; comparison: Comparison } | null
  groups: Group[]
  training: StepNumbers[]
  /** In the order of the steps. */
  validations: Validation[]
  /** As the run recorded it; empty where it recorded none. */
  setting: Setting
  labels: GivenLabel[]
  /** What computed the masters, as recorded beside their trajectories. */
  engines: string[]
  /** The vision agent's words came with the boxes of the annotators, which tell about the right answer. */
  oracleBoxes: boolean
}

const AS_COUNTED: Prices = { master: null, grounding: null, vision: null }

/** Fails when the folder holds neither a summary, nor a comparison, nor trajectories, nor metrics of training. */
export async function gather(
  directory: string,
  summary: Summary | null,
  compared: Report['compared'],
): Promise<Result<Report>> {
  const recorded = await recordedSetting(directory)
  const prices = recorded?.prices ?? AS_COUNTED
  const metrics = await recordsIn(join(directory, 'metrics.jsonl'))
  const validations = (await recordsIn(join(directory, 'validation.jsonl'))).filter(isValidation)
  const groups: Group[] = []
  for (const [label, path] of [...heldOut(summary, directory), ...validated(validations, directory)]) {
    const outcomes = await readOutcomes(path)
    if (outcomes.ok && outcomes.value.length > 0) groups.push(groupOf(label, path, outcomes.value, prices))
  }
  for (const cell of compared?.comparison.cells ?? []) {
    const { metrics, directory: store, ...rest } = cell
    if (metrics === null) continue
    const n = Object.values(cell.stopReasons).reduce((sum, count) => sum + count, 0)
    groups.push({ ...rest, directory: join(directory, store), n, metrics })
  }
  const own = await readOutcomes(directory)
  if (!own.ok && own.failure.kind !== 'missing_file') return own
  if (own.ok) groups.push(...ownGroups(directory, own.value, prices))
  if (summary === null && compared === null && groups.length === 0 && metrics.length === 0)
    return own.ok
      ? {
          ok: false,
          failure: {
            boundary: 'store',
            kind: 'missing_file',
            message: `${directory}: no trajectories are stored yet; nothing to report`,
          },
        }
      : own

  const labels: GivenLabel[] = []
  for (const path of new Set([directory, ...groups.map((group) => group.directory)])) {
    const read = await readLabels(path)
    if (!read.ok) return read
    labels.push(...[...read.value.values()].map((label) => ({ ...label, directory: path })))
  }
  const stores = [directory, ...groups.map((group) => group.directory)]
  const engines = await enginesIn(stores)
  const settings = await Promise.all(stores.map(recordedSetting))
  const training = metrics.length > 0 ? metrics : own.ok ? trainingCurve(own.value) : (summary?.training?.curve ?? [])
  return {
    ok: true,
    value: {
      name: summary?.name ?? compared?.sweep.name ?? basename(resolve(directory)),
      directory,
      summary,
      compared,
      groups,
      training,
      validations,
      // the cells of a comparison have one each, and it says what they share
      setting: compared === null ? (recorded?.setting ?? {}) : {},
      labels,
      engines,
      oracleBoxes: settings.some((one) => one?.oracleBoxes === true),
    },
  }
}

/** Stores of the quickstart. */
function heldOut(summary: Summary | null, directory: string): [label: string, path: string][] {
  if (summary?.heldOut === undefined) return []
  return (['before', 'after'] as const).map((when) => [
    `held out, ${when} training`,
    join(directory, 'heldout', `${when}-greedy`),
  ])
}

/** Held-out questions at the first and the last visit of a training run. */
function validated(validations: readonly Validation[], directory: string): [label: string, path: string][] {
  const steps = new Set([validations[0], validations.at(-1)].flatMap((one) => (one === undefined ? [] : [one.step])))
  return [...steps].map((step) => [
    `held out, after ${step} steps`,
    join(directory, 'validation', `step-${String(step).padStart(6, '0')}`),
  ])
}

/** All trajectories of a run, or the first and the last tenth of the steps of a training run. */
function ownGroups(directory: string, outcomes: readonly Outcome[], prices: Prices): Group[] {
  const steps = [...new Set(outcomes.map(({ step }) => step))].sort((a, b) => a - b)
  if (outcomes.length === 0) return []
  if (steps.length < 10) return [groupOf('all trajectories', directory, outcomes, prices)]
  const tenth = Math.ceil(steps.length / 10)
  const of = (label: string, some: readonly number[]) => {
    const wanted = new Set(some)
    return groupOf(
      label,
      directory,
      outcomes.filter(({ step }) => wanted.has(step)),
      prices,
    )
  }
  return [of('training, first tenth', steps.slice(0, tenth)), of('training, last tenth', steps.slice(-tenth))]
}

function groupOf(label: string, directory: string, outcomes: readonly Outcome[], prices: Prices): Group {
  return {
    label,
    directory,
    n: outcomes.length,
    metrics: measureAll(outcomes, prices),
    stopReasons: countsOf(outcomes, (one) => one.stopReason),
    patterns: countsOf(outcomes, (one) => one.pattern),
    failureKinds: failureTable(outcomes),
    failed: outcomes.flatMap(({ failedOutside, id, qid, failure, stopReason }) =>
      failedOutside ? [{ trajectoryId: id, qid, message: failure ?? stopReason }] : [],
    ),
  }
}

const engineInUse = z.object({ engine: z.string(), version: z.string(), backend: z.string() })

/** `tfjs 4.22.0 on wasm`, each once; folders without a record are passed over. */
async function enginesIn(directories: readonly string[]): Promise<string[]> {
  const found = new Set<string>()
  for (const directory of directories) {
    const text = await readFile(join(directory, 'engine.json'), 'utf8').catch(() => '')
    const { success, data } = engineInUse.safeParse(parsedJson(text))
    if (success) found.add(`${data.engine} ${data.version} on ${data.backend}`)
  }
  return [...found]
}

/** The numbers of a file with a record per line; a line that is no record of a step is passed over: the run may be writing it. */
async function recordsIn(path: string): Promise<StepNumbers[]> {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text.split('\n').flatMap((line) => {
    const entries = Object.entries(parsedJson(line) ?? {}).filter(([, value]) => Number.isFinite(value))
    const record = Object.fromEntries(entries) as Record<string, number>
    return record.step === undefined ? [] : [{ ...record, step: record.step }]
  })
}

function isValidation(record: StepNumbers): record is Validation {
  return ['n', 'accuracy', 'accuracyLow', 'accuracyHigh'].every((key) => record[key] !== undefined)
}

/** null for text that is no JSON. */
function parsedJson(text: string): object | null {
  try {
    return JSON.parse(text) as object | null
  } catch {
    return null
  }
}
