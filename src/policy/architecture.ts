/**
 * The Qwen2 decoder (Hugging Face `Qwen2ForCausalLM`): its configuration, its weights by Hugging Face name, and its forward pass,
 * written once over the operations of `engine/ops.ts`. It knows no tokenizer, no sampling, no cache and no loss; callers bring
 * their own attention (`Attend`), so that training, scoring and cached decoding share everything else.
 */

import { z } from 'zod'
import { product } from '../engine/graph.ts'
import type { Dim } from '../engine/onnx.ts'
import type { Ops } from '../engine/ops.ts'

export interface DecoderConfig {
  vocabularySize: number
  hiddenSize: number
  intermediateSize: number
  layers: number
  heads: number
  keyValueHeads: number
  headSize: number
  normEpsilon: number
  ropeTheta: number
  tiedHead: boolean
  /** Longest sequence, in tokens. */
  contextLength: number
}

const positive = z.number().int().positive()

/** The keys of a Hugging Face `config.json` that the forward pass depends on; others are ignored. */
const huggingFaceConfig = z.object({
  model_type: z.literal('qwen2'),
  vocab_size: positive,
  hidden_size: positive,
  intermediate_size: positive,
  num_hidden_layers: positive,
  num_attention_heads: positive,
  num_key_value_heads: positive,
  hidden_act: z.literal('silu').default('silu'),
  rms_norm_eps: z.number().positive(),
  rope_theta: z.number().positive().optional(),
  rope_parameters: z
    .object({ rope_theta: z.number().positive(), rope_type: z.literal('default').default('default') })
    .optional(),
  rope_scaling: z.null().optional(),
  tie_word_embeddings: z.boolean().default(false),
  use_sliding_window: z.literal(false).default(false),
  max_position_embeddings: positive,
})

/** Reads a parsed `config.json`. Throws an Error whose message names the key that is missing, wrong or not supported. */
export function decoderConfig(json: unknown): DecoderConfig {
  const parsed = huggingFaceConfig.safeParse(json)
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!
    throw new Error(`config.json: ${path.join('.') || 'the whole'}: ${message}`)
  }
  const config = parsed.data
  const ropeTheta = config.rope_parameters?.rope_theta ?? config.rope_theta
  if (ropeTheta === undefined)
    throw new Error('config.json: rope_theta: expected rope_theta or rope_parameters.rope_theta, found neither')
  if (
    config.hidden_size % config.num_attention_heads !== 0 ||
    config.num_attention_heads % config.num_key_value_heads !== 0
  ) {
    throw new Error(
      `config.json: num_attention_heads: ${config.num_attention_heads} must divide hidden_size ${config.hidden_size} and be a multiple of num_key_value_heads ${config.num_key_value_heads}`,
    )
  }
  return {
    vocabularySize: config.vocab_size,
    hiddenSize: config.hidden_size,
    intermediateSize: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads: config.num_attention_heads,
    keyValueHeads: config.num_key_value_heads,
    headSize: config.hidden_size / config.num_attention_heads,
    normEpsilon: config.rms_norm_eps,
    ropeTheta,
    tiedHead: config.tie_word_embeddings,
    contextLength: config.max_position_embeddings,
  }
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
  for (let layer = 0; layer < config.layers; layer += 1) {
    const name = (part: string) => `model.layers.${layer}.${part}`
    shapes.set(name('input_layernorm.weight'), [hiddenSize])
    shapes.set(name('self_attn.q_proj.weight'), [queries, hiddenSize])
    shapes.set(name('self_attn.q_proj.bias'), [queries])
    shapes.set(name('self_attn.k_proj.weight'), [keys, hiddenSize])
    shapes.set(name('self_attn.k_proj.bias'), [keys])
    shapes.set(name('self_attn.v_proj.weight'), [keys, hiddenSize])
    shapes.set(name('self_attn.v_proj.bias'), [keys])
    shapes.set(name('self_attn.o_proj.weight'), [hiddenSize, queries])
    shapes.set(name('post_attention_layernorm.weight'), [hiddenSize])
    shapes.set(name('mlp.gate_proj.weight'), [intermediateSize, hiddenSize])
    shapes.set(name('mlp.up_proj.weight'), [intermediateSize, hiddenSize])
    shapes.set(name('mlp.down_proj.weight'), [hiddenSize, intermediateSize])
  }
  shapes.set(FINAL_NORM, [hiddenSize])
  if (!config.tiedHead) shapes.set(HEAD, [config.vocabularySize, hiddenSize])
  return shapes
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
 * Rotary angles: position times theta^(-2i/D) for i < D/2. `positions` is floating point and ends with an axis of size 1:
 * [T, 1] for one run of positions, [B, 1, T, 1] when rows of the batch stand at different ones.
 */
export function rotaryAngles<V>(ops: Ops<V>, config: DecoderConfig, positions: V): Rotary<V> {
  // Rounded where Hugging Face rounds to float32, so that angles agree to the last bit.
  const frequencies = Array.from({ length: config.headSize / 2 }, (_, i) =>
    Math.fround(1 / Math.fround(config.ropeTheta ** Math.fround((2 * i) / config.headSize))),
  )
  const angles = ops.multiply(positions, ops.vector(frequencies))
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
  const project = (part: string, heads: number) => {
    const flat = ops.linear(normed, w(`self_attn.${part}.weight`), w(`self_attn.${part}.bias`))
    return ops.transpose(ops.reshape(flat, [block.batch, block.time, heads, config.headSize]), [0, 2, 1, 3])
  }

  const normed = ops.rmsNorm(hidden, w('input_layernorm.weight'), config.normEpsilon)
  const q = ops.rotate(project('q_proj', config.heads), rotary.cos, rotary.sin)
  const k = ops.rotate(project('k_proj', config.keyValueHeads), rotary.cos, rotary.sin)
  const v = project('v_proj', config.keyValueHeads)
  const context = ops.reshape(ops.transpose(attend(layer, q, k, v), [0, 2, 1, 3]), [
    product(block.batch, block.time),
    config.heads * config.headSize,
  ])

  const wanted = (x: V) => (options.rows === undefined ? x : ops.gatherRows(x, options.rows))
  const attended = ops.add(wanted(hidden), ops.linear(wanted(context), w('self_attn.o_proj.weight')))
  const mlpInput = ops.rmsNorm(attended, w('post_attention_layernorm.weight'), config.normEpsilon)
  const activated = ops.swiglu(
    ops.linear(mlpInput, w('mlp.gate_proj.weight')),
    ops.linear(mlpInput, w('mlp.up_proj.weight')),
  )
  return ops.add(attended, ops.linear(activated, w('mlp.down_proj.weight')))
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
