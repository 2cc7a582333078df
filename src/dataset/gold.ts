/** The secret half of a row: the answer, the clip with the evidence, its span. Nothing here reaches a policy or an agent. */

import type { Gold, QuestionKind, Result } from '../types.ts'
import { failed } from './failure.ts'
import { describe, type Row } from './rows.ts'

export interface GoldRow {
  /** null where the row has no answer, as in public test files. */
  gold: Gold | null
  /** The row gives a span that cannot be used: not a number, or an end before its start. */
  unusableSpan: boolean
}

const KINDS: readonly string[] = ['dialogue', 'visual', 'both'] satisfies QuestionKind[]

export function goldOf({ fields, qid, clip, where }: Row): Result<GoldRow> {
  const given = fields.answer ?? fields.answer_idx
  const span = readSpan(fields.ts)
  if (span === 'malformed')
    return failed(
      'bad_file',
      `${where}: expected ts as [start, end] or "start-end" in seconds, got ${describe(fields.ts)}`,
    )
  const unusableSpan = span === 'unusable'
  if (given === undefined || given === null) return { ok: true, value: { gold: null, unusableSpan } }
  const answer = readAnswer(given)
  if (answer === null)
    return failed('bad_file', `${where}: expected the answer as "a0".."a4" or 0..4, got ${describe(given)}`)
  if (!clip)
    return failed(
      'bad_file',
      `${where}: has an answer but no occur_clip or vid_name; the clip with the evidence is needed`,
    )
  const kind = fields.kind ?? null
  if (kind !== null && !(typeof kind === 'string' && KINDS.includes(kind))) {
    return failed('bad_file', `${where}: expected kind to be ${KINDS.join(', ')} or absent, got ${describe(kind)}`)
  }
  const gold: Gold = {
    qid,
    answer,
    clipId: clip.id,
    span: typeof span === 'string' ? null : span,
    kind: kind as QuestionKind | null,
  }
  return { ok: true, value: { gold, unusableSpan } }
}

/** `"a1"`, `"1"` or `1`; null for anything else. */
function readAnswer(value: unknown): number | null {
  const match = /^\s*a?([0-4])\s*$/i.exec(
    typeof value === 'number' ? String(value) : typeof value === 'string' ? value : '',
  )
  return match ? Number(match[1]) : null
}

/** `[start, end]` or `"start-end"`, in seconds; NaN and a reversed span are tolerated as no span. */
function readSpan(ts: unknown): [number, number] | null | 'unusable' | 'malformed' {
  if (ts === undefined || ts === null || ts === '') return null
  const ends: readonly unknown[] = Array.isArray(ts) ? ts : typeof ts === 'string' ? ts.split('-') : []
  const [start, end] = ends.map(readSeconds)
  if (ends.length !== 2 || start === undefined || end === undefined) return 'malformed'
  return start >= 0 && end >= start && Number.isFinite(end) ? [start, end] : 'unusable'
}

/** NaN for what stands for not-a-number (null is what `json.ts` makes of it); undefined for what is no time at all. */
function readSeconds(value: unknown): number | undefined {
  if (value === null) return Number.NaN
  if (typeof value === 'number') return value
  const text = typeof value === 'string' ? value.trim().toLowerCase() : ''
  if (text === 'nan') return Number.NaN
  return /^\d+(\.\d*)?$/.test(text) ? Number(text) : undefined
}
