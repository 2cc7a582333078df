import { describe, expect, test } from 'vitest'
import { failureKindOf } from '../../src/report/failureKinds.ts'
import { lenientAnswer } from '../../src/report/lenient.ts'
import { type MetricKey, measured } from '../../src/report/metrics.ts'
import { outcomeOf, type Trace } from '../../src/report/outcome.ts'
import { key, outcome, trace } from './outcomes.ts'

const of = (pattern: string, clips: readonly (string | null)[], rest: Partial<Trace> = {}) =>
  outcomeOf(trace(pattern, clips, rest), key('q1'))

describe('where the evidence was', () => {
  test('first, at the end, and at all are told apart', () => {
    expect(of('ga', ['c2'])).toMatchObject({ groundedInitial: true, groundedFinal: true, groundedAny: true })
    expect(of('gga', ['c1', 'c2'])).toMatchObject({ groundedInitial: false, groundedFinal: true, groundedAny: true })
    expect(of('gga', ['c2', 'c4'])).toMatchObject({ groundedInitial: true, groundedFinal: false, groundedAny: true })
    expect(of('ga', ['c4'])).toMatchObject({ groundedInitial: false, groundedFinal: false, groundedAny: false })
    expect(of('a', [null])).toMatchObject({ groundedInitial: false, groundedFinal: false, windows: 0, iou: 0 })
  })

  test('window hits count every window shown, of which a last one that never came back is none', () => {
    expect(of('ggga', ['c1', 'c2', 'c3'])).toMatchObject({ windows: 3, windowHits: 1 })
    expect(of('gg', ['c2', 'c2'])).toMatchObject({ windows: 1, windowHits: 1 })
  })

  test('overlap in time, on the episode: by hand', () => {
    // window 60-120, evidence 70-100
    expect(of('ga', ['c2']).iou).toBeCloseTo(30 / 60)
    expect(of('ga', ['c1']).iou).toBe(0)
    // three clips around the third: 60-240
    const budget = { ...trace('a').budget, windowClips: 3 }
    const wide = of('ga', ['c3'], { budget, visited: ['c2', 'c3', 'c4'], grounded: true })
    expect(wide.iou).toBeCloseTo(30 / 180)
    expect(wide).toMatchObject({ groundedInitial: true, groundedFinal: true, windowHits: 1 })
  })

  test('without an answer key, or without times, it is unknown', () => {
    const unknown = outcomeOf(trace('ga', ['c2']), null)
    expect(unknown).toMatchObject({
      groundedInitial: null,
      groundedFinal: null,
      iou: null,
      lenient: null,
      windowHits: null,
    })
    const timeless = key('q1')
    timeless.episodes.e1 = ['c1', 'c2'].map((id) => ({ id, start: 0, end: 0 }))
    expect(outcomeOf(trace('ga', ['c2']), timeless)).toMatchObject({ groundedFinal: true, iou: null })
  })
})

test('what the configuration leaves out of training for its length did not fail outside the master', () => {
  expect(of('gx', ['c2'], { reward: null, stopReason: 'token_limit' }).failedOutside).toBe(false)
  expect(of('g', ['c2'], { reward: null, stopReason: 'agent_error' }).failedOutside).toBe(true)
})

describe('lenient answers', () => {
  const options = ['red', 'green', 'a blue car', 'a car', 'nothing at all']
  test.each([
    ['<answer>a3</answer>', 3],
    ['<answer>A1: green</answer>', 1],
    ['I think it is (a2).', 2],
    ['<answer>Green!</answer>', 1],
    ['<answer>it is a blue car</answer>', 2],
    ['<answer>a car, or a blue car</answer>', null],
    ['<answer>a blue car</answer>', 2],
    ['<answer>nothing at al</answer>', 4],
    ['<reasoning>not a1</reasoning> red', 0],
    ['someone was covered', null],
    ['<answer></answer>', null],
    ['red or green', null],
  ])('%s', (response, expected) => {
    expect(lenientAnswer(response, options)).toBe(expected)
  })

  test('count for accuracy where the strict parser refused, and never after a tool call', () => {
    const refused = { correct: false, answer: null, stopReason: 'turn_limit' } as const
    const said = (response: string, pattern: string) => {
      const one = trace(pattern, ['c2'], refused)
      return outcomeOf({ ...one, turns: one.turns.map((turn) => ({ ...turn, response })) }, key('q1')).lenient
    }
    expect(said('the answer is red', 'x')).toBe(true)
    expect(said('the answer is green', 'x')).toBe(false)
    expect(said('<visual_query>a0</visual_query>', 'v')).toBe(false)
    expect(of('ga', ['c2']).lenient).toBe(true)
  })
})

describe('failure kinds: the first that holds', () => {
  test.each([
    ['right', of('ga', ['c2']), null],
    ['outside', of('g', ['c2'], { correct: false, reward: null, stopReason: 'agent_error' }), 'outside'],
    ['no answer', of('gg', ['c2'], { correct: false }), 'noAnswer'],
    ['never found', of('ga', ['c1'], { correct: false }), 'neverFound'],
    ['left', of('gga', ['c2', 'c1'], { correct: false }), 'leftClip'],
    ['did not look', of('ga', ['c2'], { correct: false, kind: 'visual' }), 'neverLooked'],
    ['looked', of('gva', ['c2'], { correct: false, kind: 'visual' }), 'looked'],
    ['read', of('ga', ['c2'], { correct: false }), 'read'],
    ['read, kind unknown', of('ga', ['c2'], { correct: false, kind: null }), 'read'],
  ])('%s', (_, one, kind) => {
    expect(failureKindOf(one)?.key ?? null).toBe(kind)
  })
})

describe('metrics', () => {
  const none = { master: null, grounding: null, vision: null }
  const value = (metric: MetricKey, prices: Parameters<typeof measured>[2] = none) =>
    measured(metric, [outcome('ga'), outcome('gva', { windows: 0, iou: null, correct: false })], prices)

  test('are means over what they apply to', () => {
    expect(value('accuracy')).toMatchObject({ value: 0.5, n: 2 })
    expect(value('meanIou')).toMatchObject({ value: 0.5, n: 1 })
    expect(value('windowHits')).toMatchObject({ value: 1, n: 1 })
    expect(value('tokens')?.value).toBe(315)
    expect(value('calls')?.value).toBe(3)
    const perRole = (['tokensMaster', 'tokensGrounding', 'tokensVision', 'callsVision', 'secondsMaster'] as const).map(
      (key) => value(key)?.value,
    )
    expect(perRole).toEqual([110, 205, 0, 1, 0])
    expect(measured('meanIou', [outcome('a', { iou: null })], none)).toBeNull()
  })

  test('US dollars: as counted, or from the price table, by role', () => {
    expect(value('usd')?.value).toBeCloseTo(0.12)
    const price = { promptUsdPerMillion: 10, completionUsdPerMillion: 100, usdPerFrame: 0 }
    const prices = { master: price, grounding: null, vision: { ...price, usdPerFrame: 0.001 } }
    // (100 * 10 + 10 * 100) / 1e6, and 12 frames
    expect(value('usdMaster', prices)?.value).toBeCloseTo(0.002)
    expect(value('usdVision', prices)?.value).toBeCloseTo(0.012)
    expect(value('usd', prices)?.value).toBeCloseTo(0.002 + 0.02 + 0.012)
  })
})
