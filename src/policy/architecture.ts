/**
 * The decoder of the Qwen2, Qwen3 and Llama families: its weights by Hugging Face name, and its forward pass, written once over the
 * operations of `engine/ops.ts`. It knows no `config.json` (see `families.ts`), no tokenizer, no sampling, no cache and no loss; callers
 * bring their own attention (`Attend`), so that training, scoring and cached decoding share everything else.
 */

import type { Ops } from '../engine/ops.ts'
import type { Dim } from '../engine/shape.ts'
import { product } from '../engine/shape.ts'
import type { Lora } from './lora.ts'
import { isLora, LORA_A, LORA_B, loraShapes } from './lora.ts'
import type { RopeScaling } from './rotary.ts'
import { rotaryFrequencies } from './rotary.ts'

export interface DecoderConfig {
  vocabularySize: number
  hiddenSize: number
  intermediateSize: number
  layers: number
  heads: number
  keyValueHeads: number
  /** Need not be hiddenSize / heads. */
  headSize: number
  /** Which projections have biases: q, k and v; o; gate, up and down. */
  qkvBias: boolean
  outputBias: boolean
  mlpBias: boolean
  /** Queries and keys are normed per head before they are rotated. */
  qkNorm: boolean
  normEpsilon: number
  ropeTheta: number
  ropeScaling: RopeScaling | null
  tiedHead: boolean
  /** Longest sequence, in tokens. */
  contextLength: number
  /** Element type in which frozen matrices are kept on the device; what is trained, norms and biases are float32. */
  matrixType: 'float32' | 'float16'
  /** An adapter: then its tensors alone are trained. */
  lora: Lora | null
}

const EMBEDDING = 'model.embed_tokens.weight'
const FINAL_NORM = 'model.norm.weight'
const HEAD = 'lm_head.weight'

/** Names and shapes of all weights, in the order of the forward pass. Matrices are [out, in]. */
export function weightShapes(config: DecoderConfig): Map<string, number[]> {
  const { hiddenSize, intermediateSize, headSize } = config
  const queries = config.heads * headSize
  const keys = config.keyValueHeads * headSize
  const shapes = new Map<string, number[]>([[EMBEDDING, [config.vocabularySize, hiddenSize]]])
  const linear = (name: string, out: number, width: number, bias: boolean) => {
    shapes.set(`${name}.weight`, [out, width])
    if (bias) shapes.set(`${name}.bias`, [out])
    for (const [part, shape] of loraShapes(config.lora, name, out, width)) shapes.set(part, shape)
  }
  for (let layer = 0; layer < config.layers; layer += 1) {
    const name = (part: string) => `model.layers.${layer}.${part}`
    shapes.set(name('input_layernorm.weight'), [hiddenSize])
    linear(name('self_attn.q_proj'), queries, hiddenSize, config.qkvBias)
    linear(name('self_attn.k_proj'), keys, hiddenSize, config.qkvBias)
    linear(name('self_attn.v_proj'), keys, hiddenSize, config.qkvBias)
    if (config.qkNorm) {
      shapes.set(name('self_attn.q_norm.weight'), [headSize])
      shapes.set(name('self_attn.k_norm.weight'), [headSize])
    }
    linear(name('self_attn.o_proj'), hiddenSize, queries, config.outputBias)
    shapes.set(name('post_attention_layernorm.weight'), [hiddenSize])
    linear(name('mlp.gate_proj'), intermediateSize, hiddenSize, config.mlpBias)
    linear(name('mlp.up_proj'), intermediateSize, hiddenSize, config.mlpBias)
    linear(name('mlp.down_proj'), hiddenSize, intermediateSize, config.mlpBias)
  }
  shapes.set(FINAL_NORM, [hiddenSize])
  if (!config.tiedHead) shapes.set(HEAD, [config.vocabularySize, hiddenSize])
  return shapes
}

/** Names of the weights that training changes: all, or those of the adapter. */
export function trainedWeights(config: DecoderConfig): string[] {
  const names = [...weightShapes(config).keys()]
  return config.lora === null ? names : names.filter(isLora)
}

/** Element type on the device of a weight of these dimensions, where the engine computes in `float`. */
export function storageType<F extends string>(config: DecoderConfig, name: string, shape: readonly number[], float: F) {
  return config.matrixType === 'float16' && shape.length === 2 && !isLora(name) ? 'float16' : float
}

/** The decoder's weights as an engine's tensors, by Hugging Face name. */
export type Weights<V> = ReadonlyMap<string, V>

/** A [batch, time] block of tokens; its rows are batch * time hidden states. */
export interface Block {
  batch: Dim
  time: Dim
}

/** Cosines and sines of the rotary embedding, each broadcastable to [B, H, T, headSize / 2]. */
export interface Rotary<V> {
  cos: V
  sin: V
}

/** Attention over one layer: q [B, heads, T, D]; k and v [B, keyValueHeads, T, D], k and q already rotated -> [B, heads, T, D]. */
export type Attend<V> = (layer: number, q: V, k: V, v: V) => V

export function weight<V>(weights: Weights<V>, name: string): V {
  const value = weights.get(name)
  if (value === undefined) throw new Error(`The decoder has no weight named ${name}`)
  return value
}

/** ids of any shape -> [...ids, hiddenSize]. */
export function embed<V>(ops: Ops<V>, weights: Weights<V>, ids: V): V {
  return ops.gatherRows(weight(weights, EMBEDDING), ids)
}

/**
 * Rotary angles: position times frequency, for the D/2 pairs of a head. `positions` is floating point and ends with an axis of size 1:
 * [T, 1] for one run of positions, [B, 1, T, 1] when rows of the batch stand at different ones.
 */
export function rotaryAngles<V>(ops: Ops<V>, config: DecoderConfig, positions: V): Rotary<V> {
  const angles = ops.multiply(positions, ops.vector(rotaryFrequencies(config)))
  return { cos: ops.cos(angles), sin: ops.sin(angles) }
}

/** Scale of attention scores. */
export function attentionScale(config: DecoderConfig): number {
  return 1 / Math.sqrt(config.headSize)
}

export interface LayerOptions<V> {
  /** Rows (of batch * time) whose result is wanted: the rest of the layer runs on these alone. All when absent. */
  rows?: V
}

/** x [R, in] -> x Wᵀ + bias, and with an adapter + scale (x Aᵀ) Bᵀ (Hu et al. 2021, arXiv:2106.09685, section 4.1): [R, out]. */
function project<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, name: string, x: V): V {
  const y = ops.linear(x, weight(weights, `${name}.weight`), weights.get(`${name}.bias`))
  const down = weights.get(`${name}.${LORA_A}`)
  if (config.lora === null || down === undefined) return y
  const narrow = ops.multiply(ops.linear(x, down), ops.scalar(config.lora.scale))
  return ops.add(y, ops.linear(narrow, weight(weights, `${name}.${LORA_B}`)))
}

/** One decoder layer: hidden [B*T, hiddenSize] -> the same, or only the wanted rows. */
export function decoderLayer<V>(
  ops: Ops<V>,
  config: DecoderConfig,
  weights: Weights<V>,
  layer: number,
  hidden: V,
  block: Block,
  rotary: Rotary<V>,
  attend: Attend<V>,
  options: LayerOptions<V> = {},
): V {
  const w = (part: string) => weight(weights, `model.layers.${layer}.${part}`)
  const linear = (part: string, x: V) => project(ops, config, weights, `model.layers.${layer}.${part}`, x)
  const norm = (part: string, x: V) => ops.rmsNorm(x, w(`${part}.weight`), config.normEpsilon)
  const perHead = (x: V, heads: number) => ops.reshape(x, [block.batch, block.time, heads, config.headSize])
  const headsFirst = (x: V) => ops.transpose(x, [0, 2, 1, 3])
  const queryOrKey = (kind: 'q' | 'k', heads: number) => {
    const x = perHead(linear(`self_attn.${kind}_proj`, normed), heads)
    return ops.rotate(headsFirst(config.qkNorm ? norm(`self_attn.${kind}_norm`, x) : x), rotary.cos, rotary.sin)
  }

  const normed = norm('input_layernorm', hidden)
  const q = queryOrKey('q', config.heads)
  const k = queryOrKey('k', config.keyValueHeads)
  const v = headsFirst(perHead(linear('self_attn.v_proj', normed), config.keyValueHeads))
  const context = ops.reshape(headsFirst(attend(layer, q, k, v)), [
    product(block.batch, block.time),
    config.heads * config.headSize,
  ])

  const wanted = (x: V) => (options.rows === undefined ? x : ops.gatherRows(x, options.rows))
  const attended = ops.add(wanted(hidden), linear('self_attn.o_proj', wanted(context)))
  const mlpInput = norm('post_attention_layernorm', attended)
  const activated = ops.swiglu(linear('mlp.gate_proj', mlpInput), linear('mlp.up_proj', mlpInput))
  return ops.add(attended, linear('mlp.down_proj', activated))
}

/** The norm after the last layer: hidden [R, hiddenSize] -> the same shape. */
export function finalNorm<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, hidden: V): V {
  return ops.rmsNorm(hidden, weight(weights, FINAL_NORM), config.normEpsilon)
}

/** Vocabulary projection of normed hidden states: [R, hiddenSize] -> logits [R, vocabularySize]. */
export function vocabularyLogits<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, normed: V): V {
  return ops.linear(normed, weight(weights, config.tiedHead ? EMBEDDING : HEAD))
}

/** Final norm and vocabulary projection: hidden [R, hiddenSize] -> logits [R, vocabularySize]. */
export function head<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, hidden: V): V {
  return vocabularyLogits(ops, config, weights, finalNorm(ops, config, weights, hidden))
}

/**
 * The decoder up to its final norm, over a block of right-padded sequences, for training and scoring.
 * ids: integers [batch, time]. rows: integers [M], indices b * time + t of the positions whose next token is asked for.
 * Returns normed hidden states [M, hiddenSize]. No padding mask is needed: what a position attends to lies before it.
 */
export function decoderHidden<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, ids: V, rows: V): V {
  const [batch, time] = ops.shapeOf(ids) as [Dim, Dim]
  const block: Block = { batch, time }
  const rotary = rotaryAngles(ops, config, ops.reshape(ops.range(time), [time, 1]))
  const bias = ops.causalBias(time)
  const attend: Attend<V> = (_layer, q, k, v) => ops.attention(q, k, v, bias, attentionScale(config))
  let hidden = embed(ops, weights, ops.reshape(ids, [product(batch, time)]))
  for (let layer = 0; layer < config.layers; layer += 1) {
    const isLast = layer === config.layers - 1
    hidden = decoderLayer(ops, config, weights, layer, hidden, block, rotary, attend, isLast ? { rows } : {})
  }
  return finalNorm(ops, config, weights, hidden)
}

/** `decoderHidden` and the vocabulary projection: logits [M, vocabularySize]. */
export function decoderLogits<V>(ops: Ops<V>, config: DecoderConfig, weights: Weights<V>, ids: V, rows: V): V {
  return vocabularyLogits(ops, config, weights, decoderHidden(ops, config, weights, ids, rows))
}
