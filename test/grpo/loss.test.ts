import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { PolicyObjective, RowTokens } from '../../src/grpo/loss.ts'
import { policyLoss, tokenLosses, tokenWeights } from '../../src/grpo/loss.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import { VARIANTS } from './variants.ts'

const objective = (overrides: Partial<PolicyObjective> = {}): PolicyObjective => ({
  ...grpoOptions.parse({}),
  ...overrides,
})

/** A row whose tokens have these ratios and log-probabilities of -1, -2, ... */
function row(ratios: number[], advantage: number, extra: Partial<RowTokens> = {}): RowTokens {
  const logprobs = ratios.map((_, index) => -1 - index)
  return {
    logprobs,
    oldLogprobs: logprobs.map((logprob, index) => logprob - Math.log(ratios[index]!)),
    advantage,
    referenceLogprobs: null,
    importanceWeights: null,
    ...extra,
  }
}

const losses = (tokens: RowTokens, overrides: Partial<PolicyObjective> = {}) =>
  tokenLosses(tokens, objective(overrides)).map(({ loss }) => loss)

describe('tokenLosses', () => {
  test('per token: minus the clipped surrogate of each ratio', () => {
    expect(losses(row([1.1, 1.5, 0.5], 2))).toEqual([-2.2, -2.4, -1].map((x) => expect.closeTo(x, 12)))
  })

  test('per sequence: every token has the geometric mean of the ratios', () => {
    // (0.5 * 2 * 1.331)^(1/3) = 1.1
    const tokens = tokenLosses(row([0.5, 2, 1.331], 2), objective({ importanceSamplingLevel: 'sequence' }))
    expect(tokens.map(({ ratio }) => ratio)).toEqual([1.1, 1.1, 1.1].map((x) => expect.closeTo(x, 12)))
    expect(tokens.map(({ loss }) => loss)).toEqual([-2.2, -2.2, -2.2].map((x) => expect.closeTo(x, 12)))
  })

  test('cispo: minus advantage times log-probability, weighted by the capped ratio', () => {
    // Log-probabilities -1 and -2; weights 0.5 and 3.
    expect(losses(row([0.5, 9], 2), { lossType: 'cispo', ratioCap: 3 })).toEqual([
      expect.closeTo(1, 12),
      expect.closeTo(12, 12),
    ])
  })

  test('importance weights multiply the surrogate but not the KL', () => {
    // The reference is ln 2 above the policy: k3 = 2 - ln 2 - 1.
    const tokens = row([1.1], 2, { importanceWeights: [0.5], referenceLogprobs: [-1 + Math.LN2] })
    const k3 = 1 - Math.LN2
    expect(losses(tokens, { klCoefficient: 0.1, klBiasCorrection: false })).toEqual([
      expect.closeTo(-1.1 + 0.1 * k3, 12),
    ])
    expect(losses(tokens, { klCoefficient: 0.1, klBiasCorrection: true })).toEqual([
      expect.closeTo(-1.1 + 0.1 * k3 * 1.1, 12),
    ])
  })

  test('the KL correction is by the sequence ratio where that is the ratio', () => {
    const tokens = row([0.5, 2, 1.331], 0, { referenceLogprobs: [-1, -2, -3 + Math.LN2] })
    const corrected = tokenLosses(tokens, objective({ klCoefficient: 1, importanceSamplingLevel: 'sequence' }))
    expect(corrected.map(({ kl }) => kl)).toEqual([0, 0, (1 - Math.LN2) * 1.1].map((x) => expect.closeTo(x, 12)))
  })
})

describe('tokenWeights', () => {
  const of = (lossType: PolicyObjective['lossType'], counts = [1, 3], minibatches = 2) =>
    tokenWeights(counts, 16, { lossType, minibatches, maxCompletionLength: 10 })

  test.each(['dapo', 'cispo'] as const)('%s: the tokens of the batch over the minibatches', (lossType) => {
    expect(of(lossType)).toEqual([1 / 8, 1 / 8])
  })
  test('bnpo: the tokens of the minibatch', () => {
    expect(of('bnpo')).toEqual([1 / 4, 1 / 4])
  })
  test('dr_grpo: rows times a constant length', () => {
    expect(of('dr_grpo')).toEqual([1 / 20, 1 / 20])
  })
  test('grpo: the mean over rows of means over tokens; a row without tokens counts', () => {
    expect(of('grpo')).toEqual([1 / 2, 1 / 6])
    expect(of('grpo', [0, 2])).toEqual([1 / 2, 1 / 4])
  })
})

describe('policyLoss', () => {
  let device: Device
  beforeAll(async () => {
    device = await openDevice(engineOptions.parse({ threads: 1 }))
  })
  afterAll(() => device.close())

  test.each(Object.entries(VARIANTS))('%s: the program computes what the arithmetic says', async (_, variant) => {
    const { importanceWeights = false, ...overrides } = variant
    const options = objective({ clipHigh: 0.28, ...overrides })
    const rows = [
      row([0.5, 0.9, 1.5], -2),
      row([1, 1.1], 0.7),
      row([2, 1.7, 0.95, 1.9], -0.7),
      row([1.6, 0.4, 1.9], 1.3),
    ].map((one, index) => ({
      ...one,
      referenceLogprobs: options.klCoefficient > 0 ? Array.from(one.logprobs, (x, t) => x + 0.3 * (t - index)) : null,
      importanceWeights: importanceWeights ? Array.from(one.logprobs, (_, t) => 0.5 + 0.3 * t) : null,
    }))
    const weights = rows.map((_, index) => 0.1 + index / 50)

    const program = new ProgramBuilder('float64')
    const column = (name: string) => program.input(name, 'float64', ['M'])
    const integers = (name: string, dim: string) => program.input(name, 'int32', [dim])
    const perSequence = options.importanceSamplingLevel === 'sequence'
    program.output(
      'loss',
      policyLoss(
        program.ops,
        {
          logprobs: column('logprobs'),
          oldLogprobs: column('oldLogprobs'),
          advantages: column('advantages'),
          weights: column('weights'),
          referenceLogprobs: options.klCoefficient > 0 ? column('referenceLogprobs') : null,
          importanceWeights: importanceWeights ? column('importanceWeights') : null,
          rows: perSequence
            ? { rowOfToken: integers('rowOfToken', 'M'), indices: integers('indices', 'B'), shares: column('shares') }
            : null,
        },
        options,
      ),
    )
    await device.createSession('loss', program.build())
    const floats = (of: (one: (typeof rows)[number], index: number) => ArrayLike<number>) => {
      const data = Float64Array.from(rows.flatMap((one, index) => Array.from(of(one, index))))
      return { type: 'float64' as const, dims: [data.length], data }
    }
    const int32 = (values: number[]) => ({
      type: 'int32' as const,
      dims: [values.length],
      data: Int32Array.from(values),
    })
    const each = (one: (typeof rows)[number], value: number) => Array.from(one.logprobs, () => value)
    const { loss } = await device.run({
      session: 'loss',
      fetch: ['loss'],
      feeds: {
        logprobs: floats((one) => one.logprobs),
        oldLogprobs: floats((one) => one.oldLogprobs),
        advantages: floats((one) => each(one, one.advantage)),
        weights: floats((one, index) => each(one, weights[index]!)),
        ...(options.klCoefficient > 0 && { referenceLogprobs: floats((one) => one.referenceLogprobs!) }),
        ...(importanceWeights && { importanceWeights: floats((one) => one.importanceWeights!) }),
        ...(perSequence && {
          rowOfToken: int32(rows.flatMap((one, index) => each(one, index))),
          indices: int32([...rows.keys()]),
          shares: floats((one) => each(one, 1 / one.logprobs.length)),
        }),
      },
    })
    const expected = rows.reduce(
      (sum, one, index) =>
        sum + tokenLosses(one, options).reduce((total, token) => total + weights[index]! * token.loss, 0),
      0,
    )
    expect(loss!.data[0]).toBeCloseTo(expected, 12)
    await device.releaseSession('loss')
  })
})
