/**
 * The files that a report is made from and the page itself: `summary.json`, `sweep.json`, `comparison.json`, `report.html` in a run's
 * folder. Everything is made again from what is stored, without a model.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { z } from 'zod'
import type { FailureKind, Result } from '../types.ts'
import { type Comparison, compareCells } from './comparison.ts'
import { gather } from './gather.ts'
import { reportPage } from './page.ts'
import { readOutcomes } from './read.ts'
import { type Summary, summary } from './summary.ts'
import { type Sweep, sweepSchema } from './sweep.ts'

/**
 * Writes `report.html` and, where the run is a comparison, `comparison.json`. Returns the path of the page. Fails when the folder has
 * neither summary, sweep nor trajectories, or one of them is not what it should be.
 */
export async function writeReport(directory: string): Promise<Result<string>> {
  const summarised = await readSummary(join(directory, 'summary.json'))
  if (summarised !== null && !summarised.ok) return summarised
  const compared = await storedComparison(directory)
  if (compared !== null && !compared.ok) return compared
  if (compared !== null) {
    const noted = await writeComparison(directory, compared.value.comparison)
    if (!noted.ok) return noted
  }
  const gathered = await gather(directory, summarised?.value ?? null, compared?.value ?? null)
  if (!gathered.ok) return gathered
  const path = join(directory, 'report.html')
  const written = await replace(path, reportPage(gathered.value))
  return written.ok ? { ok: true, value: path } : written
}

/** null when there is no such file. */
export function readSummary(path: string): Promise<Result<Summary> | null> {
  return readJson(path, summary, 'a summary')
}

/** null when the run is no comparison. */
export function readSweep(directory: string): Promise<Result<Sweep> | null> {
  return readJson(join(directory, 'sweep.json'), sweepSchema, 'the sweep of a comparison')
}

/** What a comparison is about, and what its stored trajectories say; null when the run is no comparison. */
async function storedComparison(directory: string): Promise<Result<{ sweep: Sweep; comparison: Comparison }> | null> {
  const sweep = await readSweep(directory)
  if (sweep === null || !sweep.ok) return sweep
  const cells = []
  for (const cell of sweep.value.cells) {
    const outcomes = await readOutcomes(join(directory, cell.directory))
    if (!outcomes.ok && outcomes.failure.kind !== 'missing_file') return outcomes
    cells.push(outcomes.ok ? outcomes.value : [])
  }
  return { ok: true, value: { sweep: sweep.value, comparison: compareCells(sweep.value, cells) } }
}

export function writeSweep(directory: string, sweep: Sweep): Promise<Result<void>> {
  return replace(join(directory, 'sweep.json'), `${JSON.stringify(sweep, null, 2)}\n`)
}

export function writeComparison(directory: string, comparison: Comparison): Promise<Result<void>> {
  return replace(join(directory, 'comparison.json'), `${JSON.stringify(comparison, null, 2)}\n`)
}

async function readJson<Schema extends z.ZodType>(
  path: string,
  schema: Schema,
  what: string,
): Promise<Result<z.output<Schema>> | null> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    if (code === 'ENOENT') return null
    if (code === 'ENOTDIR') return fail('bad_file', `${dirname(path)}: expected the folder of a run, found a file`)
    return fail('bad_file', `${path}: cannot be read: ${(error as Error).message}; check its permissions`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return fail('bad_file', `${path}: expected JSON: ${(error as Error).message}; run the command that wrote it again`)
  }
  const parsed = schema.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  const issue = parsed.error.issues[0]
  return fail(
    'bad_file',
    `${path}: ${issue?.path.join('.')}: ${issue?.message}; expected ${what} of this version of Showrunner`,
  )
}

/** Readers see the old file or the new one, never half of it. */
async function replace(path: string, content: string): Promise<Result<void>> {
  try {
    await mkdir(join(path, '..'), { recursive: true })
    await writeFile(`${path}.partial`, content, { flush: true })
    await rename(`${path}.partial`, path)
    return { ok: true, value: undefined }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const full = code === 'ENOSPC' || code === 'EDQUOT'
    const advice = full ? 'make room' : 'check the path and its permissions'
    return fail(full ? 'disk_full' : 'bad_file', `${path}: cannot be written: ${message}; ${advice}`)
  }
}

function fail<T>(kind: FailureKind, message: string): Result<T> {
  return { ok: false, failure: { boundary: 'store', kind, message } }
}
