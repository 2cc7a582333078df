/** What the policy's sampler records is what the trainer computes: on the first update every ratio is 1. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import { tokenRatio } from '../../src/grpo/ratio.ts'
import type { PolicyRow } from '../../src/grpo/rows.ts'
import type { Trainer } from '../../src/grpo/trainer.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import type { EmbeddedPolicy } from '../../src/policy/embedded.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { goldenSource } from '../policy/models.ts'

const OBSERVATION = [40, 41, 42, 43, 44]
const options = grpoOptions.parse({ learningRate: 1e-3 })

let policy: EmbeddedPolicy
let trainer: Trainer
let source: Awaited<ReturnType<typeof goldenSource>>
beforeAll(async () => {
  source = await goldenSource()
  const opened = await openPolicy(source, engineOptions.parse({}), { name: 'sampled', rows: 8, cacheTokens: 256 })
  if (!opened.ok) throw new Error(opened.failure.message)
  policy = opened.value
  trainer = await openTrainer(policy.device, policy.config)
})
beforeEach(async () => {
  await trainer.load({ weights: new Map(source.weights) })
  policy.bumpVersion(0)
})
afterAll(async () => {
  await trainer.close()
  await policy.close()
})

/** Eight conversations at once, of two turns with an observation between them; the second turn continues from the kept cache. */
async function rollouts(temperature: number, seed: string): Promise<PolicyRow[]> {
  return Promise.all(
    Array.from({ length: 8 }, async (_, index): Promise<PolicyRow> => {
      const session = `${seed}/${index}`
      const row = {
        ids: [20 + (index % 2), 50, 60 + index, 70],
        actionMask: [0, 0, 0, 0] as (0 | 1)[],
        logprobs: [0, 0, 0, 0],
      }
      for (const maxTokens of [6 + index, 9]) {
        const answer = await policy.generate({
          messages: [],
          promptIds: row.ids,
          sampling: { temperature, maxTokens, stop: [] },
          seed: `${session}/${maxTokens}`,
          session,
        })
        if (!answer.ok) throw new Error(answer.failure.message)
        const { tokenIds, logprobs } = answer.value
        row.ids = [...row.ids, ...tokenIds!, ...OBSERVATION]
        row.actionMask = [...row.actionMask, ...tokenIds!.map(() => 1 as const), ...OBSERVATION.map(() => 0 as const)]
        row.logprobs = [...row.logprobs, ...logprobs!, ...OBSERVATION.map(() => 0)]
      }
      policy.endSession(session)
      return { ...row, advantage: index % 3 === 0 ? 1 : -0.5, value: null }
    }),
  )
}

describe.each([1, 0.7, 1.5])('temperature %d', (temperature) => {
  test('every ratio is 1 within 1e-4, before an update and after one', async () => {
    for (const step of [0, 1]) {
      const rows = await rollouts(temperature, `step ${step}`)
      const sampled = rows.map(({ ids, actionMask }) => ({
        ids,
        positions: [...ids.keys()].filter((t) => actionMask[t] === 1),
      }))
      const own = await trainer.score(sampled, { temperature, weights: 'policy', microBatchTokens: 512 })
      let tokens = 0
      sampled.forEach(({ positions }, index) => {
        positions.forEach((t, place) => {
          const ratio = tokenRatio(own[index]![place]!, rows[index]!.logprobs![t]!)
          expect(Math.abs(ratio - 1), `row ${index}, token ${t}`).toBeLessThan(1e-4)
          tokens += 1
        })
      })
      expect(tokens).toBeGreaterThan(100)

      const { steps, ratioMax } = await updatePolicy(trainer, rows, options, { temperature, totalSteps: 2 })
      expect(Math.abs(ratioMax - 1)).toBeLessThan(1e-4)
      expect(Math.abs(steps[0]!.ratioMin - 1)).toBeLessThan(1e-4)
      policy.bumpVersion(step + 1)
    }
  })
})

test('trained at another temperature than it was sampled at, ratios are far from 1', async () => {
  const rows = await rollouts(0.7, 'wrong')
  const { ratioMax } = await updatePolicy(trainer, rows, options, { temperature: 1, totalSteps: 1 })
  expect(ratioMax).toBeGreaterThan(1.1)
})
