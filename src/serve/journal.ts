/**
 * What captured sessions have sampled and the store does not have yet: a file for each session under `open-sessions/` beside the tables, a
 * JSON line for each call, written before the client gets its answer. A server that was killed goes on from them. A power cut may take the
 * last lines, as they are not flushed. Knows nothing of what sessions become.
 */
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  truncateSync,
} from 'node:fs'
import { join } from 'node:path'
import { StoreError } from '../trajectory/failure.ts'
import type { CapturedCall } from './conversation.ts'

export interface SessionName {
  /** Digest of session and API key: clients with different keys do not meet in a session of the same name. */
  key: string
  id: string
  /** The same for its group; null for a session that is its own. */
  groupKey: string | null
  group: string | null
  groupSize: number
}

export type JournalEntry =
  | { kind: 'begun'; name: SessionName; at: number }
  | { kind: 'called'; call: CapturedCall; at: number }
  /** `sample`: its position in its group. */
  | { kind: 'closed'; reward: number | null; correct: boolean; sample: number }
  | { kind: 'storing'; groupId: string }

export class Journal {
  private readonly directory: string

  /** In the folder of a store. Throws the errors of the file system, as all methods do. */
  constructor(store: string) {
    this.directory = join(store, 'open-sessions')
    mkdirSync(this.directory, { recursive: true })
  }

  /** With one write. */
  append(file: string, ...entries: readonly JournalEntry[]): void {
    const path = join(this.directory, file)
    const lines = entries.map((entry) => `${JSON.stringify(entry)}\n`)
    try {
      appendFileSync(path, lines.join(''), { mode: 0o600 })
    } catch (error) {
      // on a full disk half a line may be there, and room again for the next
      if (existsSync(path)) wholeLines(path)
      throw error
    }
  }

  remove(file: string): void {
    rmSync(join(this.directory, file), { force: true })
  }

  /** What an earlier server left, by file. A line that it was killed in is cut off. */
  read(): { file: string; entries: JournalEntry[] }[] {
    return readdirSync(this.directory)
      .filter((file) => file.endsWith('.jsonl'))
      .map((file) => {
        const path = join(this.directory, file)
        return { file, entries: wholeLines(path).map((line) => entryOf(line, path)) }
      })
  }

  /** Removes the folder when nothing is left in it. */
  close(): void {
    if (readdirSync(this.directory).length === 0) rmdirSync(this.directory)
  }
}

/** Cuts off a last line that was not written to its end. */
function wholeLines(path: string): string[] {
  const bytes = readFileSync(path)
  const whole = bytes.subarray(0, bytes.lastIndexOf('\n') + 1)
  if (whole.length < bytes.length) truncateSync(path, whole.length)
  return whole.toString().split('\n').filter(Boolean)
}

function entryOf(line: string, path: string): JournalEntry {
  try {
    return JSON.parse(line) as JournalEntry
  } catch {
    throw new StoreError(
      'bad_file',
      `${path}: expected a line of JSON for each call, found ${line.slice(0, 40)}; move the file away`,
    )
  }
}
