/**
 * What the embedded nets see at single moments: written words, colours, objects, with their places, and what it all looks like. Each picture is kept by content,
 * so that agents that look at the same moment see it once. Puts nothing into words.
 */
import PQueue from 'p-queue'
import type { FrameSource, Result, SeenFrame, SeenPicture, Box as Share } from '../types.ts'
import type { Frame, FrameReader } from '../video/index.ts'
import type { AnswerCache } from './cache.ts'
import { type ColourName, colourWithin } from './colours.ts'
import type { Moment } from './moments.ts'
import { seenFrame } from './moments.ts'
import type { Perception } from './perception.ts'

export interface SightOptions {
  /** Pictures wider than this are scaled down to it. */
  width: number
  minimumTextScore: number
  objectThreshold: number
}

export interface SightedObject {
  label: string
  score: number
  /** Shares of the picture. */
  box: Share
  /** The commonest colour in the middle of the box. */
  colour: ColourName
}

export interface Sighted {
  moment: Moment
  frame: SeenFrame
  /** null where nobody looked for it. */
  text: SightedText | null
  objects: readonly SightedObject[] | null
  /** See `appearance.ts`. */
  appearance: Float32Array | null
}

export interface SightedText {
  lines: readonly SightedLine[]
  /** The dominant colour of the whole picture. */
  colour: ColourName
}

export interface SightedLine {
  text: string
  score: number
  panel: ColourName
  /** Shares of the picture. */
  box: Share
}

export interface Wanted {
  text?: boolean
  objects?: boolean
  appearance?: boolean
}

export interface Sight {
  /** In the order of the moments, all of clips with pictures. `cached`: nothing had to be seen anew. */
  see(
    moments: readonly Moment[],
    wanted: Wanted,
    signal: AbortSignal | undefined,
  ): Promise<Result<{ sights: Sighted[]; cached: boolean }>>
}

export interface SightParts {
  frames: FrameReader
  perception: Perception
  threads: number
  percepts: AnswerCache
}

/** Raised when the nets or the handling of their outputs change. */
const version = 1
/** Pictures read at once: one ffmpeg call, and what their memory is. */
const chunkSize = 24

export function openSight({ frames, perception, threads, percepts }: SightParts, options: SightOptions): Sight {
  const { width, minimumTextScore, objectThreshold } = options
  // one chunk is read while others are looked at
  const chunks = new PQueue({ concurrency: threads + 1 })

  function percept<T>(
    net: 'text' | 'objects' | 'appearance',
    settings: number | null,
    located: Located,
    read: () => Promise<Result<Frame>>,
    signal: AbortSignal | undefined,
    see: (frame: Frame) => Promise<T>,
  ): Promise<Result<{ value: T; cached: boolean }>> {
    return percepts.answer<T>({
      content: ['sight', net, version, settings, located.picture.hash],
      boundary: 'agent',
      what: `looking at ${located.moment.at.toFixed(1)} s of clip ${located.moment.clip.id}`,
      signal,
      answer: async () => {
        const frame = await read()
        return frame.ok ? { ok: true, value: await see(frame.value) } : frame
      },
    })
  }

  async function readText(frame: Frame): Promise<SightedText> {
    const [seen] = await perception.readText([frame], minimumTextScore)
    const lines = seen!.lines.map(({ text, score, panel, box }) => ({
      text,
      score: round(score),
      panel,
      box: shares(box, frame),
    }))
    return { lines, colour: seen!.colour }
  }

  async function findObjects(frame: Frame): Promise<SightedObject[]> {
    const [seen] = await perception.findObjects([frame], objectThreshold)
    return seen!.map(({ label, score, box }) => ({
      label,
      score: round(score),
      box: shares(box, frame),
      colour: colourWithin(frame, box),
    }))
  }

  async function seeOne(
    located: Located,
    wanted: Wanted,
    read: () => Promise<Result<Frame>>,
    signal: AbortSignal | undefined,
  ): Promise<Result<{ sighted: Sighted; cached: boolean }>> {
    const [text, objects, appearance] = await Promise.all([
      wanted.text ? percept('text', minimumTextScore, located, read, signal, (frame) => readText(frame)) : null,
      wanted.objects ? percept('objects', objectThreshold, located, read, signal, (frame) => findObjects(frame)) : null,
      wanted.appearance
        ? percept('appearance', null, located, read, signal, async (frame) =>
            packed(await perception.seeAppearance([frame])),
          )
        : null,
    ])
    if (text && !text.ok) return text
    if (objects && !objects.ok) return objects
    if (appearance && !appearance.ok) return appearance
    const { moment, picture } = located
    return {
      ok: true,
      value: {
        sighted: {
          moment,
          frame: seenFrame(moment, picture),
          text: text?.value.value ?? null,
          objects: objects?.value.value ?? null,
          appearance: appearance ? unpacked(appearance.value.value) : null,
        },
        cached: [text, objects, appearance].every((one) => one?.value.cached !== false),
      },
    }
  }

  return {
    async see(moments, wanted, signal) {
      const sights = new Map<Moment, Sighted>()
      let cached = true
      let failure: Result<never> | null = null
      await chunks.addAll(
        inChunks(moments).map((chunk) => async () => {
          if (failure !== null) return
          const located = await locate(frames, chunk, width)
          if (!located.ok) {
            failure ??= located
            return
          }
          let reading: Promise<Result<Frame[]>> | null = null
          const seen = await Promise.all(
            located.value.map((one, index) => {
              const read = async (): Promise<Result<Frame>> => {
                // The whole chunk, with one call, when any of it was never seen.
                reading ??= frames.read({ ...requestFor(chunk, width), signal })
                const pictures = await reading
                return pictures.ok ? { ok: true, value: pictures.value[index]! } : pictures
              }
              return seeOne(one, wanted, read, signal)
            }),
          )
          for (const one of seen) {
            if (!one.ok) failure ??= one
            else {
              sights.set(one.value.sighted.moment, one.value.sighted)
              cached &&= one.value.cached
            }
          }
        }),
      )
      return failure ?? { ok: true, value: { sights: moments.map((moment) => sights.get(moment)!), cached } }
    },
  }
}

interface Located {
  moment: Moment
  picture: SeenPicture
}

/** Consecutive moments of one file or folder, at most `chunkSize`. */
export function inChunks(moments: readonly Moment[]): Moment[][] {
  const groups: Moment[][] = []
  for (const moment of moments) {
    const group = groups.at(-1)
    const fits = group !== undefined && group.length < chunkSize && fileOf(group[0]!) === fileOf(moment)
    if (fits) group.push(moment)
    else groups.push([moment])
  }
  return groups
}

function fileOf({ clip: { source } }: Moment): string {
  return source.kind === 'video' ? source.path : source.kind === 'frames' ? source.directory : ''
}

/** One request for all moments of a chunk: times from the start of their file. */
export function requestFor(
  chunk: readonly Moment[],
  width: number,
): { source: FrameSource; times: number[]; width: number } {
  const { source } = chunk[0]!.clip
  return {
    source: source.kind === 'video' ? { ...source, offset: 0 } : source,
    times: chunk.map(({ clip, time }) => (clip.source.kind === 'video' ? clip.source.offset + time : time)),
    width,
  }
}

async function locate(frames: FrameReader, chunk: readonly Moment[], width: number): Promise<Result<Located[]>> {
  const pictures = await frames.locate(requestFor(chunk, width))
  return pictures.ok
    ? { ok: true, value: pictures.value.map((picture, index) => ({ moment: chunk[index]!, picture })) }
    : pictures
}

/** Little-endian 32-bit floats, base64: what a cache of JSON can keep. */
function packed(vector: Float32Array): string {
  return Buffer.from(vector.buffer, vector.byteOffset, vector.byteLength).toString('base64')
}

function unpacked(text: string): Float32Array {
  return new Float32Array(Uint8Array.from(Buffer.from(text, 'base64')).buffer)
}

function shares(box: { left: number; top: number; right: number; bottom: number }, { width, height }: Frame): Share {
  return [box.left / width, box.top / height, (box.right - box.left) / width, (box.bottom - box.top) / height].map(
    round,
  ) as [number, number, number, number]
}

function round(value: number): number {
  return Math.round(value * 10_000) / 10_000
}
