/**
 * Files that survive a crash: written, flushed to the disk, then renamed into place.
 * Knows nothing about what is in them.
 */
import { open, rename } from 'node:fs/promises'
import { dirname } from 'node:path'
import type { Failure, FailureKind } from '../types.ts'

/** Thrown inside this room only; its public functions turn it into a `Result`. */
export class CheckpointError extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
  ) {
    super(message)
  }
}

/** What an error of the file system means to the user. Errors that are no outside failure (bugs) are thrown on. */
export function failureOf(error: unknown, doing: string): Failure {
  if (error instanceof CheckpointError) return { boundary: 'checkpoint', kind: error.kind, message: error.message }
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const failure = (kind: FailureKind, advice: string): Failure => ({
    boundary: 'checkpoint',
    kind,
    message: `${doing}: ${(error as Error).message}; ${advice}`,
  })
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return failure('disk_full', 'free some disk space and run again with --resume')
  if (code === 'ENOENT' || code === 'ENOTDIR') return failure('missing_file', 'check the path')
  if (code.startsWith('E') && !code.startsWith('ERR_')) return failure('bad_file', 'check the path and its permissions')
  throw error
}

/** Writes the chunks in order and flushes them to the disk before it returns. No rename: see `replaceFile`. */
export async function writeFlushed(path: string, chunks: Iterable<Uint8Array>): Promise<void> {
  const file = await open(path, 'w')
  try {
    for (const chunk of chunks) {
      for (let written = 0; written < chunk.length; ) {
        const { bytesWritten } = await file.write(chunk, written, Math.min(chunk.length - written, 1 << 28))
        written += bytesWritten
      }
    }
    await file.sync()
  } finally {
    await file.close()
  }
}

/** Makes a rename or a new file inside `directory` survive a power cut. */
export async function flushDirectory(directory: string): Promise<void> {
  const handle = await open(directory, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

/** Replaces `path` in one step: readers see the old content or the new, never half of it. */
export async function replaceFile(path: string, chunks: Iterable<Uint8Array>): Promise<void> {
  const partial = `${path}.partial`
  await writeFlushed(partial, chunks)
  await rename(partial, path)
  await flushDirectory(dirname(path))
}
