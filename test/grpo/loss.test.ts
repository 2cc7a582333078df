import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { Graph } from '../../src/engine/graph.ts'
import { graphOps } from '../../src/engine/graph-ops.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { k3, policyLoss, tokenLoss, tokenWeights } from '../../src/grpo/loss.ts'

const clip = { clipLow: 0.2, clipHigh: 0.28, klCoefficient: 0, klBiasCorrection: true }
/** A token whose ratio is r. */
const token = (r: number, advantage: number, reference: number | null = null) => ({
  logprob: Math.log(r) - 1,
  oldLogprob: -1,
  advantage,
  reference,
})

describe('tokenLoss', () => {
  test('inside the bounds: minus ratio times advantage', () => {
    expect(tokenLoss(token(1.1, 2), clip)).toMatchObject({ loss: expect.closeTo(-2.2, 12), clipped: false })
    expect(tokenLoss(token(0.9, -2), clip)).toMatchObject({ loss: expect.closeTo(1.8, 12), clipped: false })
  })

  test('a good token gains nothing above 1 + clipHigh, a bad one nothing below 1 - clipLow', () => {
    expect(tokenLoss(token(1.5, 2), clip)).toMatchObject({ loss: expect.closeTo(-2.56, 12), clipped: true })
    expect(tokenLoss(token(0.5, -2), clip)).toMatchObject({ loss: expect.closeTo(1.6, 12), clipped: true })
  })

  test('on the other sides the loss is not clipped', () => {
    expect(tokenLoss(token(0.5, 2), clip)).toMatchObject({ loss: expect.closeTo(-1, 12), clipped: false })
    expect(tokenLoss(token(1.5, -2), clip)).toMatchObject({ loss: expect.closeTo(3, 12), clipped: false })
  })

  test('k3 KL, times the ratio when corrected', () => {
    // ref - logp = ln 2: 2 - ln 2 - 1.
    const kl = 1 - Math.LN2
    expect(k3(-2, -2 + Math.LN2)).toBeCloseTo(kl, 12)
    expect(k3(-2, -2)).toBe(0)
    const one = token(0.5, 0, Math.log(0.5) - 1 + Math.LN2)
    expect(tokenLoss(one, { ...clip, klCoefficient: 0.1 })).toMatchObject({
      loss: expect.closeTo(0.1 * 0.5 * kl, 12),
      kl: expect.closeTo(0.5 * kl, 12),
    })
    expect(tokenLoss(one, { ...clip, klCoefficient: 0.1, klBiasCorrection: false }).kl).toBeCloseTo(kl, 12)
  })
})

test('tokenWeights: dapo shares one denominator, grpo averages rows of averages', () => {
  expect(tokenWeights([1, 3], 'dapo', 8)).toEqual([1 / 8, 1 / 8])
  expect(tokenWeights([1, 3], 'grpo', 8)).toEqual([1 / 2, 1 / 6])
  expect(tokenWeights([0, 2], 'grpo', 2)).toEqual([1 / 2, 1 / 4])
})

describe('policyLoss', () => {
  let device: Device
  beforeAll(async () => {
    device = await openDevice(engineOptions.parse({ threads: 1 }))
  })
  afterAll(() => device.close())

  test.each([true, false])(
    'the graph computes what the arithmetic says (bias correction %s)',
    async (klBiasCorrection) => {
      const options = { clipLow: 0.2, clipHigh: 0.28, klCoefficient: 0.3, klBiasCorrection }
      const tokens = [0.5, 0.9, 1, 1.1, 1.5].flatMap((ratio) =>
        [-2, 0.7].map((advantage) => token(ratio, advantage, -1.3)),
      )
      const weights = tokens.map((_, index) => 0.1 + index / 50)
      const graph = new Graph('float64')
      const column = (name: string) => graph.input(name, 'float64', ['M'])
      const scalar = (value: number) => graph.scalar(value)
      const kl = { referenceLogprobs: column('reference'), coefficient: scalar(0.3), biasCorrection: klBiasCorrection }
      const inputs = {
        logprobs: column('logprob'),
        oldLogprobs: column('oldLogprob'),
        advantages: column('advantage'),
        weights: column('weights'),
      }
      graph.output(
        'loss',
        policyLoss(graphOps(graph), { ...inputs, ratioFloor: scalar(0.8), ratioCeiling: scalar(1.28), kl }),
      )
      await device.createSession('loss', graph.build())
      const feed = (values: number[]) => ({
        type: 'float64' as const,
        dims: [values.length],
        data: Float64Array.from(values),
      })
      const { loss } = await device.run({
        session: 'loss',
        fetch: ['loss'],
        feeds: {
          logprob: feed(tokens.map(({ logprob }) => logprob)),
          oldLogprob: feed(tokens.map(({ oldLogprob }) => oldLogprob)),
          advantage: feed(tokens.map(({ advantage }) => advantage)),
          reference: feed(tokens.map(({ reference }) => reference!)),
          weights: feed(weights),
        },
      })
      const expected = tokens.reduce((sum, one, index) => sum + weights[index]! * tokenLoss(one, options).loss, 0)
      expect(loss!.data[0]).toBeCloseTo(expected, 12)
      await device.releaseSession('loss')
    },
  )
})
