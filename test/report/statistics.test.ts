import seedrandom from 'seedrandom'
import { mean, sampleStandardDeviation } from 'simple-statistics'
import { describe, expect, test } from 'vitest'
import {
  bootstrapInterval,
  clusterVariance,
  type Observation,
  pairedDifference,
  shareInterval,
  wilson,
} from '../../src/report/statistics.ts'
import { coverage, scenarios } from './simulation.ts'

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

describe('shareInterval', () => {
  const alike = outcomes('a:11 b:11 c:11 d:11 e:11 f:00 g:00 h:00 i:00 j:00')

  test('widens when the questions of an episode succeed together', () => {
    // cluster variance 10/9 * 10 / 400 = 0.0277778, binomial 0.25 / 20 = 0.0125, effect 2.2222, effective n 9
    // t of 9 degrees of freedom 2.262157: worth 9 / (2.262157 / 1.959964)^2 = 6.756044 questions
    // center 0.5; half = 1.959964 / 1.568596 * sqrt(0.25 / 6.756044 + 3.841459 / 182.57653) = 0.301034
    const [low, high] = shareInterval(alike)
    expect(low).toBeCloseTo(0.5 - 0.301034, 5)
    expect(high).toBeCloseTo(0.5 + 0.301034, 5)
    expect(high - low).toBeGreaterThan(wilson(10, 20)[1] - wilson(10, 20)[0])
  })

  test('is at least as wide as for independent questions, and is plain Wilson for few episodes or no variance', () => {
    const even = shareInterval(outcomes('a:10 b:10 c:10 d:10 e:10 f:10 g:10 h:10 i:10 j:10'))
    // no likeness: effect 1, worth 20 / 1.332141 = 15.0134
    expect(even[0]).toBeCloseTo(wilson(7.5067, 15.0134)[0], 4)
    expect(shareInterval(outcomes('a:11 b:00'))).toEqual(wilson(2, 4))
    const all = alike.map(({ cluster }) => ({ cluster, value: 1 }))
    expect(shareInterval(all)).toEqual(wilson(20, 20))
  })
})

describe('bootstrapInterval', () => {
  test('of two episodes is what the draws can give: both of one, one of each, both of the other', () => {
    // a: 1 of 2, b: 2 of 2; ratios 1/2, 3/4, 1; t of 1 degree of freedom reaches beyond the ends
    const parts = outcomes('a:10 b:11').map((one) => ({ ...one, weight: 1 }))
    expect(bootstrapInterval(parts)).toEqual([0.5, 1])
  })

  test('agrees with Student’s interval of episode means where that is right', () => {
    const random = seedrandom('student')
    const values = Array.from({ length: 40 }, () => 10 + random() + random() + random())
    const interval = bootstrapInterval(values.map((value, i) => ({ cluster: String(i), value, weight: 1 }))) ?? [0, 0]
    // t of 39 degrees of freedom
    const half = (2.022691 * sampleStandardDeviation(values)) / Math.sqrt(40)
    expect(Math.abs(interval[0] - (mean(values) - half))).toBeLessThan(0.06 * half)
    expect(Math.abs(interval[1] - (mean(values) + half))).toBeLessThan(0.06 * half)
  })

  test('weighs: the ratio of sums, not the mean of ratios; the same every time; null for one episode or no weight', () => {
    const parts = ['a', 'b', 'c'].map((cluster, i) => ({ cluster, value: i, weight: 2 * i }))
    expect(bootstrapInterval(parts)).toEqual([0.5, 0.5])
    const uneven = outcomes('a:11 b:10 c:00 d:01').map((one) => ({ ...one, weight: 1 }))
    expect(bootstrapInterval(uneven)).toEqual(bootstrapInterval(uneven))
    expect(bootstrapInterval(parts.slice(0, 1))).toBeNull()
    expect(bootstrapInterval(parts.map((part) => ({ ...part, weight: 0 })))).toBeNull()
  })
})

describe('95 % intervals hold the truth in 93 to 97 % of 1,000 simulated data sets', () => {
  // `npm run bench -- coverage` has the larger ones; seeded, so that the shares are always the same
  const small = scenarios.filter(({ episodes }) => episodes === 24)
  test.each(small.map((scenario) => [scenario.kind, scenario] as const))('%s', { timeout: 60_000 }, (_, scenario) => {
    const { covered } = coverage(scenario, 1000)
    expect(covered).toBeGreaterThanOrEqual(0.93)
    expect(covered).toBeLessThanOrEqual(0.97)
  })
})

describe('pairedDifference', () => {
  const keyed = (text: string) => new Map(outcomes(text).map((one, i) => [`q${i}`, one]))

  test('by hand', () => {
    // differences a: 1, 0; b: 1, 1; mean 3/4; with both episodes from a 1/2, from b 1
    const found = pairedDifference(keyed('a:00 b:00'), keyed('a:10 b:11'))
    expect(found?.difference).toBe(0.75)
    expect(found?.n).toBe(4)
    expect(found?.ci95).toEqual([0.5, 1])
  })

  test('uses only questions that both have, and needs two episodes', () => {
    const before = keyed('a:01 b:0')
    const after = keyed('a:11 b:1')
    before.delete('q1')
    expect(pairedDifference(before, after)).toMatchObject({ n: 2, difference: 1, ci95: [1, 1] })
    expect(pairedDifference(keyed('a:01'), keyed('a:11'))).toBeNull()
  })
})
