/**
 * The decoder's forward pass over new tokens with a paged key-value cache (Kwon et al. 2023, arXiv:2309.06180), as one program:
 * prefilling a prompt, continuing a conversation and decoding one token differ only in how many new tokens a row brings.
 * It does not decide which rows run, own pages, or sample: see `decoder.ts`.
 */

import type { ProgramValue } from '../engine/program.ts'
import { ProgramBuilder } from '../engine/program.ts'
import { product } from '../engine/shape.ts'
import type { Attend, DecoderConfig } from './architecture.ts'
import { attentionScale, decoderLayer, embed, head, rotaryAngles } from './architecture.ts'
import { weightInputs } from './weights.ts'

/** Positions in a page. Pages are copied for each attention, so a page should be a few kilobytes per head. */
export const PAGE_SIZE = 16

/** Added to attention scores that must not count; what stands there is finite, so nothing can become NaN. */
const MASKED = -1e9

/** The cache's tensors on the device, and the graph's input and output of each: the cached rows, and those of the new tokens. */
export function cacheTensors(config: DecoderConfig): { input: string; output: string; resident: string }[] {
  return Array.from({ length: config.layers }, (_, layer) =>
    ['keys', 'values'].map((kind) => ({
      input: `${kind}.${layer}`,
      output: `${kind}.${layer}.new`,
      resident: `cache/${kind}.${layer}`,
    })),
  ).flat()
}

/** Rows of a cache tensor of this many pages: [pages * keyValueHeads * PAGE_SIZE, headSize]; a page's heads stand below one another. */
export function cacheRows(config: DecoderConfig, pages: number): number {
  return pages * config.keyValueHeads * PAGE_SIZE
}

/** Row of a cache tensor that holds a head's key or value at an offset in a page. */
export function cacheRow(config: DecoderConfig, page: number, head: number, offset: number): number {
  return (page * config.keyValueHeads + head) * PAGE_SIZE + offset
}

/**
 * Inputs: the weights by name; the caches;
 * `ids` int32 [B, T]: new tokens, padded at the right with anything;
 * `starts` float32 [B]: how many positions of the row are cached already;
 * `pages` int32 [B, N], N >= 1: the row's pages in order that hold those; any page behind its end;
 * `rows` int32 [B]: index b * T + t of each row's last new token.
 * Outputs: `logits` [B, vocabularySize] after each row's last new token; the new keys and values [B, keyValueHeads, T, headSize],
 * which the caller writes into the caches. (ONNX Runtime's Node binding copies every output, so caches cannot be outputs.)
 */
export function decodeGraph(config: DecoderConfig): ProgramBuilder {
  const program = new ProgramBuilder()
  const { ops } = program
  const { heads, keyValueHeads: groups, headSize } = config
  const shared = heads / groups
  const weights = weightInputs(program, config)
  const ids = program.input('ids', 'int32', ['B', 'T'])
  const starts = program.input('starts', 'float32', ['B'])
  const pages = program.input('pages', 'int32', ['B', 'N'])
  const rows = program.input('rows', 'int32', ['B'])
  const caches = new Map(
    cacheTensors(config).map(({ input }) => [input, program.input(input, 'float32', ['R', headSize])]),
  )

  // Blocks of PAGE_SIZE cache rows, one for each page and head: [B, groups, N].
  const firstBlocks = ops.multiply(ops.reshape(pages, ['B', 1, 'N']), ops.integers([groups]))
  const blocks = ops.add(firstBlocks, ops.reshape(ops.integers([...Array(groups).keys()]), [groups, 1]))
  const cached = product(PAGE_SIZE, 'N')
  const cachedRows = (name: string): ProgramValue => {
    const paged = ops.reshape(caches.get(name)!, ['P', PAGE_SIZE * headSize])
    return ops.reshape(ops.gatherRows(paged, blocks), ['B', groups, cached, headSize])
  }

  const firstPositions = ops.reshape(starts, ['B', 1, 1, 1])
  const rotary = rotaryAngles(ops, config, ops.add(firstPositions, ops.reshape(ops.range('T'), ['T', 1])))
  // A cached position counts when it lies before the row's first new one: [B, 1, 1, cached].
  const counts = ops.greater(firstPositions, ops.reshape(ops.range(cached), [1, 1, 1, cached]))
  const cachedBias = ops.multiply(ops.subtract(ops.scalar(1), counts), ops.scalar(MASKED))
  const freshBias = ops.causalBias('T')

  // Attention over cached and new positions in one softmax, without copying the keys and values together.
  const attend: Attend<ProgramValue> = (layer, q, k, v) => {
    program.output(`keys.${layer}.new`, k)
    program.output(`values.${layer}.new`, v)
    const scale = attentionScale(config)
    const queries = ops.reshape(q, ['B', groups, product(shared, 'T'), headSize])
    const cachedScores = ops.add(
      ops.matmul(queries, cachedRows(`keys.${layer}`), { transposeRight: true, scale }),
      cachedBias,
    )
    const perHead = ops.reshape(ops.matmul(queries, k, { transposeRight: true, scale }), [
      'B',
      groups,
      shared,
      'T',
      'T',
    ])
    const freshScores = ops.reshape(ops.add(perHead, freshBias), ['B', groups, product(shared, 'T'), 'T'])
    const weights = ops.softmax(ops.concat([cachedScores, freshScores], 3))
    const [toCached, toFresh] = ops.split(weights, 3, [cached, 'T'])
    const context = ops.add(ops.matmul(toCached!, cachedRows(`values.${layer}`)), ops.matmul(toFresh!, v))
    return ops.reshape(context, ['B', heads, 'T', headSize])
  }

  let hidden = embed(ops, weights, ops.reshape(ids, [product('B', 'T')]))
  for (let layer = 0; layer < config.layers; layer += 1) {
    const isLast = layer === config.layers - 1
    hidden = decoderLayer(
      ops,
      config,
      weights,
      layer,
      hidden,
      { batch: 'B', time: 'T' },
      rotary,
      attend,
      isLast ? { rows } : {},
    )
  }
  program.output('logits', head(ops, config, weights, hidden))
  return program
}
