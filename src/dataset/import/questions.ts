/**
 * Writes the questions of one split: public lines, gold lines and boxes side by side, row by row as they are read. A row that cannot be
 * used is a finding, not a failure; a file that stops being JSON is a failure. Does not decide which clips there are.
 */
import { createHash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { createInterface } from 'node:readline'
import type { Result } from '../../types.ts'
import { failed, fileFailure } from '../failure.ts'
import { type LineFile, openLineFile } from '../files.ts'
import { goldOf, milli, onEpisode, ROUNDING_SECONDS } from '../gold.ts'
import type { BoxesLine, GoldLine, paths, QuestionLine, SplitCounts } from '../layout.ts'
import { showOfTitle } from '../names.ts'
import { publicQuestion } from '../question.ts'
import { describe, type Row, readRow } from '../rows.ts'
import { readItems } from '../stream.ts'
import { readBoxes } from './boxes.ts'
import { type Finding, Findings } from './findings.ts'
import type { InputFile } from './inputs.ts'
import type { PlannedClip, PlannedEpisode } from './timeline.ts'

export interface WrittenSplit {
  counts: SplitCounts
  /** Rows of each file, and how many of them became questions. */
  files: { path: string; rows: number; kept: number }[]
  findings: Finding[]
}

/** Which qids were written, in this split and the ones before it: what makes "nothing twice" true. */
export interface Taken {
  has(qid: string, content: string): { file: string; same: boolean } | null
  add(qid: string, content: string, file: string): void
  /** Lines that `load` reads. */
  lines(): Iterable<string>
  load(path: string): Promise<void>
  /** Forgets which qids are new since the last call of `begin`, so that `lines` gives only later ones. */
  begin(): void
}

export function takenQids(): Taken {
  const entries = new Map<string, number>()
  const hashes: number[] = []
  const files: number[] = []
  const names: string[] = []
  let first = 0
  // 48 bits of a hash: two rows of one qid that differ are taken for equal once in 2.8e14
  const hash = (content: string) => createHash('sha1').update(content).digest().readUIntBE(0, 6)
  const put = (qid: string, hashed: number, file: string) => {
    let name = names.indexOf(file)
    if (name < 0) name = names.push(file) - 1
    entries.set(qid, hashes.length)
    hashes.push(hashed)
    files.push(name)
  }
  return {
    has(qid, content) {
      const entry = entries.get(qid)
      if (entry === undefined) return null
      return { file: names[files[entry] as number] as string, same: hashes[entry] === hash(content) }
    },
    add: (qid, content, file) => put(qid, hash(content), file),
    begin() {
      first = entries.size
    },
    *lines() {
      for (const [qid, entry] of entries)
        if (entry >= first) yield JSON.stringify([qid, hashes[entry], names[files[entry] as number]])
    },
    async load(path) {
      for await (const line of createInterface({ input: createReadStream(path) })) {
        const [qid, hashed, file] = JSON.parse(line) as [string, number, string]
        put(qid, hashed, file)
      }
    },
  }
}

export interface SplitArguments {
  split: string
  files: readonly InputFile[]
  episodes: ReadonlyMap<string, PlannedEpisode>
  taken: Taken
  to: ReturnType<typeof paths>
  /** Called now and then with the rows read so far. */
  onRows(done: number): void
  signal?: AbortSignal
}

/** Fails as `readItems` does, with `disk_full`, or `cancelled`; then nothing of the split is there. */
export async function writeSplit(args: SplitArguments): Promise<Result<WrittenSplit>> {
  const { split, to } = args
  const lines: LineFile[] = []
  try {
    for (const path of [to.questions(split), to.gold(split), to.boxes(split)]) lines.push(await openLineFile(path))
    const [questions, gold, boxes] = lines as [LineFile, LineFile, LineFile]
    const written = await writeRows(args, questions, gold, boxes)
    if (!written.ok || written.value.counts.boxes === 0) await boxes.abandon()
    else await boxes.finish()
    for (const file of [questions, gold]) await (written.ok ? file.finish() : file.abandon())
    return written
  } catch (error) {
    for (const file of lines) await file.abandon().catch(() => undefined)
    return fileFailure(to.questions(split), error)
  }
}

async function writeRows(
  { split, files, episodes, taken, onRows, signal }: SplitArguments,
  questions: LineFile,
  gold: LineFile,
  boxes: LineFile,
): Promise<Result<WrittenSplit>> {
  const findings = new Findings()
  const counts: SplitCounts = {
    formats: [...new Set(files.flatMap((file) => file.format ?? []))].sort(),
    questions: 0,
    answered: 0,
    spans: 0,
    zeroLength: 0,
    questionsWithBoxes: 0,
    framesWithBoxes: 0,
    boxes: 0,
  }
  const perFile: WrittenSplit['files'] = []
  let done = 0
  for (const file of files) {
    const own = { path: file.path, rows: 0, kept: 0 }
    perFile.push(own)
    for await (const item of readItems(file.path, file.form)) {
      if (!item.ok) return item
      own.rows++
      if (++done % 500 === 0) {
        onRows(done)
        if (signal?.aborted)
          return failed('cancelled', `stopped after ${done} rows of ${split}; run the same command again to go on`)
      }
      const lines = linesOf(
        item.value.value,
        `${file.path} ${item.value.place}`,
        split,
        file.path,
        episodes,
        taken,
        findings,
      )
      if (!lines) continue
      own.kept++
      counts.questions++
      if (lines.gold.answer !== null) counts.answered++
      if (lines.gold.ts) counts.spans++
      if (lines.gold.ts && lines.gold.ts[0] === lines.gold.ts[1]) counts.zeroLength++
      await questions.write(JSON.stringify(lines.question))
      await gold.write(JSON.stringify(lines.gold))
      const pictures = Object.values(lines.boxes)
      if (pictures.length === 0) continue
      counts.questionsWithBoxes++
      counts.framesWithBoxes += pictures.length
      counts.boxes += pictures.reduce((sum, list) => sum + list.length, 0)
      await boxes.write(JSON.stringify({ qid: lines.question.qid, boxes: lines.boxes } satisfies BoxesLine))
    }
  }
  onRows(done)
  return { ok: true, value: { counts, files: perFile, findings: findings.list() } }
}

/** What becomes of one row; null, with a finding, when nothing does. */
function linesOf(
  value: unknown,
  place: string,
  split: string,
  file: string,
  episodes: ReadonlyMap<string, PlannedEpisode>,
  taken: Taken,
  findings: Findings,
): { question: QuestionLine; gold: GoldLine; boxes: BoxesLine['boxes'] } | null {
  const row = readRow(value, place, split)
  if (!row.ok) return dropped(row, findings, place)
  const { fields, qid, clip, episodeId, where } = row.value
  const title = typeof fields.show_name === 'string' ? showOfTitle(fields.show_name) : null
  if (title !== null && clip && title !== clip.show) {
    findings.add('row/show', where, `${describe(fields.show_name)} with clip ${clip.id}`)
    return null
  }
  const question = publicQuestion(row.value)
  if (!question.ok) return dropped(question, findings, where)
  const secret = goldAndSpan(row.value, findings)
  if (!secret) return null
  const episode = episodes.get(episodeId)
  const planned = clip && episode?.clips.find((one) => one.id === clip.id)
  if (!episode || (clip && !planned)) {
    findings.add(
      'row/unknown-clip',
      where,
      `${clip?.id}; the other inputs list ${episode?.clips.length} clips of ${episodeId}`,
    )
    return null
  }
  const { text, options } = question.value
  const { gold, span } = secret
  const content = JSON.stringify([text, options, clip?.id, gold?.answer, gold?.kind, span])
  const earlier = taken.has(qid, content)
  if (earlier) {
    findings.add(earlier.same ? 'row/repeated' : 'row/qid-taken', where, `${earlier.file} has it`)
    return null
  }
  taken.add(qid, content, file)

  if (span && span[0] === span[1]) findings.add('span/zero-length', where, `${span[0]} s`)
  const duration = planned && episode.timed ? milli(planned.end - planned.start) : null
  return {
    question: { qid, episode: episodeId, q: text, options },
    gold: {
      qid,
      answer: gold?.answer ?? null,
      clip: clip?.id ?? null,
      ts: span,
      episodeTs: span && planned && episode.timed ? placeSpan(span, planned, where, findings) : null,
      ...(gold?.kind ? { kind: gold.kind } : {}),
    },
    boxes: readBoxes(fields.bbox, where, duration, findings),
  }
}

function dropped(fault: Exclude<ReturnType<typeof readRow>, { ok: true }>, findings: Findings, where: string): null {
  // the message begins with the place
  const detail = fault.failure.message.startsWith(where)
    ? fault.failure.message.slice(where.length)
    : fault.failure.message
  if (fault.fault !== 'span') findings.add(`row/${fault.fault}`, where, detail.replace(/^[^:]*: /, ''))
  return null
}

/** The row's gold; a span that cannot be read costs the span, not the question. */
function goldAndSpan(row: Row, findings: Findings) {
  const read = goldOf(row)
  if (read.ok) {
    const { unusableSpan } = read.value
    if (unusableSpan) findings.add(`span/${unusableSpan}`, row.where, `ts ${describe(row.fields.ts)}`)
    return read.value
  }
  if (read.fault !== 'span') return dropped(read, findings, row.where)
  findings.add('span/format', row.where, `ts ${describe(row.fields.ts)}`)
  const without = goldOf({ ...row, fields: { ...row.fields, ts: null } })
  return without.ok ? without.value : dropped(without, findings, row.where)
}

/** The span on the episode's timeline, with what was cut. */
function placeSpan(span: readonly [number, number], clip: PlannedClip, where: string, findings: Findings) {
  const placed = onEpisode(span, clip)
  const length = milli(clip.end - clip.start)
  const detail = `ts ${span[0]} to ${span[1]} s, the clip has ${length} s`
  if (!placed) findings.add('span/outside', where, detail)
  else if (span[1] > length + ROUNDING_SECONDS) findings.add('span/past-end', where, detail)
  return placed
}
