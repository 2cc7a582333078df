/** Gradients of the whole graph, decoder and loss, against central differences in float64; and float32, with its fused operators, against float64. */

import seedrandom from 'seedrandom'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import type { FloatType } from '../../src/engine/shape.ts'
import { microBatches } from '../../src/grpo/batching.ts'
import type { PolicyGraphOptions } from '../../src/grpo/graphs.ts'
import { gradientOutput, microBatchInputs, policyGraph, supervisedGraph } from '../../src/grpo/graphs.ts'
import type { PolicyObjective } from '../../src/grpo/loss.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import { valueHeadShapes } from '../../src/grpo/value.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import type { WeightTensor } from '../../src/policy/weights.ts'
import { bindWeights, residentName, uploadWeights } from '../../src/policy/weights.ts'
import { randomWeights, smallDecoder } from './fixture.ts'
import { VARIANTS } from './variants.ts'

/** Two sequences that begin alike, and the positions asked for: some are predicted from what they share. */
const SHARED = 3
const LENGTH = 10
const POSITIONS = [
  [3, 4, 6, 9],
  [1, 2, 6, 9],
]
/** Of each asked position, its sequence. */
const SEQUENCE = POSITIONS.flatMap((positions, index) => positions.map(() => index))
const STEP = 1e-5

type Loss = 'supervised' | PolicyGraphOptions

function variant(overrides: Partial<PolicyObjective>, rest: Partial<PolicyGraphOptions> = {}): PolicyGraphOptions {
  return {
    objective: { ...grpoOptions.parse({ clipHigh: 0.3 }), ...overrides },
    importanceWeights: false,
    valueCoefficient: null,
    ...rest,
  }
}

/** The policy loss with most of what it can have. */
const RICH = variant({ klCoefficient: 0.3 }, { importanceWeights: true, valueCoefficient: 0.4 })

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

/** One compiled graph over seeded inputs. */
async function compile(config: DecoderConfig, loss: Loss, float: FloatType) {
  const session = float
  const graph = loss === 'supervised' ? supervisedGraph(config, float) : policyGraph(config, loss, float)
  const typed = (values: ArrayLike<number>) =>
    float === 'float32' ? Float32Array.from(values) : Float64Array.from(values)
  const random = seedrandom('inputs')
  const weights = new Map<string, WeightTensor>(randomWeights(config, 'gradients'))
  await uploadWeights(device, config, weights, 'policy', float)
  const bind = bindWeights(config, 'policy')
  if (loss !== 'supervised' && loss.valueCoefficient !== null) {
    for (const [name, dims] of valueHeadShapes(config)) {
      const data = Float32Array.from({ length: dims.reduce((a, b) => a * b) }, () => random() - 0.5)
      weights.set(name, { shape: dims, data })
      bind[name] = residentName('policy', name)
      await device.upload(new Map([[bind[name], { type: float, dims, data: typed(data) }]]))
    }
  }
  await device.createSession(session, graph.build(), bind)

  const column = (values: ArrayLike<number>): TensorData => ({
    type: float,
    dims: [values.length],
    data: typed(values),
  })
  const between = (low: number, high: number) => column(SEQUENCE.map(() => low + random() * (high - low)))
  const integers = (dims: number[], values: number[]): TensorData => ({
    type: 'int32',
    dims,
    data: Int32Array.from(values),
  })
  const ids = (length: number) => Array.from({ length }, () => Math.floor(random() * config.vocabularySize))
  const shared = ids(SHARED)
  const sequences = POSITIONS.map((positions, index) => ({
    ids: [...shared, index, ...ids(LENGTH - SHARED - 1)],
    positions,
  }))
  const [batch] = microBatches(sequences, () => true)
  expect(batch!.members).toEqual([0, 1])
  expect(batch!.shape).toMatchObject({ G: 1, P: SHARED, B: 2, T: LENGTH - 1 - SHARED, prefixStates: 3, rowStates: 5 })
  const feeds: Record<string, TensorData> = {
    ...microBatchInputs(batch!, float),
    inverseTemperature: { type: float, dims: [], data: typed([1 / 0.7]) },
    tokenWeights: between(0.05, 0.2),
  }
  const run = (overrides: Record<string, TensorData>, fetch: string[]) =>
    device.run({ session, feeds: { ...feeds, ...overrides }, fetch })
  if (loss !== 'supervised') {
    const { objective } = loss
    Object.assign(feeds, { oldLogprobs: between(0, 0), advantages: between(-1, 1) })
    if (objective.klCoefficient > 0) feeds.referenceLogprobs = between(0, 0)
    if (loss.importanceWeights) feeds.importanceWeights = between(0.5, 1.5)
    if (objective.importanceSamplingLevel === 'sequence') {
      feeds.rowOfToken = integers([SEQUENCE.length], SEQUENCE)
      feeds.rowIndices = integers([POSITIONS.length], [0, 1])
      feeds.rowShares = column(SEQUENCE.map((sequence) => 1 / POSITIONS[sequence]!.length))
    }
    if (loss.valueCoefficient !== null) {
      feeds.returns = between(-1, 1)
      feeds.valueWeights = column(
        POSITIONS.flatMap((positions) => positions.map((_, index) => (index === 0 ? 0.5 : 0))),
      )
    }
    const { logprobs } = await run({}, ['logprobs'])
    // Ratios on both sides of the clip bounds, of every token and of both sequences, none near one of them.
    const shift = [0.05, -0.1, 0.6, -0.5, -0.7, -0.65, -0.1, -0.55]
    const shifted = (by: number[]) => column(by.map((x, index) => Number(logprobs!.data[index]) + x))
    feeds.oldLogprobs = shifted(shift)
    if (objective.klCoefficient > 0) feeds.referenceLogprobs = shifted(shift.toReversed())
  }
  /** Loss and value loss together, as they are differentiated, with some weights moved. */
  const total = async (moved: Record<string, Float64Array>): Promise<number> => {
    const overrides = Object.fromEntries(
      Object.entries(moved).map(([name, data]) => [
        name,
        { type: 'float64' as const, dims: weights.get(name)!.shape, data },
      ]),
    )
    const coefficient = loss === 'supervised' ? null : loss.valueCoefficient
    const results = await run(overrides, coefficient === null ? ['loss'] : ['loss', 'valueLoss'])
    return Number(results.loss!.data[0]) + (coefficient ?? 0) * Number(results.valueLoss?.data[0] ?? 0)
  }
  return { run, total, weights, names: [...weights.keys()], feeds, release: () => device.releaseSession(session) }
}

describe.each([
  ['tied head, grouped heads', 'policy', RICH, {}],
  ['tied head, grouped heads', 'supervised', 'supervised', {}],
  ['own head, one key head per query head', 'policy', RICH, { tie_word_embeddings: false, num_key_value_heads: 4 }],
] as const)('%s: %s loss', (_, _name, loss, overrides) => {
  const config = smallDecoder(overrides)

  test('gradients equal central differences in float64', async () => {
    const { run, total, weights, names, release } = await compile(config, loss, 'float64')
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
        const at = (delta: number) => {
          const data = Float64Array.from(weights.get(name)!.data)
          data[entry]! += delta
          return total({ [name]: data })
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
    const expected = await exact.run({}, exact.names.map(gradientOutput))
    await exact.release()
    const fused = await compile(config, loss, 'float32')
    const actual = await fused.run({}, fused.names.map(gradientOutput))
    await fused.release()
    for (const name of exact.names) {
      const [a, b] = [
        actual[gradientOutput(name)]!.data as Float32Array,
        expected[gradientOutput(name)]!.data as Float64Array,
      ]
      const scale = b.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
      a.forEach((value, index) => expect(Math.abs(value - b[index]!) / scale, `${name}[${index}]`).toBeLessThan(2e-5))
    }
  })
})

describe('every variant of the loss', () => {
  const config = smallDecoder()
  const entries = Object.entries(VARIANTS).map(([name, { importanceWeights = false, ...overrides }]) => ({
    name,
    loss: variant(overrides, { importanceWeights }),
  }))

  test.each(entries.filter(({ loss }) => loss.objective.lossType !== 'cispo'))(
    '$name: the slope along a random direction is the gradient times the direction',
    async ({ loss }) => {
      const { run, total, weights, names, release } = await compile(config, loss, 'float64')
      const gradients = await run({}, names.map(gradientOutput))
      const random = seedrandom('direction')
      const direction = new Map(
        names.map((name) => [name, Float64Array.from(weights.get(name)!.data, () => random() - 0.5)]),
      )
      const at = (delta: number) =>
        total(
          Object.fromEntries(
            names.map((name) => [
              name,
              Float64Array.from(
                weights.get(name)!.data,
                (value, index) => value + delta * direction.get(name)![index]!,
              ),
            ]),
          ),
        )
      const numeric = ((await at(STEP)) - (await at(-STEP))) / (2 * STEP)
      const slope = names.reduce((sum, name) => {
        const gradient = gradients[gradientOutput(name)]!.data as Float64Array
        return sum + gradient.reduce((total, value, index) => total + value * direction.get(name)![index]!, 0)
      }, 0)
      expect(Math.abs(slope)).toBeGreaterThan(1e-3)
      expect(slope / numeric).toBeCloseTo(1, 5)
      await release()
    },
  )

  test.each(entries.filter(({ loss }) => loss.objective.lossType === 'cispo'))(
    '$name: the gradient is that of log-probabilities with fixed weights',
    async ({ loss }) => {
      const cispo = await compile(config, loss, 'float64')
      const gradients = await cispo.run({}, cispo.names.map(gradientOutput))
      const { logprobs } = await cispo.run({}, ['logprobs'])
      await cispo.release()
      const at = (values: TensorData, index: number) => Number(values.data[index])
      const logRatios = SEQUENCE.map((_, index) => at(logprobs!, index) - at(cispo.feeds.oldLogprobs!, index))
      const meanOf = (index: number) => {
        const row = logRatios.filter((_, other) => SEQUENCE[other] === SEQUENCE[index])
        return row.reduce((sum, value) => sum + value) / row.length
      }
      const perSequence = loss.objective.importanceSamplingLevel === 'sequence'
      const ratios = logRatios.map((logRatio, index) => Math.exp(perSequence ? meanOf(index) : logRatio))
      expect(ratios.some((ratio) => ratio > loss.objective.ratioCap)).toBe(true)
      expect(ratios.some((ratio) => ratio < loss.objective.ratioCap)).toBe(true)
      const fixed = ratios.map(
        (ratio, index) =>
          Math.min(ratio, loss.objective.ratioCap) *
          at(cispo.feeds.advantages!, index) *
          at(cispo.feeds.tokenWeights!, index),
      )
      const supervised = await compile(config, 'supervised', 'float64')
      const expected = await supervised.run(
        { tokenWeights: { type: 'float64', dims: [SEQUENCE.length], data: Float64Array.from(fixed) } },
        supervised.names.map(gradientOutput),
      )
      await supervised.release()
      for (const name of cispo.names) {
        const [a, b] = [gradients, expected].map((of) => of[gradientOutput(name)]!.data as Float64Array)
        a!.forEach((value, index) => expect(value, `${name}[${index}]`).toBeCloseTo(b![index]!, 12))
      }
    },
  )
})
