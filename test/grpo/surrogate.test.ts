import { describe, expect, test } from 'vitest'
import { cispoSurrogate, clippedSurrogate } from '../../src/grpo/surrogate.ts'

describe('clippedSurrogate', () => {
  const at = (ratio: number, advantage: number, dualClip: number | null = null) => {
    const { value, clipped } = clippedSurrogate(ratio, advantage, { clipLow: 0.2, clipHigh: 0.28, dualClip })
    return [value, clipped]
  }

  test('inside the bounds: ratio times advantage', () => {
    expect(at(1.1, 2)).toEqual([expect.closeTo(2.2, 12), null])
    expect(at(0.9, -2)).toEqual([expect.closeTo(-1.8, 12), null])
  })

  test('a good token gains nothing above 1 + clipHigh, a bad one nothing below 1 - clipLow', () => {
    expect(at(1.5, 2)).toEqual([expect.closeTo(2.56, 12), 'high'])
    expect(at(0.5, -2)).toEqual([expect.closeTo(-1.6, 12), 'low'])
  })

  test('on the other sides nothing is clipped', () => {
    expect(at(0.5, 2)).toEqual([expect.closeTo(1, 12), null])
    expect(at(1.5, -2)).toEqual([expect.closeTo(-3, 12), null])
  })

  test('the dual clip bounds what a bad token costs, and nothing else', () => {
    expect(at(5, -2, 3)).toEqual([-6, 'dual'])
    expect(at(2.5, -2, 3)).toEqual([-5, null])
    expect(at(0.5, -2, 3)).toEqual([expect.closeTo(-1.6, 12), 'low'])
    expect(at(5, 2, 3)).toEqual([expect.closeTo(2.56, 12), 'high'])
  })
})

test('cispoSurrogate: a log-probability, weighted by the capped ratio', () => {
  expect(cispoSurrogate(1.5, 2, -0.5, 5)).toEqual({ value: -1.5, clipped: null })
  expect(cispoSurrogate(8, 2, -0.5, 5)).toEqual({ value: -5, clipped: 'high' })
  expect(cispoSurrogate(8, -2, -0.5, 5)).toEqual({ value: 5, clipped: 'high' })
})
