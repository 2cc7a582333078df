/**
 * Which checkpoints of a run stay. `<run>/best` is a link to one of them, so that whoever takes the folder of a checkpoint (`serve`,
 * `evaluate`, `compare`, transformers, vLLM) takes `<run>/best` too. Knows no measure: the caller says which is the best.
 */
import { readdir, readlink, rename, rm, symlink } from 'node:fs/promises'
import { basename, join } from 'node:path'
import type { Result } from '../types.ts'
import { stepDirectory } from './checkpoint.ts'
import { failureOf } from './durable.ts'

const BEST = 'best'

/** Makes `<run>/best` the checkpoint of this step, in one move. */
export async function linkBest(runDirectory: string, step: number): Promise<Result<string>> {
  const link = join(runDirectory, BEST)
  try {
    await rm(`${link}.partial`, { force: true })
    await symlink(basename(stepDirectory(runDirectory, step)), `${link}.partial`, 'dir')
    await rename(`${link}.partial`, link)
    return { ok: true, value: link }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `linking ${link} to the checkpoint of step ${step}`) }
  }
}

/** Deletes all checkpoints of a run but the newest `keep` and the best one. Returns the steps that are gone. */
export async function pruneCheckpoints(runDirectory: string, keep: number): Promise<Result<number[]>> {
  try {
    const best = await readlink(join(runDirectory, BEST)).catch(() => null)
    const names = (await readdir(runDirectory)).filter((name) => /^step-\d{6,}$/.test(name))
    const steps = names.map((name) => Number(name.slice('step-'.length))).sort((a, b) => b - a)
    const gone = steps.slice(keep).filter((step) => basename(stepDirectory(runDirectory, step)) !== best)
    for (const step of gone) await rm(stepDirectory(runDirectory, step), { recursive: true })
    return { ok: true, value: gone }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `deleting old checkpoints in ${runDirectory}`) }
  }
}
