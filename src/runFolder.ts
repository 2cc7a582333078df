/**
 * A run's folder, `rollouts/<name>/`, belongs to one configuration: `run.json` holds its hash, so that what a changed configuration
 * makes is never mixed with what is stored. Knows nothing of what else lies there.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Failure } from './types.ts'

type Failed = { ok: false; failure: Failure }

/** Makes the folder, or finds it begun with the same hash. */
export async function claimRunFolder(directory: string, hash: string): Promise<{ ok: true } | Failed> {
  const path = join(directory, 'run.json')
  try {
    await mkdir(directory, { recursive: true })
    const begun = hashIn(await readFile(path, 'utf8').catch(() => ''))
    if (begun === null) await replaceFile(path, `${JSON.stringify({ configHash: hash })}\n`)
    if (begun === null || begun === hash) return { ok: true }
    const message = `${path}: ${directory} was begun with another configuration (hash ${begun}, now ${hash}); delete the folder and its checkpoints, or choose another name with --set name=...`
    return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
  } catch (error) {
    return runFileFailure(path, error)
  }
}

/** Readers see the old content or the new, never half of it. */
export async function replaceFile(path: string, content: string): Promise<void> {
  await writeFile(`${path}.partial`, content)
  await rename(`${path}.partial`, path)
}

/** What went wrong with a file of the run, and what to do. Throws on what is no error of the file system. */
export function runFileFailure(path: string, error: unknown): Failed {
  const { code, message } = error as NodeJS.ErrnoException
  if (code === undefined) throw error
  const full = code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG'
  const advice = full ? 'what was stored before is whole; make room' : 'check the path and its permissions'
  return {
    ok: false,
    failure: {
      boundary: 'store',
      kind: full ? 'disk_full' : 'bad_file',
      message: `${path}: cannot be read or written: ${message}; ${advice} and run the same command again`,
    },
  }
}

/** null when nothing was written, or a crash cut it short. */
function hashIn(text: string): string | null {
  try {
    return (JSON.parse(text) as { configHash: string }).configHash
  } catch {
    return null
  }
}
