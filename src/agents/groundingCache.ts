/**
 * Answers of a grounding agent kept in a file, one per question, for the clip of the first message: made once by `showrunner ground`,
 * then the same for every run (spec longvideoagent.md, sections 1.3 and 1.6, row 11).
 *
 * Written as JSON lines, keyed by qid, added to and never changed: a later row of a question replaces an earlier one, and what a crash
 * cut short is skipped. Files of the released code are read too: one object of rows under running numbers, found by the question's text
 * and a clip of its episode; the clip of the evidence that stands in them is not read.
 */
import { type FileHandle, mkdir, open, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { z } from 'zod'
import type { FailureKind, GroundingAgent, GroundingRequest, Result } from '../types.ts'
import { failed, reasonOf } from './failure.ts'
import { normaliseClipLabel } from './groundingEndpoint.ts'
import { oneCall } from './usage.ts'

const row = z.object({
  qid: z.string(),
  /** empty: the agent answered and named no clip of the episode; error: it could not be asked. */
  status: z.enum(['ok', 'empty', 'error']),
  clip: z.string().nullable(),
  /** The agent's words, or what went wrong. */
  reason: z.string(),
  agent: z.string(),
})

export type GroundingRow = z.infer<typeof row>

const releasedRow = z.object({
  question: z.string(),
  clip: z.string().nullish(),
  status: z.enum(['ok', 'empty_clip', 'error']).default('ok'),
})

/** What a file holds, ready to be asked. */
interface Rows {
  form: 'own' | 'released'
  find(request: Pick<GroundingRequest, 'episode' | 'question'>): Pick<GroundingRow, 'status' | 'clip' | 'reason'> | null
  /** By qid; empty for the released form, which knows none. */
  statuses: ReadonlyMap<string, GroundingRow['status']>
}

/** The file is read at the first question. A question without a clip in it is a `bad_response`. */
export function openGroundingCache(path: string): GroundingAgent {
  let reading: Promise<Result<Rows>> | null = null
  return {
    name: `cache:${path}`,
    async ground({ episode, question }) {
      reading ??= readRows(path)
      const rows = await reading
      if (!rows.ok) return rows
      const found = rows.value.find({ episode, question })
      if (found === null)
        return failed(
          'grounding',
          'bad_response',
          `${path}: has no row for question ${question.qid}; run showrunner ground`,
        )
      const clipId = found.status === 'ok' && found.clip !== null ? normaliseClipLabel(found.clip, episode) : null
      if (clipId === null)
        return failed(
          'grounding',
          'bad_response',
          `${path}: expected a clip of ${episode.id} for question ${question.qid}, got status ${found.status} and clip ${found.clip}`,
        )
      return { ok: true, value: { clipId, reason: found.reason, usage: oneCall({ cached: 1 }) } }
    },
  }
}

/** Fails when the file cannot be read; to be asked before anything runs with it. */
export async function checkGroundingCache(path: string): Promise<Result<void>> {
  const rows = await readRows(path)
  return rows.ok ? { ok: true, value: undefined } : rows
}

/** Adds rows to a file. */
export interface GroundingWriter {
  /** By qid, as the file was when it was opened. */
  statuses: ReadonlyMap<string, GroundingRow['status']>
  append(row: GroundingRow): Promise<Result<void>>
  /** Flushes what was added. */
  close(): Promise<void>
}

/** Fails on files of the released code, which are not added to. */
export async function openGroundingWriter(path: string): Promise<Result<GroundingWriter>> {
  const rows = await readRows(path)
  if (!rows.ok && rows.failure.kind !== 'missing_file') return rows
  if (rows.ok && rows.value.form === 'released')
    return failed(
      'grounding',
      'bad_file',
      `${path}: is a cache of the released code, which is only read; name another file`,
    )
  let file: FileHandle
  let torn: boolean
  try {
    await mkdir(dirname(path), { recursive: true })
    torn = rows.ok && !(await readFile(path, 'utf8')).endsWith('\n')
    file = await open(path, 'a')
  } catch (error) {
    return failed('grounding', 'bad_file', `${path}: cannot be written: ${reasonOf(error)}; check the path`)
  }
  let last: Promise<unknown> = Promise.resolve()
  const write = async (added: GroundingRow): Promise<Result<void>> => {
    try {
      // a line that a crash cut short must not swallow the next one
      await file.appendFile(`${torn ? '\n' : ''}${JSON.stringify(row.parse(added))}\n`)
      torn = false
      return { ok: true, value: undefined }
    } catch (error) {
      torn = true
      const kind: FailureKind = (error as NodeJS.ErrnoException).code === 'ENOSPC' ? 'disk_full' : 'bad_file'
      return failed('grounding', kind, `${path}: cannot be written: ${reasonOf(error)}; what is in it stays`)
    }
  }
  return {
    ok: true,
    value: {
      statuses: rows.ok ? rows.value.statuses : new Map(),
      append(added) {
        const done = last.then(() => write(added))
        last = done
        return done
      },
      async close() {
        await last
        await file.sync()
        await file.close()
      },
    },
  }
}

async function readRows(path: string): Promise<Result<Rows>> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    const missing = (error as NodeJS.ErrnoException).code === 'ENOENT'
    return failed(
      'grounding',
      missing ? 'missing_file' : 'bad_file',
      `${path}: cannot read this grounding cache: ${reasonOf(error)}; make one with showrunner ground`,
    )
  }
  const released = releasedRows(text)
  if (released !== null) return { ok: true, value: released }
  const rows = new Map<string, GroundingRow>()
  const lines = text.split('\n')
  for (const [index, line] of lines.entries()) {
    if (line.trim() === '') continue
    const read = row.safeParse(parsed(line))
    if (read.success) rows.set(read.data.qid, read.data)
    // a crash cuts the end of a line off; what came after it began on a line of its own
    else if (parsed(line) !== undefined)
      return failed(
        'grounding',
        'bad_file',
        `${path}:${index + 1}: expected {"qid", "status", "clip", "reason", "agent"}, got ${line.slice(0, 80)}; delete the line`,
      )
  }
  return {
    ok: true,
    value: {
      form: 'own',
      find: ({ question }) => rows.get(question.qid) ?? null,
      statuses: new Map([...rows].map(([qid, { status }]) => [qid, status])),
    },
  }
}

/** null when the text is no such file. */
function releasedRows(text: string): Rows | null {
  const read = z.record(z.string().regex(/^\d+$/), releasedRow).safeParse(parsed(text))
  if (!read.success) return null
  const byText = new Map<string, z.infer<typeof releasedRow>[]>()
  for (const one of Object.values(read.data)) {
    const key = normalised(one.question)
    byText.set(key, [...(byText.get(key) ?? []), one])
  }
  return {
    form: 'released',
    find({ episode, question }) {
      const rows = byText.get(normalised(question.text)) ?? []
      // the same words are asked about many episodes
      const own = rows.find(({ clip }) => clip && normaliseClipLabel(clip, episode) !== null)
      if (own !== undefined) return { status: own.status === 'ok' ? 'ok' : 'error', clip: own.clip ?? null, reason: '' }
      const [other] = rows
      return other === undefined
        ? null
        : { status: other.status === 'error' ? 'error' : 'empty', clip: null, reason: '' }
    },
    statuses: new Map(),
  }
}

function normalised(question: string): string {
  return question.replace(/\s+/g, ' ').trim().toLowerCase()
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
