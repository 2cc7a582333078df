import { describe, expect, test } from 'vitest'
import {
  accuracyGain,
  actionPatterns,
  measure,
  patternOf,
  type Run,
  regrounding,
  trainingCurve,
} from '../../src/report/summarize.ts'
import type { Action } from '../../src/types.ts'

const actions: Record<string, Action> = {
  g: { kind: 'ground' },
  v: { kind: 'look', query: 'sign' },
  a: { kind: 'answer', option: 0 },
  x: { kind: 'invalid', problem: 'two actions' },
}

/** `pattern` has a letter per turn; malformed turns are x. */
function run(pattern: string, rest: Partial<Run> = {}): Run {
  return {
    step: 0,
    qid: 'q1',
    episodeId: 'e1',
    kind: 'dialogue',
    correct: true,
    grounded: true,
    visited: ['c1'],
    reward: { total: 1, format: 0, answer: 1, turnCost: 0 },
    sampledTokens: 10,
    seconds: 2,
    turns: [...pattern].map((letter) => ({ action: actions[letter]!, wellFormed: letter !== 'x' })),
    ...rest,
  }
}

describe('measure', () => {
  test('by hand', () => {
    const measured = measure([
      run('ga'),
      run('gva', { correct: false, sampledTokens: 20, seconds: 4 }),
      run('xa', { grounded: false, visited: [] }),
      run('g', { correct: false, grounded: false, reward: null, sampledTokens: 2, seconds: 0 }),
    ])
    expect(measured).toMatchObject({
      n: 4,
      accuracy: 0.5,
      groundingAccuracy: 0.5,
      formatRate: 7 / 8,
      meanTurns: 2,
      meanTokens: 10.5,
      secondsPerQuestion: 2,
      failures: 1,
    })
    // one episode only: Wilson for 2 of 4
    expect(measured.accuracyCi95[0]).toBeCloseTo(0.150036, 5)
    expect(measured.accuracyCi95[1]).toBeCloseTo(0.849964, 5)
  })

  test('of nothing throws', () => {
    expect(() => measure([])).toThrow(/at least one trajectory/)
  })
})

test('a gain is paired by question', () => {
  const before = ['q1', 'q2', 'q3', 'q4'].map((qid, i) => run('a', { qid, episodeId: `e${i % 2}`, correct: false }))
  const after = before.map((one, i) => ({ ...one, correct: i > 0 }))
  expect(accuracyGain(before, after.toReversed())).toMatchObject({ n: 4, difference: 0.75 })
  expect(accuracyGain(before, [])).toBeNull()
})

test('action patterns: shares by kind, likeliest first', () => {
  const runs = [run('ga'), run('ga'), run('gga'), run('ga'), run('gva', { kind: 'visual' }), run('a', { kind: null })]
  expect(actionPatterns(runs)).toEqual({ all: { a: 1 }, dialogue: { ga: 0.75, gga: 0.25 }, visual: { gva: 1 } })
  expect(Object.keys(actionPatterns(runs).dialogue!)).toEqual(['ga', 'gga'])
  expect(patternOf(run('gxva'))).toBe('gxva')
})

describe('regrounding', () => {
  const goldClips = new Map([['q1', 'c1']])

  test('counts only runs whose first clip was wrong', () => {
    const found = regrounding(
      [
        run('ga', { visited: ['c1'] }),
        run('a', { visited: [], grounded: false }),
        run('gga', { visited: ['c2', 'c1'] }),
        run('ga', { visited: ['c2'], grounded: false, correct: false }),
        run('ga', { visited: ['c3'], grounded: false, correct: false }),
        run('ggva', { visited: ['c2', 'c4'], grounded: false, correct: false }),
      ],
      goldClips,
    )
    expect(found).toEqual({ wrongFirstClip: 4, groundedAgain: 0.5, found: 0.25, accuracy: 0.25 })
  })

  test('null when it never was, or nothing is known', () => {
    expect(regrounding([run('ga')], goldClips)).toBeNull()
    expect(regrounding([run('ga', { visited: ['c2'] })], new Map())).toBeNull()
  })
})

test('the training curve has a point per step, without runs that failed outside', () => {
  const reward = (total: number) => ({ total, format: 0, answer: 0, turnCost: 0 })
  expect(
    trainingCurve([
      run('ga', { step: 1, reward: reward(1) }),
      run('ga', { step: 0, reward: reward(0.5) }),
      run('ga', { step: 0, reward: reward(0), correct: false }),
      run('g', { step: 0, reward: null, correct: false }),
    ]),
  ).toEqual([
    { step: 0, reward: 0.25, accuracy: 0.5 },
    { step: 1, reward: 1, accuracy: 1 },
  ])
})
