/**
 * PEFT adapters: an `adapter_config.json` and tensors under PEFT's names <-> what the forward pass needs, and how a new adapter begins.
 * LoRA on the seven projections of every layer and nothing else. Reads and writes no files.
 */
import seedrandom from 'seedrandom'
import { z } from 'zod'
import type { DecoderConfig } from './architecture.ts'
import { trainedWeights, weightShapes } from './architecture.ts'
import { decoderConfig } from './families.ts'
import type { Lora } from './lora.ts'
import { LORA_A } from './lora.ts'
import type { LoraOptions } from './options.ts'
import { LORA_TARGETS } from './options.ts'
import type { WeightTensor } from './weights.ts'

/** The two files of an adapter directory. */
export interface Adapter {
  /** adapter_config.json. */
  config: Record<string, unknown>
  /** adapter_model.safetensors, under PEFT's names. */
  weights: ReadonlyMap<string, WeightTensor>
}

/** A model with or without an adapter on it; a loaded `Checkpoint` is one. */
export interface Adaptable {
  config: Record<string, unknown>
  weights: ReadonlyMap<string, WeightTensor>
  adapter?: Adapter
}

/** What PEFT puts before the names of the model that it wraps. */
const PEFT_PREFIX = 'base_model.model.'

/** Keys of an adapter's configuration that change what it computes; with any other value it is refused. */
const neutral: Readonly<Record<string, readonly unknown[]>> = {
  task_type: ['CAUSAL_LM'],
  bias: ['none'],
  use_dora: [false],
  use_qalora: [false],
  use_bdlora: [false],
  alora_invocation_tokens: [],
  arrow_config: [],
  kasa_config: [],
  monteclora_config: [],
  lora_bias: [false],
  fan_in_fan_out: [false],
  modules_to_save: [],
  rank_pattern: [],
  alpha_pattern: [],
  layers_to_transform: [],
  layers_pattern: [],
  exclude_modules: [],
  target_parameters: [],
  trainable_token_indices: [],
  layer_replication: [],
  // Other beginnings than these change the base model's weights as well.
  init_lora_weights: [true, false, 'gaussian'],
}

const peftConfig = z.looseObject({
  peft_type: z.literal('LORA'),
  r: z.number().int().positive(),
  lora_alpha: z.number().positive(),
  use_rslora: z.boolean().default(false),
  target_modules: z.array(z.enum(LORA_TARGETS)).min(1),
})

/**
 * Reads a parsed `adapter_config.json`. Throws an Error whose message names the key that stands in the way.
 * `lora_dropout` is accepted, as it acts in training only, where we use none.
 */
export function loraFromPeft(json: unknown): Lora {
  const parsed = peftConfig.safeParse(json)
  if (!parsed.success) {
    const { path, message } = parsed.error.issues[0]!
    throw new Error(`adapter_config.json: ${path.join('.') || 'the whole'}: ${message}`)
  }
  const config = parsed.data
  for (const [key, allowed] of Object.entries(neutral)) {
    const value = config[key]
    if (isEmpty(value) || allowed.includes(value)) continue
    throw new Error(
      `adapter_config.json: ${key} is ${JSON.stringify(value)}; supported: ${['null', ...allowed.map((one) => JSON.stringify(one))].join(', ')}`,
    )
  }
  const { r: rank, lora_alpha: alpha, target_modules: targets } = config
  return { rank, scale: config.use_rslora ? alpha / Math.sqrt(rank) : alpha / rank, targets }
}

function isEmpty(value: unknown): boolean {
  return value === undefined || value === null || (typeof value === 'object' && Object.keys(value).length === 0)
}

/** What training begins with: all weights, or the adapter's, by the model's own names. */
export function trainedOf({ weights, adapter }: Adaptable): ReadonlyMap<string, WeightTensor> {
  if (!adapter) return weights
  return new Map([...adapter.weights].map(([name, tensor]) => [ownName(name), tensor]))
}

/** The same model with these weights in place of those of `trainedOf`. */
export function withTrained<M extends Adaptable>(model: M, trained: ReadonlyMap<string, WeightTensor>): M {
  if (!model.adapter) return { ...model, weights: trained }
  const weights = new Map([...trained].map(([name, tensor]) => [PEFT_PREFIX + name, tensor]))
  return { ...model, adapter: { ...model.adapter, weights } }
}

function ownName(peftName: string): string {
  return peftName.startsWith(PEFT_PREFIX) ? peftName.slice(PEFT_PREFIX.length) : peftName
}

/** The forward pass of a model with its adapter. Throws, naming the key or the tensor, when either cannot be run. */
export function adaptedConfig({ config: json, adapter }: Adaptable): DecoderConfig {
  const base = decoderConfig(json)
  if (!adapter) return base
  const config = { ...base, lora: loraFromPeft(adapter.config) }
  const known = new Set(trainedWeights(config))
  const unknown = [...adapter.weights.keys()].find((name) => !known.has(ownName(name)))
  if (unknown !== undefined)
    throw new Error(
      `adapter_model.safetensors: tensor ${unknown} is none of the pairs that adapter_config.json describes; supported: ${PEFT_PREFIX}<projection>.lora_A.weight and lora_B.weight`,
    )
  return config
}

/**
 * A new adapter on the model at `basePath`, which changes nothing yet: B is zero, and A is uniform in ±1/sqrt(in), as Kaiming's rule with
 * a = sqrt(5) gives and PEFT uses. The same seed gives the same adapter.
 */
export function newAdapter(
  modelConfig: Record<string, unknown>,
  basePath: string,
  { rank, alpha, targets }: LoraOptions,
  seed: number,
): Adapter {
  const config = {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: basePath,
    r: rank,
    lora_alpha: alpha,
    target_modules: LORA_TARGETS.filter((target) => targets.includes(target)),
    lora_dropout: 0,
    bias: 'none',
    init_lora_weights: true,
    inference_mode: true,
  }
  const adapted = { ...decoderConfig(modelConfig), lora: loraFromPeft(config) }
  const shapes = weightShapes(adapted)
  const weights = new Map<string, WeightTensor>()
  for (const name of trainedWeights(adapted)) {
    const shape = shapes.get(name)!
    const data = new Float32Array(shape[0]! * shape[1]!)
    if (name.endsWith(LORA_A)) {
      const random = seedrandom.alea(`adapter/${seed}/${name}`)
      const bound = 1 / Math.sqrt(shape[1]!)
      for (let index = 0; index < data.length; index += 1) data[index] = bound * (2 * random() - 1)
    }
    weights.set(PEFT_PREFIX + name, { shape, data })
  }
  return { config, weights }
}
