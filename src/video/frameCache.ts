/**
 * Frames of a clip's source, kept on disk by content.
 *
 * A frame's key is its `SeenPicture.hash`: the identity of its file (size, modification time, hash of its first and last 64 KiB), the time and the width. Frames are kept as
 * lossless PNG, so that a cached frame is the same frame, bit for bit, and a person can look at it. Folders of pictures are read as they are.
 * A cache that cannot be written (a full disk) costs time, never an answer: it warns once and goes on.
 * Does not evict: the folder may be deleted at any time.
 */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir, open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import PQueue from 'p-queue'
import sharp from 'sharp'
import type { FrameSource, Result, SeenPicture } from '../types.ts'
import { failed, kindOfFileError, reasonOf } from './failure.ts'
import type { Frame } from './frames.ts'
import { folderFramePath, framesAt, framesInFolder } from './frames.ts'
import type { VideoOptions } from './options.ts'

export interface FrameRequest {
  source: FrameSource
  /** Seconds on the clip's own timeline. */
  times: readonly number[]
  /** Most pixels across; null keeps the stored size. */
  width: number | null
  signal?: AbortSignal
}

export interface FrameReader {
  /** The frames of a request, in the order of its times. Sources without pictures fail with `missing_file`. */
  read(request: FrameRequest): Promise<Result<Frame[]>>
  /** A hash that changes whenever the pictures of this request could: for caches of what was seen in them. */
  identify(request: FrameRequest): Promise<Result<string>>
  /** Which pictures a request means, in the order of its times, without reading them. */
  locate(request: FrameRequest): Promise<Result<SeenPicture[]>>
}

export function openFrameReader(options: VideoOptions): FrameReader {
  const queue = new PQueue({ concurrency: options.concurrency })
  let warned = false
  const warnOnce = (error: unknown) => {
    if (warned) return
    warned = true
    process.emitWarning(
      `frames are not being cached in ${options.cacheDirectory}: ${reasonOf(error)}`,
      'FrameCacheWarning',
    )
  }
  return {
    identify,
    locate,
    async read(request) {
      const { source, times, width, signal } = request
      const reading = { width, deadlineSeconds: options.deadlineSeconds, signal }
      if (source.kind === 'frames') return framesInFolder(source, times, reading)
      if (source.kind !== 'video') return noPictures(source)
      const cut = (wanted: readonly number[]) =>
        queue.add(() =>
          framesAt(
            source.path,
            wanted.map((time) => source.offset + time),
            reading,
          ),
        )
      if (options.cacheDirectory === null) return retime(await cut(times), times)

      const located = await locate(request)
      if (!located.ok) return located
      const paths = located.value.map(({ hash: key }) => join(options.cacheDirectory!, key.slice(0, 2), `${key}.png`))
      const cached = await Promise.all(paths.map((path, index) => load(path, times[index]!)))
      const absent = times.flatMap((_, index) => (cached[index] === null ? [index] : []))
      if (absent.length === 0) return { ok: true, value: cached as Frame[] }
      const fresh = retime(
        await cut(absent.map((index) => times[index]!)),
        absent.map((index) => times[index]!),
      )
      if (!fresh.ok) return fresh
      await Promise.all(
        absent.map((index, position) => {
          cached[index] = fresh.value[position]!
          return keep(paths[index]!, fresh.value[position]!).catch(warnOnce)
        }),
      )
      return { ok: true, value: cached as Frame[] }
    },
  }
}

/** Times on the clip's own timeline, as they were asked for. */
function retime(frames: Result<Frame[]>, times: readonly number[]): Result<Frame[]> {
  return frames.ok
    ? { ok: true, value: frames.value.map((frame, index) => ({ ...frame, time: times[index]! })) }
    : frames
}

function noPictures(source: FrameSource): Result<never> {
  return failed(
    'missing_file',
    `this clip has no pictures (its source is "${source.kind}"); add video files or frame folders to the data set`,
  )
}

async function identify({ source, times, width }: FrameRequest): Promise<Result<string>> {
  const asked = `${times.map((time) => time.toFixed(4)).join(',')}\0${width ?? 'stored'}`
  if (source.kind === 'video') {
    const file = await identifyFile(source.path)
    return file.ok ? { ok: true, value: hash(`${file.value}\0${source.offset.toFixed(4)}\0${asked}`) } : file
  }
  if (source.kind !== 'frames') return noPictures(source)
  const parts: string[] = []
  for (const time of times) {
    const file = await identifyFile(folderFramePath(source, time))
    if (!file.ok) return file
    parts.push(file.value)
  }
  return { ok: true, value: hash(`${parts.join('\0')}\0${asked}`) }
}

async function locate({ source, times, width }: FrameRequest): Promise<Result<SeenPicture[]>> {
  if (source.kind === 'video') {
    const { path, offset } = source
    const file = await identifyFile(path)
    if (!file.ok) return file
    const at = times.map((time) => Number((offset + time).toFixed(4)))
    return {
      ok: true,
      value: at.map((seconds) => ({
        path,
        at: seconds,
        width,
        hash: pictureHash(file.value, seconds, width),
      })),
    }
  }
  if (source.kind !== 'frames') return noPictures(source)
  const pictures: SeenPicture[] = []
  for (const time of times) {
    const path = folderFramePath(source, time)
    const file = await identifyFile(path)
    if (!file.ok) return file
    pictures.push({ path, at: null, width, hash: pictureHash(file.value, null, width) })
  }
  return { ok: true, value: pictures }
}

/** Of a file's identity, the seconds from its start (null: the file is the picture) and the width. */
export function pictureHash(identity: string, at: number | null, width: number | null): string {
  return hash([identity, ...(at === null ? [] : [at.toFixed(4)]), width ?? 'stored'].join('\0'))
}

const edgeBytes = 65_536

/** Size, modification time and the hash of both ends: as good as the content for files that nobody forges, at any length. */
export async function identifyFile(path: string): Promise<Result<string>> {
  try {
    const facts = await stat(path)
    const file = await open(path, 'r')
    try {
      const head = Buffer.alloc(Math.min(edgeBytes, facts.size))
      const tail = Buffer.alloc(Math.min(edgeBytes, facts.size))
      await file.read(head, 0, head.length, 0)
      await file.read(tail, 0, tail.length, facts.size - tail.length)
      return { ok: true, value: hash(`${facts.size}\0${facts.mtimeMs}\0${hash(head)}\0${hash(tail)}`) }
    } finally {
      await file.close()
    }
  } catch (error) {
    return failed(
      kindOfFileError(error),
      `${path}: cannot read this file: ${reasonOf(error)}; check the path in the data set`,
    )
  }
}

async function load(path: string, time: number): Promise<Frame | null> {
  try {
    const { data, info } = await sharp(await readFile(path))
      .removeAlpha()
      .raw()
      .toBuffer({ resolveWithObject: true })
    return { time, width: info.width, height: info.height, data }
  } catch {
    return null // Absent or damaged: both are cut again from the video.
  }
}

async function keep(path: string, frame: Frame): Promise<void> {
  const raw = { width: frame.width, height: frame.height, channels: 3 as const }
  const png = await sharp(frame.data, { raw }).png({ compressionLevel: 2 }).toBuffer()
  const partial = `${path}.${randomUUID()}.partial`
  try {
    await mkdir(dirname(path), { recursive: true })
    await writeFile(partial, png)
    await rename(partial, path)
  } catch (error) {
    await rm(partial, { force: true }).catch(() => undefined)
    throw error
  }
}

function hash(content: string | Uint8Array): string {
  return createHash('sha256').update(content).digest('hex').slice(0, 40)
}
