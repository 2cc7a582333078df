/** Which sequences are run together behind a common prefix: by hand, and against what every sequence needs. */

import seedrandom from 'seedrandom'
import { expect, test } from 'vitest'
import { sharedPrefixes } from '../../src/grpo/sharing.ts'

const divide = (...sequences: number[][]) =>
  sharedPrefixes(
    sequences,
    sequences.map(({ length }) => length),
  )

test('samples of one prompt share it; what is equal or contained is run once', () => {
  expect(divide([1, 2, 3, 7, 8], [1, 2, 3, 9], [1, 2, 3, 7, 8], [1, 2, 3, 7])).toEqual([
    {
      prefix: 3,
      branches: [
        { sequence: 2, covers: [3, 0, 2] },
        { sequence: 1, covers: [1] },
      ],
    },
  ])
})

test('two prompts that begin alike are two prefixes when that costs less', () => {
  const groups = divide([1, 2, 2, 2, 5], [1, 2, 2, 2, 6], [1, 3, 3, 3, 5], [1, 3, 3, 3, 6])
  expect(groups.map(({ prefix, branches }) => [prefix, branches.map(({ sequence }) => sequence)])).toEqual([
    [4, [0, 1]],
    [4, [2, 3]],
  ])
})

test('one level only: the path to a node for all below it, when that saves more than its children do', () => {
  const groups = divide([1, 1, 1, 1, 2, 3], [1, 1, 1, 1, 2, 4], [1, 1, 1, 1, 3], [1, 1, 1, 1, 4])
  expect(groups).toHaveLength(1)
  expect(groups[0]!.prefix).toBe(4)
})

test('alone: the first id is the prefix; a single id has none', () => {
  expect(divide([4, 5, 6], [9])).toEqual([
    { prefix: 1, branches: [{ sequence: 0, covers: [0] }] },
    { prefix: 0, branches: [{ sequence: 1, covers: [1] }] },
  ])
  expect(sharedPrefixes([[1, 2]], [0])).toEqual([])
})

test('every sequence is covered once, by one that begins with it', () => {
  const random = seedrandom('sharing')
  for (let trial = 0; trial < 50; trial += 1) {
    const sequences = Array.from({ length: 30 }, () =>
      Array.from({ length: 1 + Math.floor(random() * 8) }, () => Math.floor(random() * 3)),
    )
    const groups = divide(...sequences)
    const covered = groups.flatMap(({ branches }) => branches.flatMap(({ covers }) => covers))
    expect(covered.toSorted((a, b) => a - b)).toEqual([...sequences.keys()])
    let cost = 0
    for (const { prefix, branches } of groups) {
      const path = sequences[branches[0]!.sequence]!.slice(0, prefix)
      cost += prefix
      for (const { sequence, covers } of branches) {
        const run = sequences[sequence]!
        expect(run.slice(0, prefix)).toEqual(path)
        expect(run.length).toBeGreaterThan(prefix)
        for (const cover of covers) expect(run.slice(0, sequences[cover]!.length)).toEqual(sequences[cover])
        cost += run.length - prefix
      }
    }
    expect(cost).toBeLessThanOrEqual(sequences.reduce((sum, { length }) => sum + length, 0))
  }
})
