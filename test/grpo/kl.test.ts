import { expect, test } from 'vitest'
import { klEstimate } from '../../src/grpo/kl.ts'

/** logp - ref = d. */
const at = (estimator: 'k1' | 'k2' | 'k3', d: number) => klEstimate(estimator, -2 + d, -2)

test('k1 is the difference, k2 half its square, k3 exp(-d) + d - 1', () => {
  expect([0.5, -0.5].map((d) => at('k1', d))).toEqual([0.5, -0.5])
  expect([0.5, -0.5].map((d) => at('k2', d))).toEqual([0.125, 0.125])
  // d = ln 2: 1/2 + ln 2 - 1; d = -ln 2: 2 - ln 2 - 1.
  expect(at('k3', Math.LN2)).toBeCloseTo(Math.LN2 - 0.5, 12)
  expect(at('k3', -Math.LN2)).toBeCloseTo(1 - Math.LN2, 12)
})

test('all are 0 where the policies agree', () => {
  expect((['k1', 'k2', 'k3'] as const).map((estimator) => at(estimator, 0))).toEqual([0, 0, 0])
})

test('over a whole distribution k1 and k3 average to the KL, k2 does not quite', () => {
  const policy = [0.5, 0.3, 0.2]
  const reference = [0.4, 0.4, 0.2]
  // 0.5 ln(5/4) + 0.3 ln(3/4)
  const exact = 0.5 * Math.log(1.25) + 0.3 * Math.log(0.75)
  const expectation = (estimator: 'k1' | 'k2' | 'k3') =>
    policy.reduce((sum, p, index) => sum + p * klEstimate(estimator, Math.log(p), Math.log(reference[index]!)), 0)
  expect(expectation('k1')).toBeCloseTo(exact, 12)
  expect(expectation('k3')).toBeCloseTo(exact, 12)
  expect(Math.abs(expectation('k2') - exact)).toBeGreaterThan(1e-4)
})
