/**
 * LoRA adapters (Hu et al. 2021, arXiv:2106.09685) in PEFT's terms: what an `adapter_config.json` says, the adapter's tensors by name and
 * shape, and how a new one begins. Low-rank pairs on the seven projections of each layer and nothing else; no dropout.
 * Reads no files and knows no graph: the forward pass is `architecture.ts`.
 */
import seedrandom from 'seedrandom'
import { z } from 'zod'
import type { LoraOptions } from './options.ts'
import { LORA_TARGETS } from './options.ts'

export type LoraTarget = (typeof LORA_TARGETS)[number]

export interface Lora {
  rank: number
  /** Factor on the product of the pair: alpha / rank, or alpha / sqrt(rank) with `use_rslora`. */
  scale: number
  targets: readonly LoraTarget[]
}

/** A [rank, in] and B [out, rank]; the projection gains scale B A. */
export const LORA_A = 'lora_A.weight'
export const LORA_B = 'lora_B.weight'

/** What PEFT puts before the names of the model that it wraps. */
const PEFT_PREFIX = 'base_model.model.'

/** Names and shapes of the pair beside a projection [out, in], in the model's own naming; none where it has no adapter. */
export function loraShapes(lora: Lora | null, projection: string, out: number, width: number): [string, number[]][] {
  if (!lora?.targets.some((target) => projection.endsWith(`.${target}`))) return []
  return [
    [`${projection}.${LORA_A}`, [lora.rank, width]],
    [`${projection}.${LORA_B}`, [out, lora.rank]],
  ]
}

export function isLora(name: string): boolean {
  return name.endsWith(`.${LORA_A}`) || name.endsWith(`.${LORA_B}`)
}

/** A tensor's name in `adapter_model.safetensors`. */
export function peftName(name: string): string {
  return PEFT_PREFIX + name
}

/** Adapter tensors by the model's own names. Throws on a name that is not PEFT's of a low-rank pair. */
export function fromPeft<T>(tensors: ReadonlyMap<string, T>): Map<string, T> {
  return new Map(
    [...tensors].map(([name, tensor]) => {
      if (!name.startsWith(PEFT_PREFIX) || !isLora(name))
        throw new Error(
          `adapter_model.safetensors: tensor ${name} is none of a LoRA pair; supported: ${PEFT_PREFIX}<projection>.lora_A.weight and lora_B.weight`,
        )
      return [name.slice(PEFT_PREFIX.length), tensor]
    }),
  )
}

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

/** The `adapter_config.json` of a new adapter on the model at `base`. */
export function peftFromOptions({ rank, alpha, targets }: LoraOptions, base: string): Record<string, unknown> {
  return {
    peft_type: 'LORA',
    task_type: 'CAUSAL_LM',
    base_model_name_or_path: base,
    r: rank,
    lora_alpha: alpha,
    target_modules: LORA_TARGETS.filter((target) => targets.includes(target)),
    lora_dropout: 0,
    bias: 'none',
    init_lora_weights: true,
    inference_mode: true,
  }
}

/**
 * A new adapter, which changes nothing yet: B is zero, and A is uniform in ±1/sqrt(in), as Kaiming's rule with a = sqrt(5) gives and
 * PEFT uses. `shapes` are those of the whole model; the result holds the adapter's alone.
 */
export function initialAdapter(
  shapes: ReadonlyMap<string, readonly number[]>,
  seed: number,
): Map<string, { shape: readonly number[]; data: Float32Array }> {
  const adapter = new Map<string, { shape: readonly number[]; data: Float32Array }>()
  for (const [name, shape] of shapes) {
    if (!isLora(name)) continue
    const data = new Float32Array(shape[0]! * shape[1]!)
    if (name.endsWith(LORA_A)) {
      const random = seedrandom.alea(`adapter/${seed}/${name}`)
      const bound = 1 / Math.sqrt(shape[1]!)
      for (let index = 0; index < data.length; index += 1) data[index] = bound * (2 * random() - 1)
    }
    adapter.set(name, { shape, data })
  }
  return adapter
}
