/**
 * Dialogue in its three published forms: clip-level text of LongTVQA (`Speaker : words <eos> ...`, no times), `.srt` files of TVQA
 * (`(Speaker:)words`, timed), and TVQA's preprocessed lines. Does not know which clip comes from which file.
 */
import srtParser from 'srt-parser-2'
import type { Result, SubtitleLine } from '../types.ts'
import { failed } from './failure.ts'
import { isObject } from './json.ts'

/** The class is on `default` twice when a CommonJS build is loaded as a module. */
const SrtParser = (
  'default' in srtParser ? (srtParser as { default: typeof srtParser }).default : srtParser
) as typeof srtParser

/** Lines of one clip's text, as LongTVQA's clip-level subtitle files hold it. */
export function parseClipText(text: string): SubtitleLine[] {
  return text
    .split('<eos>')
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map(splitSpeaker)
}

/** Lines of an `.srt` file, seconds on the clip's own timeline. Fails with `bad_file` when the file holds no subtitle at all. */
export function parseSrt(text: string, path: string): Result<SubtitleLine[]> {
  const cues = new SrtParser().fromSrt(text.replace(/^\uFEFF/, ''))
  if (cues.length === 0 && text.trim() !== '') {
    return failed(
      'bad_file',
      `${path}: no subtitle found; expected numbered cues with "00:00:01,000 --> 00:00:02,500", got ${JSON.stringify(text.trim().slice(0, 40))}`,
    )
  }
  const lines = cues.flatMap((cue) =>
    voices(cue.text).map((voice) => ({ ...voice, start: cue.startSeconds, end: cue.endSeconds })),
  )
  return { ok: true, value: lines }
}

/** Lines of one row's `sub` in `tvqa_preprocessed_subtitles.jsonl`: `[{text, start, end}]`; null when it is something else. */
export function parsePreprocessed(sub: unknown): SubtitleLine[] | null {
  if (!Array.isArray(sub)) return null
  const lines: SubtitleLine[] = []
  for (const line of sub) {
    if (
      !isObject(line) ||
      typeof line.text !== 'string' ||
      typeof line.start !== 'number' ||
      typeof line.end !== 'number'
    )
      return null
    for (const voice of voices(line.text)) lines.push({ ...voice, start: line.start, end: line.end })
  }
  return lines
}

/** One cue can hold several speakers: `(Penny:)Hi. (Leonard:)Hello.` */
function voices(text: string): SubtitleLine[] {
  return text
    .replace(/<\/?[a-z][^<>]*>/gi, '')
    .replace(/\s+/g, ' ')
    .split(/(?=\([^()]{1,40}:\))/)
    .map((part) => part.trim())
    .filter((part) => part !== '')
    .map(splitSpeaker)
}

/** `(Leonard:)words` or `Leonard : words`; TVQA calls a speaker that nobody identified UNKNAME. */
function splitSpeaker(text: string): SubtitleLine {
  const match = /^\(([^()]{1,40}):\)\s*(.*)$/s.exec(text) ?? /^([\p{L}][^:]{0,39}?) : (.*)$/su.exec(text)
  if (!match) return { text }
  const [speaker, words] = [(match[1] as string).trim(), (match[2] as string).trim()]
  return /^unkname$/i.test(speaker) ? { text: words } : { speaker, text: words }
}
