/**
 * The decoder over sequences of which some begin alike: a prefix runs once, and the rows that continue it attend to its keys and values.
 * The same results as `decoderHidden` on the whole sequences, for fewer positions. Knows no loss and does not decide what is shared.
 */

import { MASKED, type Ops } from '../engine/ops.ts'
import type { Dim } from '../engine/shape.ts'
import { product, total } from '../engine/shape.ts'
import type { Attend, Block, DecoderConfig, Rotary, Weights } from './architecture.ts'
import { attentionScale, decoderLayer, embed, finalNorm, rotaryAngles } from './architecture.ts'

/** Right-padded blocks. Integers except the lengths. */
export interface SharedBlocks<V> {
  /** [G, P] ids of the prefixes, and [G] how many of each are real, in floating point. */
  prefixIds: V
  prefixLengths: V
  /** [B, T] ids of the rows, and [B] the prefix that each continues. */
  ids: V
  prefixOf: V
  /** Wanted states: indices g * P + p into prefixes and b * T + t into rows. */
  prefixStates: V
  rowStates: V
}

/** Normed hidden states: those wanted in prefixes, then those wanted in rows, [prefixStates + rowStates, hiddenSize]. */
export function sharedPrefixHidden<V>(
  ops: Ops<V>,
  config: DecoderConfig,
  weights: Weights<V>,
  { prefixIds, prefixLengths, ids, prefixOf, prefixStates, rowStates }: SharedBlocks<V>,
): V {
  const [G, P] = ops.shapeOf(prefixIds) as [Dim, Dim]
  const [B, T] = ops.shapeOf(ids) as [Dim, Dim]
  const scale = attentionScale(config)

  const prefixRotary = rotaryAngles(ops, config, ops.reshape(ops.range(P), [P, 1]))
  const prefixBias = ops.causalBias(P)

  // A row's positions go on where its prefix ends, whatever the padding between them.
  const starts = ops.reshape(ops.gatherRows(prefixLengths, prefixOf), [B, 1, 1, 1])
  const rotary = rotaryAngles(ops, config, ops.add(starts, ops.reshape(ops.range(T), [T, 1])))
  const isPadding = ops.subtract(ops.scalar(1), ops.greater(starts, ops.reshape(ops.range(P), [1, 1, 1, P])))
  const nothing = (size: Dim) => ops.multiply(ops.range(size), ops.scalar(0))
  const bias = ops.reshape(
    ops.concat(
      [
        ops.add(ops.multiply(isPadding, ops.scalar(MASKED)), ops.reshape(nothing(T), [1, 1, T, 1])),
        ops.add(ops.reshape(ops.causalBias(T), [1, 1, T, T]), ops.reshape(nothing(B), [B, 1, 1, 1])),
      ],
      3,
    ),
    [B, 1, 1, T, total([P, T])],
  )

  const prefixBlock: Block = { batch: G, time: P }
  const block: Block = { batch: B, time: T }
  let prefix = embed(ops, weights, ops.reshape(prefixIds, [product(G, P)]))
  let hidden = embed(ops, weights, ops.reshape(ids, [product(B, T)]))
  for (let layer = 0; layer < config.layers; layer += 1) {
    const isLast = layer === config.layers - 1
    const only = (rows: V) => (isLast ? { rows } : {})
    const kept: V[] = []
    const prefixAttend: Attend<V> = (_layer, q, k, v) => {
      kept.push(k, v)
      return ops.attention(q, k, v, prefixBias, scale)
    }
    const attend: Attend<V> = (_layer, q, k, v) => {
      const [keys, values] = [k, v].map((own, which) => ops.concat([ops.gatherRows(kept[which]!, prefixOf), own], 2))
      return ops.attention(q, keys!, values!, bias, scale)
    }
    const run = (x: V, ofBlock: Block, angles: Rotary<V>, how: Attend<V>, wanted: V) =>
      decoderLayer(ops, config, weights, layer, x, ofBlock, angles, how, only(wanted))
    prefix = run(prefix, prefixBlock, prefixRotary, prefixAttend, prefixStates)
    hidden = run(hidden, block, rotary, attend, rowStates)
  }
  return finalNorm(ops, config, weights, ops.concat([prefix, hidden], 0))
}
