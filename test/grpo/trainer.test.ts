/** The trainer and the update on a small decoder, with the real engine. */

import seedrandom from 'seedrandom'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import type { GrpoOptions } from '../../src/grpo/options.ts'
import { grpoOptions, supervisedOptions } from '../../src/grpo/options.ts'
import type { PolicyRow } from '../../src/grpo/rows.ts'
import { superviseBatch } from '../../src/grpo/supervised.ts'
import type { PolicyTrainingRow, Trainer } from '../../src/grpo/trainer.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import { weightShapes } from '../../src/policy/architecture.ts'
import { randomWeights, smallDecoder } from './fixture.ts'

const config = smallDecoder()
const names = [...weightShapes(config).keys()]
const context = { temperature: 1, totalSteps: 10 }

let device: Device
let trainer: Trainer
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
  trainer = await openTrainer(device, config)
})
afterAll(async () => {
  await trainer.close()
  await device.close()
})
beforeEach(() => trainer.load({ weights: randomWeights(config, 'trainer') }))

/** Rows of varied length with scattered sampled tokens, and log-probabilities near the policy's own. */
async function rolloutRows(count: number, seed = 'rows'): Promise<PolicyRow[]> {
  const random = seedrandom(seed)
  const rows = Array.from({ length: count }, () => {
    const ids = Array.from({ length: 6 + Math.floor(random() * 20) }, () =>
      Math.floor(random() * config.vocabularySize),
    )
    const actionMask = ids.map((_, t): 0 | 1 => (t > 2 && random() < 0.4 ? 1 : 0))
    actionMask[5] = 1
    return { ids, actionMask, advantage: 2 * random() - 1, value: null }
  })
  const positions = rows.map(({ actionMask }) => [...actionMask.keys()].filter((t) => actionMask[t] === 1))
  const scored = await trainer.score(
    rows.map(({ ids }, index) => ({ ids, positions: positions[index]! })),
    { temperature: 1, weights: 'policy', microBatchTokens: 512 },
  )
  return rows.map((row, index) => {
    const logprobs = row.ids.map(() => 0)
    positions[index]!.forEach((t, place) => (logprobs[t] = scored[index]![place]!))
    return { ...row, logprobs }
  })
}

const options = (overrides: Partial<GrpoOptions> = {}) => grpoOptions.parse({ learningRate: 1e-2, ...overrides })

async function weightsAfter(rows: readonly PolicyRow[], overrides: Partial<GrpoOptions>) {
  await trainer.load({ weights: randomWeights(config, 'trainer') })
  const metrics = await updatePolicy(trainer, rows, options(overrides), context)
  return { metrics, weights: (await trainer.save()).weights }
}

describe('updatePolicy', () => {
  test.each<[string, Partial<GrpoOptions>]>([
    ['dapo', { lossType: 'dapo' }],
    ['grpo', { lossType: 'grpo' }],
    ['bnpo', { lossType: 'bnpo' }],
    ['dr_grpo', { lossType: 'dr_grpo', maxCompletionLength: 20 }],
    ['cispo', { lossType: 'cispo' }],
    ['grpo per sequence', { lossType: 'grpo', importanceSamplingLevel: 'sequence' }],
    ['dapo, importance weights', { oldLogprobs: 'recomputed', importanceSamplingCap: 1.01 }],
  ])('%s: the division into micro-batches changes neither loss nor gradient', async (_, overrides) => {
    // Off the policy, so that ratios differ from 1 and from one another.
    const rows = (await rolloutRows(8)).map((row) => ({
      ...row,
      logprobs: row.logprobs!.map((logprob, t) => logprob + ((t % 5) - 2) / 20),
    }))
    const whole = await weightsAfter(rows, { ...overrides, microBatchTokens: 100_000 })
    for (const microBatchTokens of [1, 40]) {
      const divided = await weightsAfter(rows, { ...overrides, microBatchTokens })
      expect(divided.metrics.steps[0]!.loss).toBeCloseTo(whole.metrics.steps[0]!.loss, 6)
      expect(divided.metrics.steps[0]!.gradNorm / whole.metrics.steps[0]!.gradNorm).toBeCloseTo(1, 5)
    }
  })

  test.each([
    ['float64', 1e-12],
    ['float32', 1e-6],
  ] as const)('%s: every gradient of 1, 2 and 4 micro-batches agrees', async (float, tolerance) => {
    const own = await openTrainer(device, config, { weights: randomWeights(config, 'trainer'), float })
    // Two prompts, four samples of each: what they share is divided differently every time.
    const random = seedrandom('split')
    const token = () => Math.floor(random() * config.vocabularySize)
    const prompts = [0, 1].map(() => Array.from({ length: 9 }, token))
    const batch = Array.from({ length: 8 }, (_, index): PolicyTrainingRow => {
      const ids = [...prompts[index >> 2]!, ...Array.from({ length: 4 + index }, token)]
      const positions = [...ids.keys()].filter((position) => position >= 9)
      return {
        ids,
        positions,
        oldLogprobs: positions.map(() => -3 + 0.2 * random()),
        referenceLogprobs: positions.map(() => -3),
        importanceWeights: null,
        advantage: 2 * random() - 1,
        tokenWeight: 1 / 60,
        value: null,
      }
    })
    const gradients = async (microBatchTokens: number) => {
      const { work } = await own.forwardBackward(batch, options({ klCoefficient: 0.1 }), {
        microBatchTokens,
        temperature: 1,
      })
      const of = await device.download(names.map((name) => `gradient/${name}`))
      await own.discardGradients()
      return { values: of.map(({ data }) => Array.from(data as Float32Array)), positions: work.positions }
    }
    const whole = await gradients(1000)
    const positions = new Set([whole.positions])
    for (const parts of [2, 4]) {
      const split = await gradients(Math.ceil(whole.positions / parts))
      positions.add(split.positions)
      split.values.forEach((values, at) => {
        const expected = whole.values[at]!
        const norm = Math.hypot(...expected)
        const difference = Math.hypot(...values.map((value, index) => value - expected[index]!))
        expect(difference / norm, `${parts} ways: ${names[at]}`).toBeLessThan(tolerance)
      })
    }
    // Otherwise nothing was split.
    expect(positions.size).toBe(3)
    await own.close()
  })

  test('raises the log-probability of tokens with a positive advantage and lowers the others', async () => {
    const rows = (await rolloutRows(4)).map((row, index) => ({ ...row, advantage: index % 2 === 0 ? 1 : -1 }))
    const sum = async () =>
      (
        await trainer.score(
          rows.map(({ ids, actionMask }) => ({ ids, positions: [...ids.keys()].filter((t) => actionMask[t] === 1) })),
          { temperature: 1, weights: 'policy', microBatchTokens: 512 },
        )
      ).map((row) => row.reduce((a, b) => a + b, 0))
    const before = await sum()
    const metrics = await updatePolicy(trainer, rows, options({ learningRate: 1e-3 }), context)
    const after = await sum()
    before.forEach((value, index) => expect(Math.sign(after[index]! - value)).toBe(index % 2 === 0 ? 1 : -1))
    expect(metrics.ratioMax).toBeCloseTo(1, 4)
    expect(metrics.steps[0]!.entropy).toBeGreaterThan(0)
    expect(metrics.steps[0]!.entropy).toBeLessThan(Math.log(config.vocabularySize))
  })

  test('minibatches and epochs are steps; each follows the schedule', async () => {
    const rows = await rolloutRows(6)
    const metrics = await updatePolicy(trainer, rows, options({ minibatches: 2, epochs: 2, schedule: 'linear' }), {
      temperature: 1,
      totalSteps: 4,
    })
    expect(metrics.steps.map(({ learningRate }) => learningRate)).toEqual(
      [1e-2, 7.5e-3, 5e-3, 2.5e-3].map((x) => expect.closeTo(x, 10)),
    )
    expect(metrics.steps[0]!.tokens + metrics.steps[1]!.tokens).toBe(metrics.tokens)
    expect(metrics.steps[3]!.clipFractionLow + metrics.steps[3]!.clipFractionHigh).toBeGreaterThan(0)
    expect(trainer.step).toBe(4)
  })

  test('temperature: scored as it was sampled, so that the first ratio is 1', async () => {
    const [row] = await rolloutRows(1)
    const positions = [...row!.ids.keys()].filter((t) => row!.actionMask[t] === 1)
    const at = async (temperature: number) =>
      (
        await trainer.score([{ ids: row!.ids, positions }], { temperature, weights: 'policy', microBatchTokens: 512 })
      )[0]!
    const warm = await at(2)
    const logprobs = row!.ids.map(() => 0)
    positions.forEach((t, place) => (logprobs[t] = warm[place]!))
    expect(Math.abs(warm[0]! - (await at(1))[0]!)).toBeGreaterThan(1e-3)
    const { ratioMax } = await updatePolicy(trainer, [{ ...row!, logprobs }], options(), {
      temperature: 2,
      totalSteps: 1,
    })
    expect(ratioMax).toBeCloseTo(1, 5)
  })

  test('the KL pulls towards the kept reference', async () => {
    await trainer.keepReference()
    const rows = (await rolloutRows(4)).map((row) => ({ ...row, advantage: 0 }))
    await trainer.load({ weights: randomWeights(config, 'another') })
    const before = await updatePolicy(
      trainer,
      rows,
      options({ klCoefficient: 1, oldLogprobs: 'recomputed', learningRate: 3e-3 }),
      context,
    )
    expect(before.steps[0]!.kl).toBeGreaterThan(0)
    const after = await updatePolicy(
      trainer,
      rows,
      options({ klCoefficient: 1, oldLogprobs: 'recomputed', learningRate: 3e-3 }),
      context,
    )
    expect(after.steps[0]!.kl).toBeLessThan(before.steps[0]!.kl)
  })

  test('the numbers of a step: clipped shares, ratios, importance weights, advantages', async () => {
    const ids = [1, 2, 3, 4, 5, 6, 7, 8]
    const positions = [2, 3, 4, 5, 6, 7]
    const sizes = { temperature: 1, weights: 'policy', microBatchTokens: 512 } as const
    const [own] = await trainer.score([{ ids, positions }], sizes)
    const sampledWith = (ratios: number[]) => ids.map((_, t) => (t < 2 ? 0 : own![t - 2]! - Math.log(ratios[t - 2]!)))
    const row = (advantage: number, ratios: number[]): PolicyRow => ({
      ids,
      actionMask: [0, 0, 1, 1, 1, 1, 1, 1],
      logprobs: sampledWith(ratios),
      advantage,
      value: null,
    })
    const rows = [row(3, [1, 1.5, 0.5, 1.5, 1, 1]), row(-1, [0.5, 1, 1.5, 4, 1, 1.1])]

    const clipped = await updatePolicy(trainer, rows, options({ dualClip: 3 }), context)
    expect(clipped.steps[0]).toMatchObject({
      clipFractionHigh: expect.closeTo(2 / 12, 12),
      clipFractionLow: expect.closeTo(1 / 12, 12),
      clipFractionDual: expect.closeTo(1 / 12, 12),
      ratioMean: expect.closeTo((6.5 + 9.1) / 12, 4),
      ratioMin: expect.closeTo(0.5, 4),
      ratioMax: expect.closeTo(4, 4),
      valueLoss: null,
      tokens: 12,
    })
    expect(clipped.ratioMax).toBeCloseTo(4, 4)
    expect(clipped.advantages).toEqual({ mean: 1, standardDeviation: 2, min: -1, max: 3 })
    expect([clipped.importanceWeights, clipped.explainedVariance]).toEqual([null, null])

    await trainer.load({ weights: randomWeights(config, 'trainer') })
    const corrected = await updatePolicy(
      trainer,
      rows,
      options({ oldLogprobs: 'recomputed', importanceSamplingCap: 1.25 }),
      context,
    )
    // Weights: 1, 1.25, 0.5, 1.25, 1, 1 and 0.5, 1, 1.25, 1.25, 1, 1.1; ratios to the recomputed ones are 1.
    expect(corrected.importanceWeights).toEqual({
      mean: expect.closeTo(12.1 / 12, 4),
      standardDeviation: expect.any(Number),
      min: expect.closeTo(0.5, 4),
      max: 1.25,
      truncated: expect.closeTo(4 / 12, 12),
    })
    expect(corrected.ratioMax).toBeCloseTo(1, 5)
    // Minus the mean over 12 tokens of advantage times weight; the weights sum to 6 and 6.1.
    expect(corrected.steps[0]!.loss).toBeCloseTo(-(3 * 6 - 6.1) / 12, 4)
  })

  test('log-probabilities that the sampler did not give are an error where they are read', async () => {
    const rows = (await rolloutRows(2)).map((row) => ({ ...row, logprobs: null }))
    await expect(updatePolicy(trainer, rows, options(), context)).rejects.toThrow(
      /Row 0: token \d+ has no log-probability .* oldLogprobs/,
    )
    const corrected = options({ oldLogprobs: 'recomputed', importanceSamplingCap: 2 })
    await expect(updatePolicy(trainer, rows, corrected, context)).rejects.toThrow(/importanceSamplingCap/)
    expect(trainer.step).toBe(0)
    await updatePolicy(trainer, rows, options({ oldLogprobs: 'recomputed' }), context)
    expect(trainer.step).toBe(1)
  })

  test('no sampled token, no step', async () => {
    const metrics = await updatePolicy(
      trainer,
      [{ ids: [1, 2], actionMask: [0, 0], logprobs: [0, 0], advantage: 1, value: null }],
      options(),
      context,
    )
    expect(metrics.steps).toEqual([])
    expect(trainer.step).toBe(0)
  })

  test('rows whose arrays disagree, or that begin with a sampled token, are refused', async () => {
    const update = (row: PolicyRow) => updatePolicy(trainer, [row], options(), context)
    await expect(update({ ids: [1, 2], actionMask: [0, 1], logprobs: [0], advantage: 1, value: null })).rejects.toThrow(
      'lengths 2, 2 and 1',
    )
    await expect(
      update({ ids: [1, 2], actionMask: [1, 1], logprobs: [0, 0], advantage: 1, value: null }),
    ).rejects.toThrow('first token')
  })
})

describe('what is not finite stops the step before weights change', () => {
  test('in the loss', async () => {
    const [row] = await rolloutRows(1)
    const before = (await trainer.save()).weights
    await expect(updatePolicy(trainer, [{ ...row!, advantage: Number.NaN }], options(), context)).rejects.toThrow(
      /loss is not finite at optimizer step 0, row 0 of the batch/,
    )
    expect((await trainer.save()).weights).toEqual(before)
    expect(trainer.step).toBe(0)
  })

  test('in a gradient, by name', async () => {
    const rows = await rolloutRows(2)
    const before = (await trainer.save()).weights
    const positions = rows.map(({ ids }) => [...ids.keys()].slice(1))
    await trainer.forwardBackwardSupervised(
      rows.map(({ ids }, index) => ({
        ids,
        positions: positions[index]!,
        tokenWeights: positions[index]!.map(() => 1),
      })),
      { microBatchTokens: 512 },
    )
    const name = 'model.layers.1.mlp.up_proj.weight'
    const [gradient] = await device.download([`gradient/${name}`])
    gradient!.data[3] = Number.POSITIVE_INFINITY as never
    await device.upload(new Map([[`gradient/${name}`, gradient!]]))
    await expect(trainer.optimizerStep(options())).rejects.toThrow(`gradient of ${name} is not finite`)
    expect((await trainer.save()).weights).toEqual(before)
    // The bad gradient is gone.
    expect(await device.names()).not.toContain(`gradient/${name}`)
  })
})

describe('save and load', () => {
  test('a resumed trainer goes on as an uninterrupted one', async () => {
    const rows = await rolloutRows(4)
    await updatePolicy(trainer, rows, options(), context)
    const saved = await trainer.save()
    expect([saved.step, saved.optimizer.size]).toEqual([1, 2 * names.length])
    await updatePolicy(trainer, rows, options({ schedule: 'linear' }), context)
    const uninterrupted = await trainer.save()

    await trainer.load({ weights: randomWeights(config, 'forgotten') })
    await trainer.load(saved)
    await updatePolicy(trainer, rows, options({ schedule: 'linear' }), context)
    expect(await trainer.save()).toEqual(uninterrupted)
  })

  test('weights of another shape, or missing ones, are named', async () => {
    const weights = randomWeights(config, 'trainer')
    weights.set('model.norm.weight', { shape: [3], data: new Float32Array(3) })
    await expect(trainer.load({ weights })).rejects.toThrow('model.norm.weight: expected shape [16], got [3]')
    weights.delete('model.norm.weight')
    await expect(trainer.load({ weights })).rejects.toThrow('lack model.norm.weight')
  })
})

describe('superviseBatch', () => {
  const supervised = supervisedOptions.parse({ learningRate: 1e-2 })

  test('learns a sequence by heart, and says how each kind does', async () => {
    const rows = [
      { ids: [3, 1, 4, 1, 5, 9, 2, 6], weights: [0, 0, 1, 1, 1, 1, 1, 1], kind: 'taught' },
      { ids: [9, 8, 7, 6], weights: [0, 0, 0, 1e-9], kind: 'barely' },
    ]
    const first = await superviseBatch(trainer, rows, supervised, { totalSteps: 100 })
    expect(first.kinds.taught!.tokens).toBe(6)
    expect(first.loss).toBeCloseTo(first.kinds.taught!.loss, 5)
    let last = first
    for (let step = 0; step < 60; step += 1) last = await superviseBatch(trainer, rows, supervised, { totalSteps: 100 })
    expect(last.loss).toBeLessThan(0.2)
    expect(last.kinds.taught!.accuracy).toBe(1)
  })

  test('weights count: the loss is the weighted mean of cross-entropies', async () => {
    const ids = [3, 1, 4, 1, 5]
    const [logprobs] = await trainer.score([{ ids, positions: [1, 2, 3, 4] }], {
      temperature: 1,
      weights: 'policy',
      microBatchTokens: 512,
    })
    const { loss } = await superviseBatch(trainer, [{ ids, weights: [0, 0, 3, 0, 1] }], supervised, { totalSteps: 1 })
    expect(loss).toBeCloseTo(-(3 * logprobs![1]! + logprobs![3]!) / 4, 5)
  })

  test('nothing to teach is an error', async () => {
    await expect(
      superviseBatch(trainer, [{ ids: [1, 2], weights: [0, 0] }], supervised, { totalSteps: 1 }),
    ).rejects.toThrow('above 0')
    await expect(
      superviseBatch(trainer, [{ ids: [1, 2], weights: [1, 0] }], supervised, { totalSteps: 1 }),
    ).rejects.toThrow('first token')
  })
})
