/**
 * The decoder's forward pass over new tokens with a paged key-value cache (Kwon et al. 2023, arXiv:2309.06180), as a program:
 * `prefill` for rows that bring several new tokens, `step` for rows that bring one.
 *
 * A token's numbers must not depend, in any bit, on what else is in the batch, on how its prompt was cut into runs, or on which of the
 * two programs made it. ONNX Runtime's products sum in an order that depends on the inner dimension and on the number of columns, but
 * not on the rows, as long as there are two of them (one row has kernels of its own). So: tokens go through weights in blocks
 * (`ROW_BLOCK`); keys stand at the column of their position, with only zeros behind it; a position's own key is a term of its own; and
 * no product has a single row.
 * It does not decide which rows run, own pages, or sample: see `decoder.ts`.
 */

import type { ProgramValue } from '../engine/program.ts'
import { ProgramBuilder } from '../engine/program.ts'
import type { Dim } from '../engine/shape.ts'
import { product } from '../engine/shape.ts'
import type { Attend, DecoderConfig } from './architecture.ts'
import { attentionScale, decoderLayer, embed, head, rotaryAngles } from './architecture.ts'
import { weightInputs } from './weights.ts'

/** Positions in a page. Pages are copied for each attention, so a page should be a few kilobytes per head. */
export const PAGE_SIZE = 16

/** Tokens of a run, and rows with logits: two at least, and at most this many or a multiple of it. See `Program.rowBlock`. */
export const ROW_BLOCK = 16

/** Added to attention scores that must not count; what stands there is finite, so nothing can become NaN. */
const MASKED = -1e9

/** The cache's tensors, and the programs' input and output of each: the cached rows, and those of the new tokens. */
export function cacheTensors(config: DecoderConfig): { input: string; output: string }[] {
  return Array.from({ length: config.layers }, (_, layer) =>
    ['keys', 'values'].map((kind) => ({ input: `${kind}.${layer}`, output: `${kind}.${layer}.new` })),
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
 * One new token for each row. Inputs: the weights by name; the caches [R, headSize];
 * `ids` int32 [B]; `positions` int32 [B]: where they stand, which is also how many positions of the row are cached;
 * `pages` int32 [B, N], N >= 1: the row's pages in order that hold those; any page behind its end;
 * `scales` float32 [B]: factor on the logits before the softmax, one over the temperature.
 * Outputs: `logits` and `probabilities` [B, vocabularySize] of the token after; the new keys and values [B, keyValueHeads, 1, headSize],
 * which the caller writes into the caches. (ONNX Runtime's Node binding copies every output, so caches cannot be outputs.)
 */
export function stepProgram(config: DecoderConfig): ProgramBuilder {
  return decodeProgram(config, 1)
}

/**
 * Several new tokens for each row. Inputs as those of `stepProgram`, but `ids` and `positions` are [B, T], padded at the right with
 * anything; besides `columns` int32 [B, keyValueHeads, S]: the key of a head at each position of a row, as an index into
 * [B, keyValueHeads, N * PAGE_SIZE + T], its cached and then its new ones; anything behind its end;
 * `rows` int32 [M], M >= 2: indices b * T + t of the tokens after which logits are wanted. `scales`, `logits` and `probabilities` are
 * of those; new keys and values are [B, keyValueHeads, T, headSize].
 */
export function prefillProgram(config: DecoderConfig): ProgramBuilder {
  return decodeProgram(config, 'T')
}

function decodeProgram(config: DecoderConfig, time: 1 | 'T'): ProgramBuilder {
  const program = new ProgramBuilder('float32', ROW_BLOCK)
  const { ops } = program
  const { heads, keyValueHeads: groups, headSize } = config
  const shared = heads / groups
  const weights = weightInputs(program, config)
  const tokens: Dim[] = time === 1 ? ['B'] : ['B', time]
  const ids = program.input('ids', 'int32', tokens)
  const positions = ops.toFloat(program.input('positions', 'int32', tokens))
  const pages = program.input('pages', 'int32', ['B', 'N'])
  const columns = time === 1 ? null : program.input('columns', 'int32', ['B', groups, 'S'])
  const rows = time === 1 ? undefined : program.input('rows', 'int32', ['M'])
  const scales = program.input('scales', 'float32', [time === 1 ? 'B' : 'M'])
  const caches = new Map(
    cacheTensors(config).map(({ input }) => [input, program.input(input, 'float32', ['R', headSize])]),
  )

  // Blocks of PAGE_SIZE cache rows, one for each page and head: [B, groups, N].
  const firstBlocks = ops.multiply(ops.reshape(pages, ['B', 1, 'N']), ops.integers([groups]))
  const blocks = ops.add(firstBlocks, ops.reshape(ops.integers([...Array(groups).keys()]), [groups, 1]))
  const cached = product(PAGE_SIZE, 'N')
  /** [B, groups, width, headSize]: what stands before a row's new tokens, and in a prefill those as well, by position. */
  const width = columns === null ? cached : 'S'
  const byPosition = (name: string, fresh: ProgramValue): ProgramValue => {
    const paged = ops.reshape(caches.get(name)!, ['P', PAGE_SIZE * headSize])
    const gathered = ops.reshape(ops.gatherRows(paged, blocks), ['B', groups, cached, headSize])
    if (columns === null) return gathered
    const all = ops.reshape(ops.concat([gathered, fresh], 2), ['A', headSize])
    return ops.gatherRows(all, columns)
  }

  const rotary = rotaryAngles(ops, config, ops.reshape(positions, ['B', 1, time, 1]))
  // A position attends to those before it, and to itself apart: [B, 1, 1, T, width].
  const before = ops.greater(ops.reshape(positions, ['B', 1, 1, time, 1]), ops.range(width))
  const bias = ops.multiply(ops.subtract(ops.scalar(1), before), ops.scalar(MASKED))

  const attend: Attend<ProgramValue> = (layer, q, k, v) => {
    program.output(`keys.${layer}.new`, k)
    program.output(`values.${layer}.new`, v)
    const scale = attentionScale(config)
    const stacked = product(shared, time)
    const perHead = (x: ProgramValue, last: Dim) => ops.reshape(x, ['B', groups, shared, time, last])
    const own = (x: ProgramValue) => ops.reshape(x, ['B', groups, 1, time, headSize])
    const queries = ops.reshape(q, ['B', groups, stacked, headSize])
    const scores = perHead(ops.matmul(queries, byPosition(`keys.${layer}`, k), { transposeRight: true, scale }), width)
    const ownScores = ops.multiply(ops.sum(ops.multiply(perHead(q, headSize), own(k)), [4], true), ops.scalar(scale))
    // The own one first, so that what is behind a row's end is behind everything.
    const weights = ops.softmax(ops.concat([ownScores, ops.add(scores, bias)], 4))
    const [toOwn, toOthers] = ops.split(weights, 4, [1, width])
    const others = weighted(ops.reshape(toOthers!, ['B', groups, stacked, width]), byPosition(`values.${layer}`, v))
    const context = ops.add(perHead(others, headSize), ops.multiply(toOwn!, own(v)))
    return ops.reshape(context, ['B', heads, time, headSize])
  }
  const weighted = (weights: ProgramValue, values: ProgramValue) =>
    product(shared, time) === 1
      ? ops.slice(ops.matmul(ops.concat([weights, weights], 2), values), 2, 0, 1)
      : ops.matmul(weights, values)

  let hidden = embed(ops, weights, ops.reshape(ids, [product('B', time)]))
  for (let layer = 0; layer < config.layers; layer += 1) {
    const isLast = layer === config.layers - 1
    const block = { batch: 'B', time }
    hidden = decoderLayer(ops, config, weights, layer, hidden, block, rotary, attend, isLast ? { rows } : {})
  }
  const logits = head(ops, config, weights, hidden)
  program.output('logits', logits)
  program.output('probabilities', ops.softmax(ops.multiply(logits, ops.reshape(scales, [time === 1 ? 'B' : 'M', 1]))))
  return program
}

/**
 * Copies pages within the caches: `from` int32 [C]; the outputs [C, keyValueHeads * PAGE_SIZE * headSize] are what stands there, to be
 * written over rows of the caches.
 */
export function copyProgram(config: DecoderConfig): ProgramBuilder {
  const program = new ProgramBuilder()
  const { ops } = program
  const from = program.input('from', 'int32', ['C'])
  for (const { input, output } of cacheTensors(config)) {
    const cache = program.input(input, 'float32', ['R', config.headSize])
    const pages = ops.reshape(cache, ['P', cacheRows(config, 1) * config.headSize])
    program.output(output, ops.gatherRows(pages, from))
  }
  return program
}

/** A cache tensor with rows of zeros behind it: `cache` and `zeros` become `grown`. */
export function growProgram(config: DecoderConfig): ProgramBuilder {
  const program = new ProgramBuilder()
  const cache = program.input('cache', 'float32', ['R', config.headSize])
  const zeros = program.input('zeros', 'float32', ['Z', config.headSize])
  program.output('grown', program.ops.concat([cache, zeros], 0))
  return program
}
