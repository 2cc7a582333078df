/**
 * Pictures at given times, from a video file or from a folder of numbered pictures.
 *
 * A request for several times of one file is one ffmpeg call with one fast-seeking input per time. (The select filter would
 * decode the whole file: 7 s instead of 0.4 s for five frames of forty minutes; spec/packages.md section 5.)
 * Does not cache, and does not choose the times beyond `uniformTimes`.
 */
import { join } from 'node:path'
import sharp from 'sharp'
import type { Result } from '../types.ts'
import { failed, kindOfFileError, reasonOf } from './failure.ts'
import { mainComplaint, runFfmpeg } from './ffmpeg.ts'
import { probe } from './probe.ts'

/** One picture: `data` is height * width * 3 bytes, row by row, red green blue. */
export interface Frame {
  /** Seconds, on the timeline of the request. */
  time: number
  width: number
  height: number
  data: Uint8Array
}

export interface ReadOptions {
  /** Pictures wider than this are scaled down to it, keeping their shape; null keeps the stored size. */
  width: number | null
  deadlineSeconds: number
  signal?: AbortSignal
}

/** Each input is an open file and a decoder; longer requests are answered in several calls. */
const inputsPerCall = 24

/** Centres of n equal spans of [0, duration), in seconds. */
export function uniformTimes(duration: number, n: number): number[] {
  return Array.from({ length: n }, (_, index) => ((index + 0.5) * duration) / n)
}

/**
 * The frames shown at `times` (seconds from the start of the file), in that order.
 * A time in or past the last frame gives the last frame. Fails with `missing_file`, or with `bad_file` for audio-only,
 * damaged and truncated files; the message names the file.
 */
export async function framesAt(path: string, times: readonly number[], options: ReadOptions): Promise<Result<Frame[]>> {
  if (times.length === 0) return { ok: true, value: [] }
  const facts = await probe(path, options)
  if (!facts.ok) return facts
  if (!facts.value.hasVideo) {
    const found = facts.value.hasAudio ? 'only sound' : 'no streams'
    return failed(
      'bad_file',
      `${path}: expected a video stream, found ${found}; replace the file or use subtitles alone`,
    )
  }
  const fps = facts.value.fps ?? 25
  const last = facts.value.duration === null ? Infinity : facts.value.duration - 0.5 / fps
  // ffmpeg gives the first frame at or after the place it seeks to; the frame shown at a time began before it.
  const seekTo = (time: number) => Math.max(0, (Math.floor(Math.min(time, last) * fps + 1e-3) - 0.25) / fps)

  const frames: Frame[] = []
  for (let start = 0; start < times.length; start += inputsPerCall) {
    const chunk = times.slice(start, start + inputsPerCall)
    const pictures = await cut(path, chunk.map(seekTo), options)
    if (!pictures.ok) return pictures
    pictures.value.forEach((picture, index) => frames.push({ ...picture, time: chunk[index]! }))
  }
  return { ok: true, value: frames }
}

async function cut(
  path: string,
  times: readonly number[],
  options: ReadOptions,
): Promise<Result<Omit<Frame, 'time'>[]>> {
  // The frames are stacked into one tall picture: with a single output frame, no version of ffmpeg drops or doubles any to keep time.
  // PPM is raw rgb24 behind a line with the size, so that rotation and odd pixel shapes need no arithmetic here.
  const inputs = times.flatMap((time) => [
    '-threads',
    '1',
    '-fflags',
    '+discardcorrupt',
    '-ss',
    time.toFixed(4),
    '-i',
    path,
  ])
  const scale =
    options.width === null
      ? 'scale=iw*sar:ih'
      : `scale='min(${options.width},2*round(iw*sar/2))':'max(2,2*round(min(${options.width},iw*sar)/dar/2))'`
  const branches = times.map(
    (_, index) =>
      `[${index}:v:0]trim=end_frame=1,setpts=0,${scale}:flags=bicubic+accurate_rnd+full_chroma_int,setsar=1,format=rgb24[f${index}]`,
  )
  const labels = times.map((_, index) => `[f${index}]`).join('')
  const stack = times.length === 1 ? `${labels}null[out]` : `${labels}vstack=inputs=${times.length}[out]`
  const args = [
    '-hide_banner',
    '-nostdin',
    '-v',
    'error',
    ...inputs,
    '-filter_complex',
    [...branches, stack].join(';'),
    '-map',
    '[out]',
    '-frames:v',
    '1',
    '-f',
    'image2pipe',
    '-c:v',
    'ppm',
    'pipe:1',
  ]
  const run = await runFfmpeg(args, options)
  if (!run.ok) return failed(run.failure.kind, `${path}: ${run.failure.message}`)
  const tall = readPpm(run.value.stdout)
  if (tall === null) {
    const asked = times.map((time) => time.toFixed(2)).join(', ')
    const complaint = run.value.stderr.trim() === '' ? '' : ` (${mainComplaint(run.value.stderr)})`
    return failed(
      'bad_file',
      `${path}: expected a frame at each of ${asked} s, could not decode all of them${complaint}; the file is truncated or damaged`,
    )
  }
  const height = tall.height / times.length
  const bytes = tall.width * height * 3
  return {
    ok: true,
    value: times.map((_, index) => ({
      width: tall.width,
      height,
      data: tall.data.subarray(index * bytes, (index + 1) * bytes),
    })),
  }
}

/** A binary PPM picture; null when it is absent or cut short. */
function readPpm(bytes: Buffer): Omit<Frame, 'time'> | null {
  const header = /^P6\s+(\d+)\s+(\d+)\s+255\s/.exec(bytes.toString('latin1', 0, 32))
  if (!header) return null
  const width = Number(header[1])
  const height = Number(header[2])
  const data = bytes.subarray(header[0].length, header[0].length + width * height * 3)
  return data.length === width * height * 3 ? { width, height, data } : null
}

export interface FrameFolder {
  directory: string
  fps: number
  count: number
}

/** Path of the picture shown at `time`: `{directory}/{n:05d}.jpg`, n from 1, picture n at (n - 1) / fps seconds. */
export function folderFramePath(folder: FrameFolder, time: number): string {
  const number = Math.min(folder.count, Math.max(1, Math.floor(time * folder.fps + 1e-6) + 1))
  return join(folder.directory, `${String(number).padStart(5, '0')}.jpg`)
}

/** The same as `framesAt`, from a folder of pictures. A picture that is absent is `missing_file`, never skipped in silence. */
export async function framesInFolder(
  folder: FrameFolder,
  times: readonly number[],
  options: ReadOptions,
): Promise<Result<Frame[]>> {
  if (folder.count === 0)
    return failed('missing_file', `${folder.directory}: expected pictures named 00001.jpg and on, found none`)
  const frames: Frame[] = []
  for (const time of times) {
    if (options.signal?.aborted) return failed('cancelled', `${folder.directory}: reading frames was cancelled`)
    const path = folderFramePath(folder, time)
    try {
      const picture = sharp(path).removeAlpha().toColourspace('srgb')
      if (options.width !== null) picture.resize({ width: options.width, withoutEnlargement: true })
      const { data, info } = await picture.raw().toBuffer({ resolveWithObject: true })
      frames.push({ time, width: info.width, height: info.height, data })
    } catch (error) {
      const missing = /missing/i.test(reasonOf(error))
      const kind = missing ? 'missing_file' : kindOfFileError(error)
      return failed(
        kind,
        `${path}: cannot read this frame (${reasonOf(error)}); expected ${folder.count} pictures in the folder`,
      )
    }
  }
  return { ok: true, value: frames }
}
