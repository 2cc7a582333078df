/**
 * What a media file is: duration, picture size, whether it has pictures at all.
 *
 * Read from the banner that `ffmpeg -i` prints, since ffprobe is missing from some sources of ffmpeg. Does not decode anything:
 * a file cut short behind an intact header still probes well, and fails where frames are read.
 */
import { stat } from 'node:fs/promises'
import type { Result } from '../types.ts'
import { failed, kindOfFileError, reasonOf } from './failure.ts'
import type { RunOptions } from './ffmpeg.ts'
import { mainComplaint, runFfmpeg } from './ffmpeg.ts'

export interface MediaFacts {
  /** Seconds; null where the container does not tell. */
  duration: number | null
  /** Stored picture size in pixels, before rotation; null without a video stream. */
  size: { width: number; height: number } | null
  /** Frames per second; null without a video stream or where not told. */
  fps: number | null
  /** False for audio files, also for those with a cover picture. */
  hasVideo: boolean
  hasAudio: boolean
}

const remembered = new Map<string, Promise<Result<MediaFacts>>>()
const rememberedLimit = 4096

/** Probes once per (path, size, mtime). Fails with `missing_file`, or `bad_file` for what ffmpeg cannot open. */
export async function probe(path: string, options: RunOptions): Promise<Result<MediaFacts>> {
  let key: string
  try {
    const facts = await stat(path)
    if (!facts.isFile()) return failed('bad_file', `${path}: expected a video file, found a directory or device`)
    if (facts.size === 0) return failed('bad_file', `${path}: expected a video file, found an empty file`)
    key = `${path}\0${facts.size}\0${facts.mtimeMs}`
  } catch (error) {
    return failed(
      kindOfFileError(error),
      `${path}: cannot read this video: ${reasonOf(error)}; check the path in the data set`,
    )
  }
  const known = remembered.get(key)
  if (known) {
    const result = await known
    // Somebody else's cancellation or deadline says nothing about the file.
    if (result.ok || result.failure.kind === 'bad_file') return result
  }
  const asked = ask(path, options)
  if (remembered.size >= rememberedLimit) remembered.clear()
  remembered.set(key, asked)
  const result = await asked
  if (!result.ok && result.failure.kind !== 'bad_file') remembered.delete(key)
  return result
}

async function ask(path: string, options: RunOptions): Promise<Result<MediaFacts>> {
  const run = await runFfmpeg(['-hide_banner', '-nostdin', '-i', path], options)
  if (!run.ok) return failed(run.failure.kind, `${path}: ${run.failure.message}`)
  const facts = readBanner(run.value.stderr)
  if (facts === null) {
    return failed(
      'bad_file',
      `${path}: not a readable video file (${mainComplaint(run.value.stderr)}); it may be truncated or damaged`,
    )
  }
  return { ok: true, value: facts }
}

/** Facts in the banner of `ffmpeg -i`; null when no input was opened. */
export function readBanner(text: string): MediaFacts | null {
  if (!/^Input #0/m.test(text)) return null
  const clock = /Duration: (\d+):(\d+):(\d+(?:\.\d+)?)/.exec(text)
  const streams = text.split('\n').filter((line) => /^\s*Stream #0:/.test(line))
  const video = streams.find((line) => line.includes('Video:') && !line.includes('(attached pic)'))
  const size = video ? /[ ,](\d{2,5})x(\d{2,5})[ ,[]/.exec(`${video},`) : null
  const fps = video ? /([\d.]+)(k?) fps/.exec(video) : null
  return {
    duration: clock ? Number(clock[1]) * 3600 + Number(clock[2]) * 60 + Number(clock[3]) : null,
    size: size ? { width: Number(size[1]), height: Number(size[2]) } : null,
    fps: fps ? Number(fps[1]) * (fps[2] ? 1000 : 1) : null,
    hasVideo: video !== undefined,
    hasAudio: streams.some((line) => line.includes('Audio:')),
  }
}
