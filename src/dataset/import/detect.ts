/**
 * What a JSON file is, told from its first rows, whatever it is called. Does not read further than it must, and never guesses: a file
 * that fits nothing is described instead.
 */
import type { Result } from '../../types.ts'
import { isObject } from '../json.ts'
import { parseClipName, parseEpisodeName } from '../names.ts'
import { describe } from '../rows.ts'
import { formOf, type JsonForm, type JsonItem, readItems } from '../stream.ts'

/** What import reads, and how each looks. */
export const KINDS = {
  questions: 'rows with qid, q, a0..a4',
  'preprocessed-subtitles': 'rows {vid_name, sub: [{text, start, end}]}',
  'clip-text': 'an object from clip names to text',
  'episode-text': 'an object from episode names to text with <seg01_clip_00> markers',
  durations: '{split: {clip: [seconds, index]}}',
  descriptions: 'an object from clip names to [{start, end, text}]',
  'video-spans': 'an object from clip names to {video, start, end}',
} as const

export type Kind = keyof typeof KINDS

export interface Detected {
  form: JsonForm
  /** null when the file is none of them. */
  kind: Kind | null
  /** Of questions: which published layout the first rows have. */
  format: QuestionFormat | null
  /** What the file holds, in words, where it is none of them. */
  found: string
}

export type QuestionFormat = 'TVQA' | 'TVQA+' | 'LongTVQA' | 'LongTVQA+'

/** Rows that are looked at. A layout may leave a field out of some rows. */
const LOOKED_AT = 20

/** Fails as `readItems` does. */
export async function detect(path: string): Promise<Result<Detected>> {
  const form = await formOf(path)
  if (!form.ok) return form
  let items = await firstItems(path, form.value)
  if (!items.ok) return items
  if (form.value === 'object' && items.value.some(({ key }) => key === 'q' || key === 'vid_name')) {
    // its keys are a row's fields: one line of JSON Lines
    form.value = 'lines'
    items = await firstItems(path, 'lines')
    if (!items.ok) return items
  }
  return { ok: true, value: described(form.value, items.value) }
}

async function firstItems(path: string, form: JsonForm): Promise<Result<JsonItem[]>> {
  const items: JsonItem[] = []
  for await (const item of readItems(path, form)) {
    if (!item.ok) {
      // what comes before the damage tells what was meant, and whoever reads the whole file will name the place
      if (items.length > 0) break
      return item
    }
    items.push(item.value)
    if (items.length === LOOKED_AT) break
  }
  return { ok: true, value: items }
}

function described(form: JsonForm, items: readonly JsonItem[]): Detected {
  const kind = kindOf(items)
  const first = items[0]
  const found =
    first === undefined
      ? 'nothing'
      : form === 'object'
        ? `an object with ${items
            .slice(0, 3)
            .map(({ key }) => JSON.stringify(key))
            .join(', ')}`
        : `rows like ${isObject(first.value) ? `{${Object.keys(first.value).slice(0, 6).join(', ')}}` : describe(first.value)}`
  return { form, kind, format: kind === 'questions' ? formatOf(items) : null, found }
}

function kindOf(items: readonly JsonItem[]): Kind | null {
  if (items.length === 0) return null
  const all = (test: (value: unknown) => boolean) => items.every((item) => test(item.value))
  if (items.every((item) => item.key === null || !parseClipName(item.key))) {
    // a row that lacks a field is still a row, so one that has them all is enough
    if (items.some(({ value }) => isObject(value) && 'q' in value && 'a0' in value)) return 'questions'
  }
  if (all((value) => isObject(value) && 'vid_name' in value && Array.isArray(value.sub)))
    return 'preprocessed-subtitles'
  if (items.every(({ key }) => key !== null && parseClipName(key))) {
    if (all((value) => typeof value === 'string')) return 'clip-text'
    if (all(isDuration)) return 'durations'
    if (all((value) => Array.isArray(value) && value.every((line) => isObject(line) && 'text' in line)))
      return 'descriptions'
    if (all((value) => isObject(value) && 'video' in value)) return 'video-spans'
    return null
  }
  if (items.every(({ key, value }) => key !== null && parseEpisodeName(key) && typeof value === 'string'))
    return 'episode-text'
  const isTable = (value: unknown) =>
    isObject(value) &&
    Object.entries(value)
      .slice(0, LOOKED_AT)
      .every(([id, entry]) => parseClipName(id) && isDuration(entry))
  return all(isTable) ? 'durations' : null
}

function isDuration(entry: unknown): boolean {
  return typeof (Array.isArray(entry) ? entry[0] : entry) === 'number'
}

function formatOf(items: readonly JsonItem[]): QuestionFormat {
  const has = (key: string) => items.some(({ value }) => isObject(value) && key in value)
  if (has('occur_clip') || has('episode_name')) return has('bbox') ? 'LongTVQA+' : 'LongTVQA'
  return has('bbox') ? 'TVQA+' : 'TVQA'
}
