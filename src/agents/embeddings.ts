/** Sentence vectors kept by content, in memory and on disk: an episode's subtitles are embedded once. Knows no clips. */
import { contentKey } from './cache.ts'
import type { Embed } from './relevance.ts'
import { vectorSize } from './sentenceEncoder.ts'
import type { Store } from './store.ts'

/** Raised when the vectors of a text change. */
const version = 1

/** `embed` is asked only for texts that were never embedded; texts asked for twice at once are embedded once. */
export function cachedEmbed(embed: Embed, store: Store): Embed {
  const vectors = new Map<string, Promise<Float32Array>>()

  async function stored(text: string): Promise<Float32Array | null> {
    const kept = await store.get(contentKey(['embedding', version, text]))
    if (typeof kept !== 'string') return null
    const bytes = Buffer.from(kept, 'base64')
    return bytes.length === vectorSize * 4 ? new Float32Array(Uint8Array.from(bytes).buffer) : null
  }

  function request(texts: readonly string[]): void {
    const batch = (async () => {
      const kept = await Promise.all(texts.map(stored))
      const absent = texts.filter((_, index) => kept[index] === null)
      const fresh = absent.length > 0 ? await embed(absent) : new Float32Array(0)
      const byText = new Map(texts.flatMap((text, index) => (kept[index] ? [[text, kept[index]] as const] : [])))
      for (const [index, text] of absent.entries()) {
        const vector = fresh.slice(index * vectorSize, (index + 1) * vectorSize)
        byText.set(text, vector)
        await store.put(contentKey(['embedding', version, text]), Buffer.from(vector.buffer).toString('base64'))
      }
      return byText
    })()
    for (const text of texts) {
      const vector = batch.then((byText) => byText.get(text)!)
      vectors.set(text, vector)
      // A failure reaches whoever awaits it, and the next request tries again.
      vector.catch(() => vectors.delete(text))
    }
  }

  return async (texts) => {
    const fresh = [...new Set(texts)].filter((text) => !vectors.has(text))
    if (fresh.length > 0) request(fresh)
    const all = new Float32Array(texts.length * vectorSize)
    for (const [index, text] of texts.entries()) all.set(await vectors.get(text)!, index * vectorSize)
    return all
  }
}
