/** Sampling on TensorFlow.js: the golden continuation, and the log-probabilities that scoring finds. */

import { afterAll, beforeAll, expect, test } from 'vitest'
import { engineOptions } from '../../src/engine/options.ts'
import type { EmbeddedPolicy } from '../../src/policy/embedded.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { goldenForward, goldenSource, scored } from './models.ts'

let policy: EmbeddedPolicy
beforeAll(async () => {
  const settings = { name: 'test', rows: 64, cacheTokens: 16_384 }
  const opened = await openPolicy(await goldenSource(), engineOptions.parse('tfjs'), settings)
  if (!opened.ok) throw new Error(opened.failure.message)
  policy = opened.value
})
afterAll(() => policy.close())

test('continues greedily as transformers does', async () => {
  const golden = goldenForward()
  const promptIds = golden.input_ids[0]!
  const sampling = { temperature: 0, maxTokens: 20, stop: [] }
  const result = await policy.generate({ messages: [], promptIds, sampling, seed: 'seed' })
  if (!result.ok) throw new Error(result.failure.message)
  expect(result.value.tokenIds).toEqual(golden.greedy_continuation_of_row_0)
})

test('rows of several lengths, turn after turn: the log-probabilities are those of the whole forward pass', async () => {
  const prompts = [4, 17, 33].map((length) => Array.from({ length }, (_, i) => 5 + ((i * 7 + length) % 40)))
  const sampling = { temperature: 1, maxTokens: 6, stop: [] }
  const turns = await Promise.all(
    prompts.map(async (prompt, index) => {
      const written: { ids: readonly number[]; from: number; logprobs: readonly number[] }[] = []
      let ids = prompt
      for (const turn of [0, 1]) {
        const request = { messages: [], promptIds: ids, sampling, seed: `${index}/${turn}`, session: `${index}` }
        const result = await policy.generate(request)
        if (!result.ok) throw new Error(result.failure.message)
        const all = [...ids, ...result.value.tokenIds!]
        written.push({ ids: all, from: ids.length, logprobs: result.value.logprobs! })
        ids = [...all, 7, 8]
      }
      return written
    }),
  )
  for (const { ids, from, logprobs } of turns.flat()) {
    const expected = await scored(policy, ids, from, 1)
    logprobs.forEach((logprob, t) => expect(Math.abs(logprob - expected[t]!)).toBeLessThan(2e-5))
  }
})
