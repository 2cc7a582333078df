import seedrandom from 'seedrandom'
import { describe, expect, test } from 'vitest'
import {
  accuracyInterval,
  clusterVariance,
  type Observation,
  pairedDifference,
  wilson,
} from '../../src/report/statistics.ts'

/** `'a:110 b:0'` -> outcomes 1, 1, 0 of episode a and 0 of episode b. */
const outcomes = (text: string): Observation[] =>
  text.split(' ').flatMap((part) => {
    const [cluster = '', values = ''] = part.split(':')
    return [...values].map((value) => ({ cluster, value: Number(value) }))
  })

describe('wilson', () => {
  test('8 of 10', () => {
    // z^2/n = 0.384146, center (0.8 + 0.192073) / 1.384146 = 0.716740
    // half = 1.959964 / 1.384146 * sqrt(0.016 + 0.0096036) = 0.226577
    const [low, high] = wilson(8, 10)
    expect(low).toBeCloseTo(0.490163, 5)
    expect(high).toBeCloseTo(0.943317, 5)
  })

  test('none and all stay inside [0, 1] with some width', () => {
    // n = 20, 0 right: upper bound z^2 / (n + z^2) = 3.841459 / 23.841459
    expect(wilson(0, 20)[0]).toBe(0)
    expect(wilson(0, 20)[1]).toBeCloseTo(0.161125, 5)
    expect(wilson(20, 20)[0]).toBeCloseTo(1 - 0.161125, 5)
    expect(wilson(0, 0)).toEqual([0, 1])
  })
})

describe('clusterVariance', () => {
  test('by hand', () => {
    // mean 0.5; deviations summed: a +1, b -1, c 0; 3/2 * (1 + 1 + 0) / 6^2 = 1/12
    expect(clusterVariance(outcomes('a:11 b:00 c:10'))).toBeCloseTo(1 / 12, 12)
  })

  test('with one observation per cluster it is the usual variance of a mean', () => {
    // values 1, 0, 1, 1: mean 3/4, sample variance 1/4, of the mean 1/16
    expect(clusterVariance(outcomes('a:1 b:0 c:1 d:1'))).toBeCloseTo(1 / 16, 12)
  })
})

describe('accuracyInterval', () => {
  const alike = outcomes('a:11 b:11 c:11 d:11 e:11 f:00 g:00 h:00 i:00 j:00')

  test('widens when the questions of an episode succeed together', () => {
    // cluster variance 10/9 * 10 / 400 = 0.0277778, binomial 0.25 / 20 = 0.0125, effect 2.2222, effective n 9
    // center 0.5; half = 1.959964 / 1.426829 * sqrt(0.25 / 9 + 3.841459 / 324) = 0.273468
    const [low, high] = accuracyInterval(alike)
    expect(low).toBeCloseTo(0.5 - 0.273468, 5)
    expect(high).toBeCloseTo(0.5 + 0.273468, 5)
    expect(high - low).toBeGreaterThan(wilson(10, 20)[1] - wilson(10, 20)[0])
  })

  test('is never narrower than for independent questions, and is plain Wilson for few episodes or no variance', () => {
    expect(accuracyInterval(outcomes('a:10 b:10 c:10 d:10 e:10 f:10 g:10 h:10 i:10 j:10'))).toEqual(wilson(10, 20))
    expect(accuracyInterval(outcomes('a:11 b:00'))).toEqual(wilson(2, 4))
    const all = alike.map(({ cluster }) => ({ cluster, value: 1 }))
    expect(accuracyInterval(all)).toEqual(wilson(20, 20))
  })

  test('covers the truth about 95 % of the time when episodes differ in difficulty', () => {
    const random = seedrandom('coverage')
    let covered = 0
    for (let run = 0; run < 400; run++) {
      // an episode's questions are all easy (0.9) or all hard (0.5): 0.7 on average
      const observations = Array.from({ length: 40 }, (_, episode) => {
        const ease = random() < 0.5 ? 0.9 : 0.5
        return Array.from({ length: 10 }, () => ({ cluster: String(episode), value: random() < ease ? 1 : 0 }))
      }).flat()
      const [low, high] = accuracyInterval(observations)
      if (low <= 0.7 && 0.7 <= high) covered += 1
    }
    expect(covered / 400).toBeGreaterThan(0.92)
    expect(covered / 400).toBeLessThan(0.98)
  })
})

describe('pairedDifference', () => {
  const keyed = (text: string) => new Map(outcomes(text).map((one, i) => [`q${i}`, one]))

  test('by hand', () => {
    // differences a: 1, 0; b: 1, 1; mean 3/4; deviation sums a -1/2, b +1/2; variance 2 * (1/4 + 1/4) / 16 = 1/16
    // 0.75 +- 1.959964 / 4 = 0.489991
    const found = pairedDifference(keyed('a:00 b:00'), keyed('a:10 b:11'))
    expect(found?.difference).toBe(0.75)
    expect(found?.n).toBe(4)
    expect(found?.ci95[0]).toBeCloseTo(0.260009, 5)
    expect(found?.ci95[1]).toBe(1)
  })

  test('uses only questions that both have, and needs two episodes', () => {
    const before = keyed('a:01 b:0')
    const after = keyed('a:11 b:1')
    before.delete('q1')
    expect(pairedDifference(before, after)).toMatchObject({ n: 2, difference: 1, ci95: [1, 1] })
    expect(pairedDifference(keyed('a:01'), keyed('a:11'))).toBeNull()
  })
})
