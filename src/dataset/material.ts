/**
 * What a data set's folder tells about clips, apart from the questions: dialogue, descriptions, videos, frames, durations.
 *
 * Reads every such file once and answers per clip. Does not know questions, and does not look inside videos.
 */
import { readdir } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import type { FrameSource, Result, SubtitleLine, VisualDescription } from '../types.ts'
import { failed, fileFailure } from './failure.ts'
import { isObject, type JsonObject, readJson } from './json.ts'
import { type ClipName, parseClipName } from './names.ts'
import { parseClipText, parsePreprocessed, parseSrt } from './subtitles.ts'
import { readText } from './text.ts'

/** TVQA's frames were cut at this rate: frame n is at (n - 1) / 3 seconds. */
export const TVQA_FRAMES_PER_SECOND = 3

export interface ClipMaterial {
  subtitles: readonly SubtitleLine[]
  source: FrameSource
  /** Seconds; null when no file tells. */
  duration: number | null
}

export interface Material {
  /** Every clip that some file names, by episode. */
  clipsOf: ReadonlyMap<string, ReadonlySet<string>>
  /** Episodes whose whole clip list is known, because `clips.json` gives it. */
  complete: ReadonlySet<string>
  /** Reads what belongs to one clip. Fails when one of its files is broken. */
  read(clip: ClipName): Promise<Result<ClipMaterial>>
  /** What was read in another way than usual, for the user; grows with `read`. */
  notes(): string[]
}

export interface VideoSpan {
  /** Absolute. */
  path: string
  start: number
  end: number
}

/** Finds and reads the clip files of a folder. Fails with the first broken file. */
export async function readMaterial(directory: string): Promise<Result<Material>> {
  let names: string[]
  try {
    names = (await readdir(directory)).sort()
  } catch (error) {
    return fileFailure(directory, error)
  }
  const matching = (pattern: RegExp) => names.filter((name) => pattern.test(name)).map((name) => join(directory, name))

  const text = await readAll(matching(/subtitles?_clip_level.*\.jsonl?$/i), readClipText)
  if (!text.ok) return text
  const preprocessed = await readAll(matching(/preprocessed_subtitles?.*\.jsonl?$/i), readPreprocessed)
  if (!preprocessed.ok) return preprocessed
  const descriptions = await readAll(matching(/^visual_descriptions\.jsonl?$/i), readDescriptions)
  if (!descriptions.ok) return descriptions
  const videos = await readAll(matching(/^clips\.json$/), (path) => readVideoSpans(path, directory))
  if (!videos.ok) return videos
  const durations = await readAll(matching(/video2dur.*\.json$/i), readDurations)
  if (!durations.ok) return durations

  const srt = new Map(
    (await list(join(directory, 'subtitles')))
      .filter((name) => /\.srt$/i.test(name))
      .map((name) => [name.slice(0, -4), join(directory, 'subtitles', name)]),
  )
  const frames = new Map<string, string>()
  for (const folder of names.filter((name) => /^(?:[a-z0-9]+_)?frames$/i.test(name))) {
    for (const clip of await list(join(directory, folder))) frames.set(clip, join(directory, folder, clip))
  }

  const clipsOf = new Map<string, Set<string>>()
  for (const source of [
    text.value,
    preprocessed.value,
    descriptions.value,
    videos.value,
    durations.value,
    srt,
    frames,
  ]) {
    for (const id of source.keys()) {
      const clip = parseClipName(id)
      if (!clip) continue // folders may hold other things than clips
      const known = clipsOf.get(clip.episodeId) ?? new Set()
      clipsOf.set(clip.episodeId, known.add(id))
    }
  }
  const complete = new Set([...videos.value.keys()].flatMap((id) => parseClipName(id)?.episodeId ?? []))

  const recoded = new Map<string, number>()
  const subtitlesOf = async (id: string): Promise<Result<readonly SubtitleLine[]>> => {
    const path = srt.get(id)
    if (path === undefined) return { ok: true, value: preprocessed.value.get(id) ?? text.value.get(id) ?? [] }
    const read = await readText(path)
    if (!read.ok) return read
    if (read.value.encoding !== 'UTF-8') recoded.set(read.value.encoding, (recoded.get(read.value.encoding) ?? 0) + 1)
    return parseSrt(read.value.text, path)
  }
  const read = async (clip: ClipName): Promise<Result<ClipMaterial>> => {
    const subtitles = await subtitlesOf(clip.id)
    if (!subtitles.ok) return subtitles
    const video = videos.value.get(clip.id)
    const folder = frames.get(clip.id)
    const pictures =
      folder === undefined ? 0 : (await list(folder)).filter((name) => /^\d+\.(jpe?g|png)$/i.test(name)).length
    const lines = descriptions.value.get(clip.id)
    const source: FrameSource = video
      ? { kind: 'video', path: video.path, offset: video.start, duration: video.end - video.start }
      : folder !== undefined && pictures > 0
        ? { kind: 'frames', directory: folder, fps: TVQA_FRAMES_PER_SECOND, count: pictures }
        : lines
          ? { kind: 'descriptions', lines }
          : { kind: 'none' }
    const duration =
      source.kind === 'video'
        ? source.duration
        : (durations.value.get(clip.id) ?? (pictures > 0 ? pictures / TVQA_FRAMES_PER_SECOND : null))
    return { ok: true, value: { subtitles: subtitles.value, source, duration } }
  }
  const notes = () =>
    [...recoded].map(
      ([encoding, count]) => `${count} subtitle file${count > 1 ? 's were' : ' was'} read as ${encoding}, not UTF-8`,
    )
  return { ok: true, value: { clipsOf, complete, read, notes } }
}

/** Names in a folder; none when it does not exist. */
async function list(directory: string): Promise<string[]> {
  return readdir(directory).catch(() => [])
}

/** Merges the maps of several files; later files win. */
async function readAll<T>(
  paths: readonly string[],
  read: (path: string) => Promise<Result<Map<string, T>>>,
): Promise<Result<Map<string, T>>> {
  const all = new Map<string, T>()
  for (const path of paths) {
    const one = await read(path)
    if (!one.ok) return one
    for (const [key, value] of one.value) all.set(key, value)
  }
  return { ok: true, value: all }
}

/** The one object of a file, however it is laid out. */
async function readObject(path: string): Promise<Result<JsonObject>> {
  const read = await readJson(path)
  if (!read.ok) return read
  if (read.value.form === 'object') return { ok: true, value: read.value.value }
  // one object per line, or an array of them: {"clip": value}
  const rows = read.value.rows
  if (rows.every(isObject)) return { ok: true, value: Object.assign({}, ...rows) as JsonObject }
  return failed(
    'bad_file',
    `${path}: expected an object from clip names, got ${read.value.form === 'array' ? 'an array' : 'lines'} of something else`,
  )
}

async function readClipText(path: string): Promise<Result<Map<string, SubtitleLine[]>>> {
  return mapClips(path, (value) => (typeof value === 'string' ? parseClipText(value) : null), 'text')
}

async function readDescriptions(path: string): Promise<Result<Map<string, VisualDescription[]>>> {
  return mapClips(path, parseDescriptions, '[{start, end, text}]')
}

/** null when it is no `[{start, end, text}]`. */
export function parseDescriptions(value: unknown): VisualDescription[] | null {
  const isLine = (line: unknown): line is VisualDescription =>
    isObject(line) && typeof line.start === 'number' && typeof line.end === 'number' && typeof line.text === 'string'
  return Array.isArray(value) && value.every(isLine)
    ? value.map(({ start, end, text }) => ({ start, end, text: text.trim() }))
    : null
}

async function readVideoSpans(path: string, directory: string): Promise<Result<Map<string, VideoSpan>>> {
  return mapClips(path, (value) => parseVideoSpan(value, directory), '{video, start, end} with 0 <= start < end')
}

/** A span of a video file, whose path is relative to `directory`; null when it is no `{video, start, end}`. */
export function parseVideoSpan(value: unknown, directory: string): VideoSpan | null {
  return isObject(value) &&
    typeof value.video === 'string' &&
    typeof value.start === 'number' &&
    typeof value.end === 'number' &&
    value.end > value.start &&
    value.start >= 0
    ? { path: resolve(directory, value.video), start: value.start, end: value.end }
    : null
}

/** Values of an object from clip names; anything that is no clip, or whose value has another form, is a failure. */
async function mapClips<T>(
  path: string,
  parse: (value: unknown) => T | null,
  form: string,
): Promise<Result<Map<string, T>>> {
  const read = await readObject(path)
  if (!read.ok) return read
  const clips = new Map<string, T>()
  for (const [id, value] of Object.entries(read.value)) {
    if (!parseClipName(id)) return failed('bad_file', `${path}: "${id}" is no clip name`)
    const parsed = parse(value)
    if (parsed === null)
      return failed('bad_file', `${path}: ${id}: expected ${form}, got ${JSON.stringify(value)?.slice(0, 60)}`)
    clips.set(id, parsed)
  }
  return { ok: true, value: clips }
}

async function readPreprocessed(path: string): Promise<Result<Map<string, SubtitleLine[]>>> {
  const read = await readJson(path)
  if (!read.ok) return read
  const rows = read.value.form === 'object' ? [read.value.value] : read.value.rows
  const clips = new Map<string, SubtitleLine[]>()
  for (const [i, row] of rows.entries()) {
    const lines = isObject(row) ? parsePreprocessed(row.sub) : null
    if (!isObject(row) || typeof row.vid_name !== 'string' || !lines) {
      return failed(
        'bad_file',
        `${basename(path)} row ${i + 1}: expected {vid_name, sub: [{text, start, end}]}, got ${JSON.stringify(row)?.slice(0, 60)}`,
      )
    }
    clips.set(row.vid_name, lines)
  }
  return { ok: true, value: clips }
}

/** TVR's table `{split: {clip: [seconds, index]}}`. */
async function readDurations(path: string): Promise<Result<Map<string, number>>> {
  const read = await readObject(path)
  if (!read.ok) return read
  const clips = new Map<string, number>()
  for (const [split, table] of Object.entries(read.value)) {
    if (!isObject(table))
      return failed('bad_file', `${path}: ${split}: expected an object from clips to [seconds, index]`)
    for (const [id, entry] of Object.entries(table)) {
      const seconds = Array.isArray(entry) ? entry[0] : entry
      if (typeof seconds !== 'number' || !(seconds > 0))
        return failed(
          'bad_file',
          `${path}: ${id}: expected [seconds, index], got ${JSON.stringify(entry)?.slice(0, 60)}`,
        )
      clips.set(id, seconds)
    }
  }
  return { ok: true, value: clips }
}
