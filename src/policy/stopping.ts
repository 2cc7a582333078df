/** Says when a stop string has been written, token by token. Works for stop strings of one token and of several. */
import type { TextTokenizer } from './tokenizer.ts'

/** Called after each sampled token, with all ids sampled so far: the stop string that the last one completed, or null. */
export type StopCheck = (sampled: readonly number[]) => string | null

/** Most tokens are refused by their last characters alone; else only the end of the text is decoded. */
export function stopCheck(tokenizer: TextTokenizer, stop: readonly string[]): StopCheck {
  if (stop.length === 0) return () => null
  // Every token but special ones has at least one byte, so a stop string cannot reach further back than this.
  const reach = Math.max(...stop.map((text) => Buffer.byteLength(text))) + 1
  const lastCharacters = stop.map((text) => text.at(-1)!)
  const mayComplete = new Map<number, boolean>()
  const candidate = (id: number) => {
    let answer = mayComplete.get(id)
    if (answer === undefined) {
      const text = tokenizer.decode([id])
      // A character of several bytes may be spread over tokens: such tokens are always looked at.
      answer = text.includes('\ufffd') || lastCharacters.some((character) => text.includes(character))
      mayComplete.set(id, answer)
    }
    return answer
  }
  return (sampled) => {
    if (!candidate(sampled.at(-1)!)) return null
    const end = tokenizer.decode(sampled.slice(-reach))
    const found = stop.map((text) => ({ text, at: end.indexOf(text) })).filter(({ at }) => at >= 0)
    return found.sort((a, b) => a.at - b.at)[0]?.text ?? null
  }
}
