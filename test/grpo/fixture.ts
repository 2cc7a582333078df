/** Small models and weights for tests of this room, which does not know `checkpoint/`. */

import { readFileSync } from 'node:fs'
import seedrandom from 'seedrandom'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { weightShapes } from '../../src/policy/architecture.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import type { WeightTensor } from '../../src/policy/weights.ts'

/** Reads a float32 safetensors file (8 bytes of header length, JSON header, data). */
export function readFixtureWeights(file: URL): Map<string, WeightTensor> {
  const bytes = readFileSync(file)
  const headerLength = Number(bytes.readBigUInt64LE(0))
  const header = JSON.parse(bytes.subarray(8, 8 + headerLength).toString()) as Record<
    string,
    { shape: number[]; data_offsets: [number, number] }
  >
  const tensors = new Map<string, WeightTensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const data = bytes.subarray(8 + headerLength + entry.data_offsets[0], 8 + headerLength + entry.data_offsets[1])
    tensors.set(name, { shape: entry.shape, data: new Float32Array(new Uint8Array(data).buffer) })
  }
  return tensors
}

/** A small decoder with grouped heads. */
export function smallDecoder(overrides: Record<string, unknown> = {}): DecoderConfig {
  return decoderConfig({
    model_type: 'qwen2',
    vocab_size: 23,
    hidden_size: 16,
    intermediate_size: 24,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    tie_word_embeddings: true,
    max_position_embeddings: 64,
    ...overrides,
  })
}

/** Weights from a seed, large enough that every part of the model matters. */
export function randomWeights(config: DecoderConfig, seed: string): Map<string, WeightTensor> {
  const random = seedrandom(seed)
  return new Map(
    [...weightShapes(config)].map(([name, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      const center = name.includes('norm') ? 1 : 0
      return [name, { shape, data: Float32Array.from({ length }, () => center + 0.8 * (random() - 0.5)) }]
    }),
  )
}
