/**
 * The dialogue and descriptions of one clip, from wherever they stand. Holds one clip's text at a time; keeps the input files open.
 */
import { isUtf8 } from 'node:buffer'
import { type FileHandle, open, readFile } from 'node:fs/promises'
import iconv from 'iconv-lite'
import type { Result, SubtitleLine, VisualDescription } from '../../types.ts'
import { fileFailure } from '../failure.ts'
import { isObject } from '../json.ts'
import { parseDescriptions } from '../material.ts'
import { describe } from '../rows.ts'
import { readItemAt } from '../stream.ts'
import { parseClipText, parsePreprocessed, parseSrt } from '../subtitles.ts'
import { decodeText } from '../text.ts'
import { type ClipIndex, clipsOfEpisodeText, type Place } from './clips.ts'
import type { Findings } from './findings.ts'

export interface TextReader {
  /** The value at a place. Fails when the file cannot be read any more. */
  read(place: Place): Promise<Result<unknown>>
  close(): Promise<void>
}

export function openTexts(): TextReader {
  const open_ = new Map<string, FileHandle>()
  return {
    async read({ file, offset, length }) {
      try {
        let handle = open_.get(file.path)
        if (!handle) {
          handle = await open(file.path, 'r')
          open_.set(file.path, handle)
        }
        return { ok: true, value: await readItemAt(handle, file.form, { offset, length }) }
      } catch (error) {
        return fileFailure(file.path, error)
      }
    },
    async close() {
      for (const handle of open_.values()) await handle.close()
      open_.clear()
    },
  }
}

/**
 * Dialogue of a clip: its `.srt` file, TVQA's preprocessed lines, LongTVQA's clip text, LongTVQA's episode text; the first that has a
 * line. Broken ones are findings. Fails when a file cannot be read.
 */
export async function readSubtitles(
  episodeId: string,
  clipId: string,
  srt: string | undefined,
  index: ClipIndex,
  texts: TextReader,
  findings: Findings,
): Promise<Result<readonly SubtitleLine[]>> {
  if (srt !== undefined) {
    const lines = await readSrt(srt, findings)
    if (!lines.ok || lines.value.length > 0) return lines
  }
  const sources: [Map<string, Place>, string, (value: unknown) => SubtitleLine[] | null][] = [
    [index.preprocessed, clipId, (value) => (isObject(value) ? parsePreprocessed(value.sub) : null)],
    [index.text, clipId, (value) => (typeof value === 'string' ? parseClipText(value) : null)],
    [
      index.episodeText,
      episodeId,
      (value) => parseClipText(clipsOfEpisodeText(episodeId, String(value)).get(clipId) ?? ''),
    ],
  ]
  for (const [places, id, parse] of sources) {
    const place = places.get(id)
    if (!place) continue
    const value = await texts.read(place)
    if (!value.ok) return value
    const lines = parse(value.value)
    if (lines === null) findings.add('text/format', place.where, `got ${describe(value.value)}`)
    else if (lines.length > 0) return { ok: true, value: lines }
  }
  return { ok: true, value: [] }
}

/** null where a clip has no descriptions. */
export async function readDescriptions(
  clipId: string,
  index: ClipIndex,
  texts: TextReader,
  findings: Findings,
): Promise<Result<VisualDescription[] | null>> {
  const place = index.descriptions.get(clipId)
  if (!place) return { ok: true, value: null }
  const value = await texts.read(place)
  if (!value.ok) return value
  const lines = parseDescriptions(value.value)
  if (lines === null)
    findings.add('text/format', place.where, `expected [{start, end, text}], got ${describe(value.value)}`)
  return { ok: true, value: lines }
}

/** TVQA's files are ISO-8859-1 (spec/longvideoagent.md 2.1), so what is not UTF-8 is not guessed at; windows-1252 contains it. */
async function readSrt(path: string, findings: Findings): Promise<Result<SubtitleLine[]>> {
  let bytes: Buffer
  try {
    bytes = await readFile(path)
  } catch (error) {
    return fileFailure(path, error)
  }
  let text: string
  if (isUtf8(bytes)) text = bytes.toString('utf8')
  else if (bytes[0] === 0xff || bytes[0] === 0xfe) {
    const decoded = decodeText(bytes, path)
    if (!decoded.ok) return decoded
    text = decoded.value.text
  } else {
    text = iconv.decode(bytes, 'windows-1252')
    findings.add('srt/latin', path, 'not UTF-8')
  }
  const lines = parseSrt(text, path)
  if (!lines.ok) findings.add('srt/format', path, lines.failure.message)
  else if (lines.value.length === 0) findings.add('srt/empty', path, 'no subtitle')
  return lines.ok ? lines : { ok: true, value: [] }
}
