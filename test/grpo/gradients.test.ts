/** Gradients of the whole graph, decoder and loss, against central differences in float64; and float32, with its fused operators, against float64. */

import seedrandom from 'seedrandom'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import type { FloatType } from '../../src/engine/graph.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import { gradientOutput, policyGraph, supervisedGraph } from '../../src/grpo/graphs.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { weightShapes } from '../../src/policy/architecture.ts'
import { bindWeights, uploadWeights } from '../../src/policy/weights.ts'
import { randomWeights, smallDecoder } from './fixture.ts'

const BATCH = 2
const TIME = 9
/** Rows of the block whose next token is asked for, from both sequences. */
const ROWS = [2, 3, 5, 8, 9, 10, 14, 17]
const STEP = 1e-5

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

/** One compiled graph over seeded inputs. */
async function compile(config: DecoderConfig, loss: 'policy' | 'supervised', float: FloatType) {
  const session = `${loss}/${float}`
  const graph =
    loss === 'policy'
      ? policyGraph(config, { kl: true, klBiasCorrection: true }, float)
      : supervisedGraph(config, float)
  const weights = randomWeights(config, 'gradients')
  await uploadWeights(device, config, weights, 'policy', float)
  await device.createSession(session, graph.build(), bindWeights(config, 'policy'))

  const floats = (dims: number[], values: number[]): TensorData => ({
    type: float,
    dims,
    data: float === 'float32' ? Float32Array.from(values) : Float64Array.from(values),
  })
  const integers = (dims: number[], values: number[]): TensorData => ({
    type: 'int32',
    dims,
    data: Int32Array.from(values),
  })
  const random = seedrandom('inputs')
  const column = (low: number, high: number) =>
    floats(
      [ROWS.length],
      ROWS.map(() => low + random() * (high - low)),
    )
  const common = {
    ids: integers(
      [BATCH, TIME],
      Array.from({ length: BATCH * TIME }, () => Math.floor(random() * config.vocabularySize)),
    ),
    rows: integers([ROWS.length], ROWS),
    targets: integers(
      [ROWS.length],
      ROWS.map(() => Math.floor(random() * config.vocabularySize)),
    ),
    inverseTemperature: floats([], [1 / 0.7]),
    tokenWeights: column(0.05, 0.2),
  }
  const feeds: Record<string, TensorData> = common
  if (loss === 'policy') {
    const neutral = { ...common, ...column3(column(0, 0), column(0, 0), column(0, 0)), ...scalars(floats) }
    const { logprobs } = await device.run({ session, feeds: neutral, fetch: ['logprobs'] })
    // Ratios on both sides of the clip bounds, none near one of them.
    const shift = [0.05, -0.1, 0.5, -0.6, 0.1, 0.6, -0.5, -0.05]
    const shifted = (by: number[]) =>
      floats(
        [ROWS.length],
        by.map((x, index) => Number(logprobs!.data[index]) + x),
      )
    Object.assign(feeds, column3(shifted(shift), column(-1, 1), shifted(shift.toReversed())), scalars(floats))
  }
  const run = (overrides: Record<string, TensorData>, fetch: string[]) =>
    device.run({ session, feeds: { ...feeds, ...overrides }, fetch })
  return { run, weights, release: () => device.releaseSession(session) }
}

function column3(
  oldLogprobs: TensorData,
  advantages: TensorData,
  referenceLogprobs: TensorData,
): Record<string, TensorData> {
  return { oldLogprobs, advantages, referenceLogprobs }
}

function scalars(floats: (dims: number[], values: number[]) => TensorData): Record<string, TensorData> {
  return { ratioFloor: floats([], [0.8]), ratioCeiling: floats([], [1.3]), klCoefficient: floats([], [0.3]) }
}

describe.each([
  ['tied head, grouped heads', 'policy', {}],
  ['tied head, grouped heads', 'supervised', {}],
  ['own head, one key head per query head', 'policy', { tie_word_embeddings: false, num_key_value_heads: 4 }],
] as const)('%s: %s loss', (_, loss, overrides) => {
  const config = smallDecoder(overrides)
  const names = [...weightShapes(config).keys()]

  test('gradients equal central differences in float64', async () => {
    const { run, weights, release } = await compile(config, loss, 'float64')
    const gradients = await run({}, names.map(gradientOutput))
    let checked = 0
    for (const name of names) {
      const gradient = gradients[gradientOutput(name)]!.data as Float64Array
      const largest = gradient.reduce(
        (best, value, index) => (Math.abs(value) > Math.abs(gradient[best]!) ? index : best),
        0,
      )
      expect(Math.abs(gradient[largest]!), name).toBeGreaterThan(1e-6)
      for (const entry of new Set([largest, 0, Math.floor(gradient.length / 2), gradient.length - 1])) {
        const at = async (delta: number) => {
          const data = Float64Array.from(weights.get(name)!.data)
          data[entry]! += delta
          const { loss: value } = await run({ [name]: { type: 'float64', dims: weights.get(name)!.shape, data } }, [
            'loss',
          ])
          return Number(value!.data[0])
        }
        const numeric = ((await at(STEP)) - (await at(-STEP))) / (2 * STEP)
        const scale = Math.max(Math.abs(numeric), Math.abs(gradient[largest]!) * 1e-2)
        expect(Math.abs(gradient[entry]! - numeric) / scale, `${name}[${entry}]`).toBeLessThan(1e-5)
        checked += 1
      }
    }
    expect(checked).toBeGreaterThan(names.length * 2)
    await release()
  })

  test('float32 gradients, made with fused operators, equal the float64 ones', async () => {
    const exact = await compile(config, loss, 'float64')
    const expected = await exact.run({}, names.map(gradientOutput))
    await exact.release()
    const fused = await compile(config, loss, 'float32')
    const actual = await fused.run({}, names.map(gradientOutput))
    await fused.release()
    for (const name of names) {
      const [a, b] = [
        actual[gradientOutput(name)]!.data as Float32Array,
        expected[gradientOutput(name)]!.data as Float64Array,
      ]
      const scale = b.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
      a.forEach((value, index) => expect(Math.abs(value - b[index]!) / scale, `${name}[${index}]`).toBeLessThan(2e-5))
    }
  })
})
