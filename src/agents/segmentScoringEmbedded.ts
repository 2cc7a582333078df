/**
 * The embedded segment scorer: Symphony's scale (spec systems.md, section 3.2) by what can be read off words. A segment's words are what the
 * nets see in its pictures, what people wrote about it, and its dialogue.
 *
 *   coverage   share of the question's content words that the segment has, rare ones weighing more (inverse document frequency)
 *   likeness   cosine of the question and the segment's closest sentence
 *
 *   4   coverage >= 0.4, and all content words of an option occur      3   coverage >= 0.4, or likeness >= 0.6
 *   2   coverage >= 0.2, or an option occurs, or likeness >= 0.45      1   none of these
 */
import type { Agent, Relevance, Result, SegmentScoringAnswer, SegmentScoringRequest } from '../types.ts'
import { untilAborted } from './cache.ts'
import { captionOf } from './captionerEmbedded.ts'
import { dialogueOf, spokenLine } from './dialogue.ts'
import { cancelled, furtherAgent } from './furtherAgent.ts'
import { describedAt, hasPictures, momentsAt, spread } from './moments.ts'
import { contentWords, type Embed } from './relevance.ts'
import type { Sight } from './sight.ts'
import { oneCall } from './usage.ts'
import { cosine, rowsOf } from './vectors.ts'

const byWords = 'segments were scored by words seen , heard and asked for , not by what happens in them .'

export interface EmbeddedScoringOptions {
  mostFrames: number
}

export function openSegmentScoringEmbedded(
  sight: Sight,
  embed: Embed,
  { mostFrames }: EmbeddedScoringOptions,
): Agent<SegmentScoringRequest, SegmentScoringAnswer> {
  return furtherAgent('segmentScoring', 'embedded', async (request, { signal }) => {
    const { question, framesPerSegment } = request
    const read = await segmentsOf(request, sight, Math.min(framesPerSegment, mostFrames), signal)
    if (!read.ok) return read
    const { segments, frames, cached } = read.value
    const sentences = [...new Set(segments.flatMap(({ captions, dialogue }) => [...captions, ...dialogue]))]
    const flat = await untilAborted(embed([question.text, ...sentences]), signal)
    if (flat === null) return cancelled()
    const [asked, ...vectors] = rowsOf(flat, sentences.length + 1)
    const likeness = new Map(sentences.map((text, index) => [text, cosine(asked!, vectors[index]!)]))
    const covered = coverage(
      question.text,
      segments.map(({ captions, dialogue }) => [...captions, ...dialogue].join(' ')),
    )
    const scores = segments.map(({ captions, dialogue }, index) => {
      const here = [...captions, ...dialogue]
      const closest = here.reduce<string | null>(
        (best, text) => (best === null || likeness.get(text)! > likeness.get(best)! ? text : best),
        null,
      )
      const words = new Set(contentWords(here.join(' ')))
      const option = question.options.find((text) => mentions(words, text)) ?? null
      const relevance = rate(covered[index]!, closest === null ? 0 : likeness.get(closest)!, option !== null)
      const reasoning = [`closest : ${closest}`, ...(option === null ? [] : [`mentions ${option} .`])].join(' ')
      return { relevance, caption: captions.join(' '), reasoning: relevance === 1 ? null : reasoning }
    })
    return {
      ok: true,
      value: {
        scores,
        frames,
        caveat: byWords,
        usage: oneCall({ frames: frames.length, cached: cached && frames.length > 0 ? 1 : 0 }),
      },
    }
  })
}

/** The table above. */
export function rate(coverage: number, likeness: number, option: boolean): Relevance {
  if (coverage >= 0.4) return option ? 4 : 3
  if (likeness >= 0.6) return 3
  return coverage >= 0.2 || option || likeness >= 0.45 ? 2 : 1
}

/**
 * Share of the question's words that each text has. A word that n of the N texts have weighs ln(1 + N / n); one that none has tells texts
 * apart as little as it speaks for any: half of what a word of one text weighs.
 */
export function coverage(question: string, texts: readonly string[]): number[] {
  const known = texts.map((text) => new Set(contentWords(text)))
  const words = [...new Set(contentWords(question))].map((word) => {
    const having = known.filter((some) => some.has(word)).length
    return { word, weight: having === 0 ? Math.log(1 + texts.length) / 2 : Math.log(1 + texts.length / having) }
  })
  const whole = words.reduce((sum, { weight }) => sum + weight, 0)
  return known.map((some) =>
    whole === 0 ? 0 : words.reduce((sum, { word, weight }) => sum + (some.has(word) ? weight : 0), 0) / whole,
  )
}

function mentions(words: ReadonlySet<string>, option: string): boolean {
  const wanted = contentWords(option)
  return wanted.length > 0 && wanted.every((word) => words.has(word))
}

interface Segment {
  captions: string[]
  dialogue: string[]
}

async function segmentsOf(
  { episode, segments }: SegmentScoringRequest,
  sight: Sight,
  framesPerSegment: number,
  signal: AbortSignal | undefined,
): Promise<Result<{ segments: Segment[]; frames: SegmentScoringAnswer['frames']; cached: boolean }>> {
  const read: { moments: ReturnType<typeof momentsAt>; dialogue: ReturnType<typeof dialogueOf> }[] = segments.map(
    (stretch) => ({
      moments: momentsAt(episode, spread(stretch, framesPerSegment)),
      dialogue: dialogueOf({ episode, stretch }),
    }),
  )
  const moments = []
  for (const one of read) {
    if (!one.moments.ok) return one.moments
    moments.push(one.moments.value)
  }
  const visible = moments.flat().filter(({ clip }) => hasPictures(clip))
  const seen = await sight.see(visible, { text: true, objects: true }, signal)
  if (!seen.ok) return seen
  const sights = new Map(seen.value.sights.map((sighted) => [sighted.moment, captionOf(sighted)]))
  const found: Segment[] = []
  for (const [index, { dialogue }] of read.entries()) {
    if (!dialogue.ok) return dialogue
    const captions = moments[index]!.map((moment) => sights.get(moment) ?? describedAt(moment))
    found.push({
      captions: [...new Set(captions.filter((text) => text !== ''))],
      dialogue: dialogue.value.map(spokenLine),
    })
  }
  const { cached } = seen.value
  return { ok: true, value: { segments: found, frames: seen.value.sights.map(({ frame }) => frame), cached } }
}
