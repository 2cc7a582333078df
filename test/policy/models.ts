/** Models that several tests of this room read: the golden one (test/golden) and a small one made here. */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { readSafetensors } from '../../src/checkpoint/safetensors.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import { decoderLogits, weightShapes } from '../../src/policy/architecture.ts'
import type { EmbeddedPolicy, EmbeddedPolicySettings, PolicySource } from '../../src/policy/embedded.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { initializeWeights } from '../../src/policy/initialize.ts'
import type { TextTokenizer, TokenizerSource } from '../../src/policy/tokenizer.ts'
import { openTokenizer } from '../../src/policy/tokenizer.ts'
import { bindWeights } from '../../src/policy/weights.ts'
import { buildWordTokenizer } from '../../src/policy/wordTokenizer.ts'

const goldenDirectory = resolve(import.meta.dirname, '../golden/trl-grpo')

export interface GoldenForward {
  input_ids: number[][]
  logprobs: number[][]
  greedy_continuation_of_row_0: number[]
  tokenizer: { text: string; ids: number[] }
  chat: { messages: { role: 'system' | 'user'; content: string }[]; rendered: string; ids: number[] }
}

export function goldenForward(): GoldenForward {
  return JSON.parse(readFileSync(`${goldenDirectory}/forward.json`, 'utf8')) as GoldenForward
}

export const tags = [
  '<request_grounding/>',
  '<visual_query>',
  '</visual_query>',
  '<answer>',
  '</answer>',
  '<turns_left_3>',
  '<seg01_clip_00>',
]

export function smallTokenizerSource(): TokenizerSource {
  const words = "what colour is the red sign mug ? : . , ' question options a0 a1 s ##s < > cafe".split(' ')
  const files = buildWordTokenizer(words, tags)
  return {
    tokenizer: files.tokenizerJson,
    tokenizerConfig: files.tokenizerConfig,
    chatTemplate: files.chatTemplate,
    generationConfig: null,
    config: {},
  }
}

export function tokenizerFrom(source: TokenizerSource): TextTokenizer {
  const result = openTokenizer(source, 'test model')
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

export function goldenTokenizer(): TextTokenizer {
  return tokenizerFrom(goldenTokenizerSource())
}

function goldenTokenizerSource(): TokenizerSource {
  const directory = `${goldenDirectory}/tiny-qwen2`
  const json = (name: string) => JSON.parse(readFileSync(`${directory}/${name}`, 'utf8')) as Record<string, unknown>
  return {
    tokenizer: json('tokenizer.json'),
    tokenizerConfig: json('tokenizer_config.json'),
    chatTemplate: readFileSync(`${directory}/chat_template.jinja`, 'utf8'),
    generationConfig: json('generation_config.json'),
    config: json('config.json'),
  }
}

export async function goldenSource(): Promise<PolicySource> {
  const weights = await readSafetensors(`${goldenDirectory}/tiny-qwen2/model.safetensors`)
  if (!weights.ok) throw new Error(weights.failure.message)
  return { ...goldenTokenizerSource(), weights: weights.value }
}

/** Two layers with random weights, sharp enough that samples differ and mistakes show. */
export function smallSource(): PolicySource {
  const tokenizer = smallTokenizerSource()
  const vocab_size = tokenizerFrom(tokenizer).vocabularySize
  const shape = {
    vocab_size,
    hidden_size: 32,
    intermediate_size: 48,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    rope_theta: 10_000,
  }
  const weights = initializeWeights(shape, { seed: 5, embeddingScale: 0.5, previousTokenHeads: 1 })
  return {
    ...tokenizer,
    config: {
      ...shape,
      model_type: 'qwen2',
      rms_norm_eps: 1e-6,
      tie_word_embeddings: true,
      max_position_embeddings: 256,
    },
    weights,
  }
}

export async function open(
  source: PolicySource,
  settings: Partial<EmbeddedPolicySettings> = {},
): Promise<EmbeddedPolicy> {
  const result = await openPolicy(source, engineOptions.parse({ threads: 1 }), {
    name: 'test',
    rows: 64,
    cacheTokens: 16_384,
    ...settings,
  })
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

/** Log-probabilities of ids[from...] by the whole forward pass that training uses, at a temperature. */
export async function scored(
  policy: EmbeddedPolicy,
  ids: readonly number[],
  from: number,
  temperature: number,
): Promise<number[]> {
  const { device, config } = policy
  const program = new ProgramBuilder()
  const { ops } = program
  const weights = new Map(
    [...weightShapes(config)].map(([name, shape]) => [name, program.input(name, 'float32', shape)]),
  )
  program.output(
    'logits',
    decoderLogits(
      ops,
      config,
      weights,
      program.input('ids', 'int32', ['B', 'T']),
      program.input('rows', 'int32', ['M']),
    ),
  )
  await device.createSession('test/score', program.build(), bindWeights(config, 'policy'))
  const rows = Int32Array.from({ length: ids.length - from }, (_, i) => from - 1 + i)
  const { logits } = await device.run({
    session: 'test/score',
    feeds: {
      ids: { type: 'int32', dims: [1, ids.length], data: Int32Array.from(ids) },
      rows: { type: 'int32', dims: [rows.length], data: rows },
    },
    fetch: ['logits'],
  })
  await device.releaseSession('test/score')
  const width = config.vocabularySize
  return [...rows].map((_, i) => {
    const row = [...(logits!.data as Float32Array).subarray(i * width, (i + 1) * width)].map(
      (logit) => logit / temperature,
    )
    const largest = Math.max(...row)
    return row[ids[from + i]!]! - largest - Math.log(row.reduce((sum, logit) => sum + Math.exp(logit - largest), 0))
  })
}
