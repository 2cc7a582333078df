/**
 * Looks into frame folders and videos once: how many pictures, how many seconds. What was looked at is kept in a journal, so that an
 * import that was stopped does not look again. Does not decode pictures.
 */
import { appendFile, readdir, readFile } from 'node:fs/promises'
import type { Result } from '../../types.ts'
import { failed } from '../failure.ts'
import { isObject } from '../json.ts'

/** Seconds of a video file; null where the container does not tell. `probe` of the video room is one. */
export type Probe = (
  path: string,
  signal?: AbortSignal,
) => Promise<Result<{ duration: number | null; hasVideo: boolean }>>

/** What is in a folder of pictures, or a video. */
export type Looked =
  /** `highest`: the greatest number among `00001.jpg` and on; `count`: how many there are. */
  | { kind: 'frames'; highest: number; count: number }
  | { kind: 'video'; seconds: number }
  | { kind: 'unreadable'; problem: string }

const AT_ONCE = 4

/**
 * Looks at every path that the journal lacks. A video that cannot be read is `unreadable`; fails with `cancelled`, or as the probe
 * does where the fault is not the file's (no ffmpeg, a deadline).
 */
export async function lookAtPictures(
  folders: readonly string[],
  videos: readonly string[],
  journal: string,
  probe: Probe,
  onProgress: (done: number) => void,
  signal?: AbortSignal,
): Promise<Result<Map<string, Looked>>> {
  const looked = await readJournal(journal)
  const waiting = [
    ...folders.map((path) => ({ path, look: () => lookAtFolder(path) })),
    ...videos.map((path) => ({ path, look: () => lookAtVideo(path, probe, signal) })),
  ].filter(({ path }) => !looked.has(path))
  const total = folders.length + videos.length
  let failure: Result<never> | null = null
  let writing = Promise.resolve()
  const queue = waiting.values()
  const worker = async () => {
    for (const { path, look } of queue) {
      if (failure) return
      if (signal?.aborted) {
        failure = failed(
          'cancelled',
          `stopped after ${looked.size} of ${total} folders and videos; run the same command again to go on`,
        )
        return
      }
      const seen = await look()
      if (!seen.ok) {
        failure = seen
        return
      }
      looked.set(path, seen.value)
      const line = `${JSON.stringify({ path, ...seen.value })}\n`
      writing = writing.then(() => appendFile(journal, line))
      await writing
      onProgress(looked.size)
    }
  }
  await Promise.all(Array.from({ length: AT_ONCE }, worker))
  return failure ?? { ok: true, value: looked }
}

async function readJournal(path: string): Promise<Map<string, Looked>> {
  const text = await readFile(path, 'utf8').catch(() => '')
  const looked = new Map<string, Looked>()
  // what follows the last line break was cut short by a crash
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  for (const line of whole.split('\n')) {
    const row: unknown = parseOrNull(line)
    if (!isObject(row)) continue
    const { path: of, ...seen } = row
    looked.set(String(of), seen as unknown as Looked)
  }
  return looked
}

/** A line that a crash cut short runs into the next one; both are looked at again. */
function parseOrNull(line: string): unknown {
  try {
    return JSON.parse(line)
  } catch {
    return null
  }
}

async function lookAtFolder(path: string): Promise<Result<Looked>> {
  const names = await readdir(path).catch(() => [])
  const numbers = names.flatMap((name) => /^(\d{5})\.jpg$/.exec(name)?.[1] ?? []).map(Number)
  return {
    ok: true,
    value: {
      kind: 'frames',
      highest: numbers.reduce((a, b) => Math.max(a, b), 0),
      count: numbers.filter((n) => n > 0).length,
    },
  }
}

async function lookAtVideo(path: string, probe: Probe, signal?: AbortSignal): Promise<Result<Looked>> {
  const facts = await probe(path, signal)
  if (!facts.ok) {
    if (facts.failure.kind !== 'bad_file') return facts
    return { ok: true, value: { kind: 'unreadable', problem: facts.failure.message } }
  }
  const { duration, hasVideo } = facts.value
  if (!hasVideo || duration === null || !(duration > 0))
    return {
      ok: true,
      value: { kind: 'unreadable', problem: `${path}: ${hasVideo ? 'its length is unknown' : 'it has no pictures'}` },
    }
  return { ok: true, value: { kind: 'video', seconds: duration } }
}
