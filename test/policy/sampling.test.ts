/** Draws by hand-computed probabilities: 0.4, 0.3, 0.2, 0.1 at temperature 1. */
import { describe, expect, test } from 'vitest'
import type { DrawnToken, DrawSettings } from '../../src/policy/sampling.ts'
import { drawChanged, drawWhole, logprobsOf, tell } from '../../src/policy/sampling.ts'

const logits = Float32Array.from([0.1, 0.4, 0.3, 0.2], (p) => Math.log(p) + 5)
const all = logprobsOf(logits, 1)!

const GRID = 30_000

/** Probability of being drawn by id, and kept mass by id, from a fine grid of random numbers. */
function drawn(settings: DrawSettings, allowed: number[] | null = null) {
  const logprobs = logprobsOf(logits, settings.temperature)!
  const mask = allowed && Uint8Array.from({ length: 4 }, (_, id) => (allowed.includes(id) ? 1 : 0))
  const shares = [0, 0, 0, 0]
  const mass: (number | null)[] = [null, null, null, null]
  for (let i = 0; i < GRID; i++) {
    const token = drawChanged(logprobs, settings, mask, (i + 0.5) / GRID) as DrawnToken
    shares[token.id]! += 1 / GRID
    mass[token.id] = token.keptMass
    // Whatever is cut, the log-probability is that of the whole distribution.
    if (token.logprob !== logprobs[token.id]) throw new Error(`${token.logprob} for ${logprobs[token.id]}`)
  }
  return { shares: shares.map((share) => Number(share.toFixed(3))), mass: mass.map((m) => m && Number(m.toFixed(5))) }
}

test('the whole distribution', () => {
  const probabilities = Float32Array.of(0.1, 0.4, 0.3, 0.2)
  const ids = [0, 0.05, 0.11, 0.49, 0.51, 0.79, 0.81, 0.999999].map(
    (random) => (drawWhole(probabilities, false, random) as DrawnToken).id,
  )
  expect(ids).toEqual([0, 0, 1, 1, 2, 2, 3, 3])
  expect(drawWhole(probabilities, true, 0.99)).toEqual({ id: 1, logprob: Math.log(Math.fround(0.4)), keptMass: null })
  // Rounding may leave the sum below one.
  expect(drawWhole(Float32Array.of(0.25, 0.5, 0.2499), false, 0.99999)).toMatchObject({ id: 1 })
  expect(drawWhole(new Float32Array(4).fill(Number.NaN), false, 0.5)).toBe('not_finite')
})

describe('cuts', () => {
  test('top_k', () => {
    expect(drawn({ temperature: 1, topK: 2 })).toEqual({ shares: [0, 0.571, 0.429, 0], mass: [null, 0.7, 0.7, null] })
    expect(drawn({ temperature: 1, topK: 9 }).shares).toEqual([0.1, 0.4, 0.3, 0.2])
  })

  test('top_p keeps the token that reaches the sum', () => {
    expect(drawn({ temperature: 1, topP: 0.69 })).toEqual({
      shares: [0, 0.571, 0.429, 0],
      mass: [null, 0.7, 0.7, null],
    })
    expect(drawn({ temperature: 1, topP: 0.71 }).shares).toEqual([0, 0.444, 0.333, 0.222])
    expect(drawn({ temperature: 1, topP: 1e-9 }).shares).toEqual([0, 1, 0, 0])
    expect(drawn({ temperature: 1, topP: 0.99 }).mass).toEqual([1, 1, 1, 1])
  })

  test('min_p is relative to the likeliest', () => {
    // 0.3 is 0.75 of 0.4, and 0.2 is half of it.
    expect(drawn({ temperature: 1, minP: 0.6 }).shares).toEqual([0, 0.571, 0.429, 0])
    expect(drawn({ temperature: 1, minP: 0.4 }).mass).toEqual([null, 0.9, 0.9, 0.9])
  })

  test('one after another: top_p is of what the others kept', () => {
    // top_k leaves 4/9, 3/9, 2/9; the first two of those reach 0.75.
    expect(drawn({ temperature: 1, topK: 3, topP: 0.75 }).mass).toEqual([null, 0.7, 0.7, null])
    expect(drawn({ temperature: 1, topP: 0.75 }).mass).toEqual([null, 0.9, 0.9, 0.9])
  })

  test('temperature comes before them', () => {
    // At temperature 0.5 the squares: 1, 16, 9 and 4 of 30.
    expect(drawn({ temperature: 0.5 }).shares).toEqual([0.033, 0.533, 0.3, 0.133])
    expect(drawn({ temperature: 0.5, topP: 0.8 }).mass).toEqual([null, 0.83333, 0.83333, null])
  })
})

test('a bias multiplies the odds, and the log-probability does not know it', () => {
  // 0.1 times 4 makes 0.4 of 1.3: it is drawn with 4/13 instead of 1/10.
  const { shares, mass } = drawn({ temperature: 1, logitBias: new Map([[0, Math.log(4)]]) })
  expect(shares).toEqual([0.308, 0.308, 0.231, 0.154])
  expect(mass).toEqual([0.325, 1.3, 1.3, 1.3])
  expect(drawn({ temperature: 0.5, logitBias: new Map([[0, Math.log(4)]]) }).shares).toEqual([0.356, 0.356, 0.2, 0.089])
  expect(drawChanged(all, { temperature: 0, logitBias: new Map([[3, 2]]) }, null, 0.5)).toMatchObject({
    id: 3,
    keptMass: null,
  })
})

test('what is not allowed is not drawn, however unlikely the rest is', () => {
  expect(drawn({ temperature: 1 }, [0, 3])).toEqual({ shares: [0.333, 0, 0, 0.667], mass: [0.3, null, null, 0.3] })
  expect(drawChanged(all, { temperature: 0 }, Uint8Array.of(1, 0, 0, 0), 0.5)).toMatchObject({ id: 0 })
  expect(drawChanged(all, { temperature: 1 }, new Uint8Array(4), 0.5)).toBe('no_choice')
  const steep = logprobsOf(Float32Array.of(0, 900, -900), 1)!
  expect(drawChanged(steep, { temperature: 1 }, Uint8Array.of(1, 0, 1), 0.5)).toMatchObject({ id: 0, logprob: -900 })
})

test('log-probabilities add up to one, also of large logits at low temperatures; NaN and infinity are refused', () => {
  const logprobs = logprobsOf(Float32Array.of(30, 31, 29.5), 0.01)!
  expect([...logprobs].reduce((sum, logprob) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 12)
  expect(logprobs[0]).toBeCloseTo(-100, 9)
  expect(logprobsOf(Float32Array.of(0, Number.NaN, 1), 1)).toBeNull()
  expect(logprobsOf(Float32Array.of(0, Infinity, 1), 1)).toBeNull()
  expect(logprobsOf(Float32Array.of(Number.NaN, 1, 2), 1)).toBeNull()
})

test('a rank, and the likeliest beside it', () => {
  const ids = (count: number) => tell(all, 0, count).alternatives.map(({ id }) => id)
  expect(tell(all, 2, 1)).toMatchObject({ id: 2, logprob: all[2], rank: 2, alternatives: [{ id: 1, logprob: all[1] }] })
  expect([ids(3), ids(9), ids(0)]).toEqual([[1, 2, 3], [1, 2, 3, 0], []])
  const tied = Float64Array.of(-1, -1, -2)
  expect([0, 1, 2].map((id) => tell(tied, id, 2).rank)).toEqual([1, 2, 3])
  expect(tell(tied, 0, 1).alternatives[0]).toMatchObject({ id: 0 })
})
