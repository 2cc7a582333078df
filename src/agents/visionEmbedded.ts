/**
 * The embedded vision agent: reads text (PP-OCRv4), finds objects (NanoDet-g) and names colours in a few frames of each clip, and answers
 * the query from that (`query.ts` says what is asked, `sentences.ts` how it is put). Deterministic, offline, free; it may be wrong, as its nets are.
 *
 * Runs only the nets that the query needs. What was seen in a clip is kept by content, so no clip is seen twice.
 * Clips with timed descriptions instead of pictures are quoted (`visionDescriptions.ts`); clips with neither are a failure, never a guess.
 */
import type { AnswerCache } from './cache.ts'
import { failed, reasonOf } from './failure.ts'
import type { Perception } from './perception.ts'
import { queryKind } from './query.ts'
import type { Embed } from './relevance.ts'
import { describe } from './sentences.ts'
import type { ClipPercept, FrameObjects, FrameText } from './sentences.ts'
import { oneCall, secondsSince } from './usage.ts'
import { quote } from './visionDescriptions.ts'
import type { DescriptionOptions } from './visionDescriptions.ts'
import { uniformTimes } from '../video/index.ts'
import type { Frame, FrameReader } from '../video/index.ts'
import type { Clip, Result, VisionAgent } from '../types.ts'

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
  /** Keeps percepts. */
  cache: AnswerCache
  embed: Embed
}

/** Raised when the nets or the handling of their outputs change. */
const perceptVersion = 1

export function openVisionEmbedded(parts: VisionParts, options: EmbeddedVisionOptions): VisionAgent {
  return {
    name: 'embedded',
    async look({ clips, query }, { signal }) {
      const begin = performance.now()
      const kind = queryKind(query)
      const needsText = kind === 'text' || kind === 'colour' || kind === 'everything'
      const needsObjects = kind === 'object' || kind === 'count' || kind === 'everything'
      const percepts: ClipPercept[] = []
      const frames: { clipId: string; time: number }[] = []
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
        const seen = new Percepts(clip, parts, options, signal)
        const [text, objects] = await Promise.all([needsText ? seen.text() : null, needsObjects ? seen.objects() : null])
        if (text && !text.ok) return text
        if (objects && !objects.ok) return objects
        percepts.push({ text: text?.value.value ?? null, objects: objects?.value.value ?? null })
        frames.push(...seen.times.map((time) => ({ clipId: clip.id, time })))
        fresh ||= text?.value.cached === false || objects?.value.cached === false
      }
      const sentences = [...(percepts.length > 0 ? [describe(kind, percepts)] : []), ...quotes]
      const usage = oneCall({ frames: frames.length, seconds: secondsSince(begin), cached: fresh ? 0 : 1 })
      return { ok: true, value: { text: sentences.join('\n'), frames, usage } }
    },
  }
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
  ) {
    this.times = uniformTimes(clipSeconds(clip), options.framesPerClip)
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
      (await this.parts.perception.findObjects(pictures, objectThreshold)).map((objects) => objects.map(({ label, score }) => ({ label, score: round(score) }))),
    )
  }

  private async percept<T>(net: string, settings: unknown, see: (pictures: readonly Frame[]) => Promise<T>): Promise<Result<{ value: T; cached: boolean }>> {
    const { clip, parts, options, signal } = this
    const request = { source: clip.source, times: this.times, width: options.width }
    const identity = await parts.frames.identify(request)
    if (!identity.ok) return about(clip, identity)
    return parts.cache.answer<T>({
      content: ['percept', net, perceptVersion, settings, identity.value],
      boundary: 'vision',
      what: `looking at clip ${clip.id}`,
      signal,
      answer: async (shared) => {
        // Text and objects of one look come from the same frames.
        const pictures = await (this.pictures ??= parts.frames.read({ ...request, signal: shared }))
        if (!pictures.ok) return about(clip, pictures)
        try {
          return { ok: true, value: await see(pictures.value) }
        } catch (error) {
          return failed('vision', 'missing_file', `the embedded ${net} net did not run on clip ${clip.id} (${reasonOf(error)}); reinstall the packages with npm ci`)
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
