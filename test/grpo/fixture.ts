/** Small models and weights for tests of this room, which does not know `checkpoint/`. */

import { readFileSync } from 'node:fs'
import type { WeightTensor } from '../../src/policy/weights.ts'

/** Reads a float32 safetensors file (8 bytes of header length, JSON header, data). */
export function readFixtureWeights(file: URL): Map<string, WeightTensor> {
  const bytes = readFileSync(file)
  const headerLength = Number(bytes.readBigUInt64LE(0))
  const header = JSON.parse(bytes.subarray(8, 8 + headerLength).toString()) as Record<string, { shape: number[]; data_offsets: [number, number] }>
  const tensors = new Map<string, WeightTensor>()
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') continue
    const data = bytes.subarray(8 + headerLength + entry.data_offsets[0], 8 + headerLength + entry.data_offsets[1])
    tensors.set(name, { shape: entry.shape, data: new Float32Array(new Uint8Array(data).buffer) })
  }
  return tensors
}
