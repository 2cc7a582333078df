import { describe, expect, test } from 'vitest'
import { accuracyGain, actionPatterns, measure, regrounding, trainingCurve } from '../../src/report/summarize.ts'
import { measurementText } from '../../src/report/terminal.ts'
import { outcome } from './outcomes.ts'

const prices = { master: null, grounding: null, vision: null }

describe('measure', () => {
  test('by hand', () => {
    const measured = measure(
      [
        outcome('ga'),
        outcome('gva', { correct: false, sampledTokens: 20, seconds: 4 }),
        outcome('xa', { groundedAny: false }),
        outcome('g', {
          qid: 'q4',
          correct: false,
          groundedAny: false,
          failedOutside: true,
          failure: 'no answer',
          sampledTokens: 2,
          seconds: 0,
        }),
      ],
      prices,
    )
    expect(measured).toMatchObject({
      n: 4,
      accuracy: 0.5,
      groundingAccuracy: 0.5,
      formatRate: 7 / 8,
      meanTurns: 2,
      meanTokens: 10.5,
      secondsPerQuestion: 2,
      failures: 1,
      failed: [{ qid: 'q4', message: 'no answer' }],
      metrics: { accuracy: { value: 0.5, n: 4 }, failed: { value: 0.25 }, lookRate: { value: 0.25 } },
    })
    expect(measurementText(measured)).toContain('counted as wrong:\n  q4: no answer')
    // one episode only: Wilson for 2 of 4
    expect(measured.accuracyCi95[0]).toBeCloseTo(0.150036, 5)
    expect(measured.accuracyCi95[1]).toBeCloseTo(0.849964, 5)
  })

  test('runs with the oracle of boxes say so', () => {
    const marked = measure([outcome('ga')], prices, { oracleBoxes: true })
    expect(marked.oracle).toMatch(/^Oracle: /)
    expect(measurementText(marked)).toContain(marked.oracle)
    expect(measure([outcome('ga')], prices)).not.toHaveProperty('oracle')
  })

  test('of nothing throws', () => {
    expect(() => measure([], prices)).toThrow(/at least one trajectory/)
  })
})

test('a gain is paired by question', () => {
  const before = ['q1', 'q2', 'q3', 'q4'].map((qid, i) => outcome('a', { qid, episodeId: `e${i % 2}`, correct: false }))
  const after = before.map((one, i) => ({ ...one, correct: i > 0 }))
  expect(accuracyGain(before, after.toReversed())).toMatchObject({ n: 4, difference: 0.75 })
  expect(accuracyGain(before, [])).toBeNull()
})

test('action patterns: shares by kind, likeliest first', () => {
  const runs = [
    outcome('ga'),
    outcome('ga'),
    outcome('gga'),
    outcome('ga'),
    outcome('gva', { kind: 'visual' }),
    outcome('a', { kind: null }),
  ]
  expect(actionPatterns(runs)).toEqual({ all: { a: 1 }, dialogue: { ga: 0.75, gga: 0.25 }, visual: { gva: 1 } })
  expect(Object.keys(actionPatterns(runs).dialogue ?? {})).toEqual(['ga', 'gga'])
})

describe('regrounding', () => {
  test('counts only runs whose first clip was wrong', () => {
    const wrong = { correct: false, groundedAny: false }
    const found = regrounding([
      outcome('ga', { firstClip: 'c2' }),
      outcome('a', { firstClip: null, groundedAny: false }),
      outcome('gga', { firstClip: 'c1' }),
      outcome('ga', { firstClip: 'c1', ...wrong }),
      outcome('ga', { firstClip: 'c3', ...wrong }),
      outcome('ggva', { firstClip: 'c1', ...wrong }),
    ])
    expect(found).toEqual({ wrongFirstClip: 4, groundedAgain: 0.5, found: 0.25, accuracy: 0.25 })
  })

  test('null when it never was, or nothing is known', () => {
    expect(regrounding([outcome('ga')])).toBeNull()
    expect(regrounding([outcome('ga', { firstClip: 'c1', goldClip: null })])).toBeNull()
  })
})

test('the training curve has a point per step, without runs that failed outside', () => {
  const reward = (total: number) => ({ total, format: 0, answer: 0, turnCost: 0 })
  expect(
    trainingCurve([
      outcome('ga', { step: 1, reward: reward(1) }),
      outcome('ga', { step: 0, reward: reward(0.5) }),
      outcome('ga', { step: 0, reward: reward(0), correct: false }),
      outcome('g', { step: 0, reward: null, correct: false }),
    ]),
  ).toEqual([
    { step: 0, reward: 0.25, accuracy: 0.5 },
    { step: 1, reward: 1, accuracy: 1 },
  ])
})
