/**
 * The embedded vision agent: reads text (PP-OCRv4), finds objects (NanoDet-g) and names colours in a few frames of each clip, and answers
 * the query from that (`query.ts` says what is asked, `sentences.ts` how it is put). Deterministic, offline, free; it may be wrong, as its nets are.
 *
 * Runs only the nets that the query needs. What was seen in a clip is kept by content, so no clip is seen twice.
 * Clips with timed descriptions instead of pictures are quoted (`visionDescriptions.ts`); clips with neither are a failure, never a guess.
 */
import PQueue from 'p-queue'
import type { Clip, Failure, Result, SeenFrame, VisionAgent } from '../types.ts'
import type { Frame, FrameReader, FrameRequest } from '../video/index.ts'
import { uniformTimes } from '../video/index.ts'
import type { AnswerCache } from './cache.ts'
import { failed, reasonOf } from './failure.ts'
import type { Perception } from './perception.ts'
import { queryKind } from './query.ts'
import type { Embed } from './relevance.ts'
import type { ClipPercept, FrameObjects, FrameText } from './sentences.ts'
import { describe } from './sentences.ts'
import { oneCall, secondsSince } from './usage.ts'
import type { DescriptionOptions } from './visionDescriptions.ts'
import { quote } from './visionDescriptions.ts'

export interface EmbeddedVisionOptions extends DescriptionOptions {
  framesPerClip: number
  /** Frames wider than this are scaled down to it. */
  width: number
  minimumTextScore: number
  objectThreshold: number
}

export interface VisionParts {
  frames: FrameReader
  perception: Perception
  /** How many threads perceive. */
  threads: number
  /** Keeps percepts. */
  cache: AnswerCache
  embed: Embed
}

/** Raised when the nets or the handling of their outputs change. */
const perceptVersion = 1

export interface PrepareOptions {
  signal?: AbortSignal
  /** Called after every group of clips. */
  onProgress?: (done: number, total: number) => void
}

export interface EmbeddedVision extends VisionAgent {
  /**
   * Sees all of `clips` ahead of any query, with one ffmpeg call for several clips of a file: the fast way to see a whole data set.
   * Answers are those that `look` would give. Resolves to what could not be seen, at most one failure per clip; clips without pictures are passed over.
   */
  prepare(clips: readonly Clip[], options: PrepareOptions): Promise<readonly Failure[]>
}

export function openVisionEmbedded(parts: VisionParts, options: EmbeddedVisionOptions): EmbeddedVision {
  return {
    name: 'embedded',
    prepare: (clips, preparing) => prepare(clips, parts, options, preparing),
    async look({ clips, query }, { signal }) {
      const begin = performance.now()
      const kind = queryKind(query)
      const needsText = kind === 'text' || kind === 'colour' || kind === 'everything'
      const needsObjects = kind === 'object' || kind === 'count' || kind === 'everything'
      const percepts: ClipPercept[] = []
      const frames: SeenFrame[] = []
      const quotes: string[] = []
      let fresh = false
      for (const clip of clips) {
        if (clip.source.kind === 'descriptions') {
          const quoted = await quote(clip.source.lines, query, parts.embed, options, signal)
          if (!quoted.ok) return quoted
          quotes.push(quoted.value)
          fresh = true
          continue
        }
        const seen = new Percepts(clip, parts, options, signal, (shared) =>
          parts.frames.read({ ...requestFor(clip, options), signal: shared }),
        )
        const [text, objects] = await Promise.all([
          needsText ? seen.text() : null,
          needsObjects ? seen.objects() : null,
        ])
        if (text && !text.ok) return text
        if (objects && !objects.ok) return objects
        const pictures = await parts.frames.locate(requestFor(clip, options))
        if (!pictures.ok) return about(clip, pictures)
        percepts.push({ text: text?.value.value ?? null, objects: objects?.value.value ?? null })
        frames.push(...seen.times.map((time, index) => ({ clipId: clip.id, time, picture: pictures.value[index] })))
        fresh ||= text?.value.cached === false || objects?.value.cached === false
      }
      const sentences = [...(percepts.length > 0 ? [describe(kind, percepts)] : []), ...quotes]
      const usage = oneCall({ frames: frames.length, seconds: secondsSince(begin), cached: fresh ? 0 : 1 })
      return { ok: true, value: { text: sentences.join('\n'), frames, usage } }
    },
  }
}

/** Clips per ffmpeg call: its inputs are bounded (`video/frames.ts`), and so is the memory of their frames. */
function clipsPerGroup(framesPerClip: number): number {
  return Math.max(1, Math.floor(24 / framesPerClip))
}

async function prepare(
  clips: readonly Clip[],
  parts: VisionParts,
  options: EmbeddedVisionOptions,
  { signal, onProgress }: PrepareOptions,
): Promise<readonly Failure[]> {
  const visible = clips.filter(({ source }) => source.kind === 'video' || source.kind === 'frames')
  const groups: Clip[][] = []
  for (const clip of visible) {
    const group = groups.at(-1)
    const fits =
      group !== undefined && group.length < clipsPerGroup(options.framesPerClip) && pathOf(group[0]!) === pathOf(clip)
    if (fits) group.push(clip)
    else groups.push([clip])
  }
  const failures: Failure[] = []
  let done = 0
  const queue = new PQueue({ concurrency: parts.threads + 1 })
  await queue.addAll(
    groups.map((group) => async () => {
      if (signal?.aborted) return
      const read = groupFrames(group, parts, options)
      for (const [index, clip] of group.entries()) {
        const seen = new Percepts(clip, parts, options, signal, async (shared) => {
          const frames = await read(shared)
          const start = index * options.framesPerClip
          if (frames.ok) return { ok: true, value: frames.value.slice(start, start + options.framesPerClip) }
          // One bad stretch of a file must cost one clip, not its neighbours.
          return group.length > 1 ? parts.frames.read({ ...requestFor(clip, options), signal: shared }) : frames
        })
        const [text, objects] = await Promise.all([seen.text(), seen.objects()])
        if (!text.ok) failures.push(text.failure)
        else if (!objects.ok) failures.push(objects.failure)
      }
      done += group.length
      onProgress?.(done, visible.length)
    }),
  )
  return failures
}

function pathOf({ source }: Clip): string | null {
  return source.kind === 'video' ? source.path : null
}

/** Reads the frames of all clips of a group at the first request, if there is one. */
function groupFrames(
  group: readonly Clip[],
  parts: VisionParts,
  options: EmbeddedVisionOptions,
): (signal: AbortSignal) => Promise<Result<Frame[]>> {
  let reading: Promise<Result<Frame[]>> | null = null
  return (signal) => (reading ??= readGroup(group, parts, options, signal))
}

async function readGroup(
  group: readonly Clip[],
  parts: VisionParts,
  options: EmbeddedVisionOptions,
  signal: AbortSignal,
): Promise<Result<Frame[]>> {
  const [first] = group
  if (group.length === 1 || first!.source.kind !== 'video')
    return parts.frames.read({ ...requestFor(first!, options), signal })
  const times = group.flatMap((clip) =>
    requestFor(clip, options).times.map((time) => (clip.source.kind === 'video' ? clip.source.offset + time : time)),
  )
  return parts.frames.read({ source: { ...first!.source, offset: 0 }, times, width: options.width, signal })
}

function requestFor(clip: Clip, options: EmbeddedVisionOptions): Omit<FrameRequest, 'signal'> {
  const { source } = clip
  // a folder may hold fewer pictures than are wanted; each is looked at once
  const n =
    source.kind === 'frames' ? Math.min(options.framesPerClip, Math.max(1, source.count)) : options.framesPerClip
  return { source, times: uniformTimes(clipSeconds(clip), n), width: options.width }
}

/** What there is to see in one clip. */
class Percepts {
  readonly times: readonly number[]
  private pictures: Promise<Result<Frame[]>> | null = null

  constructor(
    private readonly clip: Clip,
    private readonly parts: VisionParts,
    private readonly options: EmbeddedVisionOptions,
    private readonly signal: AbortSignal | undefined,
    private readonly read: (signal: AbortSignal) => Promise<Result<Frame[]>>,
  ) {
    this.times = requestFor(clip, options).times
  }

  text() {
    const { minimumTextScore } = this.options
    return this.percept<FrameText[]>('text', { minimumTextScore }, async (pictures) =>
      (await this.parts.perception.readText(pictures, minimumTextScore)).map(({ lines, colour }) => ({
        lines: lines.map(({ text, score, panel }) => ({ text, score: round(score), panel })),
        colour,
      })),
    )
  }

  objects() {
    const { objectThreshold } = this.options
    return this.percept<FrameObjects[]>('objects', { objectThreshold }, async (pictures) =>
      (await this.parts.perception.findObjects(pictures, objectThreshold)).map((objects) =>
        objects.map(({ label, score }) => ({ label, score: round(score) })),
      ),
    )
  }

  private async percept<T>(
    net: string,
    settings: unknown,
    see: (pictures: readonly Frame[]) => Promise<T>,
  ): Promise<Result<{ value: T; cached: boolean }>> {
    const { clip, parts, options, signal } = this
    const identity = await parts.frames.identify(requestFor(clip, options))
    if (!identity.ok) return about(clip, identity)
    return parts.cache.answer<T>({
      content: ['percept', net, perceptVersion, settings, identity.value],
      boundary: 'vision',
      what: `looking at clip ${clip.id}`,
      signal,
      answer: async (shared) => {
        // Text and objects of one look come from the same frames.
        this.pictures ??= this.read(shared)
        const pictures = await this.pictures
        if (!pictures.ok) return about(clip, pictures)
        try {
          return { ok: true, value: await see(pictures.value) }
        } catch (error) {
          return failed(
            'vision',
            'missing_file',
            `the embedded ${net} net did not run on clip ${clip.id} (${reasonOf(error)}); reinstall the packages with npm ci`,
          )
        }
      },
    })
  }
}

/** Names the clip in a failure of its frames. */
function about(clip: Clip, result: Extract<Result<never>, { ok: false }>): Result<never> {
  const { boundary, kind, message } = result.failure
  return failed(boundary, kind, `clip ${clip.id}: ${message}`)
}

export function clipSeconds({ source, start, end }: Clip): number {
  if (source.kind === 'video') return source.duration
  if (source.kind === 'frames') return source.count / source.fps
  return Math.max(0, end - start)
}

function round(score: number): number {
  return Math.round(score * 10_000) / 10_000
}
