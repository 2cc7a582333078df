/** Sequences behind shared prefixes against the same sequences run whole, on the real engine. */

import seedrandom from 'seedrandom'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { decoderHidden, weightShapes } from '../../src/policy/architecture.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import { sharedPrefixHidden } from '../../src/policy/sharedPrefix.ts'
import { bindWeights, uploadWeights, weightInputs } from '../../src/policy/weights.ts'

const qwen2 = {
  model_type: 'qwen2',
  vocab_size: 19,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  max_position_embeddings: 64,
}

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

const integers = (dims: number[], values: number[]): TensorData => ({
  type: 'int32',
  dims,
  data: Int32Array.from(values),
})

/** Prefixes [1 2 3] and [4 5], padded; rows [6 7], [8] and [9 1 2] behind the first, second and first. */
const shared = {
  prefixIds: integers([2, 3], [1, 2, 3, 4, 5, 0]),
  ids: integers([3, 3], [6, 7, 0, 8, 0, 0, 9, 1, 2]),
  prefixOf: integers([3], [0, 1, 0]),
  prefixStates: integers([2], [1, 4]),
  rowStates: integers([4], [1, 3, 6, 8]),
}
/** The same states in whole sequences: [1 2 3 6 7], [4 5 8] and [1 2 3 9 1 2]. */
const whole = {
  ids: integers([3, 6], [1, 2, 3, 6, 7, 0, 4, 5, 8, 0, 0, 0, 1, 2, 3, 9, 1, 2]),
  rows: integers([6], [1, 7, 4, 8, 15, 17]),
}

test.each(['float64', 'float32'] as const)('%s: hidden states equal those of whole sequences', async (float) => {
  const config: DecoderConfig = decoderConfig(qwen2)
  const random = seedrandom('prefix')
  const weights = new Map(
    [...weightShapes(config)].map(([name, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      return [
        name,
        { shape, data: Float32Array.from({ length }, () => Number(name.includes('norm')) + random() - 0.5) },
      ]
    }),
  )
  await uploadWeights(device, config, weights, 'policy', float)
  const run = async (build: (program: ProgramBuilder) => void, feeds: Record<string, TensorData>) => {
    const program = new ProgramBuilder(float)
    build(program)
    await device.createSession('hidden', program.build(), bindWeights(config, 'policy'))
    const { hidden } = await device.run({ session: 'hidden', feeds, fetch: ['hidden'] })
    await device.releaseSession('hidden')
    return hidden!
  }
  const expected = await run((program) => {
    const inputs = weightInputs(program, config)
    const ids = program.input('ids', 'int32', ['B', 'T'])
    program.output('hidden', decoderHidden(program.ops, config, inputs, ids, program.input('rows', 'int32', ['M'])))
  }, whole)
  const lengths = float === 'float32' ? Float32Array.of(3, 2) : Float64Array.of(3, 2)
  const actual = await run(
    (program) => {
      const inputs = weightInputs(program, config)
      const blocks = {
        prefixIds: program.input('prefixIds', 'int32', ['G', 'P']),
        prefixLengths: program.input('prefixLengths', float, ['G']),
        ids: program.input('ids', 'int32', ['B', 'T']),
        prefixOf: program.input('prefixOf', 'int32', ['B']),
        prefixStates: program.input('prefixStates', 'int32', ['N1']),
        rowStates: program.input('rowStates', 'int32', ['N2']),
      }
      program.output('hidden', sharedPrefixHidden(program.ops, config, inputs, blocks))
    },
    { ...shared, prefixLengths: { type: float, dims: [2], data: lengths } },
  )
  expect(actual.dims).toEqual([6, 16])
  const tolerance = float === 'float64' ? 1e-12 : 1e-5
  for (let index = 0; index < 6 * 16; index += 1)
    expect(Math.abs(Number(actual.data[index]) - Number(expected.data[index]))).toBeLessThan(tolerance)
})
