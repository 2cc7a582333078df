/** Data set folders for tests: written to a temporary directory, removed after each test. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach } from 'vitest'
import type { Failure, Result } from '../../src/types.ts'

const made: string[] = []
afterEach(() => {
  for (const folder of made.splice(0)) rmSync(folder, { recursive: true, force: true })
})

/** Writes `files` (name -> bytes, text, or a value as JSON) and returns the folder. */
export function folder(files: Record<string, unknown> = {}): string {
  const root = mkdtempSync(join(tmpdir(), 'showrunner-dataset-'))
  made.push(root)
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true })
    writeFileSync(
      join(root, name),
      typeof content === 'string' || Buffer.isBuffer(content) ? content : JSON.stringify(content),
    )
  }
  return root
}

/** A row in the layout of LongTVQA+; `changes` set to undefined remove a column. */
export function row(qid: number, changes: Record<string, unknown> = {}): Record<string, unknown> {
  return {
    qid,
    q: `Who opens the door in scene ${qid} ?`,
    a0: 'Penny .',
    a1: 'Leonard .',
    a2: 'Sheldon .',
    a3: 'Raj .',
    a4: 'Howard .',
    answer: 'a1',
    ts: [1.5, 4],
    episode_name: 's05e02',
    occur_clip: 's05e02_seg02_clip_01',
    ...changes,
  }
}

export function value<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

export function failure(result: Result<unknown>): Failure {
  if (result.ok) throw new Error('expected a failure')
  return result.failure
}
