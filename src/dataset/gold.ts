/** The secret half of a row: the answer, the clip with the evidence, its span. Nothing here reaches a policy or an agent. */

import type { Gold, QuestionKind } from '../types.ts'
import { type Checked, faulty } from './failure.ts'
import { describe, type Row } from './rows.ts'

export interface GoldRow {
  /** null where the row has no answer, as in public test files. */
  gold: Gold | null
  /** Seconds on the clip's own timeline; null where the row has none that can be used. Also of rows without an answer. */
  span: readonly [number, number] | null
  /** Why the row's span cannot be used: not a number, or an end before its start (or a start before 0). */
  unusableSpan: 'not-a-number' | 'reversed' | null
}

const KINDS: readonly string[] = ['dialogue', 'visual', 'both'] satisfies QuestionKind[]

export function goldOf({ fields, qid, clip, where }: Row): Checked<GoldRow> {
  const given = fields.answer ?? fields.answer_idx
  const read = readSpan(fields.ts)
  if (read === 'malformed')
    return faulty('span', `${where}: expected ts as [start, end] or "start-end" in seconds, got ${describe(fields.ts)}`)
  const unusableSpan = typeof read === 'string' ? read : null
  const span = typeof read === 'string' ? null : read
  if (given === undefined || given === null) return { ok: true, value: { gold: null, span, unusableSpan } }
  const answer = readAnswer(given)
  if (answer === null)
    return faulty('answer', `${where}: expected the answer as "a0".."a4" or 0..4, got ${describe(given)}`)
  if (!clip)
    return faulty(
      'answer-without-clip',
      `${where}: has an answer but no occur_clip or vid_name; the clip with the evidence is needed`,
    )
  const kind = fields.kind ?? null
  if (kind !== null && !(typeof kind === 'string' && KINDS.includes(kind))) {
    return faulty('kind', `${where}: expected kind to be ${KINDS.join(', ')} or absent, got ${describe(kind)}`)
  }
  const gold: Gold = {
    qid,
    answer,
    clipId: clip.id,
    span,
    kind: kind as QuestionKind | null,
  }
  return { ok: true, value: { gold, span, unusableSpan } }
}

/** `"a1"`, `"1"` or `1`; null for anything else. */
function readAnswer(value: unknown): number | null {
  const match = /^\s*a?([0-4])\s*$/i.exec(
    typeof value === 'number' ? String(value) : typeof value === 'string' ? value : '',
  )
  return match ? Number(match[1]) : null
}

/** `[start, end]` or `"start-end"`, in seconds; NaN and a reversed span are tolerated as no span. */
function readSpan(ts: unknown): [number, number] | null | 'not-a-number' | 'reversed' | 'malformed' {
  if (ts === undefined || ts === null || ts === '') return null
  const ends: readonly unknown[] = Array.isArray(ts) ? ts : typeof ts === 'string' ? ts.split('-') : []
  const [start, end] = ends.map(readSeconds)
  if (ends.length !== 2 || start === undefined || end === undefined) return 'malformed'
  if (!Number.isFinite(start) || !Number.isFinite(end)) return 'not-a-number'
  return start >= 0 && end >= start ? [start, end] : 'reversed'
}

/** NaN for what stands for not-a-number (null is what `json.ts` makes of it); undefined for what is no time at all. */
function readSeconds(value: unknown): number | undefined {
  if (value === null) return Number.NaN
  if (typeof value === 'number') return value
  const text = typeof value === 'string' ? value.trim().toLowerCase() : ''
  if (text === 'nan') return Number.NaN
  return /^\d+(\.\d*)?$/.test(text) ? Number(text) : undefined
}

/** Durations in TVR's table have two decimals, and spans too: what differs by less is rounding. */
export const ROUNDING_SECONDS = 0.011

/**
 * A span of a clip's own timeline on the episode's, cut to the clip, all in seconds (spec/longvideoagent.md, row 23). `start` and `end`
 * are the clip's on the episode's timeline. null where the clip has no place there, or the span begins after the clip's end.
 */
export function onEpisode(
  [from, to]: readonly [number, number],
  { start, end }: { start: number; end: number },
): [number, number] | null {
  if (!(end > start) || from > end - start + ROUNDING_SECONDS) return null
  return [milli(Math.min(start + from, end)), milli(Math.min(start + to, end))]
}

/** A number of seconds to a millisecond: sums of binary fractions would show their rounding. */
export function milli(seconds: number): number {
  return Math.round(seconds * 1000) / 1000
}
