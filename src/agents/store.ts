/**
 * Named JSON values in a file that only grows: one `{"key":…,"value":…}` per line.
 *
 * Loaded whole at the first use; what a crash cut short is skipped. A disk that cannot be written costs the next run time, never an answer: it warns once.
 * Several processes may append to one file. Does not expire anything; the file may be deleted at any time.
 */
import { appendFile, mkdir, readFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { reasonOf } from './failure.ts'

export interface Store {
  get(key: string): Promise<unknown>
  /** Known at once; on disk after `settled`. */
  put(key: string, value: unknown): Promise<void>
  /** Waits until everything put so far is on disk. */
  settled(): Promise<void>
}

/** `path` null keeps values in memory only. */
export function openStore(path: string | null): Store {
  let loading: Promise<Map<string, unknown>> | null = null
  let writing: Promise<void> = Promise.resolve()
  let separator = ''
  let warned = false

  async function load(): Promise<Map<string, unknown>> {
    const values = new Map<string, unknown>()
    if (path === null) return values
    let text: string
    try {
      text = await readFile(path, 'utf8')
    } catch {
      return values
    }
    // A line that a crash cut short must not swallow the next one.
    if (text !== '' && !text.endsWith('\n')) separator = '\n'
    for (const line of text.split('\n')) {
      if (line === '') continue
      try {
        const { key, value } = JSON.parse(line) as { key: string; value: unknown }
        values.set(key, value)
      } catch {
        // Cut short: it is answered again.
      }
    }
    return values
  }
  const values = () => (loading ??= load())

  async function append(line: string): Promise<void> {
    try {
      await mkdir(dirname(path!), { recursive: true })
      await appendFile(path!, `${separator}${line}\n`)
      separator = ''
    } catch (error) {
      separator = '\n'
      if (warned) return
      warned = true
      process.emitWarning(`answers are not being cached in ${path}: ${reasonOf(error)}`, 'AnswerCacheWarning')
    }
  }
  return {
    get: async (key) => (await values()).get(key),
    async put(key, value) {
      const known = await values()
      if (known.has(key)) return
      known.set(key, value)
      if (path !== null) writing = writing.then(() => append(JSON.stringify({ key, value })))
    },
    settled: () => writing,
  }
}
