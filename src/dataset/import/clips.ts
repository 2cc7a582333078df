/**
 * Which clips there are, how long each is, and where its text stands: one pass over every input, remembering places instead of text.
 *
 * Reads of questions only which clip and episode they are about. Does not look into frame folders and videos (`pictures.ts`).
 */
import type { Result } from '../../types.ts'
import { failed } from '../failure.ts'
import { isObject } from '../json.ts'
import { parseClipName, parseEpisodeName } from '../names.ts'
import { publicQuestion } from '../question.ts'
import { describe, readRow } from '../rows.ts'
import { readItems } from '../stream.ts'
import type { Findings } from './findings.ts'
import type { InputFile, Inputs } from './inputs.ts'

/** Where a clip's or an episode's text stands. */
export interface Place {
  file: InputFile
  offset: number
  length: number
  /** File and row, for messages. */
  where: string
}

export interface ClipIndex {
  /** Episodes of questions, with every clip that any input names; where a table lists an episode's clips, questions add none. */
  episodes: Map<string, Set<string>>
  /** Seconds, from tables. */
  durations: Map<string, number>
  /** By clip. */
  preprocessed: Map<string, Place>
  text: Map<string, Place>
  descriptions: Map<string, Place>
  videoSpans: Map<string, Place>
  /** By episode. */
  episodeText: Map<string, Place>
}

export interface IndexProgress {
  /** Called after each file with the bytes read so far. */
  onBytes(done: number): void
  signal?: AbortSignal
}

/**
 * Fails as `readItems` does, and with `bad_file` for a question file without one usable row. Entries that cannot be used go to
 * `findings`.
 */
export async function indexClips(
  inputs: Inputs,
  findings: Findings,
  { onBytes, signal }: IndexProgress,
): Promise<Result<ClipIndex>> {
  const asked = new Map<string, Set<string>>()
  /** Clips of tables, which list an episode's clips; of anything else that names clips. */
  const listed = new Map<string, Set<string>>()
  const named = new Map<string, Set<string>>()
  const index = {
    durations: new Map<string, number>(),
    preprocessed: new Map<string, Place>(),
    text: new Map<string, Place>(),
    descriptions: new Map<string, Place>(),
    videoSpans: new Map<string, Place>(),
    episodeText: new Map<string, Place>(),
  }

  /** Notes the place of a clip's text. */
  const place = (map: Map<string, Place>, id: unknown, at: Place, clips: Map<string, Set<string>>) => {
    const clip = typeof id === 'string' ? parseClipName(id) : null
    if (!clip) return findings.add('clip/name', at.where, `got ${describe(id)}`)
    if (map.has(clip.id))
      return findings.add('text/twice', at.where, `${map.get(clip.id)?.where} has ${clip.id} already`)
    map.set(clip.id, at)
    gather(clips, clip.episodeId, clip.id)
  }

  const duration = (id: string, entry: unknown, where: string) => {
    const clip = parseClipName(id)
    if (!clip) return findings.add('clip/name', where, `got ${describe(id)}`)
    const seconds = Array.isArray(entry) ? (entry[0] as unknown) : entry
    if (typeof seconds !== 'number' || !(seconds > 0) || !Number.isFinite(seconds))
      return findings.add('duration/format', where, `${id}: expected [seconds, index], got ${describe(entry)}`)
    gather(listed, clip.episodeId, id)
    const known = index.durations.get(id)
    if (known === undefined) index.durations.set(id, seconds)
    else if (known !== seconds) findings.add('duration/conflict', where, `${id}: ${known} s before, ${seconds} s here`)
  }

  let bytes = 0
  for (const file of inputs.files) {
    if (signal?.aborted)
      return failed('cancelled', 'stopped while reading the inputs; run the same command again to go on')
    let rows = 0
    let usable = 0
    let firstFault = ''
    for await (const item of readItems(file.path, file.form)) {
      if (!item.ok) return item
      const { value, key, place: row, offset, length } = item.value
      const at: Place = { file, offset, length, where: `${file.path} ${row}` }
      rows++
      switch (file.kind) {
        case 'questions': {
          const read = readRow(value, at.where, '')
          const fault = !read.ok ? read : publicQuestion(read.value)
          if (!read.ok || !fault.ok) {
            firstFault ||= fault.ok ? '' : fault.failure.message
            break
          }
          usable++
          gather(asked, read.value.episodeId, read.value.clip?.id ?? null)
          break
        }
        case 'preprocessed-subtitles':
          place(index.preprocessed, isObject(value) ? value.vid_name : value, at, named)
          break
        case 'clip-text':
          place(index.text, key, at, named)
          break
        case 'descriptions':
          place(index.descriptions, key, at, named)
          break
        case 'video-spans':
          place(index.videoSpans, key, at, listed)
          break
        case 'episode-text':
          if (key === null || !parseEpisodeName(key) || typeof value !== 'string')
            findings.add('text/format', at.where, `expected an episode name with text, got ${describe(value)}`)
          else if (index.episodeText.has(key))
            findings.add('text/twice', at.where, `${index.episodeText.get(key)?.where} has ${key} already`)
          else {
            index.episodeText.set(key, at)
            for (const clip of clipsOfEpisodeText(key, value).keys()) gather(named, key, clip)
          }
          break
        case 'durations':
          if (key !== null && !isObject(value)) duration(key, value, at.where)
          else for (const [id, entry] of Object.entries(isObject(value) ? value : {})) duration(id, entry, at.where)
      }
    }
    if (rows === 0)
      return failed('bad_file', `${file.path}: holds no ${file.kind}; download the file again or leave it out`)
    if (file.kind === 'questions' && usable === 0) {
      return failed(
        'bad_file',
        `${file.path}: none of its ${rows} rows is a usable question, so it is probably another file; the first: ${firstFault}`,
      )
    }
    bytes += file.bytes
    onBytes(bytes)
  }
  for (const map of [inputs.srt, inputs.frames, inputs.clipVideos])
    for (const id of map.keys()) gather(named, parseClipName(id)?.episodeId as string, id)

  const episodes = new Map<string, Set<string>>()
  const fromQuestionsOnly = new Set<string>()
  for (const [id, clips] of asked) {
    const table = listed.get(id)
    const elsewhere = [...(table ?? []), ...(named.get(id) ?? [])]
    if (elsewhere.length === 0) fromQuestionsOnly.add(id)
    episodes.set(id, new Set([...elsewhere, ...(table ? [] : clips)]))
  }
  const unused = [...new Set([...listed.keys(), ...named.keys()])].filter((id) => !asked.has(id))
  if (unused.length > 0)
    findings.add(
      'episode/unused',
      'the inputs',
      `${unused.slice(0, 3).join(', ')}${unused.length > 3 ? ', ...' : ''}`,
      unused.length,
    )
  if (fromQuestionsOnly.size > 0) {
    const some = [...fromQuestionsOnly].slice(0, 3).join(', ')
    findings.add('clip/questions-only', 'the inputs', some, fromQuestionsOnly.size)
  }
  return { ok: true, value: { ...index, episodes } }
}

/** Clips of `<seg01_clip_00>text</seg01_clip_00>...`, by full name. Markers lack the episode's part. */
export function clipsOfEpisodeText(episodeId: string, text: string): Map<string, string> {
  const clips = new Map<string, string>()
  for (const [, name, inner] of text.matchAll(/<(seg\d{2}_clip_\d{2,3})>(.*?)<\/\1>/gs))
    clips.set(`${episodeId}_${name}`, inner as string)
  return clips
}

function gather(map: Map<string, Set<string>>, episodeId: string, clipId: string | null): void {
  const clips = map.get(episodeId) ?? new Set()
  if (clipId !== null) clips.add(clipId)
  map.set(episodeId, clips)
}
