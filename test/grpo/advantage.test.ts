import { describe, expect, test } from 'vitest'
import type { AdvantageOptions, PerTrajectory } from '../../src/grpo/advantage.ts'
import { batchAdvantages, groupMean, leaveOneOut, scoredGroupAdvantages } from '../../src/grpo/advantage.ts'
import { policyRows } from '../../src/grpo/rows.ts'
import { group, segment } from './groups.ts'

const options = (overrides: Partial<AdvantageOptions> = {}): AdvantageOptions => ({
  advantageBaseline: 'group_mean',
  advantageScale: 'group',
  ...overrides,
})

/** Of one group. */
const of = (rewards: PerTrajectory, overrides: Partial<AdvantageOptions> = {}) =>
  batchAdvantages([rewards], options(overrides))[0]!

describe('baselines', () => {
  test('groupMean: the same for all, null for what has no reward', () => {
    expect(groupMean([1, null, 0])).toEqual([0.5, null, 0.5])
    expect(groupMean([null])).toEqual([null])
  })
  test('leaveOneOut: the mean of the others', () => {
    expect(leaveOneOut([3, 1, null, 2])).toEqual([1.5, 2.5, null, 2])
  })
  test('leaveOneOut: alone, a reward is compared to itself', () => {
    expect(leaveOneOut([null, 3])).toEqual([null, 3])
  })
})

describe('batchAdvantages', () => {
  test('one right of four: deviation over n - 1 is 0.5', () => {
    const { advantages, zeroVariance } = of([1, 0, 0, 0])
    expect(advantages[0]).toBeCloseTo(0.75 / 0.5001, 12)
    expect(advantages[1]).toBeCloseTo(-0.25 / 0.5001, 12)
    expect(zeroVariance).toBe(false)
  })

  test('scale none only subtracts the mean', () => {
    expect(of([1, 0, 0, 0], { advantageScale: 'none' }).advantages).toEqual([0.75, -0.25, -0.25, -0.25])
  })

  test('scale batch divides by one deviation for all groups', () => {
    // Rewards 1, 0, 2, 2, 0: mean 1, squares 0 + 1 + 1 + 1 + 1, deviation sqrt(4 / 4) = 1.
    const groups = [[1, null, 0], [2, 2], [0]]
    const batch = batchAdvantages(groups, options({ advantageScale: 'batch' }))
    expect(batch.map(({ advantages }) => advantages)).toEqual([
      [expect.closeTo(0.5 / 1.0001, 12), null, expect.closeTo(-0.5 / 1.0001, 12)],
      [0, 0],
      [0],
    ])
    expect(batch.map(({ zeroVariance }) => zeroVariance)).toEqual([false, true, true])
  })

  test('leave-one-out is n / (n - 1) times the distance to the mean', () => {
    const leaveOne = of([1, 0, 0, 0], { advantageBaseline: 'leave_one_out', advantageScale: 'none' })
    expect(leaveOne.advantages).toEqual([1, -1 / 3, -1 / 3, -1 / 3].map((x) => expect.closeTo(x, 12)))
  })

  test('a learned value: reward minus value, also where rewards are equal or alone', () => {
    const values = [[0.75, null], [0.25]]
    const rewards = [[1, 1], [1]]
    const learned = options({ advantageBaseline: 'value', advantageScale: 'none' })
    const batch = batchAdvantages(rewards, learned, values)
    expect(batch.map(({ advantages }) => advantages)).toEqual([[0.25, null], [0.75]])
    expect(() => batchAdvantages(rewards, learned)).toThrow('needs the values')
  })

  test('a null reward takes no part in mean and deviation', () => {
    const { advantages } = of([2, null, 0])
    expect(advantages[0]).toBeCloseTo(1 / (Math.SQRT2 + 1e-4), 12)
    expect(advantages[1]).toBeNull()
    expect(advantages[2]).toBeCloseTo(-1 / (Math.SQRT2 + 1e-4), 12)
  })

  test('equal rewards: advantage 0, counted as without variance', () => {
    expect(of([0.1, 0.1, 0.1])).toEqual({
      advantages: [0, 0, 0].map((x) => expect.closeTo(x, 12)),
      zeroVariance: true,
    })
  })

  test('a single reward, or none, compares to nothing', () => {
    expect(of([null, 1])).toEqual({ advantages: [null, 0], zeroVariance: true })
    expect(of([null, null])).toEqual({ advantages: [null, null], zeroVariance: true })
  })
})

describe('policyRows', () => {
  const groups = [
    group('varied', [
      { reward: 1, segments: [segment(1, 1), segment(2, 1)] },
      { reward: 0, segments: [segment(3, 1), segment(4, 0)] },
      { reward: null, segments: [segment(5, 1)] },
    ]),
    group('equal', [
      { reward: 1, segments: [segment(6, 1)] },
      { reward: 1, segments: [segment(7, 1)] },
    ]),
  ]
  const advantages = scoredGroupAdvantages(groups, options({ advantageScale: 'none' }))

  test('every segment with a sampled token carries the advantage of its trajectory', () => {
    const rows = policyRows(groups, advantages, { zeroVariance: 'keep' })
    expect(rows.map(({ ids, advantage }) => [ids[0], advantage])).toEqual([
      [1, 0.5],
      [2, 0.5],
      [3, -0.5],
      [6, 0],
      [7, 0],
    ])
  })

  test('drop leaves out groups without variance', () => {
    expect(policyRows(groups, advantages, { zeroVariance: 'drop' }).map(({ ids }) => ids[0])).toEqual([1, 2, 3])
  })

  test('what the value head predicted goes with the first trained segment of each trajectory', () => {
    const values = [
      [0.25, 0.5, null],
      [0.75, 1],
    ]
    const rows = policyRows(groups, advantages, { zeroVariance: 'keep' }, values)
    expect(rows.map(({ ids, value }) => [ids[0], value])).toEqual([
      [1, { return: 1, predicted: 0.25 }],
      [2, null],
      [3, { return: 0, predicted: 0.5 }],
      [6, { return: 1, predicted: 0.75 }],
      [7, { return: 1, predicted: 1 }],
    ])
    expect(policyRows(groups, advantages, { zeroVariance: 'keep' }).every(({ value }) => value === null)).toBe(true)
  })
})
