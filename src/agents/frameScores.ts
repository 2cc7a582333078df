/**
 * How much the pictures of a place fit a description in words. Two bodies: the embedded one puts each picture into words and compares
 * those; the other compares vectors of pictures and words that an endpoint makes. Chooses none.
 */
import type { Place, Result, SeenFrame, Usage } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { untilAborted } from './cache.ts'
import { captionOf } from './captionerEmbedded.ts'
import { failed } from './failure.ts'
import { cancelled } from './furtherAgent.ts'
import { describedAt, everyFew, hasPictures, momentsAt, stretchOf } from './moments.ts'
import type { PictureOptions } from './pictures.ts'
import { picturesOf } from './pictures.ts'
import { contentWords, type Embed, relevance } from './relevance.ts'
import type { Sight } from './sight.ts'
import { oneCall } from './usage.ts'
import type { VectorEndpoint } from './vectorEndpoint.ts'
import { cosine } from './vectors.ts'

const byWords = 'pictures were matched by the words , colors and objects seen in them , not by how they look .'

export interface SamplingOptions {
  secondsPerFrame: number
  mostFrames: number
}

export interface FrameScores {
  /** Of each moment that was looked at, in order of time. */
  scores: readonly { time: number; score: number; frame: SeenFrame | null }[]
  /** Seconds between them. */
  step: number
  /** What is to be known of these scores; null: nothing. */
  note: string | null
  usage: Usage
}

export interface FrameScorer {
  readonly name: string
  score(place: Place, query: string, signal: AbortSignal | undefined): Promise<Result<FrameScores>>
}

export function wordScorer(
  sight: Sight,
  embed: Embed,
  { lexicalWeight, ...sampling }: SamplingOptions & { lexicalWeight: number },
): FrameScorer {
  return {
    name: 'embedded',
    async score(place, query, signal) {
      const sampled = sample(place, sampling)
      if (!sampled.ok) return sampled
      const { moments, step } = sampled.value
      const visible = moments.filter(({ clip }) => hasPictures(clip))
      const seen = await sight.see(visible, { text: true, objects: true }, signal)
      if (!seen.ok) return seen
      const sights = new Map(seen.value.sights.map((sighted) => [sighted.moment, sighted]))
      const texts = moments.map((moment) => {
        const sighted = sights.get(moment)
        return sighted === undefined ? describedAt(moment) : captionOf(sighted)
      })
      const known = moments.map((moment, index) => ({ moment, text: texts[index]! })).filter(({ text }) => text !== '')
      if (known.length === 0) return noPictures(place)
      const fit = await untilAborted(
        relevance(
          query,
          known.map(({ text }) => text),
          embed,
          lexicalWeight,
        ),
        signal,
      )
      if (fit === null) return cancelled()
      const scores = known.map(({ moment }, index) => ({
        time: moment.at,
        score: fit[index]!,
        frame: sights.get(moment)?.frame ?? null,
      }))
      const wanted = contentWords(query)
      const shared = known.some(({ text }) => contentWords(text).some((word) => wanted.includes(word)))
      const note = shared ? byWords : `${byWords} none shares a word with the query .`
      const cached = seen.value.cached && visible.length > 0 ? 1 : 0
      return { ok: true, value: { scores, step, note, usage: oneCall({ frames: visible.length, cached }) } }
    },
  }
}

export function vectorScorer(
  vectors: VectorEndpoint,
  frames: FrameReader,
  options: SamplingOptions & PictureOptions,
): FrameScorer {
  return {
    name: `endpoint:${vectors.model}`,
    async score(place, query, signal) {
      const sampled = sample(place, options)
      if (!sampled.ok) return sampled
      const pictures = await picturesOf(sampled.value.moments, frames, options, signal)
      if (!pictures.ok) return pictures
      if (pictures.value.length === 0) return noPictures(place)
      const made = await vectors.embed(
        [{ text: query }, ...pictures.value.map(({ url }) => ({ picture: url }))],
        signal,
      )
      if (!made.ok) return made
      const [wanted, ...seen] = made.value.vectors
      const scores = pictures.value.map(({ moment, frame }, index) => ({
        time: moment.at,
        score: cosine(wanted!, seen[index]!),
        frame,
      }))
      return { ok: true, value: { scores, step: sampled.value.step, note: null, usage: made.value.usage } }
    },
  }
}

function sample(place: Place, { secondsPerFrame, mostFrames }: SamplingOptions) {
  const stretch = stretchOf(place)
  if (!stretch.ok) return stretch
  const times = everyFew(stretch.value, secondsPerFrame, mostFrames)
  const moments = momentsAt(place.episode, times)
  if (!moments.ok) return moments
  const step = (stretch.value.end - stretch.value.start) / Math.max(1, times.length)
  return { ok: true as const, value: { moments: moments.value, step } }
}

function noPictures({ episode, stretch }: Place): Result<never> {
  const where = stretch === null ? '' : ` from ${stretch.start} to ${stretch.end} s`
  return failed('agent', 'missing_file', `episode ${episode.id} has no pictures${where}`)
}
