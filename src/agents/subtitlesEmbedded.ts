/**
 * The embedded subtitle agent: the lines most relevant to the query (`relevance.ts`), in the order of time. Who matters are the speakers of
 * those lines and, where case tells them, the names in them; it reads no feelings and tells no topic.
 */
import type { Agent, SubtitleAnswer, SubtitleRequest } from '../types.ts'
import { untilAborted } from './cache.ts'
import { dialogueOf, type PlacedLine, spokenLine } from './dialogue.ts'
import { cancelled, furtherAgent } from './furtherAgent.ts'
import { contentWords, type Embed, relevance } from './relevance.ts'
import { oneCall } from './usage.ts'

export interface EmbeddedSubtitlesOptions {
  lexicalWeight: number
  /** Least score of a line that shares no word with the query. */
  minimumLikeness: number
}

const noAnalysis = 'lines were matched by their words and meaning ; nobody judged feelings or the topic .'

export function openSubtitlesEmbedded(
  embed: Embed,
  { lexicalWeight, minimumLikeness }: EmbeddedSubtitlesOptions,
): Agent<SubtitleRequest, SubtitleAnswer> {
  return furtherAgent('subtitles', 'embedded', async (request, { signal }) => {
    const { query, count, episode } = request
    const here = dialogueOf(request)
    if (!here.ok) return here
    const scores =
      query === null
        ? here.value.map(() => 1)
        : await untilAborted(relevance(query, here.value.map(spokenLine), embed, lexicalWeight), signal)
    if (scores === null) return cancelled()
    const lines = here.value
      .map((line, index) => ({ line, index, score: scores[index]! }))
      .filter(({ score }) => score >= minimumLikeness)
      .sort((a, b) => b.score - a.score || a.index - b.index)
      .slice(0, count)
      .sort((a, b) => a.index - b.index)
      .map(({ line }) => line)
    return {
      ok: true,
      value: {
        available: episode.clips.some(({ subtitles }) => subtitles.length > 0),
        lines,
        entities: entitiesOf(lines),
        topic: '',
        frames: [],
        caveat: query === null || lines.length === 0 ? null : noAnalysis,
        usage: oneCall({}),
      },
    }
  })
}

/** Speakers, then capitalised words that do not begin a sentence, in order of first appearance. */
export function entitiesOf(lines: readonly PlacedLine[]): string[] {
  const speakers = lines.flatMap(({ speaker }) => (speaker === null ? [] : [speaker]))
  const names = lines.flatMap(({ text }) =>
    [...text.matchAll(/(?<![.!?"-]\s)(?<=\S\s)\p{Lu}[\p{L}'-]+/gu)]
      .map(([word]) => word.replace(/'s$/, ''))
      .filter((word) => contentWords(word).length > 0),
  )
  const known = new Map<string, string>()
  for (const name of [...speakers, ...names]) if (!known.has(name.toLowerCase())) known.set(name.toLowerCase(), name)
  return [...known.values()]
}
