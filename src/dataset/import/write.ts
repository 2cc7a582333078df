/**
 * `dataset import`: raw TVQA, TVQA+, LongTVQA and LongTVQA+ files, with subtitles, durations, frames and videos, become one data set of
 * whole episodes (layout.ts).
 *
 * In stages, each of which leaves whole files and a note that says so; an import that was killed goes on with the first stage that has
 * no note, and its result is the same byte for byte. Pictures stay where they are. The prober of videos comes in as an argument, since
 * this room does not know video.
 */
import { createHash } from 'node:crypto'
import { mkdir, readdir, rm } from 'node:fs/promises'
import { join, relative, resolve } from 'node:path'
import type { FrameSource, Result } from '../../types.ts'
import { failed, fileFailure } from '../failure.ts'
import { openLineFile, readOrNull, writeWhole } from '../files.ts'
import { type DatasetMarker, type EpisodeLine, LAYOUT, LAYOUT_VERSION, paths, WORK_FOLDER } from '../layout.ts'
import type { ImportOptions } from '../options.ts'
import { type ClipIndex, indexClips } from './clips.ts'
import { type Finding, Findings } from './findings.ts'
import { findInputs, type Inputs, type Override, readOverride } from './inputs.ts'
import { lookAtPictures, type Probe } from './pictures.ts'
import { takenQids, type WrittenSplit, writeSplit } from './questions.ts'
import type { ImportReport } from './report.ts'
import { openTexts, readDescriptions, readSubtitles, type TextReader } from './text.ts'
import { type PlannedEpisode, planEpisodes } from './timeline.ts'

export interface ImportArguments extends ImportOptions {
  probe: Probe
  /** Where the import tells how far it is; `Progress` of the command line is one. */
  progress?: { stage(name: string, total?: number): void; to(count: number): void }
  signal?: AbortSignal
}

/** `written`: false when the same data set was there already. */
export interface Imported {
  written: boolean
  report: ImportReport
}

const SILENT = { stage: () => undefined, to: () => undefined }

/**
 * Fails with `missing_file` or `bad_file` naming the file and row that is damaged, the input that is missing or not known, or what else
 * is in `out`; with `disk_full`; with `cancelled`, after which the same call goes on.
 */
export async function importDataset({
  inputs: given,
  out,
  as,
  untimed,
  probe,
  progress = SILENT,
  signal,
}: ImportArguments): Promise<Result<Imported>> {
  const overrides: Override[] = []
  for (const words of as) {
    const override = readOverride(words)
    if (!override.ok) return override
    overrides.push(override.value)
  }
  progress.stage('looking through the inputs')
  const found = await findInputs(given, overrides, out)
  if (!found.ok) return found
  const inputs = found.value
  const unfit = whatIsMissing(inputs, untimed)
  if (unfit !== null) return failed('missing_file', unfit)

  const to = paths(out)
  try {
    const identity = identityOf(inputs, out, untimed)
    const before = await stateOf(out, identity)
    if (typeof before === 'string')
      return failed('bad_file', `${out}: ${before}; delete that folder or choose another --out`)
    if (before) return { ok: true, value: { written: false, report: before } }
    for (const folder of [to.work, join(out, 'questions'), join(out, 'gold')]) await mkdir(folder, { recursive: true })
    // a crash may have left a file that was not whole yet
    for (const name of await readdir(out)) if (name.endsWith('.partial')) await rm(join(out, name))
    await writeWhole(join(to.work, PLAN), identity)
    const texts = openTexts()
    try {
      const report = await runStages({ inputs, out, untimed, texts, probe, progress, signal, identity })
      if (!report.ok) return report
      return { ok: true, value: { written: true, report: report.value } }
    } finally {
      await texts.close()
    }
  } catch (error) {
    return fileFailure(out, error)
  }
}

const PLAN = 'plan.json'

interface Run {
  inputs: Inputs
  out: string
  untimed: boolean
  texts: TextReader
  probe: Probe
  progress: NonNullable<ImportArguments['progress']>
  signal: AbortSignal | undefined
  identity: string
}

async function runStages(run: Run): Promise<Result<ImportReport>> {
  const { inputs, out, untimed, texts, probe, progress, signal, identity } = run
  const to = paths(out)
  const findings = new Findings()

  progress.stage('reading clips (MB)', megabytes(inputs.files.reduce((sum, file) => sum + file.bytes, 0)))
  const onBytes = (done: number) => progress.to(megabytes(done))
  const indexed = await indexClips(inputs, findings, { onBytes, signal })
  if (!indexed.ok) return indexed
  const index = indexed.value

  const { folders, videos } = pathsOfPictures(index, inputs)
  if (folders.length + videos.length > 0) progress.stage('looking at frames and videos', folders.length + videos.length)
  const journal = join(to.work, 'pictures.jsonl')
  const looked = await lookAtPictures(folders, videos, journal, probe, (done) => progress.to(done), signal)
  if (!looked.ok) return looked

  const planned = await planEpisodes(index, inputs, looked.value, texts, findings)
  if (!planned.ok) return planned
  const episodes = planned.value
  const timed = [...episodes.values()].filter((episode) => episode.timed).length
  if (timed === 0 && !untimed) {
    const first = findings.list().find((finding) => finding.reason === 'clip/no-duration')?.examples[0]
    return failed(
      'bad_file',
      `durations of ${index.durations.size} clips were found, but in none of the ${episodes.size} episodes of the questions is every clip's known (first without: ${first?.where}); give the table that belongs to these questions, or --untimed to import without timelines`,
    )
  }

  progress.stage('writing episodes', episodes.size)
  const wroteEpisodes = await stage(to.work, 'episodes', () => writeEpisodes(episodes, index, run))
  if (!wroteEpisodes.ok) return wroteEpisodes
  findings.include(wroteEpisodes.value.findings)

  const questionFiles = inputs.files.filter((file) => file.kind === 'questions')
  const splits = new Map<string, WrittenSplit>()
  const taken = takenQids()
  for (const split of [...new Set(questionFiles.map((file) => file.split as string))].sort()) {
    const files = questionFiles.filter((file) => file.split === split)
    progress.stage(`writing questions of ${split}`)
    const qids = join(to.work, `qids-${split}.jsonl`)
    let fresh = false
    const written = await stage(to.work, `split-${split}`, async () => {
      fresh = true
      taken.begin()
      const result = await writeSplit({
        split,
        files,
        episodes,
        taken,
        to,
        onRows: (done) => progress.to(done),
        signal,
      })
      if (!result.ok) return result
      const lines = await openLineFile(qids)
      for (const line of taken.lines()) await lines.write(line)
      await lines.finish()
      return result
    })
    if (!written.ok) return written
    if (!fresh) await taken.load(qids)
    splits.set(split, written.value)
    findings.include(written.value.findings)
  }

  const report = reportOf(inputs, splits, episodes, timed, findings.list())
  await writeWhole(to.report, `${JSON.stringify(report, null, 2)}\n`)
  const marker: DatasetMarker = {
    layout: LAYOUT,
    version: LAYOUT_VERSION,
    inputs: identity,
    splits: report.splits,
    episodes: report.episodes.written,
    clips: report.episodes.clips,
    notes: report.findings.map(({ count, meaning, effect }) => `import ${effect} ${count}: ${meaning}`),
  }
  await writeWhole(to.marker, `${JSON.stringify(marker, null, 2)}\n`)
  await rm(to.work, { recursive: true })
  return { ok: true, value: report }
}

const megabytes = (bytes: number) => Math.ceil(bytes / 1e6)

/** Runs a stage unless its note is there, and writes the note when its files are whole. */
async function stage<T>(work: string, name: string, run: () => Promise<Result<T>>): Promise<Result<T>> {
  const path = join(work, `${name}.json`)
  const note = await readOrNull(path)
  if (note !== null) return { ok: true, value: JSON.parse(note) as T }
  const result = await run()
  if (result.ok) await writeWhole(path, JSON.stringify(result.value))
  return result
}

async function writeEpisodes(
  episodes: ReadonlyMap<string, PlannedEpisode>,
  index: ClipIndex,
  { inputs, out, texts, progress, signal }: Run,
): Promise<Result<{ findings: Finding[] }>> {
  const findings = new Findings()
  const file = await openLineFile(paths(out).episodes)
  let done = 0
  const write = async (episode: PlannedEpisode): Promise<Result<void>> => {
    const line: EpisodeLine = { id: episode.id, show: episode.show, clips: [] }
    for (const { id, start, end, source } of episode.clips) {
      const subtitles = await readSubtitles(episode.id, id, inputs.srt.get(id), index, texts, findings)
      if (!subtitles.ok) return subtitles
      const descriptions = source.kind === 'none' ? await readDescriptions(id, index, texts, findings) : null
      if (descriptions && !descriptions.ok) return descriptions
      const pictures = descriptions?.value ? { kind: 'descriptions' as const, lines: descriptions.value } : source
      line.clips.push({ id, start, end, subtitles: subtitles.value, source: relativeTo(out, pictures) })
    }
    await file.write(JSON.stringify(line))
    return { ok: true, value: undefined }
  }
  for (const episode of episodes.values()) {
    const written: Result<void> = signal?.aborted
      ? failed('cancelled', `stopped after ${done} of ${episodes.size} episodes; run the same command again to go on`)
      : await write(episode)
    if (!written.ok) {
      await file.abandon()
      return written
    }
    progress.to(++done)
  }
  await file.finish()
  return { ok: true, value: { findings: findings.list() } }
}

/** A data set and its pictures can be moved together. */
function relativeTo(out: string, source: FrameSource): FrameSource {
  const from = (path: string) => relative(resolve(out), resolve(path))
  if (source.kind === 'video') return { ...source, path: from(source.path) }
  return source.kind === 'frames' ? { ...source, directory: from(source.directory) } : source
}

/** What is there of the episodes that questions are about. */
function pathsOfPictures(index: ClipIndex, inputs: Inputs): { folders: string[]; videos: string[] } {
  const clips = [...index.episodes.values()].flatMap((ids) => [...ids])
  const pick = (ids: Iterable<string>, map: ReadonlyMap<string, string>) => [...ids].flatMap((id) => map.get(id) ?? [])
  return {
    folders: pick(clips, inputs.frames),
    videos: [...pick(clips, inputs.clipVideos), ...pick(index.episodes.keys(), inputs.episodeVideos)],
  }
}

/** What the inputs lack to make a data set at all; null when nothing. */
function whatIsMissing(inputs: Inputs, untimed: boolean): string | null {
  const kinds = [
    ...inputs.files.map((file) => `${file.kind} (${file.path})`),
    ...(
      [
        ['subtitle files', inputs.srt],
        ['frame folders', inputs.frames],
        ['videos', inputs.clipVideos],
      ] as const
    ).flatMap(([name, map]) => (map.size > 0 ? [`${map.size} ${name}`] : [])),
  ]
  const found = kinds.length === 0 ? 'nothing' : kinds.slice(0, 6).join(', ')
  const unread = inputs.unused[0] ? `; not read, for one: ${inputs.unused[0].path} (${inputs.unused[0].why})` : ''
  if (!inputs.files.some((file) => file.kind === 'questions')) {
    return `no questions among the inputs: expected a file of rows with qid, q, a0..a4, found ${found}${unread}; name one, or say which it is with --as questions:SPLIT=FILE`
  }
  const timed = inputs.files.some((file) => file.kind === 'durations' || file.kind === 'video-spans')
  if (timed || untimed || inputs.frames.size + inputs.clipVideos.size > 0) return null
  return `no durations among the inputs: expected TVR's tvr_video2dur_idx.json, frame folders or videos of the clips, found ${found}${unread}; add one, or pass --untimed to import without the episodes' timelines`
}

/** Equal for equal inputs, as far as names, sizes and times tell. Paths are relative: moving all together changes nothing. */
function identityOf(inputs: Inputs, out: string, untimed: boolean): string {
  const from = (path: string) => relative(resolve(out), resolve(path))
  const all = {
    version: LAYOUT_VERSION,
    untimed,
    files: inputs.files.map(({ path, kind, split, bytes, modified }) => [from(path), kind, split, bytes, modified]),
    others: [inputs.srt, inputs.frames, inputs.clipVideos, inputs.episodeVideos].map((map) =>
      [...map].map(([id, path]) => [id, from(path)]),
    ),
  }
  return createHash('sha256').update(JSON.stringify(all)).digest('hex')
}

/** The report of the same data set, whole; null when it is to be written; else, what `out` holds instead. */
async function stateOf(out: string, identity: string): Promise<ImportReport | string | null> {
  const to = paths(out)
  const marker = await readOrNull(to.marker)
  if (marker !== null) {
    const found = JSON.parse(marker) as Partial<DatasetMarker>
    if (found.layout !== LAYOUT) return 'holds a data set that was not imported'
    if (found.inputs !== identity)
      return 'holds a data set imported from other inputs, or from inputs that changed since'
    const report = await readOrNull(to.report)
    await rm(to.work, { recursive: true, force: true })
    return report === null ? 'lacks its import-report.json' : (JSON.parse(report) as ImportReport)
  }
  const plan = await readOrNull(join(to.work, PLAN))
  if (plan !== null)
    return plan === identity ? null : 'holds an unfinished import of other inputs, or of inputs that changed since'
  const strange = (await readdir(out).catch(() => [])).filter((name) => name !== WORK_FOLDER)
  return strange.length === 0 ? null : `is not empty (${strange.slice(0, 3).join(', ')})`
}

function reportOf(
  inputs: Inputs,
  splits: ReadonlyMap<string, WrittenSplit>,
  episodes: ReadonlyMap<string, PlannedEpisode>,
  timed: number,
  findings: Finding[],
): ImportReport {
  const rows = new Map([...splits.values()].flatMap(({ files }) => files.map((file) => [file.path, file] as const)))
  return {
    inputs: inputs.files.map(({ path, kind, split, format }) => {
      const read = rows.get(path)
      return { path, kind, ...(read ? { split, format, rows: read.rows, kept: read.kept } : {}) }
    }),
    subtitleFiles: inputs.srt.size,
    frameFolders: inputs.frames.size,
    videos: inputs.clipVideos.size + inputs.episodeVideos.size,
    unused: inputs.unused,
    splits: Object.fromEntries([...splits].map(([split, { counts }]) => [split, counts])),
    episodes: {
      written: episodes.size,
      timed,
      clips: [...episodes.values()].reduce((sum, episode) => sum + episode.clips.length, 0),
    },
    findings,
  }
}
