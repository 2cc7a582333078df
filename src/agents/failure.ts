/** Builds the failures of this room. Does not decide when something has failed. */
import type { Boundary, FailureKind, Result } from '../types.ts'

export type Failed = Extract<Result<never>, { ok: false }>

export function failed(boundary: Boundary, kind: FailureKind, message: string): Failed {
  return { ok: false, failure: { boundary, kind, message: message.replace(/\s*\n\s*/g, ' ').trim() } }
}

export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
