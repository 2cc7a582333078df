/** Builds the failures of this room. Does not decide when something has failed. */
import type { FailureKind, Result } from '../types.ts'

export type Failed = Extract<Result<never>, { ok: false }>

/** What is wrong with one row of a question file, for those who count rows rather than stop at the first. */
export type RowFault =
  | 'not-a-row'
  | 'qid'
  | 'clip'
  | 'episode'
  | 'question'
  | 'option'
  | 'answer'
  | 'answer-without-clip'
  | 'kind'
  | 'span'

/** A `Result` whose failure also says which fault it is. */
export type Checked<T> = { ok: true; value: T } | (Failed & { fault: RowFault })

export function faulty(fault: RowFault, message: string): Failed & { fault: RowFault } {
  return { ...failed('bad_file', message), fault }
}

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
