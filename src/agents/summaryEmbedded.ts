/**
 * The embedded summariser: it chooses lines and writes none. Lines go by relevance to the focus (`relevance.ts`), or, without one, by how much
 * they are like all the others; each further line has to differ from those chosen (maximal marginal relevance, Carbonell and Goldstein
 * 1998). The summary keeps their order. What was said several times is said once.
 */
import type { Agent, SummaryAnswer, SummaryRequest } from '../types.ts'
import { untilAborted } from './cache.ts'
import { cancelled, furtherAgent } from './furtherAgent.ts'
import { type Embed, relevance } from './relevance.ts'
import { oneCall } from './usage.ts'
import { cosine, rowsOf } from './vectors.ts'

const extracts = 'these are lines of what was given , chosen and not retold .'
/** Weight of relevance against novelty. */
const lambda = 0.7

export function openSummaryEmbedded(
  embed: Embed,
  { lexicalWeight }: { lexicalWeight: number },
): Agent<SummaryRequest, SummaryAnswer> {
  return furtherAgent('summary', 'embedded', async ({ lines, focus, words }, { signal }) => {
    const texts = [...new Set(lines.map(({ text }) => sentence(text)).filter((text) => text !== ''))]
    const whole = fits(texts, words)
    const chosen = whole ? texts : await untilAborted(choose(texts, focus, words, embed, lexicalWeight), signal)
    if (chosen === null) return cancelled()
    return {
      ok: true,
      value: { text: chosen.join(' '), frames: [], caveat: whole ? null : extracts, usage: oneCall({}) },
    }
  })
}

async function choose(
  texts: readonly string[],
  focus: string | null,
  words: number,
  embed: Embed,
  lexicalWeight: number,
): Promise<string[]> {
  const vectors = rowsOf(await embed(texts), texts.length)
  const worth = focus === null ? centrality(vectors) : await relevance(focus, texts, embed, lexicalWeight)
  const [low, high] = [Math.min(...worth), Math.max(...worth)]
  const share = worth.map((value) => (high > low ? (value - low) / (high - low) : 1))
  const chosen: number[] = []
  const left = new Set(texts.keys())
  let room = words
  while (left.size > 0) {
    const gain = (line: number) =>
      lambda * share[line]! -
      (1 - lambda) * Math.max(0, ...chosen.map((other) => cosine(vectors[line]!, vectors[other]!)))
    const next = [...left].reduce((best, line) => (gain(line) > gain(best) ? line : best))
    left.delete(next)
    const length = wordsOf(texts[next]!).length
    if (length > room) continue
    chosen.push(next)
    room -= length
  }
  // not even one line is short enough: its beginning
  if (chosen.length === 0)
    return [
      wordsOf(texts[share.indexOf(Math.max(...share))]!)
        .slice(0, words)
        .join(' '),
    ]
  return chosen.sort((a, b) => a - b).map((line) => texts[line]!)
}

/** Mean likeness to the others. */
function centrality(vectors: readonly Float32Array[]): number[] {
  return vectors.map((vector, line) => {
    const others = vectors.filter((_, index) => index !== line)
    return others.reduce((sum, other) => sum + cosine(vector, other), 0) / Math.max(1, others.length)
  })
}

function fits(texts: readonly string[], words: number): boolean {
  return texts.reduce((sum, text) => sum + wordsOf(text).length, 0) <= words
}

function wordsOf(text: string): string[] {
  return text.split(' ')
}

/** One line, closed by a mark. */
function sentence(text: string): string {
  const line = text.replace(/\s+/g, ' ').trim()
  return line === '' || /[.!?]["')\]]*$/.test(line) ? line : `${line} .`
}
