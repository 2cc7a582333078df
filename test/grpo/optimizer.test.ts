import { describe, expect, test } from 'vitest'
import { clipCoefficient, decays, learningRateAt } from '../../src/grpo/optimizer.ts'
import { grpoOptions, supervisedOptions } from '../../src/grpo/options.ts'
import { consecutiveParts } from '../../src/grpo/update.ts'

describe('learningRateAt', () => {
  const at =
    (schedule: 'constant' | 'linear' | 'cosine', warmupSteps = 0) =>
    (step: number) =>
      learningRateAt(step, 10, { learningRate: 2, schedule, warmupSteps })

  test('linear falls to 0 at the last update', () => {
    expect([0, 5, 9, 10].map(at('linear'))).toEqual([2, 1, expect.closeTo(0.2, 12), 0])
  })
  test('cosine is half way in the middle', () => {
    expect([0, 5, 10].map(at('cosine'))).toEqual([2, expect.closeTo(1, 12), expect.closeTo(0, 12)])
  })
  test('warm-up rises from 0; the rest is shared out after it', () => {
    expect([0, 1, 2, 6, 10].map(at('linear', 2))).toEqual([0, 1, 2, 1, 0])
    expect([0, 1, 2, 9].map(at('constant', 2))).toEqual([0, 1, 2, 2])
  })
  test('past the end it stays at the end', () => {
    expect(at('linear')(15)).toBe(0)
  })
})

test('clipCoefficient scales long gradients down and leaves short ones alone', () => {
  expect(clipCoefficient(4, 1)).toBeCloseTo(1 / (4 + 1e-6), 15)
  expect(clipCoefficient(0.5, 1)).toBe(1)
})

test('biases and norms do not decay', () => {
  const names = [
    'model.embed_tokens.weight',
    'model.layers.0.self_attn.q_proj.weight',
    'lm_head.weight',
    'model.layers.0.self_attn.q_proj.bias',
    'model.layers.0.input_layernorm.weight',
    'model.norm.weight',
  ]
  expect(names.map(decays)).toEqual([true, true, true, false, false, false])
})

test('consecutiveParts covers all rows once', () => {
  expect(consecutiveParts(5, 2)).toEqual([
    [0, 1],
    [2, 3, 4],
  ])
  expect(consecutiveParts(1, 3)).toEqual([[0]])
})

describe('options', () => {
  test('unknown keys are refused', () => {
    expect(grpoOptions.safeParse({ learningrate: 1 }).success).toBe(false)
    expect(supervisedOptions.safeParse({ clipLow: 0.1 }).success).toBe(false)
  })

  /** What is said about these options: key and message. */
  const problems = (options: Record<string, unknown>) =>
    (grpoOptions.safeParse(options).error?.issues ?? []).map(({ path, message }) => `${path.join('.')}: ${message}`)

  test.each([
    [{ lossType: 'cispo', dualClip: 3 }, 'dualClip: lossType cispo'],
    [{ lossType: 'cispo', clipHigh: 0.28 }, 'clipHigh: lossType cispo'],
    [{ ratioCap: 3 }, 'ratioCap: is read only with lossType cispo'],
    [{ lossType: 'dr_grpo' }, 'maxCompletionLength: lossType dr_grpo'],
    [{ maxCompletionLength: 512 }, 'maxCompletionLength: is read only with lossType dr_grpo'],
    [{ dualClip: 1.2, clipHigh: 0.28 }, 'dualClip: must be above 1 + clipHigh'],
    [{ klEstimator: 'k2' }, 'klEstimator: is read only with a klCoefficient'],
    [{ klBiasCorrection: false }, 'klBiasCorrection: is read only with a klCoefficient'],
    [{ advantageBaseline: 'value' }, 'advantageScale: advantageBaseline value'],
    [
      { advantageBaseline: 'value', advantageScale: 'none', zeroVariance: 'drop' },
      'zeroVariance: advantageBaseline value',
    ],
    [{ advantageBaseline: 'leave_one_out' }, 'advantageScale: advantageBaseline leave_one_out'],
    [{ valueCoefficient: 1 }, 'valueCoefficient: is read only with advantageBaseline value'],
    [{ valueLearningRate: 1 }, 'valueLearningRate: is read only with advantageBaseline value'],
    [{ importanceSamplingCap: 2 }, 'importanceSamplingCap: corrects recorded'],
  ])('%j: one problem, which names both keys', (options, problem) => {
    expect(problems(options)).toEqual([expect.stringContaining(problem)])
  })

  test.each([
    {},
    { lossType: 'cispo', ratioCap: 3 },
    { lossType: 'dr_grpo', maxCompletionLength: 512, advantageScale: 'none' },
    { dualClip: 3, importanceSamplingLevel: 'sequence' },
    { klCoefficient: 0.04, klEstimator: 'k1', klBiasCorrection: false },
    { advantageBaseline: 'leave_one_out', advantageScale: 'none' },
    { advantageBaseline: 'value', advantageScale: 'none', valueCoefficient: 0.5, valueLearningRate: 0.01 },
    { importanceSamplingCap: 2, oldLogprobs: 'recomputed' },
  ])('%j is sensible', (options) => {
    expect(problems(options)).toEqual([])
  })
})
