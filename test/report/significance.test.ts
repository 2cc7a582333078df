import seedrandom from 'seedrandom'
import { describe, expect, test } from 'vitest'
import { exchangeTest, flipsOf, holm, mcnemar, powerOf } from '../../src/report/significance.ts'
import type { Observation } from '../../src/report/statistics.ts'

/** `'a:+0- b:+'` -> 1, 0, -1 of episode a and 1 of b. */
const differences = (text: string): Observation[] =>
  text.split(' ').flatMap((part) => {
    const [cluster = '', values = ''] = part.split(':')
    return [...values].map((value) => ({ cluster, value: { '+': 1, '-': -1 }[value] ?? 0 }))
  })

describe('mcnemar', () => {
  test('by hand', () => {
    // 1 of 6 flips: 2 * (1 + 6) / 64
    expect(mcnemar({ gained: 5, lost: 1 })).toBeCloseTo(14 / 64, 6)
    // none of 5: 2 / 32
    expect(mcnemar({ gained: 0, lost: 5 })).toBeCloseTo(2 / 32, 6)
    expect(mcnemar({ gained: 4, lost: 4 })).toBe(1)
    expect(mcnemar({ gained: 0, lost: 0 })).toBe(1)
    // 2 * sum of C(120, k) for k = 0..40, over 2^120, in whole numbers
    expect(mcnemar({ gained: 80, lost: 40 })).toBeCloseTo(0.0003304, 6)
  })
})

describe('exchangeTest', () => {
  test('is McNemar’s exact test with one question per episode', () => {
    const one = differences('a:+ b:+ c:+ d:+ e:+ f:- g:0')
    expect(exchangeTest(one)).toBeCloseTo(mcnemar(flipsOf(one)), 6)
  })

  test('counts an episode once, however many of its questions flipped together', () => {
    // sums 3 and 2: |5|, |1|, |-1|, |-5|: 2 of 4 ways are as large
    expect(exchangeTest(differences('a:+++ b:++'))).toBe(0.5)
    expect(exchangeTest(differences('a:+- b:00'))).toBe(1)
  })

  test('by drawing, where there are many episodes, close to exact and never 0', () => {
    const many = Array.from({ length: 20 }, (_, i) => ({ cluster: String(i), value: i < 15 ? 1 : -1 }))
    // 15 of 20: 0.041389
    expect(Math.abs(exchangeTest(many) - mcnemar({ gained: 15, lost: 5 }))).toBeLessThan(0.005)
    const all = many.map(({ cluster }) => ({ cluster, value: 1 }))
    expect(exchangeTest(all)).toBeGreaterThan(0)
  })

  test('finds a difference where there is none in about 5 %, also when episodes flip together', () => {
    const random = seedrandom('exchange test')
    let found = 0
    for (let draw = 0; draw < 600; draw++) {
      const some = Array.from({ length: 12 }, (_, episode) => {
        const lean = random() - 0.5
        return Array.from({ length: 6 }, () => ({
          cluster: String(episode),
          value: random() < 0.5 ? 0 : random() < 0.5 + lean ? 1 : -1,
        }))
      }).flat()
      if (exchangeTest(some) < 0.05) found++
    }
    expect(found / 600).toBeGreaterThan(0.02)
    expect(found / 600).toBeLessThan(0.07)
  })
})

test('holm, by hand', () => {
  // sorted 0.01 * 3, 0.02 * 2, 0.03 * 1, never falling
  expect(holm([0.03, 0.01, 0.02])).toEqual([0.04, 0.03, 0.04])
  expect(holm([0.6, 0.7])).toEqual([1, 1])
  expect(holm([])).toEqual([])
})

describe('powerOf', () => {
  test('by hand', () => {
    // mean 3/4, cluster variance 2 * (1/4 + 1/4) / 16 = 1/16; (1.959964 + 0.841621)^2 = 7.848879
    const found = powerOf(differences('a:+0 b:++'))
    expect(found?.smallestDetectable).toBeCloseTo(2.801585 / 4, 5)
    // 7.848879 * 4 / 16 / (9/16) = 3.488
    expect(found?.questionsNeeded).toBe(4)
  })

  test('no questions tell no difference; one episode tells nothing', () => {
    expect(powerOf(differences('a:+ b:-'))).toMatchObject({ questionsNeeded: null })
    expect(powerOf(differences('a:+ b:+'))).toMatchObject({ questionsNeeded: null, smallestDetectable: 0 })
    expect(powerOf(differences('a:+0'))).toBeNull()
  })

  test('as many questions as it says find the difference four times of five', () => {
    const random = seedrandom('power')
    // each question is its own episode; gained in 20 %, lost in 10 %: variance 0.29, n = 7.848879 * 0.29 / 0.01 = 228
    const draw = (n: number): Observation[] =>
      Array.from({ length: n }, (_, i) => {
        const u = random()
        return { cluster: String(i), value: u < 0.2 ? 1 : u < 0.3 ? -1 : 0 }
      })
    let found = 0
    for (let i = 0; i < 300; i++) {
      const { gained, lost } = flipsOf(draw(228))
      // McNemar's normal test, which the formula is about
      if ((gained - lost) ** 2 / (gained + lost) > 3.841459) found++
    }
    expect(found / 300).toBeGreaterThan(0.73)
    expect(found / 300).toBeLessThan(0.87)
  })
})
