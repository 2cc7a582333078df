/**
 * How far an update moved the policy on each token it was trained on: `ratios/<step>.json` beside a store, written whole after the
 * update of a step. Knows nothing of how ratios are computed.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import type { Result } from '../types.ts'
import { failureOf, StoreError } from './failure.ts'

const ratioFile = z.record(z.string(), z.array(z.array(z.number())))

/** By trajectory id: for each of its segments the ratio of new to old probability of each sampled token, in order. */
export type Ratios = z.output<typeof ratioFile>

function ratiosPath(directory: string, step: number): string {
  return join(directory, 'ratios', `${String(step).padStart(6, '0')}.json`)
}

/** null when the training of this step did not record them. */
export async function readRatios(directory: string, step: number): Promise<Result<Ratios | null>> {
  const path = ratiosPath(directory, step)
  try {
    const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    if (text === null) return { ok: true, value: null }
    const parsed = ratioFile.safeParse(JSON.parse(text))
    if (!parsed.success) throw new SyntaxError(parsed.error.issues[0]?.message)
    return { ok: true, value: parsed.data }
  } catch (error) {
    const bad =
      error instanceof SyntaxError
        ? new StoreError('bad_file', `${path}: expected ratios by trajectory: ${error.message}; delete the file`)
        : error
    return { ok: false, failure: failureOf(bad, `reading ${path}`) }
  }
}

export async function writeRatios(directory: string, step: number, ratios: Ratios): Promise<Result<void>> {
  const path = ratiosPath(directory, step)
  try {
    await mkdir(join(directory, 'ratios'), { recursive: true })
    await writeFile(`${path}.partial`, JSON.stringify(ratios))
    await rename(`${path}.partial`, path)
    return { ok: true, value: undefined }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `writing ${path}`) }
  }
}
