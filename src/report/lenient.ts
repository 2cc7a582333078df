/**
 * The lenient reading of an answer, for evaluation only and never for rewards: many answers that a strict parser refuses are right
 * (spec longvideoagent.md, sections 1.12 and 5, row 8). Reads one response; knows no gold.
 */
import { distance } from 'fastest-levenshtein'

/** Of two normalised texts, to count as the same words. */
const LEAST_LIKENESS = 0.9

/**
 * The option that a response means: the first label `aN` in it, else the one option whose text it equals,
 * contains or is contained in, or is at least 0.9 like (1 - edit distance / longer length). null when there is none, or more than one.
 * `response` may still have reasoning and answer tags; what is in the last answer tag counts where there is one.
 */
export function lenientAnswer(response: string, options: readonly string[]): number | null {
  const said = response.replace(/<reasoning>[\s\S]*?<\/reasoning>/gi, ' ')
  const tagged = [...said.matchAll(/<answer>([\s\S]*?)(?:<\/answer>|$)/gi)].at(-1)?.[1]
  const text = (tagged ?? said).trim()
  const labels = [...text.matchAll(/\ba(\d+)\b/gi)].map(([, digits]) => Number(digits))
  const label = labels.find((option) => option < options.length)
  if (label !== undefined) return label
  const words = normalised(text)
  if (words === '') return null
  const wanted = options.map(normalised)
  for (const means of [
    (option: string) => option === words,
    (option: string) => contains(words, option) || contains(option, words),
    (option: string) => 1 - distance(option, words) / Math.max(option.length, words.length) > LEAST_LIKENESS,
  ]) {
    const found = wanted.flatMap((option, i) => (option !== '' && means(option) ? [i] : []))
    if (found.length > 0) return found.length === 1 ? (found[0] as number) : null
  }
  return null
}

/** Whole words only: "one" is not in "someone". */
const contains = (text: string, part: string) => ` ${text} `.includes(` ${part} `)

function normalised(text: string): string {
  return text
    .replace(/<[^>]*>/g, ' ')
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()
}
