/**
 * A run's folder, `rollouts/<name>/`, belongs to one configuration: `run.json` holds its hash, so that what a changed configuration
 * makes is never mixed with what is stored; `config.json` the configuration itself, and `engine.json` what carried it out, for those who
 * look at the run later. Knows nothing of what else lies there.
 */
import { mkdir, readFile, rename, writeFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { z } from 'zod'
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

/** Writes the configuration as it was resolved, defaults and `--set` included. It names environment variables with keys, never keys. */
export function recordConfig(directory: string, config: object): Promise<{ ok: true } | Failed> {
  return record(join(directory, CONFIG), config)
}

/** Writes which engine the run is on, its version and its backend. A run that is resumed on another machine may have another one. */
export function recordEngine(directory: string, inUse: object): Promise<{ ok: true } | Failed> {
  return record(join(directory, 'engine.json'), inUse)
}

async function record(path: string, content: object): Promise<{ ok: true } | Failed> {
  try {
    await mkdir(dirname(path), { recursive: true })
    await replaceFile(path, `${JSON.stringify(content, null, 2)}\n`)
    return { ok: true }
  } catch (error) {
    return runFileFailure(path, error)
  }
}

const CONFIG = 'config.json'

/** What is read of a recorded configuration: as little as possible, since other versions may have written it. */
export interface RecordedConfig {
  /** Folders of data sets that the run's questions are from. */
  datasets: readonly string[]
  /** Folder of the checkpoint that the run began with; null for a policy behind an endpoint. */
  policy: string | null
  /** Training steps that were planned. */
  steps: number
}

const dataset = z.object({ path: z.string() })
const recorded = z.object({
  dataset,
  policy: z.object({ path: z.string().optional() }),
  training: z.object({ steps: z.number() }),
  evaluation: z.object({ dataset: dataset.nullable() }),
})

/** The configuration in a run's folder, or in the nearest one above it: held-out runs and budgets lie below. null: none is recorded. */
export async function recordedConfig(directory: string): Promise<RecordedConfig | null> {
  for (let folder = resolve(directory); dirname(folder) !== folder; folder = dirname(folder)) {
    const text = await readFile(join(folder, CONFIG), 'utf8').catch(() => null)
    if (text === null) continue
    const { success, data } = recorded.safeParse(parsedJson(text))
    if (!success) return null
    const { dataset, policy, training, evaluation } = data
    const datasets = [dataset.path, ...(evaluation.dataset === null ? [] : [evaluation.dataset.path])]
    return { datasets, policy: policy.path ?? null, steps: training.steps }
  }
  return null
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
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
