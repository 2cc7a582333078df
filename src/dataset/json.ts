/**
 * JSON as data sets really ship it: an array, an object, or one value per line, whatever the file's extension says
 * (spec/longvideoagent.md, row 25), with Python's bare `NaN` tolerated as null.
 *
 * Does not know what the rows mean.
 */

import type { Result } from '../types.ts'
import { failed } from './failure.ts'
import { readText } from './text.ts'

export type JsonObject = Readonly<Record<string, unknown>>

export type JsonFile =
  | { form: 'array'; rows: readonly unknown[] }
  | { form: 'object'; value: JsonObject }
  /** `lines[i]` is the line number of `rows[i]`, from 1. */
  | { form: 'lines'; rows: readonly unknown[]; lines: readonly number[] }

export function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Reads a file and finds its form. Fails with `missing_file`, or with `bad_file` naming line and column. */
export async function readJson(path: string): Promise<Result<JsonFile>> {
  const read = await readText(path)
  if (!read.ok) return read
  return parseJsonFile(read.value.text, path)
}

export function parseJsonFile(text: string, path: string): Result<JsonFile> {
  if (text.trim() === '') return failed('bad_file', `${path}: the file is empty; download or write it again`)
  const whole = tryParse(text)
  if (whole.ok) {
    if (Array.isArray(whole.value)) return { ok: true, value: { form: 'array', rows: whole.value } }
    if (isObject(whole.value)) return { ok: true, value: { form: 'object', value: whole.value } }
    return failed(
      'bad_file',
      `${path}: expected a JSON array, object or one object per line, got a single ${typeof whole.value}`,
    )
  }
  const lines = text.split(/\r?\n/)
  const first = lines.findIndex((line) => line.trim() !== '')
  // The first line alone tells JSON Lines from a broken document: a document's first line is not complete JSON, unless it is all on one line.
  if (lines.length > 1 && tryParse(lines[first] as string).ok) return parseLines(lines, path)
  const { line, column, what } = locateError(text)
  return failed(
    'bad_file',
    `${path}: not JSON at line ${line}, column ${column}: ${what}; repair the file or download it again`,
  )
}

function parseLines(lines: readonly string[], path: string): Result<JsonFile> {
  const rows: unknown[] = []
  const numbers: number[] = []
  for (const [i, line] of lines.entries()) {
    if (line.trim() === '') continue
    const parsed = tryParse(line)
    if (!parsed.ok) {
      const { column, what } = locateError(line)
      return failed(
        'bad_file',
        `${path}: not JSON at line ${i + 1}, column ${column}: ${what}; repair the line or download the file again`,
      )
    }
    rows.push(parsed.value)
    numbers.push(i + 1)
  }
  return { ok: true, value: { form: 'lines', rows, lines: numbers } }
}

/** JSON, or JSON with Python's bare NaN. */
export function tryParse(text: string): { ok: true; value: unknown } | { ok: false } {
  try {
    return { ok: true, value: JSON.parse(text) }
  } catch {
    if (!text.includes('NaN')) return { ok: false }
    try {
      return { ok: true, value: JSON.parse(withoutNaN(text)) }
    } catch {
      return { ok: false }
    }
  }
}

/** Python writes not-a-number as a bare word. Strings are skipped: the word may stand in a sentence. */
function withoutNaN(text: string): string {
  return text.replace(/"[^"\\]*(?:\\.[^"\\]*)*"|-?\bNaN\b/gs, (token) => (token.startsWith('"') ? token : 'null'))
}

/**
 * Where and how `text` stops being JSON. V8's own messages give no position for many errors.
 * A scanner over the grammar of RFC 8259; `text` must not be valid JSON.
 */
export function locateError(text: string): { line: number; column: number; what: string } {
  const token =
    // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON strings may not hold them
    /[ \t\r\n]*(?:([[\]{},:])|("[^"\\\u0000-\u001f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\u0000-\u001f]*)*")|(-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?|true|false|null|NaN))/y
  const open: ('[' | '{')[] = []
  let expect: 'value' | 'value or ]' | 'key' | 'key or }' | 'colon' | 'comma or end' = 'value'
  let at = 0
  const offset = () => at + (/^[ \t\r\n]*/.exec(text.slice(at, at + 10_000))?.[0].length ?? 0)
  const wrong = (what: string) => {
    const before = text.slice(0, offset())
    const line = before.split('\n').length
    return { line, column: before.length - before.lastIndexOf('\n'), what }
  }
  while (true) {
    token.lastIndex = at
    const match = token.exec(text)
    if (!match) {
      const rest = text.slice(offset())
      const still = open.length > 0 ? `${open.length} bracket${open.length > 1 ? 's' : ''} still open` : 'nothing there'
      if (rest === '') return wrong(`the file ends too early (${still})`)
      return wrong(
        `expected ${expect}, got ${rest.startsWith('"') ? 'a string that is not closed' : JSON.stringify(rest.slice(0, 12))}`,
      )
    }
    const [, mark, string, scalar] = match
    const complain = () => wrong(`expected ${expect}, got ${mark ?? (string ?? scalar ?? '').slice(0, 20)}`)
    if (expect === 'comma or end') {
      const top = open.at(-1)
      if (!top) return wrong(`expected the end of the file, got ${(mark ?? string ?? scalar ?? '').slice(0, 20)}`)
      if (mark === ',') expect = top === '{' ? 'key' : 'value'
      else if (mark === (top === '{' ? '}' : ']')) open.pop()
      else return complain()
    } else if (expect === 'colon') {
      if (mark !== ':') return complain()
      expect = 'value'
    } else if (expect === 'key' || expect === 'key or }') {
      if (string) expect = 'colon'
      else if (mark === '}' && expect === 'key or }') {
        open.pop()
        expect = 'comma or end'
      } else return complain()
    } else if (mark === '[') {
      open.push('[')
      expect = 'value or ]'
    } else if (mark === '{') {
      open.push('{')
      expect = 'key or }'
    } else if (mark === ']' && expect === 'value or ]') {
      open.pop()
      expect = 'comma or end'
    } else if (mark) {
      return complain()
    } else {
      expect = 'comma or end'
    }
    at = token.lastIndex
  }
}
