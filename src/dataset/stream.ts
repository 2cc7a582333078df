/**
 * The top-level values of a JSON file of any size, one at a time: rows of an array, entries of an object, or lines of JSON Lines,
 * whatever the file's extension says. Python's bare `NaN` is tolerated as null, as in `json.ts`.
 *
 * Holds one value and one chunk in memory. Finds where values begin and end by bytes (quotes and brackets are ASCII, also inside UTF-8 and
 * Latin-1 text) and leaves parsing to `JSON.parse`. Does not know what the values mean.
 */
import { isUtf8 } from 'node:buffer'
import { type FileHandle, open } from 'node:fs/promises'
import iconv from 'iconv-lite'
import type { Result } from '../types.ts'
import { failed, fileFailure } from './failure.ts'
import { locateError, tryParse } from './json.ts'

export type JsonForm = 'array' | 'object' | 'lines'

export interface JsonItem {
  value: unknown
  /** null except in an object. */
  key: string | null
  /** `row 3`, `line 12` or `entry "name"`, counted from 1. */
  place: string
  /** Where the value's text stands in the file, in bytes; an entry's begins at its key. See `readItemAt`. */
  offset: number
  length: number
}

const CHUNK = 256 * 1024
const [QUOTE, BACKSLASH, COMMA, NEWLINE, BLANK] = [0x22, 0x5c, 0x2c, 0x0a, 0x20]
const [OPEN_ARRAY, CLOSE_ARRAY, OPEN_OBJECT, CLOSE_OBJECT] = [0x5b, 0x5d, 0x7b, 0x7d]
const REPAIR = 'repair the file or download it again'

/**
 * Which form a file has. An object that is followed by anything is the first of JSON Lines.
 * Fails with `missing_file`, or with `bad_file` for an empty file, UTF-16 and what is no JSON at all.
 */
export async function formOf(path: string): Promise<Result<JsonForm>> {
  let [depth, inString, escaped, closed] = [0, false, false, false]
  try {
    for await (const { chunk, start } of chunksOf(path)) {
      for (let i = start; i < chunk.length; i++) {
        const byte = chunk[i] as number
        if (inString) {
          if (escaped) escaped = false
          else if (byte === BACKSLASH) escaped = true
          else if (byte === QUOTE) inString = false
        } else if (byte <= BLANK) {
          // between values
        } else if (closed) {
          return { ok: true, value: 'lines' }
        } else if (depth === 0) {
          if (byte === OPEN_ARRAY) return { ok: true, value: 'array' }
          if (byte !== OPEN_OBJECT) {
            const utf16 = (byte === 0xff || byte === 0xfe) && i === 0
            return failed(
              'bad_file',
              utf16
                ? `${path}: the text is UTF-16; save the file as UTF-8`
                : `${path}: expected a JSON array, object or one object per line, got ${JSON.stringify(chunk.toString('latin1', i, i + 12))}`,
            )
          }
          depth = 1
        } else if (byte === QUOTE) inString = true
        else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) depth++
        else if (byte === CLOSE_ARRAY || byte === CLOSE_OBJECT) closed = --depth === 0
      }
    }
  } catch (error) {
    return fileFailure(path, error)
  }
  return depth > 0 || closed
    ? { ok: true, value: 'object' }
    : failed('bad_file', `${path}: the file is empty; download or write it again`)
}

/**
 * Every item of a file, in order; ends after the first failure: `missing_file`, or `bad_file` with line and column where the text stops
 * being JSON or ends too early.
 */
export async function* readItems(path: string, given?: JsonForm): AsyncGenerator<Result<JsonItem>> {
  const known: Result<JsonForm> = given ? { ok: true, value: given } : await formOf(path)
  if (!known.ok) {
    yield known
    return
  }
  const form = known.value
  const splitter = form === 'lines' ? lineSplitter() : elementSplitter(form)
  let count = 0
  const itemOf = (raw: RawItem): Result<JsonItem> => {
    count++
    const parsed = parse(raw.bytes, form)
    if (!parsed.ok) {
      const { line, column, what } = locateError(parsed.text)
      // an entry was parsed with a bracket before it
      const shift = line > 1 ? 0 : raw.column - (form === 'object' ? 2 : 1)
      return failed('bad_file', notJson(path, raw.line + line - 1, column + shift, what))
    }
    const key = form === 'object' ? (Object.keys(parsed.value as object)[0] ?? '') : null
    return {
      ok: true,
      value: {
        value: key === null ? parsed.value : (parsed.value as Record<string, unknown>)[key],
        key,
        place:
          form === 'object' ? `entry ${JSON.stringify(key)}` : form === 'array' ? `row ${count}` : `line ${raw.line}`,
        offset: raw.offset,
        length: raw.bytes.length,
      },
    }
  }
  try {
    for await (const { chunk, start, offset } of chunksOf(path)) {
      const { items, problem } = splitter.push(chunk, start, offset)
      for (const raw of items) {
        const item = itemOf(raw)
        yield item
        if (!item.ok) return
      }
      if (problem) {
        yield failed('bad_file', notJson(path, problem.line, problem.column, problem.what))
        return
      }
    }
    const { items, problem } = splitter.end()
    for (const raw of items) yield itemOf(raw)
    if (problem) yield failed('bad_file', notJson(path, problem.line, problem.column, problem.what))
  } catch (error) {
    yield fileFailure(path, error)
  }
}

/** The value of an item that `readItems` found in an open file of this form. Throws when the file is not the one that was read. */
export async function readItemAt(
  file: FileHandle,
  form: JsonForm,
  { offset, length }: Pick<JsonItem, 'offset' | 'length'>,
): Promise<unknown> {
  const bytes = Buffer.allocUnsafe(length)
  const { bytesRead } = await file.read(bytes, 0, length, offset)
  const parsed = parse(bytes.subarray(0, bytesRead), form)
  if (!parsed.ok) throw new Error(`readItemAt: no JSON at byte ${offset}: the file changed while it was read`)
  return form === 'object' ? Object.values(parsed.value as object)[0] : parsed.value
}

function notJson(path: string, line: number, column: number, what: string): string {
  return `${path}: not JSON at line ${line}, column ${column}: ${what}; ${REPAIR}`
}

function parse(bytes: Buffer, form: JsonForm): { ok: true; value: unknown } | { ok: false; text: string } {
  const decoded = isUtf8(bytes) ? bytes.toString('utf8') : iconv.decode(bytes, 'windows-1252')
  const text = form === 'object' ? `{${decoded}}` : decoded
  const parsed = tryParse(text)
  return parsed.ok ? parsed : { ok: false, text }
}

interface RawItem {
  bytes: Buffer
  offset: number
  /** From 1. */
  line: number
  column: number
}

interface Splitter {
  /**
   * The items that end in this chunk, some of them views of it: parse them before the next chunk is read. `offset`: where the chunk
   * begins in the file; bytes before `start` are skipped.
   */
  push(chunk: Buffer, start: number, offset: number): Split
  end(): Split
}

interface Split {
  items: RawItem[]
  problem?: { line: number; column: number; what: string }
}

/** The chunks of a file; `start` skips a UTF-8 byte order mark. One buffer serves all: a chunk is overwritten by the next. */
async function* chunksOf(path: string): AsyncGenerator<{ chunk: Buffer; start: number; offset: number }> {
  const file = await open(path, 'r')
  try {
    const buffer = Buffer.allocUnsafe(CHUNK)
    for (let offset = 0; ; ) {
      const { bytesRead } = await file.read(buffer, 0, CHUNK, offset)
      if (bytesRead === 0) return
      const chunk = buffer.subarray(0, bytesRead)
      const marked = offset === 0 && chunk[0] === 0xef && chunk[1] === 0xbb && chunk[2] === 0xbf
      yield { chunk, start: marked ? 3 : 0, offset }
      offset += bytesRead
    }
  } finally {
    await file.close()
  }
}

/** Lines that are not blank. */
function lineSplitter(): Splitter {
  let pieces: Buffer[] = []
  let [begin, line] = [0, 1]
  const itemOf = (last: Buffer): RawItem[] => {
    const bytes = pieces.length === 0 ? last : Buffer.concat([...pieces, last])
    pieces = []
    return isBlank(bytes) ? [] : [{ bytes, offset: begin, line, column: 1 }]
  }
  return {
    push(chunk, start, offset) {
      const items: RawItem[] = []
      if (offset === 0) begin = start
      let from = start
      for (let end = chunk.indexOf(NEWLINE, from); end >= 0; end = chunk.indexOf(NEWLINE, from)) {
        items.push(...itemOf(chunk.subarray(from, end)))
        from = end + 1
        begin = offset + from
        line++
      }
      if (from < chunk.length) pieces.push(Buffer.from(chunk.subarray(from)))
      return { items }
    },
    end: () => ({ items: itemOf(Buffer.alloc(0)) }),
  }
}

function isBlank(bytes: Buffer): boolean {
  return bytes.every((byte) => byte <= BLANK)
}

/** What stands between the commas of the outermost array or object. */
function elementSplitter(form: 'array' | 'object'): Splitter {
  const close = form === 'array' ? CLOSE_ARRAY : CLOSE_OBJECT
  let pieces: Buffer[] = []
  let [depth, inString, escaped] = [0, false, false]
  /** Of the item being read; null between items. */
  let item: Omit<RawItem, 'bytes'> | null = null
  let afterComma = false
  let ended = false
  let [line, lineBegin] = [1, 0]
  return {
    push(chunk, start, offset) {
      const items: RawItem[] = []
      let from = start
      const problem = (at: number, what: string): Split => ({
        items,
        problem: { line, column: offset + at - lineBegin + 1, what },
      })
      const finish = (at: number) => {
        const last = chunk.subarray(from, at)
        const bytes = pieces.length === 0 ? last : Buffer.concat([...pieces, last])
        pieces = []
        items.push({ ...(item as Omit<RawItem, 'bytes'>), bytes })
        item = null
      }
      for (let i = start; i < chunk.length; i++) {
        const byte = chunk[i] as number
        if (byte === NEWLINE) {
          line++
          lineBegin = offset + i + 1
        }
        if (inString) {
          if (escaped) escaped = false
          else if (byte === BACKSLASH) escaped = true
          else if (byte === QUOTE) inString = false
          continue
        }
        if (byte <= BLANK) continue
        if (ended) return problem(i, `expected the end of the file, got ${show(chunk, i)}`)
        if (depth === 0) {
          depth = 1
          continue
        }
        const closes = byte === CLOSE_ARRAY || byte === CLOSE_OBJECT
        if (depth === 1 && (byte === COMMA || closes)) {
          if (item) finish(i)
          else if (byte === COMMA || afterComma) return problem(i, `expected a value, got ${show(chunk, i)}`)
          if (closes && byte !== close)
            return problem(i, `expected ${String.fromCharCode(close)}, got ${show(chunk, i)}`)
          afterComma = byte === COMMA
          ended = closes
          continue
        }
        if (!item) {
          item = { offset: offset + i, line, column: offset + i - lineBegin + 1 }
          from = i
        }
        if (byte === QUOTE) inString = true
        else if (byte === OPEN_ARRAY || byte === OPEN_OBJECT) depth++
        else if (closes) depth--
      }
      if (item) pieces.push(Buffer.from(chunk.subarray(from)))
      return { items }
    },
    end() {
      if (ended) return { items: [] }
      const what = item ? 'the file ends inside the last value' : 'the file ends too early'
      const at = item ?? { line, column: 1 }
      return { items: [], problem: { line: at.line, column: at.column, what } }
    },
  }
}

function show(chunk: Buffer, at: number): string {
  return JSON.stringify(chunk.toString('latin1', at, at + 1))
}
