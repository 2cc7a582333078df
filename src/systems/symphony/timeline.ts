/** Seconds of a video for Symphony: how long it is, moments and segments of it, and how what was found there is told. Asks nobody. */
import type { Episode, FrameRetrievalAnswer, SegmentScoringAnswer, Stretch, SubtitleAnswer } from '../../types.ts'
import type { PromptStyle } from '../prompts.ts'
import { neutralise } from '../transcript.ts'
import { between } from './roles.ts'

/** In seconds; 0 where durations are unknown. */
export function lengthOf({ clips }: Episode): number {
  return clips.at(-1)?.end ?? 0
}

/** Centres of `count` equal spans. */
export function spread({ start, end }: Stretch, count: number): number[] {
  return Array.from({ length: count }, (_, i) => start + ((i + 0.5) * (end - start)) / count)
}

/** All of the video in pieces of so many seconds, the last one perhaps shorter. */
export function segmentsOf(episode: Episode, seconds: number): Stretch[] {
  const length = lengthOf(episode)
  return Array.from({ length: Math.ceil(length / seconds) }, (_, i) => ({
    start: i * seconds,
    end: Math.min(length, (i + 1) * seconds),
  }))
}

/** Text of an agent with what it could not do; `brief` leaves that out. */
export function told(text: string, caveat: string | null, style: PromptStyle): string {
  return neutralise(caveat === null || style === 'brief' ? text : `${text} ( ${caveat} )`)
}

/** The moments of frames, best first. */
export function retrieved({ hits }: FrameRetrievalAnswer): string {
  if (hits.length === 0) return 'there are no such pictures .'
  return `pictures like it at : ${hits.map(({ time }) => `${Math.floor(time)} s`).join(' , ')}`
}

/** One line per segment that is relevant enough, in order of time: `30 - 60 s relevance 3 : a kitchen . she looks for the cup`. */
export function scored(segments: readonly Stretch[], { scores }: SegmentScoringAnswer, leastRelevance: number): string {
  const lines = segments.flatMap(({ start, end }, i) => {
    const score = scores[i]
    if (score === undefined || score.relevance < leastRelevance) return []
    const { relevance, caption, reasoning } = score
    return [`${between(start, end)} relevance ${relevance} : ${[caption, reasoning ?? ''].join(' ').trim()}`]
  })
  return lines.length === 0 ? 'no part of the video bears on the question .' : lines.join('\n')
}

/** The lines that were found, who matters in them, and the topic, where the agent could tell. */
export function quoted({ available, lines, entities, topic }: SubtitleAnswer): string {
  if (!available) return 'there are no subtitles .'
  if (lines.length === 0) return 'no line bears on the question .'
  return [
    ...lines.map(({ start, end, speaker, text }) =>
      [
        ...(start === null ? [] : [end === null ? `${Math.floor(start)} s` : between(start, end)]),
        ...(speaker === null ? [] : [speaker, ':']),
        text,
      ].join(' '),
    ),
    ...(entities.length === 0 ? [] : [`who and what : ${entities.join(' , ')}`]),
    ...(topic === '' ? [] : [`topic : ${topic}`]),
  ].join('\n')
}
