/** Both engines on the golden model: losses, log-probabilities and every gradient of every loss, ours against TensorFlow.js's autodiff. */

import { readFileSync } from 'node:fs'
import * as tf from '@tensorflow/tfjs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTfjsDevice } from '../../src/engine/tfjs/device.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import type { PolicyTrainingRow, SupervisedTrainingRow, Trainer } from '../../src/grpo/trainer.ts'
import { valueHeadShapes } from '../../src/grpo/value.ts'
import { trainedWeights } from '../../src/policy/architecture.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import { residentName } from '../../src/policy/weights.ts'
import { randomWeights, readFixtureWeights, smallDecoder } from './fixture.ts'
import { VARIANTS } from './variants.ts'

const FIXTURE = new URL('../golden/trl-grpo/', import.meta.url)
const json = <T>(name: string): T => JSON.parse(readFileSync(new URL(name, FIXTURE), 'utf8')) as T

const config = decoderConfig(json('tiny-qwen2/config.json'))
const weights = readFixtureWeights(new URL('tiny-qwen2/model.safetensors', FIXTURE))
const [rollouts] = json<{ prompt_ids: number[]; completion_ids: number[]; reward: number }[][]>('rollouts.json')
const sampled = rollouts!.map(({ prompt_ids, completion_ids, reward }) => ({
  ids: [...prompt_ids, ...completion_ids],
  positions: completion_ids.map((_, index) => prompt_ids.length + index),
  advantage: reward - 0.4,
}))
const BATCH = { microBatchTokens: 64 }
/** Largest differences: of a loss or log-probability, and of a gradient's entry over the gradient's largest. */
const TOLERANCE = { value: 2e-6, gradient: 2e-5 }

interface Side {
  device: Device
  trainer: Trainer
}

let onnx: Side
let tfjs: Side
beforeAll(async () => {
  const open = async (device: Device) => {
    const trainer = await openTrainer(device, config, { weights, valueHead: true })
    await device.upload(
      new Map(
        [...valueHeadShapes(config)].map(([name, dims]) => {
          const data = Float32Array.from({ length: dims.reduce((a, b) => a * b) }, (_, index) => Math.sin(index) / 4)
          return [residentName('policy', name), { type: 'float32', dims, data }]
        }),
      ),
    )
    return { device, trainer }
  }
  onnx = await open(await openDevice(engineOptions.parse({})))
  tfjs = await open(await openDevice(engineOptions.parse('tfjs')))
})
afterAll(async () => {
  for (const { trainer, device } of [onnx, tfjs]) {
    await trainer.close()
    await device.close()
  }
})

function expectClose(name: string, actual: ArrayLike<number>, expected: ArrayLike<number>, tolerance: number): void {
  expect(actual.length, name).toBe(expected.length)
  expect(Array.prototype.every.call(actual, Number.isFinite), name).toBe(true)
  let worst = 0
  let at = 0
  for (let index = 0; index < actual.length; index += 1) {
    const difference = Math.abs(actual[index]! - expected[index]!)
    if (difference <= worst) continue
    worst = difference
    at = index
  }
  expect(worst, `${name}[${at}]: ${actual[at]} and ${expected[at]}`).toBeLessThan(tolerance)
}

/** The same on both sides, and then every accumulated gradient. */
async function compare(
  run: (trainer: Trainer) => Promise<{ loss: number; valueLoss?: number | null; logprobs: Float64Array[] }>,
  names: readonly string[],
): Promise<void> {
  const [expected, actual] = [await run(onnx.trainer), await run(tfjs.trainer)]
  expect(Math.abs(actual.loss - expected.loss)).toBeLessThan(TOLERANCE.value)
  expect(Math.abs((actual.valueLoss ?? 0) - (expected.valueLoss ?? 0))).toBeLessThan(TOLERANCE.value)
  expected.logprobs.forEach((row, index) => expectClose('logprobs', actual.logprobs[index]!, row, TOLERANCE.value * 2))
  const gradients = names.map((name) => `gradient/${name}`)
  const [ours, theirs] = [await onnx.device.download(gradients), await tfjs.device.download(gradients)]
  let flowing = 0
  names.forEach((name, index) => {
    const reference = ours[index]!.data as Float32Array
    const scale = reference.reduce((most, value) => Math.max(most, Math.abs(value)), 0)
    if (scale > 1e-6) flowing += 1
    expectClose(name, theirs[index]!.data as Float32Array, reference, TOLERANCE.gradient * scale + 1e-9)
  })
  expect(flowing).toBe(names.length)
  for (const { trainer } of [onnx, tfjs]) await trainer.discardGradients()
}

const names = [...trainedWeights(config), ...valueHeadShapes(config).keys()]

test.each(Object.entries(VARIANTS))('%s', async (_, { importanceWeights = false, ...overrides }) => {
  const objective = { ...grpoOptions.parse({ clipHigh: 0.3 }), ...overrides }
  const scored = await onnx.trainer.score(sampled, { ...BATCH, temperature: 0.8, weights: 'policy' })
  const rows = sampled.map((row, index): PolicyTrainingRow => {
    const shifted = (scale: number) => Array.from(scored[index]!, (x, t) => x + scale * Math.sin(3 * t + index))
    return {
      ...row,
      oldLogprobs: shifted(0.6),
      referenceLogprobs: objective.klCoefficient > 0 ? shifted(0.4) : null,
      importanceWeights: importanceWeights ? Array.from(scored[index]!, (_, t) => 0.5 + (t % 3) / 2) : null,
      tokenWeight: 0.02 + index / 1000,
      value: { return: row.advantage, weight: 1 / sampled.length },
    }
  })
  await compare((trainer) => trainer.forwardBackward(rows, objective, { ...BATCH, temperature: 0.8 }), names)
})

test('cross-entropy', async () => {
  const rows = sampled.map(
    (row): SupervisedTrainingRow => ({ ...row, tokenWeights: row.positions.map((t) => 0.01 + (t % 4) / 100) }),
  )
  await compare((trainer) => trainer.forwardBackwardSupervised(rows, BATCH), trainedWeights(config))
})

describe('the other families', () => {
  test.each<[string, Record<string, unknown>]>([
    ['own head, norms of queries and keys', { model_type: 'qwen3', tie_word_embeddings: false, head_dim: 8 }],
    [
      'Llama 3 scaling of angles',
      {
        model_type: 'llama',
        rope_parameters: {
          rope_type: 'llama3',
          rope_theta: 10000,
          factor: 8,
          low_freq_factor: 1,
          high_freq_factor: 4,
          original_max_position_embeddings: 32,
        },
      },
    ],
  ])('%s: log-probabilities', async (_, overrides) => {
    const other = smallDecoder(overrides)
    const rows = [{ ids: [3, 1, 4, 1, 5, 9, 2, 6], positions: [2, 3, 7] }]
    const scores: number[][] = []
    for (const { device } of [onnx, tfjs]) {
      const trainer = await openTrainer(device, other, { weights: randomWeights(other, 'engines') })
      const scored = await trainer.score(rows, { ...BATCH, temperature: 1, weights: 'policy' })
      scores.push([...scored[0]!])
      await trainer.close()
    }
    expectClose('logprobs', scores[1]!, scores[0]!, 2 * TOLERANCE.value)
  })
})

test('training steps leave no tensors behind', async () => {
  const device = await openTfjsDevice()
  const trainer = await openTrainer(device, config, { weights })
  const rows = sampled.slice(0, 2).map((row) => ({ ...row, tokenWeights: row.positions.map(() => 0.1) }))
  const counts: number[] = []
  for (let step = 0; step < 3; step += 1) {
    await trainer.forwardBackwardSupervised(rows, BATCH)
    await trainer.optimizerStep({ ...grpoOptions.parse({}), learningRate: 1e-3 })
    counts.push(tf.memory().numTensors)
  }
  expect(counts[2]).toBe(counts[1])
  await trainer.close()
  await device.close()
  expect(tf.memory().numTensors).toBe(0)
})
