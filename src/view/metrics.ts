/** Reads a run's `metrics.jsonl`, also while it is being written: one record of numbers per training step. Draws nothing. */
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'

/** Any numbers by name; `step` is always there. */
export type StepNumbers = { step: number } & Record<string, number>

export interface Metrics {
  /** In the order of the steps. */
  steps: readonly StepNumbers[]
  /** When the file was last written; null when there is none. */
  written: Date | null
}

/** No file, a line that is being written, and records without a step are no metrics yet. */
export async function readMetrics(directory: string): Promise<Metrics> {
  const path = join(directory, 'metrics.jsonl')
  try {
    const [text, { mtime }] = await Promise.all([readFile(path, 'utf8'), stat(path)])
    return { steps: text.split('\n').flatMap(numbersIn), written: mtime }
  } catch {
    return { steps: [], written: null }
  }
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
