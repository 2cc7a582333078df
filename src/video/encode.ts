/**
 * Writes H.264 video from raw pictures.
 *
 * Deterministic: the same pictures, the same ffmpeg, the same bytes (one thread, no dates, no encoder-dependent metadata).
 * Atomic: the file appears under its name only when it is whole. Does not write sound, and does not draw.
 */
import { mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname } from 'node:path'
import { Readable } from 'node:stream'
import { pipeline } from 'node:stream/promises'
import type { Result } from '../types.ts'
import { failed, kindOfFileError, reasonOf } from './failure.ts'
import { mainComplaint, runFfmpeg } from './ffmpeg.ts'

export interface EncodeOptions {
  /** Pixels; both even, as yuv420p needs. */
  width: number
  height: number
  fps: number
  path: string
  /** Wall-clock bound in seconds. */
  deadlineSeconds?: number
  signal?: AbortSignal
}

/**
 * Encodes `frames` (each height * width * 3 bytes, rgb24) to an MP4 at `path`.
 * Throws on pictures of a wrong size and on an empty sequence, and passes on what the sequence throws. Fails with `disk_full`, `missing_file` (no ffmpeg),
 * `timeout`, `cancelled`, or `bad_file` with ffmpeg's own words.
 */
export async function encodeVideo(
  frames: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  { width, height, fps, path, deadlineSeconds = 600, signal }: EncodeOptions,
): Promise<Result<void>> {
  if (width % 2 !== 0 || height % 2 !== 0) throw new RangeError(`video size must be even, got ${width}x${height}`)
  const partial = `${path}.${process.pid}.partial`
  const expected = width * height * 3
  let count = 0
  let callersError: unknown = null
  async function* checked() {
    try {
      for await (const frame of frames) {
        if (frame.length !== expected)
          throw new RangeError(
            `frame ${count} of ${path}: expected ${expected} bytes (${width}x${height} rgb24), got ${frame.length}`,
          )
        count++
        yield frame
      }
      if (count === 0) throw new RangeError(`${path}: there are no frames to encode`)
    } catch (error) {
      callersError = error
      throw error
    }
  }
  const args = [
    '-hide_banner',
    '-nostdin',
    '-v',
    'error',
    '-y',
    '-f',
    'rawvideo',
    '-pix_fmt',
    'rgb24',
    '-s',
    `${width}x${height}`,
    '-r',
    String(fps),
    '-i',
    'pipe:0',
    '-an',
    '-map_metadata',
    '-1',
    '-threads',
    '1',
    '-c:v',
    'libx264',
    '-preset',
    'ultrafast',
    '-crf',
    '20',
    '-pix_fmt',
    'yuv420p',
    // A key frame every two seconds: agents seek all over the file.
    '-g',
    String(Math.max(1, Math.round(fps * 2))),
    '-fflags',
    '+bitexact',
    '-flags:v',
    '+bitexact',
    '-movflags',
    '+faststart',
    '-f',
    'mp4',
    partial,
  ]
  try {
    await mkdir(dirname(path), { recursive: true })
    const run = await runFfmpeg(args, {
      deadlineSeconds,
      signal,
      feed: (child) => pipeline(Readable.from(checked(), { objectMode: true, highWaterMark: 2 }), child.stdin!),
    })
    if (!run.ok) return failed(run.failure.kind, `${path}: ${run.failure.message}`)
    if (run.value.exitCode !== 0) {
      const full = /no space left|disk quota/i.test(run.value.stderr)
      return failed(
        full ? 'disk_full' : 'bad_file',
        `${path}: ffmpeg could not write this video (${mainComplaint(run.value.stderr)}); ${full ? 'free some space and run the same command again' : 'check the folder and the ffmpeg that is used'}`,
      )
    }
    await sync(partial)
    await rename(partial, path)
    return { ok: true, value: undefined }
  } catch (error) {
    if (error === callersError || (error as NodeJS.ErrnoException).code === undefined) throw error
    return failed(kindOfFileError(error), `${path}: cannot write this video: ${reasonOf(error)}`)
  } finally {
    await rm(partial, { force: true }).catch(() => undefined)
  }
}

async function sync(path: string): Promise<void> {
  const file = await open(path, 'r+')
  try {
    await file.sync()
  } finally {
    await file.close()
  }
}
