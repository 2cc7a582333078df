import { describe, expect, test } from 'vitest'
import { compareCells } from '../../src/report/comparison.ts'
import { paretoSet } from '../../src/report/pareto.ts'
import { saturationOf } from '../../src/report/saturation.ts'
import { comparisonText } from '../../src/report/terminal.ts'
import { outcome } from './outcomes.ts'
import { madeSweep } from './sweeps.ts'

describe('compareCells', () => {
  const { sweep, outcomes } = madeSweep()
  const comparison = compareCells(sweep, outcomes)

  test('accuracies, flips and differences, by hand', () => {
    // right at one turn: 0, 3, ..., 57; at two: 0, 2, ..., 58; at three: those and 7
    expect(comparison.cells.map(({ metrics }) => metrics?.accuracy?.value)).toEqual([20 / 60, 30 / 60, 31 / 60])
    // both: multiples of six, ten of them
    expect(comparison.differences).toMatchObject([
      { cell: 'maxTurns=2', baseline: 'maxTurns=1', n: 60, flips: { gained: 20, lost: 10 } },
      { cell: 'maxTurns=3', baseline: 'maxTurns=1', n: 60, flips: { gained: 21, lost: 10 } },
    ])
    expect(comparison.differences[0]?.difference).toBeCloseTo(10 / 60)
    expect(comparison).toMatchObject({ questions: 60, episodes: 12 })
  })

  test('the denominator is fixed: what failed counts as wrong and is listed', () => {
    expect(comparison.cells[1]?.metrics?.accuracy?.n).toBe(60)
    expect(comparison.cells[1]?.failed).toEqual([
      { trajectoryId: '0/q1/0', qid: 'q1', message: 'http://127.0.0.1:9 cannot be reached' },
    ])
    expect(comparison.cells[1]?.failureKinds.outside).toEqual({
      n: 1,
      examples: [{ trajectoryId: '0/q1/0', question: 'who is it?' }],
    })
    expect(comparisonText(comparison, 100)).toContain('failed outside the master and counted as wrong: maxTurns=2: 1')
  })

  test('a comparison in which a cell had the oracle of boxes says so, in its text and its JSON', () => {
    const { sweep: told } = madeSweep({ setting: { 'oracle boxes': 'shown' } })
    const marked = compareCells(told, outcomes)
    expect(marked.methods.oracle).toMatch(/^Oracle: the vision agent was given the boxes/)
    expect(comparisonText(marked, 200)).toContain('Oracle: the vision agent was given the boxes')
    expect(comparisonText(comparison, 200)).not.toContain('Oracle')
  })

  test('a cell with missing questions is shown as such and not compared; other questions do not count', () => {
    const [one = [], two = [], three = []] = outcomes
    const more = outcome('ga', { qid: 'not asked', correct: true })
    const found = compareCells(sweep, [[...one, more], two.slice(1), three])
    expect(found.cells.map(({ missing }) => missing)).toEqual([0, 1, 0])
    expect(found.cells[1]?.metrics).toBeNull()
    expect(found.cells[0]?.metrics?.accuracy?.n).toBe(60)
    expect(found.differences.map(({ cell }) => cell)).toEqual(['maxTurns=3'])
    expect(comparisonText(found, 100)).toContain('1 questions missing')
  })

  test('the text fits its width, numbers stand below each other, and the Pareto set is marked', () => {
    for (const width of [80, 120]) {
      const lines = comparisonText(comparison, width).split('\n')
      expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(width)
      const [head = '', ...rows] = lines.slice(0, 4)
      expect(head.trim().split(/ {2,}/)).toEqual(['accuracy %', 'difference, points', '+/−', 'p'])
      expect(new Set(rows.map((row) => row.indexOf('['))).size).toBe(1)
      expect(rows.map((row) => row.trim().split(/ +/)[0])).toEqual(['maxTurns=1', 'maxTurns=2', 'maxTurns=3'])
      expect(rows[0]).toContain('baseline')
      // every budget costs the same tokens here, so that only the most accurate is in the set
      expect(lines.filter((line) => /^maxTurns=\d.*★/.test(line)).map((line) => line.slice(0, 10))).toEqual([
        'maxTurns=3',
      ])
    }
  })

  test('one question more is not distinguishable, and the text says how many it would take', () => {
    const against = compareCells({ ...sweep, baseline: { maxTurns: 2 } }, outcomes)
    const third = against.differences.find(({ cell }) => cell === 'maxTurns=3')
    expect(third).toMatchObject({ flips: { gained: 1, lost: 0 }, distinguishable: false, p: 1, mcnemar: 1 })
    // deviations of episode sums 11/12 and eleven times -1/12: variance 12/11 * (121 + 11) / 144 / 60^2 = 1/3600; (2.8016)^2 * 60 / 3600 * 3600
    expect(third?.questionsNeeded).toBe(Math.ceil(7.848879 * 60))
    expect(third?.statement).toMatch(/^not distinguishable from maxTurns=2; .* about 471 questions$/)
  })

  test('a baseline of some settings holds each cell against the one that agrees in the others; ceilings are not compared', () => {
    const varied = [
      { setting: 'policy', values: ['a', 'b', 'oracle'] },
      { setting: 'maxTurns', values: [1, 2, 3] },
    ]
    const cells = ['a', 'b', 'oracle'].flatMap((policy) =>
      [1, 2, 3].map((maxTurns) => ({
        settings: { policy, maxTurns },
        directory: `${policy}${maxTurns}`,
        ceiling: policy === 'oracle',
      })),
    )
    const found = compareCells({ ...sweep, varied, cells, baseline: { policy: 'a' } }, [
      ...outcomes,
      ...outcomes.toReversed(),
      ...outcomes,
    ])
    expect(found.differences.map(({ cell, baseline }) => [cell, baseline])).toEqual([
      ['b maxTurns=1', 'a maxTurns=1'],
      ['b maxTurns=2', 'a maxTurns=2'],
      ['b maxTurns=3', 'a maxTurns=3'],
    ])
    expect(found.saturation.map(({ of, from }) => [of, from])).toEqual([
      ['a', 2],
      ['b', 1],
    ])
    expect(found.cells.filter(({ pareto }) => pareto.length > 0).every(({ ceiling }) => !ceiling)).toBe(true)
  })

  test('is the same every time', () => {
    expect(compareCells(sweep, outcomes)).toEqual(comparison)
  })
})

test('the Pareto set, by hand', () => {
  const at = (cost: number, accuracy: number) => ({ cost, accuracy })
  const [cheap, good, best, worse, dear, twin] = [
    at(1, 0.2),
    at(2, 0.6),
    at(5, 0.9),
    at(3, 0.5),
    at(6, 0.9),
    at(2, 0.6),
  ]
  expect(paretoSet([cheap, good, best, worse, dear, twin])).toEqual([cheap, good, best, twin])
  expect(paretoSet([])).toEqual([])
})

describe('where a curve stops rising', () => {
  const curve = (...right: ((i: number) => boolean)[]) =>
    right.map((isRight, value) => ({
      value: value + 1,
      outcomes: new Map(
        Array.from({ length: 400 }, (_, i) => [
          `q${i}`,
          { cluster: `e${Math.floor(i / 4)}`, value: isRight(i) ? 1 : 0 },
        ]),
      ),
    }))

  test('rising, then flat within two points', () => {
    const found = saturationOf(
      'K',
      curve(
        (i) => i % 4 === 0,
        (i) => i % 2 === 0,
        (i) => i % 2 === 0 || i === 1,
      ),
    )
    expect(found).toMatchObject({ from: 2 })
    expect(found?.room).toBeLessThan(0.02)
    expect(found?.statement).toMatch(/^flat from K = 2: .* no larger value gains more than \d\.\d points$/)
  })

  test('no gain seen is not flat where the intervals leave room', () => {
    const found = saturationOf(
      'K',
      curve(
        (i) => i % 7 < 3,
        (i) => i % 5 < 2,
      ),
    )
    expect(found?.from).toBe(1)
    expect(found?.statement).toMatch(/leave room for up to \d+\.\d points/)
  })

  test('still rising at the end', () => {
    const found = saturationOf(
      'K',
      curve(
        (i) => i % 4 === 0,
        (i) => i % 2 === 0,
        (i) => i % 4 > 0,
      ),
    )
    expect(found).toEqual({ from: null, room: 0, statement: 'still rising at K = 3, the largest value tried' })
  })

  test('one episode tells nothing', () => {
    const one = (value: number): [number, Map<string, { cluster: string; value: number }>] => [
      value,
      new Map([['q', { cluster: 'e', value }]]),
    ]
    const points = [one(0), one(1)].map(([value, outcomes]) => ({ value, outcomes }))
    expect(saturationOf('K', points)).toBeNull()
  })
})
