/** Builds the failures of this room. Does not decide when something has failed. */
import type { FailureKind, Result } from '../types.ts'

export type Failed = Extract<Result<never>, { ok: false }>

export function failed(kind: FailureKind, message: string): Failed {
  return { ok: false, failure: { boundary: 'video', kind, message: message.replace(/\s*\n\s*/g, ' ').trim() } }
}

/** The failure kind of a file-system error: a full disk and a missing file differ in what the user has to do. */
export function kindOfFileError(error: unknown): FailureKind {
  const code = (error as NodeJS.ErrnoException).code
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'missing_file'
  if (code === 'ENOSPC' || code === 'EDQUOT') return 'disk_full'
  return 'bad_file'
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
