/** What an error of the file system means to somebody who stores or reads rollouts. */
import type { Failure, FailureKind } from '../types.ts'

/** Thrown inside this room and by captures; public functions turn it into a `Result`. */
export class StoreError extends Error {
  constructor(
    readonly kind: FailureKind,
    message: string,
  ) {
    super(message)
  }
}

/** Errors that are no outside failure are thrown on. `doing` names what was tried and the file. */
export function failureOf(error: unknown, doing: string): Failure {
  if (error instanceof StoreError) return { boundary: 'store', kind: error.kind, message: error.message }
  const code = error instanceof Error && 'code' in error ? String(error.code) : ''
  const failure = (kind: FailureKind, advice: string): Failure => ({
    boundary: 'store',
    kind,
    message: `${doing}: ${(error as Error).message}; ${advice}`,
  })
  // EFBIG: the user's limit on file sizes; EDQUOT: on all files
  if (code === 'ENOSPC' || code === 'EDQUOT' || code === 'EFBIG')
    return failure('disk_full', 'what was stored before is whole; make room and run again with --resume')
  if (code === 'ENOENT' || code === 'ENOTDIR') return failure('missing_file', 'check the path')
  if (/^E[A-Z]+$/.test(code)) return failure('bad_file', 'check the path and its permissions')
  throw error
}
