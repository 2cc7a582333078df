/**
 * Question files and their rows, still raw: which files of a folder hold questions, which split each is, and what a row's clip and
 * episode are. Does not read the answer (`gold.ts`) and does not make questions (`question.ts`).
 */
import { readdir } from 'node:fs/promises'
import { basename, extname, join } from 'node:path'
import type { Result } from '../types.ts'
import { type Checked, type Failed, failed, faulty, fileFailure } from './failure.ts'
import { isObject, type JsonObject, readJson } from './json.ts'
import { CLIP_NAME_FORM, type ClipName, parseClipName, parseEpisodeName } from './names.ts'

export interface QuestionFile {
  path: string
  /** `train`, `val`, `test_public`, ...: what the file's name says; `all` when it says nothing. */
  split: string
}

export interface Row {
  fields: JsonObject
  qid: string
  /** The clip that the row is about; null in rows that do not tell. Gold: public objects must not be made from it. */
  clip: ClipName | null
  episodeId: string
  /** `file row 12 (qid 131529)`, for messages. */
  where: string
  split: string
}

/** Files beside the questions: subtitles, descriptions, durations, boxes, and what this program writes. */
const NOT_QUESTIONS = /subtitle|visual_descriptions|video2dur|bbox|frame|^clips\.json$|^dataset\.json$|^package/i
const SPLIT = /(?:^|[_.-])(train|val|valid|validation|dev|test(?:_public|_challenge)?)(?=[_.-]|$)/i

/** What a file's name says about its split; `all` when it says nothing. */
export function splitOf(path: string): string {
  const stem = basename(path, extname(path))
  return (SPLIT.exec(stem)?.[1] ?? (/miniature_(\w+)$/.exec(stem)?.[1] || 'all')).toLowerCase()
}

/** The question files of a folder, sorted by name. Empty when there are none. */
export async function findQuestionFiles(directory: string): Promise<Result<QuestionFile[]>> {
  let names: string[]
  try {
    names = await readdir(directory)
  } catch (error) {
    return fileFailure(directory, error)
  }
  const files = names
    .filter((name) => /^\.jsonl?$/i.test(extname(name)) && !NOT_QUESTIONS.test(name))
    .sort()
    .map((name) => ({ path: join(directory, name), split: splitOf(name) }))
  return { ok: true, value: files }
}

/** Every row of a question file, or one failure that names the first bad row. */
export async function readRows(file: QuestionFile): Promise<Result<Row[]>> {
  const read = await readJson(file.path)
  if (!read.ok) return read
  const json = read.value
  const [raw, place] = ((): [readonly unknown[], (i: number) => string] => {
    if (json.form === 'array') return [json.rows, (i) => `row ${i + 1}`]
    if (json.form === 'lines') return [json.rows, (i) => `line ${json.lines[i]}`]
    if ('q' in json.value) return [[json.value], () => 'line 1']
    const keys = Object.keys(json.value)
    return [Object.values(json.value), (i) => `entry "${keys[i]}"`]
  })()
  if (raw.length === 0) return failed('bad_file', `${file.path}: holds no questions; expected rows with q, a0..a4`)
  const rows: Row[] = []
  for (const [i, fields] of raw.entries()) {
    const row = readRow(fields, `${file.path} ${place(i)}`, file.split)
    if (!row.ok) return row
    rows.push(row.value)
  }
  return { ok: true, value: rows }
}

/** One raw row. `place` says where it stands, such as `tvqa_val.jsonl line 12`. */
export function readRow(fields: unknown, place: string, split: string): Checked<Row> {
  if (!isObject(fields))
    return faulty('not-a-row', `${place}: expected an object with qid, q, a0..a4, got ${describe(fields)}`)
  const { qid } = fields
  if (!(typeof qid === 'number' && Number.isFinite(qid)) && !(typeof qid === 'string' && qid.trim() !== '')) {
    return faulty('qid', `${place}: expected qid to be a number or a name, got ${describe(qid)}`)
  }
  const where = `${place} (qid ${qid})`
  // LongTVQA says occur_clip and episode_name, TVQA says vid_name; normalised files have both.
  const clipName = fields.occur_clip ?? fields.vid_name
  const episodeName = fields.episode_name
  const clip = typeof clipName === 'string' ? parseClipName(clipName) : null
  if (clipName !== undefined && clipName !== null && !clip) {
    return faulty('clip', `${where}: unknown clip ${describe(clipName)}; expected a name of the form ${CLIP_NAME_FORM}`)
  }
  const episodeId = episodeOf(clip, episodeName, where)
  if (!episodeId.ok) return episodeId
  return { ok: true, value: { fields, qid: String(qid), clip, episodeId: episodeId.value, where, split } }
}

function episodeOf(clip: ClipName | null, episodeName: unknown, where: string): Checked<string> {
  if (clip) {
    if (episodeName === undefined || episodeName === null || shortNames(clip.episodeId).includes(episodeName)) {
      return { ok: true, value: clip.episodeId }
    }
    return faulty(
      'episode',
      `${where}: unknown clip "${clip.id}" in episode ${describe(episodeName)}; expected a clip of that episode`,
    )
  }
  if (typeof episodeName === 'string' && parseEpisodeName(episodeName)) return { ok: true, value: episodeName }
  return faulty(
    'episode',
    `${where}: expected occur_clip, vid_name or episode_name to tell the episode, got episode_name ${describe(episodeName)}`,
  )
}

/** What files call an episode: some leave out the show's prefix, some the second number of a double episode. */
function shortNames(episodeId: string): unknown[] {
  const whole = [episodeId, episodeId.replace(/^[a-z][a-z0-9]*_/, '')]
  return [...whole, ...whole.map((name) => name.replace(/-\d{2}$/, ''))]
}

/** A value in a message: short, quoted when a string. */
export function describe(value: unknown): string {
  const text = value === undefined ? 'nothing' : JSON.stringify(value)
  return text.length > 60 ? `${text.slice(0, 57)}...` : text
}

/** The failure of having no question file to read: what was found instead. */
export function noQuestionFiles(directory: string, split: string | undefined, found: readonly QuestionFile[]): Failed {
  const have = found.map((file) => `${basename(file.path)} (${file.split})`).join(', ')
  return failed(
    'missing_file',
    split !== undefined && found.length > 0
      ? `${directory}: no question file of split "${split}"; it has ${have}`
      : `${directory}: no question file (.json or .jsonl with q, a0..a4); see the README on how to get or render a data set`,
  )
}
