/**
 * A training run's curves on disk: `metrics.jsonl` (a line per step), `validation.jsonl` (a line per evaluation on held-out questions), and
 * both again for TensorBoard under `tensorboard/`. A resumed run writes each point once: what a crash left of steps that are run again is
 * cut off, and the event file is written anew from what is kept. Computes nothing.
 */
import { appendFile, mkdir, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { replaceFile, runFileFailure } from './runFolder.ts'
import type { StepRecord } from './stepRecord.ts'
import { fileHeader, scalarsRecord } from './tensorboard.ts'
import type { Result } from './types.ts'
import type { ValidationRecord } from './validation.ts'

/** What every record has. */
type Timed = Pick<StepRecord, 'step' | 'at'>

export interface Curves<Step extends Timed> {
  /** All so far, those of earlier sittings included. */
  readonly steps: readonly Step[]
  readonly validations: readonly ValidationRecord[]
  addStep(record: Step): Promise<Result<void>>
  addValidation(record: ValidationRecord): Promise<Result<void>>
}

const STEPS = 'metrics.jsonl'
const VALIDATIONS = 'validation.jsonl'
const EVENTS = 'tensorboard'

/** Keeps the records of a run in `directory` up to its step `done`, and goes on from there. */
export async function openCurves<Step extends Timed>(directory: string, done: number): Promise<Result<Curves<Step>>> {
  const stepsPath = join(directory, STEPS)
  const validationsPath = join(directory, VALIDATIONS)
  const eventsFolder = join(directory, EVENTS)
  let eventsPath: string
  let steps: Step[]
  let validations: ValidationRecord[]
  try {
    steps = await keep<Step>(stepsPath, (record) => record.step < done)
    validations = await keep<ValidationRecord>(validationsPath, (record) => record.step <= done)
    // a new name, so that a TensorBoard that is open notices
    await mkdir(eventsFolder, { recursive: true })
    const earlier = await readdir(eventsFolder)
    const seconds = Date.now() / 1000
    eventsPath = join(eventsFolder, `events.out.tfevents.${Math.floor(seconds * 1000)}.showrunner`)
    const points = [...steps.map(stepPoint), ...validations.map(validationPoint)]
    points.sort((a, b) => a.step - b.step)
    await writeFile(eventsPath, Buffer.concat([fileHeader(seconds), ...points.map(scalarsRecord)]))
    for (const name of earlier) await rm(join(eventsFolder, name), { force: true })
  } catch (error) {
    return runFileFailure(directory, error)
  }

  const add = async (path: string, record: object, point: Uint8Array): Promise<Result<void>> => {
    try {
      await appendFile(path, `${JSON.stringify(record)}\n`)
      await appendFile(eventsPath, point)
      return { ok: true, value: undefined }
    } catch (error) {
      return runFileFailure(path, error)
    }
  }
  return {
    ok: true,
    value: {
      steps,
      validations,
      addStep(record) {
        steps.push(record)
        return add(stepsPath, record, scalarsRecord(stepPoint(record)))
      },
      addValidation(record) {
        validations.push(record)
        return add(validationsPath, record, scalarsRecord(validationPoint(record)))
      },
    },
  }
}

/** The whole lines that hold; the file has no others afterwards. */
async function keep<Row>(path: string, holds: (row: Row) => boolean): Promise<Row[]> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return null
    throw error
  })
  if (text === null) return []
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  const rows = whole
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as Row)
    .filter(holds)
  await replaceFile(path, rows.map((row) => `${JSON.stringify(row)}\n`).join(''))
  return rows
}

const stepPoint = (record: Timed) => pointOf('train', record)
const validationPoint = (record: ValidationRecord) => pointOf('validation', record)

/** Every number of a record, under `train/reward` and the like. */
function pointOf(section: string, record: Timed) {
  const numbers = Object.entries(record).flatMap(([key, value]) =>
    key === 'step' || typeof value !== 'number' ? [] : [[`${section}/${key}`, value] as const],
  )
  return { step: record.step, wallTime: Date.parse(record.at) / 1000, values: Object.fromEntries(numbers) }
}
