/**
 * Which models we run: a Hugging Face `config.json` of the Qwen2, Qwen3 or Llama family -> what the forward pass needs to know.
 * A configuration that asks for something else is refused with the key that stands in the way. Reads no weights.
 */

import { z } from 'zod'
import type { DecoderConfig } from './architecture.ts'

type Biases = Pick<DecoderConfig, 'qkvBias' | 'outputBias' | 'mlpBias'>

interface Family {
  biases(config: { attention_bias: boolean; mlp_bias: boolean }): Biases
  qkNorm: boolean
  /** Size of a head where the configuration does not say. */
  headSize(hiddenSize: number, heads: number): number
}

const dividedHead = (hiddenSize: number, heads: number) => hiddenSize / heads

/** By `model_type`; the values are those of transformers 5 (`modeling_<type>.py` and `configuration_<type>.py`). */
const FAMILIES: Readonly<Record<string, Family>> = {
  qwen2: {
    biases: () => ({ qkvBias: true, outputBias: false, mlpBias: false }),
    qkNorm: false,
    headSize: dividedHead,
  },
  qwen3: {
    biases: ({ attention_bias: bias }) => ({ qkvBias: bias, outputBias: bias, mlpBias: false }),
    qkNorm: true,
    headSize: () => 128,
  },
  llama: {
    biases: ({ attention_bias: bias, mlp_bias: mlpBias }) => ({ qkvBias: bias, outputBias: bias, mlpBias }),
    qkNorm: false,
    headSize: dividedHead,
  },
}

const positive = z.number().int().positive()

const ropeKeys = z.object({
  rope_theta: z.number().positive().optional(),
  rope_type: z.string().optional(),
  /** The name of `rope_type` in older files. */
  type: z.string().optional(),
  partial_rotary_factor: z.number().default(1),
  factor: z.number().positive().optional(),
  low_freq_factor: z.number().positive().optional(),
  high_freq_factor: z.number().positive().optional(),
  original_max_position_embeddings: positive.optional(),
})

/** The keys that the forward pass depends on; others are ignored. */
const huggingFaceConfig = z.object({
  model_type: z.string(),
  architectures: z.array(z.string()).nullish(),
  vocab_size: positive,
  hidden_size: positive,
  intermediate_size: positive,
  num_hidden_layers: positive,
  num_attention_heads: positive,
  num_key_value_heads: positive.nullish(),
  head_dim: positive.nullish(),
  hidden_act: z.string().default('silu'),
  rms_norm_eps: z.number().positive(),
  rope_theta: z.number().positive().default(10_000),
  rope_parameters: ropeKeys.nullish(),
  rope_scaling: ropeKeys.nullish(),
  /** Older than the key of this name in `rope_parameters`. */
  partial_rotary_factor: z.number().nullish(),
  attention_bias: z.boolean().default(false),
  mlp_bias: z.boolean().default(false),
  tie_word_embeddings: z.boolean().default(false),
  use_sliding_window: z.boolean().default(false),
  sliding_window: positive.nullish(),
  max_window_layers: z.number().int().nullish(),
  layer_types: z.array(z.string()).nullish(),
  quantization_config: z.unknown().optional(),
  num_experts: z.number().nullish(),
  num_local_experts: z.number().nullish(),
  max_position_embeddings: positive,
})

type HuggingFaceConfig = z.infer<typeof huggingFaceConfig>

/** Reads a parsed `config.json`. Throws an Error whose message names the key, its value, and what is expected or supported. */
export function decoderConfig(json: unknown): DecoderConfig {
  const parsed = huggingFaceConfig.safeParse(json)
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!
    throw new Error(`config.json: ${path.join('.') || 'the whole'}: ${message}`)
  }
  const config = parsed.data
  const family = FAMILIES[config.model_type]
  if (family === undefined) refuse('model_type', config.model_type, Object.keys(FAMILIES).join(', '))
  refuseOtherModels(config)

  const heads = config.num_attention_heads
  const keyValueHeads = config.num_key_value_heads ?? heads
  const headSize = config.head_dim ?? family.headSize(config.hidden_size, heads)
  if (heads % keyValueHeads !== 0)
    refuse('num_attention_heads', heads, `a multiple of num_key_value_heads ${keyValueHeads}`)
  if (config.head_dim == null && !Number.isInteger(headSize))
    refuse('num_attention_heads', heads, `a divisor of hidden_size ${config.hidden_size}, or head_dim`)
  if (headSize % 2 !== 0) refuse('head_dim', headSize, 'an even size, as positions rotate pairs')

  return {
    vocabularySize: config.vocab_size,
    hiddenSize: config.hidden_size,
    intermediateSize: config.intermediate_size,
    layers: config.num_hidden_layers,
    heads,
    keyValueHeads,
    headSize,
    ...family.biases(config),
    qkNorm: family.qkNorm,
    normEpsilon: config.rms_norm_eps,
    ...rope(config),
    tiedHead: config.tie_word_embeddings,
    contextLength: config.max_position_embeddings,
    matrixType: 'float32',
    lora: null,
  }
}

/** What would change the forward pass and is not computed here. */
function refuseOtherModels(config: HuggingFaceConfig): void {
  const { architectures, layer_types: layerTypes } = config
  if (architectures != null && !architectures.some((name) => name.endsWith('ForCausalLM')))
    refuse('architectures', architectures, 'a ...ForCausalLM')
  if (config.hidden_act !== 'silu') refuse('hidden_act', config.hidden_act, 'silu')
  if (config.quantization_config != null)
    refuse('quantization_config', config.quantization_config, 'weights in float32, float16 or bfloat16')
  for (const key of ['num_experts', 'num_local_experts'] as const)
    if (config[key]) refuse(key, config[key], 'dense layers, without experts')
  const other = layerTypes?.find((type) => type !== 'full_attention')
  if (other !== undefined) refuse('layer_types', other, 'full_attention in every layer')
  if (config.partial_rotary_factor != null && config.partial_rotary_factor !== 1)
    refuse('partial_rotary_factor', config.partial_rotary_factor, '1')
  // without the key, transformers takes a window of 4096
  const isWindowed = config.use_sliding_window && config.sliding_window !== null
  if (layerTypes == null && isWindowed && (config.max_window_layers ?? 0) < config.num_hidden_layers)
    refuse('use_sliding_window', true, 'false')
}

/** Old files have `rope_theta` and `rope_scaling`, newer ones both in `rope_parameters`. */
function rope(config: HuggingFaceConfig): Pick<DecoderConfig, 'ropeTheta' | 'ropeScaling'> {
  const key = config.rope_parameters == null ? 'rope_scaling' : 'rope_parameters'
  const settings = config.rope_parameters ?? config.rope_scaling
  const ropeTheta = settings?.rope_theta ?? config.rope_theta
  if (settings == null) return { ropeTheta, ropeScaling: null }
  if (settings.partial_rotary_factor !== 1) refuse(`${key}.partial_rotary_factor`, settings.partial_rotary_factor, '1')
  const type = settings.rope_type ?? settings.type ?? 'default'
  if (type === 'default') return { ropeTheta, ropeScaling: null }
  if (type !== 'llama3') refuse(`${key}.rope_type`, type, 'default, llama3')
  const number = (name: 'factor' | 'low_freq_factor' | 'high_freq_factor' | 'original_max_position_embeddings') => {
    const value = settings[name]
    return value ?? refuse(`${key}.${name}`, value, 'a number, which llama3 needs')
  }
  return {
    ropeTheta,
    ropeScaling: {
      factor: number('factor'),
      lowFrequencyFactor: number('low_freq_factor'),
      highFrequencyFactor: number('high_freq_factor'),
      originalContextLength: number('original_max_position_embeddings'),
    },
  }
}

function refuse(key: string, value: unknown, supported: string): never {
  throw new Error(`config.json: ${key} is ${JSON.stringify(value) ?? 'missing'}; supported: ${supported}`)
}
