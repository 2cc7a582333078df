/** The learned baseline: its arithmetic, and the value head in a trainer on the real engine. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import type { PolicyRow } from '../../src/grpo/rows.ts'
import type { Trainer } from '../../src/grpo/trainer.ts'
import { trajectoryValues } from '../../src/grpo/trajectoryValues.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import { explainedVariance } from '../../src/grpo/value.ts'
import { randomWeights, smallDecoder } from './fixture.ts'
import { group, segment } from './groups.ts'

test('explainedVariance: 1 for the returns, 0 for a constant, below 0 for worse, null where there is nothing to explain', () => {
  const returns = [0, 1, 2, 5]
  expect(explainedVariance(returns, returns)).toBe(1)
  expect(explainedVariance([3, 3, 3, 3], returns)).toBeCloseTo(0, 12)
  // Errors 0, 0, 0, 2 have variance 3/4; the returns 14/4.
  expect(explainedVariance([0, 1, 2, 3], returns)).toBeCloseTo(1 - 3 / 14, 12)
  expect(explainedVariance([5, 2, 1, 0], returns)).toBeLessThan(0)
  expect(explainedVariance([1, 2], [3, 3])).toBeNull()
  expect(explainedVariance([], [])).toBeNull()
})

describe('the value head of a trainer', () => {
  const config = smallDecoder()
  const weights = randomWeights(config, 'value')
  const options = grpoOptions.parse({
    learningRate: 1e-4,
    advantageBaseline: 'value',
    advantageScale: 'none',
    valueCoefficient: 0.5,
    valueLearningRate: 0.02,
    oldLogprobs: 'recomputed',
    minibatches: 2,
  })
  const context = { temperature: 1, totalSteps: 1000 }
  /** Prompts 3 and 4 begin trajectories of reward 1 and 0. The second row of a trajectory has no value of its own. */
  const prompts = [3, 4, 3, 4]
  const returns = prompts.map((prompt) => (prompt === 3 ? 1 : 0))

  let device: Device
  let trainer: Trainer
  beforeAll(async () => {
    device = await openDevice(engineOptions.parse({ threads: 1 }))
    trainer = await openTrainer(device, config, { weights, valueHead: true })
  })
  beforeEach(() => trainer.load({ weights }))
  afterAll(async () => {
    await trainer.close()
    await device.close()
  })

  const predict = () =>
    trainer.values(
      prompts.map((prompt, index) => ({ ids: [1, prompt, 5 + index, 6], positions: [2, 3] })),
      { microBatchTokens: 512 },
    )

  async function rows(): Promise<PolicyRow[]> {
    const predicted = await predict()
    return prompts.flatMap((prompt, index): PolicyRow[] => {
      const advantage = returns[index]! - predicted[index]!
      const value = { return: returns[index]!, predicted: predicted[index]! }
      const first = { ids: [1, prompt, 5 + index, 6], actionMask: [0, 0, 1, 1] as (0 | 1)[], logprobs: null }
      const second = { ids: [2, prompt, 9], actionMask: [0, 0, 1] as (0 | 1)[], logprobs: null }
      return [
        { ...first, advantage, value },
        { ...second, advantage, value: null },
      ]
    })
  }

  test('starts at 0; the first loss is the mean square of the returns', async () => {
    expect(await predict()).toEqual([0, 0, 0, 0])
    const { steps, explainedVariance: explained } = await updatePolicy(trainer, await rows(), options, context)
    expect(steps.map(({ valueLoss }) => valueLoss)).toEqual([expect.closeTo(0.5, 6), expect.any(Number)])
    expect(explained).toBeCloseTo(0, 12)
  })

  test('learns which prompt is rewarded, from the state before the first sampled token', async () => {
    let explained: number | null = 0
    for (let step = 0; step < 40; step += 1)
      explained = (await updatePolicy(trainer, await rows(), options, context)).explainedVariance
    expect(explained!).toBeGreaterThan(0.9)
    const values = await predict()
    values.forEach((value, index) => expect(Math.abs(value - returns[index]!)).toBeLessThan(0.2))
    // What was sampled after the prompt makes no difference.
    expect(values[0]).toBeCloseTo(values[2]!, 5)
    expect(values[1]).toBeCloseTo(values[3]!, 5)
  })

  test('values a trajectory by its first trained segment; none without a sampled token or a reward', async () => {
    await updatePolicy(trainer, await rows(), options, context)
    const groups = [
      group('a', [
        { reward: 1, segments: [segment(3, 0), segment(4, 1), segment(5, 1)] },
        { reward: 1, segments: [segment(3, 0)] },
      ]),
      group('b', [
        { reward: null, segments: [segment(6, 1)] },
        { reward: 0, segments: [segment(7, 1)] },
      ]),
    ]
    const [four, seven] = await trainer.values(
      [4, 7].map((id) => ({ ids: [id, 7], positions: [1] })),
      { microBatchTokens: 512 },
    )
    expect(Math.abs(four! - seven!)).toBeGreaterThan(1e-6)
    expect(await trajectoryValues(trainer, groups, { microBatchTokens: 512 })).toEqual([
      [expect.closeTo(four!, 6), null],
      [null, expect.closeTo(seven!, 6)],
    ])
  })

  test('is kept with the optimizer, not among the weights, and resumed', async () => {
    await updatePolicy(trainer, await rows(), options, context)
    const saved = await trainer.save()
    expect([...saved.weights.keys()]).toEqual([...weights.keys()])
    expect(saved.optimizer.get('value_head.weight')!.shape).toEqual([1, config.hiddenSize])
    expect([...saved.optimizer.keys()].filter((name) => name.includes('value_head'))).toHaveLength(6)
    await updatePolicy(trainer, await rows(), options, context)
    const uninterrupted = await trainer.save()

    await trainer.load({ weights })
    expect(await predict()).toEqual([0, 0, 0, 0])
    await trainer.load(saved)
    await updatePolicy(trainer, await rows(), options, context)
    expect(await trainer.save()).toEqual(uninterrupted)

    const without = new Map([...saved.optimizer].filter(([name]) => name !== 'value_head.bias'))
    await expect(trainer.load({ ...saved, optimizer: without })).rejects.toThrow('lacks value_head.bias')
  })

  test('a trainer without a head predicts nothing, and trains without one', async () => {
    const plain = await openTrainer(device, config, { weights })
    await expect(plain.values([{ ids: [1, 2], positions: [1] }], { microBatchTokens: 512 })).rejects.toThrow(
      'without a value head',
    )
    const { steps } = await updatePolicy(plain, await rows(), grpoOptions.parse({ oldLogprobs: 'recomputed' }), context)
    expect(steps[0]!.valueLoss).toBeNull()
    await plain.close()
  })
})
