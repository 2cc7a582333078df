/**
 * How relevant lines of text are to a query: likeness of meaning, plus a bonus for the exact words that they share.
 *
 * score = cosine(query, line) + lexicalWeight * bonus, where bonus (0 to 1) is the line's BM25 score over the query's own.
 * Words are stemmed and stop words left out, so that the bonus goes to names, numbers and rare nouns. Embedding vectors say little about those; on
 * paraphrases they are the better judge, and no shared word means no bonus.
 * Does not know about clips or questions.
 */
import MiniSearch from 'minisearch'
import { eng, removeStopwords } from 'stopword'
import stem from 'wink-porter2-stemmer'

export type Embed = (texts: readonly string[]) => Promise<Float32Array>

interface Line {
  id: number
  text: string
}

/** Stems of the words that carry meaning, in order. */
export function contentWords(text: string): string[] {
  const words =
    text
      .toLowerCase()
      .normalize('NFKC')
      .match(/[\p{L}\p{N}]+(?:'[\p{L}]+)?/gu) ?? []
  return removeStopwords(
    words.map((word) => word.replace(/'s$/, '')),
    eng,
  ).map((word) => stem(word))
}

/** BM25 scores of every line as a share of what the query scores against itself, 0 to 1. */
export function lexicalBonus(query: string, lines: readonly string[]): number[] {
  const self = lines.length
  const index = new MiniSearch<Line>({ fields: ['text'], tokenize: contentWords, processTerm: (term) => term })
  index.addAll(lines.map((text, id) => ({ id, text })))
  index.add({ id: self, text: query })
  const bonus = new Array<number>(lines.length + 1).fill(0)
  for (const { id, score } of index.search(query, { prefix: false, fuzzy: false })) bonus[id as number] = score
  const whole = bonus[self]!
  return bonus.slice(0, self).map((score) => (whole > 0 ? Math.min(1, score / whole) : 0))
}

/** Scores of every line, in order. */
export async function relevance(
  query: string,
  lines: readonly string[],
  embed: Embed,
  lexicalWeight: number,
): Promise<number[]> {
  if (lines.length === 0) return []
  const vectors = await embed([query, ...lines])
  const size = vectors.length / (lines.length + 1)
  const bonus = lexicalWeight > 0 ? lexicalBonus(query, lines) : null
  return lines.map((_, line) => {
    let cosine = 0
    for (let at = 0; at < size; at++) cosine += vectors[at]! * vectors[(line + 1) * size + at]!
    return cosine + lexicalWeight * (bonus?.[line] ?? 0)
  })
}
