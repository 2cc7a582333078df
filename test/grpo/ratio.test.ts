import { expect, test } from 'vitest'
import { sequenceRatio, tokenRatio, truncatedImportanceWeight } from '../../src/grpo/ratio.ts'

test('tokenRatio: how much likelier the token has become', () => {
  expect(tokenRatio(Math.log(0.6), Math.log(0.3))).toBeCloseTo(2, 12)
})

test('sequenceRatio: the geometric mean of the token ratios', () => {
  // Ratios 2, 4 and 1: (2 * 4 * 1)^(1/3) = 2.
  expect(sequenceRatio([Math.log(2), Math.log(4), -1], [0, 0, -1])).toBeCloseTo(2, 12)
  expect(sequenceRatio([], [])).toBe(1)
})

test('truncatedImportanceWeight: trainer over sampler, up to the cap', () => {
  expect(truncatedImportanceWeight(Math.log(0.3), Math.log(0.2), 2)).toBeCloseTo(1.5, 12)
  expect(truncatedImportanceWeight(Math.log(0.5), Math.log(0.1), 2)).toBe(2)
  expect(truncatedImportanceWeight(Math.log(0.1), Math.log(0.5), 2)).toBeCloseTo(0.2, 12)
})
