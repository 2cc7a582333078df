/** Builds the failures of this room. Does not decide when something has failed. */
import type { FailureKind, Result } from '../types.ts'

export type Failed = Extract<Result<never>, { ok: false }>

export function failed(kind: FailureKind, message: string): Failed {
  return { ok: false, failure: { boundary: 'dataset', kind, message: message.replace(/\s*\n\s*/g, ' ').trim() } }
}

/** The failure of a file-system call, in words that say what to do. */
export function fileFailure(path: string, error: unknown): Failed {
  const { code, message } = error as NodeJS.ErrnoException
  if (code === 'ENOENT' || code === 'ENOTDIR')
    return failed('missing_file', `${path}: no such file or folder; check the path`)
  if (code === 'ENOSPC' || code === 'EDQUOT')
    return failed('disk_full', `${path}: the disk is full; free some space and run the same command again`)
  if (code === undefined) throw error
  return failed('bad_file', `${path}: cannot be read or written: ${message}`)
}
