/**
 * Reads a run's `metrics.jsonl` and `validation.jsonl`, also while they are being written: one record of numbers per training step, and one
 * per visit to the held-out questions. Draws nothing.
 */
import { readdir, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Any numbers by name; `step` is always there. */
export type StepNumbers = { step: number } & Record<string, number>

export interface Metrics {
  /** In the order of the steps. */
  steps: readonly StepNumbers[]
  /** What was reached on held-out questions, `step` being the steps before; empty where none are asked. */
  heldOut: readonly StepNumbers[]
  /** When any of it was last written; null when there is none. */
  written: Date | null
}

/** No file, a line that is being written, and records without a step are no metrics yet. */
export async function readMetrics(directory: string): Promise<Metrics> {
  const path = join(directory, 'metrics.jsonl')
  const [steps, heldOut] = await Promise.all([recordsIn(path), recordsIn(join(directory, 'validation.jsonl'))])
  return { steps, heldOut, written: await lastWritten([path, await openVisit(directory)]) }
}

/** Where the trajectories of a visit to the held-out questions go that is not over: meanwhile nothing else of the run is written. */
async function openVisit(directory: string): Promise<string> {
  const visits = join(directory, 'validation')
  const names = await readdir(visits).catch(() => [])
  return join(visits, names.sort().at(-1) ?? '', 'trajectories.arrows.partial')
}

async function lastWritten(paths: readonly string[]): Promise<Date | null> {
  const states = await Promise.all(paths.map((path) => stat(path).catch(() => null)))
  const times = states.flatMap((state) => (state === null ? [] : [state.mtimeMs]))
  return times.length === 0 ? null : new Date(Math.max(...times))
}

async function recordsIn(path: string): Promise<StepNumbers[]> {
  const text = await readFile(path, 'utf8').catch(() => '')
  return text.split('\n').flatMap(numbersIn)
}

function numbersIn(line: string): StepNumbers[] {
  let record: unknown
  try {
    record = JSON.parse(line)
  } catch {
    return []
  }
  if (typeof record !== 'object' || record === null) return []
  const numbers = Object.entries(record).filter((entry): entry is [string, number] => Number.isFinite(entry[1]))
  const step = numbers.find(([name]) => name === 'step')
  return step === undefined ? [] : [{ ...Object.fromEntries(numbers), step: step[1] }]
}
