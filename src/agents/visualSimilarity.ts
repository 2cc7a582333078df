/**
 * How alike places look to a reference: for each picture of the reference the most similar one of the place, and the mean of that. What a
 * picture looks like is told by the embedded nets (`appearance.ts`) or by an endpoint that makes vectors of pictures.
 */
import type {
  Agent,
  Place,
  Result,
  SeenFrame,
  Usage,
  VisualSimilarityAnswer,
  VisualSimilarityRequest,
} from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { alike } from './appearance.ts'
import { failed } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { hasPictures, type Moment, momentsAt, spread, stretchOf } from './moments.ts'
import { type PictureOptions, picturesOf } from './pictures.ts'
import type { Sight } from './sight.ts'
import { oneCall } from './usage.ts'
import type { VectorEndpoint } from './vectorEndpoint.ts'
import { cosine } from './vectors.ts'

/** Vectors of the pictures at some moments, in order, and how alike two are, from 0 to 1. */
export interface Comparer {
  readonly name: string
  readonly caveat: string | null
  see(moments: readonly Moment[], signal: AbortSignal | undefined): Promise<Result<Looks>>
  alike(a: Float32Array, b: Float32Array): number
}

interface Looks {
  vectors: readonly Float32Array[]
  frames: readonly SeenFrame[]
  usage: Usage
}

export function embeddedComparer(sight: Sight): Comparer {
  return {
    name: 'embedded',
    caveat: 'likeness is of colors , light and kinds of things ; the same thing from another side may look different .',
    alike,
    async see(moments, signal) {
      const seen = await sight.see(moments, { appearance: true }, signal)
      if (!seen.ok) return seen
      const { sights, cached } = seen.value
      return {
        ok: true,
        value: {
          vectors: sights.map(({ appearance }) => appearance!),
          frames: sights.map(({ frame }) => frame),
          usage: oneCall({ frames: sights.length, cached: cached ? 1 : 0 }),
        },
      }
    },
  }
}

export function vectorComparer(vectors: VectorEndpoint, frames: FrameReader, options: PictureOptions): Comparer {
  return {
    name: `endpoint:${vectors.model}`,
    caveat: null,
    alike: (a, b) => Math.min(1, Math.max(0, cosine(a, b))),
    async see(moments, signal) {
      const pictures = await picturesOf(moments, frames, options, signal)
      if (!pictures.ok) return pictures
      const made = await vectors.embed(
        pictures.value.map(({ url }) => ({ picture: url })),
        signal,
      )
      if (!made.ok) return made
      return { ok: true, value: { ...made.value, frames: pictures.value.map(({ frame }) => frame) } }
    },
  }
}

export function openVisualSimilarity(comparer: Comparer): Agent<VisualSimilarityRequest, VisualSimilarityAnswer> {
  return furtherAgent(
    'visualSimilarity',
    comparer.name,
    async ({ reference, candidates, framesPerPlace }, { signal }) => {
      const moments: Moment[] = []
      const places: number[][] = []
      for (const place of [reference, ...candidates]) {
        const here = momentsOf(place, framesPerPlace)
        if (!here.ok) return here
        places.push(here.value.map((_, index) => moments.length + index))
        moments.push(...here.value)
      }
      const seen = await comparer.see(moments, signal)
      if (!seen.ok) return seen
      const { vectors, frames, usage } = seen.value
      const [wanted, ...others] = places.map((indices) => indices.map((index) => vectors[index]!))
      const similarities = others.map((vectorsThere) => {
        const best = wanted!.map((one) => Math.max(...vectorsThere.map((other) => comparer.alike(one, other))))
        return best.reduce((sum, value) => sum + value, 0) / best.length
      })
      return { ok: true, value: { similarities, frames, caveat: comparer.caveat, usage } }
    },
  )
}

function momentsOf(place: Place, count: number): Result<Moment[]> {
  const stretch = stretchOf(place)
  if (!stretch.ok) return stretch
  const moments = momentsAt(place.episode, spread(stretch.value, count))
  if (!moments.ok) return moments
  const visible = moments.value.filter(({ clip }) => hasPictures(clip))
  if (visible.length > 0) return { ok: true, value: visible }
  const { start, end } = stretch.value
  return failed('agent', 'missing_file', `episode ${place.episode.id} has no pictures from ${start} to ${end} s`)
}
