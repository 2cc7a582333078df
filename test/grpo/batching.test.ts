/** Micro-batches: where each target stands, limits, and how little of them is padding. */

import seedrandom from 'seedrandom'
import { describe, expect, test } from 'vitest'
import type { TargetSequence } from '../../src/grpo/batching.ts'
import { microBatches, paddedTokens, paddingShare } from '../../src/grpo/batching.ts'

const row = (ids: number[], ...positions: number[]): TargetSequence => ({ ids, positions })
const upTo = (tokens: number) => (shape: Parameters<typeof paddedTokens>[0]) => paddedTokens(shape) <= tokens

describe('microBatches', () => {
  test('a prefix once, rows behind it, and the state that predicts each target', () => {
    const batches = microBatches([row([1, 2, 3, 4, 5], 2, 4), row([1, 2, 6, 7], 3), row([1, 2, 6, 8], 3)], () => true)
    expect(batches).toHaveLength(1)
    const [batch] = batches
    // Only [1, 2, 3, 4] and, twice, [1, 2, 6] are needed to predict; what follows the last target is left out.
    expect(batch!.shape).toEqual({ G: 1, P: 2, B: 2, T: 2, prefixStates: 1, rowStates: 2, M: 4, S: 3 })
    expect([...batch!.prefixIds]).toEqual([1, 2])
    expect([...batch!.prefixLengths]).toEqual([2])
    expect([...batch!.ids]).toEqual([3, 4, 6, 0])
    expect([...batch!.prefixOf]).toEqual([0, 0])
    expect(batch!.members).toEqual([0, 1, 2])
    expect([...batch!.prefixStates]).toEqual([1])
    expect([...batch!.rowStates]).toEqual([1, 2])
    expect([...batch!.stateOf]).toEqual([0, 1, 2, 2])
    expect([...batch!.targets]).toEqual([3, 5, 7, 8])
  })

  test('within the limit; a row that is longer goes alone; no targets, no row', () => {
    const ids = (first: number, length: number) => Array.from({ length }, (_, index) => first * 100 + index)
    const sequences = [row(ids(1, 30), 29), row(ids(2, 9)), row(ids(3, 5), 4), row(ids(4, 5), 4)]
    const batches = microBatches(sequences, upTo(10))
    expect(batches.map(({ members }) => members)).toEqual([[0], [2, 3]])
    expect(microBatches(sequences, upTo(6)).map(({ members }) => members)).toEqual([[0], [2], [3]])
    expect(microBatches([row([1, 2])], upTo(6))).toEqual([])
  })

  test('every target is predicted from exactly what precedes it', () => {
    const random = seedrandom('batching')
    for (let trial = 0; trial < 30; trial += 1) {
      const sequences = Array.from({ length: 40 }, () => {
        const ids = Array.from({ length: 2 + Math.floor(random() * 9) }, () => Math.floor(random() * 3))
        return row(ids, ...[...ids.keys()].filter((position) => position > 0 && random() < 0.4))
      })
      const seen = new Set<number>()
      for (const batch of microBatches(sequences, upTo(40))) {
        const { P, T } = batch.shape
        const states = [...batch.prefixStates, ...batch.rowStates]
        let target = 0
        for (const member of batch.members) {
          seen.add(member)
          for (const position of sequences[member]!.positions) {
            const number = batch.stateOf[target]!
            const inPrefix = number < batch.prefixStates.length
            const at = states[number]!
            const b = Math.floor(at / T)
            const g = inPrefix ? Math.floor(at / P) : batch.prefixOf[b]!
            const prefix = [
              ...batch.prefixIds.subarray(g * P, g * P + (inPrefix ? (at % P) + 1 : batch.prefixLengths[g]!)),
            ]
            const own = inPrefix ? [] : [...batch.ids.subarray(b * T, at + 1)]
            expect([...prefix, ...own]).toEqual(sequences[member]!.ids.slice(0, position))
            expect(batch.targets[target]).toBe(sequences[member]!.ids[position])
            target += 1
          }
        }
      }
      expect([...seen].sort((a, b) => a - b)).toEqual(
        [...sequences.keys()].filter((index) => sequences[index]!.positions.length > 0),
      )
    }
  })
})

test('padding stays below a quarter on lengths as in rollouts', () => {
  // Quartiles of a training step's rows on the miniature data set: 27, 47, 72 and 187 tokens, prompts of 27 to 47.
  const random = seedrandom('padding')
  const sequences = Array.from({ length: 128 }, (_, index) => {
    const question = Math.floor(index / 8)
    const prompt = Array.from({ length: 27 + (question % 21) }, (_, t) => 1000 * question + t)
    const length = Math.floor(40 * random() ** 2 * 3.5)
    const ids = [...prompt, ...Array.from({ length: 3 + length }, () => Math.floor(random() * 300))]
    return row(ids, prompt.length, ids.length - 1)
  })
  for (const tokens of [512, 2048, 8192]) {
    const share = paddingShare(microBatches(sequences, upTo(tokens)))
    expect(share).toBeGreaterThan(0)
    expect(share, `${tokens} tokens`).toBeLessThan(0.25)
  }
})
