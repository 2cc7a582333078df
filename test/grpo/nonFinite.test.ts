/** NaN and infinity in the middle of an update, with the real engine: nothing changes, and the rows that cause it are named. */

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { culprits, firstNonFinite, NonFiniteError } from '../../src/grpo/nonFinite.ts'
import type { GrpoOptions } from '../../src/grpo/options.ts'
import { grpoOptions } from '../../src/grpo/options.ts'
import type { PolicyRow } from '../../src/grpo/rows.ts'
import type { Trainer } from '../../src/grpo/trainer.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import { randomWeights, smallDecoder } from './fixture.ts'

const config = smallDecoder()
const ROWS = 7

let device: Device
let trainer: Trainer
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
  trainer = await openTrainer(device, config)
})
afterAll(async () => {
  await trainer.close()
  await device.close()
})
beforeEach(() => trainer.load({ weights: randomWeights(config, 'non-finite') }))

/** Rows whose recorded log-probabilities are the policy's own; `changed` overwrites one of them. */
async function rows(changed: Record<number, (row: PolicyRow) => Partial<PolicyRow>> = {}): Promise<PolicyRow[]> {
  const ids = Array.from({ length: ROWS }, (_, row) => [1, 2, 3, ...[5, 7, 11].map((step) => (row * step) % 23)])
  const positions = [3, 4, 5]
  const scored = await trainer.score(
    ids.map((of) => ({ ids: of, positions })),
    { temperature: 1, weights: 'policy', microBatchTokens: 512 },
  )
  return ids.map((of, index) => {
    const row: PolicyRow = {
      ids: of,
      actionMask: [0, 0, 0, 1, 1, 1],
      logprobs: [0, 0, 0, ...scored[index]!],
      advantage: index % 2 === 0 ? 1 : -1,
      value: null,
    }
    return { ...row, ...changed[index]?.(row) }
  })
}

/** What the update stops with; the weights and the optimizer must be as before. */
async function stopOf(batch: readonly PolicyRow[], overrides: Partial<GrpoOptions> = {}): Promise<NonFiniteError> {
  const before = await trainer.save()
  const options = grpoOptions.parse({ microBatchTokens: 24, ...overrides })
  const error = await updatePolicy(trainer, batch, options, { temperature: 1, totalSteps: 1 }).then(
    () => null,
    (thrown: unknown) => thrown,
  )
  expect(error).toBeInstanceOf(NonFiniteError)
  const after = await trainer.save()
  expect(after.step).toBe(before.step)
  for (const [name, { data }] of before.weights) expect(after.weights.get(name)?.data, name).toEqual(data)
  // No gradient of it is left over for the next step.
  expect((await device.names()).filter((name) => name.startsWith('gradient/'))).toEqual([])
  return error as NonFiniteError
}

const oldLogprob = (value: number) => (row: PolicyRow) => ({ logprobs: row.logprobs!.with(4, value) })

describe('an update stops', () => {
  test('at an infinite advantage: one row', async () => {
    const error = await stopOf(await rows({ 4: () => ({ advantage: Number.POSITIVE_INFINITY }) }))
    expect(error.tensor).toBe('loss')
    expect(error.evidence?.indices).toEqual([4])
    expect(error.message).toMatch(
      /loss is not finite at optimizer step 0, row 4 of the batch; the weights were not changed/,
    )
  })

  test('at ratios that overflow in the loss: both rows', async () => {
    const error = await stopOf(await rows({ 1: oldLogprob(-1000), 5: oldLogprob(-2000) }))
    expect(error.tensor).toBe('loss')
    expect(error.evidence?.indices).toEqual([1, 5])
  })

  test('at a ratio whose loss is clipped but whose gradient is not a number', async () => {
    const error = await stopOf(await rows({ 2: oldLogprob(-1000) }))
    expect(error.tensor).toMatch(/^gradient of model\./)
    expect(error.evidence?.indices).toEqual([2])
  })

  test('at a NaN among the weights: the rows that read it', async () => {
    const weights = randomWeights(config, 'non-finite')
    weights.get('model.layers.1.mlp.up_proj.weight')!.data[3] = Number.NaN
    await trainer.load({ weights })
    const batch = (await rowsOf(randomWeights(config, 'non-finite'), weights)) as PolicyRow[]
    const error = await stopOf(batch)
    expect(error.tensor).toBe('logprobs')
    expect(error.evidence?.indices).toEqual([0, 1, 2, 3, 4, 5, 6])
  })

  test('at a recorded log-probability that is NaN', async () => {
    const error = await stopOf(await rows({ 6: oldLogprob(Number.NaN) }))
    expect(error.tensor).toBe('oldLogprobs')
    expect(error.evidence?.indices).toEqual([6])
  })

  test('while scoring, before anything is updated', async () => {
    const batch = await rows()
    const weights = randomWeights(config, 'non-finite')
    weights.get('model.norm.weight')!.data[0] = Number.POSITIVE_INFINITY
    await trainer.load({ weights })
    const error = await stopOf(batch, { oldLogprobs: 'recomputed' })
    expect(error.tensor).toBe('logprobs')
    expect(error.evidence?.phase).toBe('score')
    expect(error.evidence?.indices).toHaveLength(ROWS)
  })
})

/** Rows scored with sound weights, then the damaged ones loaded. */
async function rowsOf(sound: ReturnType<typeof randomWeights>, damaged: ReturnType<typeof randomWeights>) {
  await trainer.load({ weights: sound })
  const batch = await rows()
  await trainer.load({ weights: damaged })
  return batch
}

test('the evidence replays: the same tensor, and none when what was wrong is set right', async () => {
  const { evidence } = await stopOf(await rows({ 4: oldLogprob(-1000) }))
  if (evidence?.phase !== 'update') throw new Error('expected evidence of an update')
  expect(await firstNonFinite(trainer, evidence, 512)).toMatch(/^gradient of/)
  const [row] = evidence.rows
  const mended = { ...evidence, rows: [{ ...row!, oldLogprobs: [-3, -3, -3] }] }
  expect(await firstNonFinite(trainer, mended, 512)).toBeNull()
  const damaged = { ...evidence, rows: [{ ...row!, advantage: Number.NaN }] }
  expect(await firstNonFinite(trainer, damaged, 512)).toBe('advantage')
})

describe('culprits', () => {
  const search = async (count: number, bad: (indices: readonly number[]) => boolean) => {
    let asked = 0
    const found = await culprits([...Array(count).keys()], async (indices) => {
      asked += 1
      return bad(indices)
    })
    return { found, asked }
  }

  test('one of many is found in few runs', async () => {
    const { found, asked } = await search(128, (indices) => indices.includes(77))
    expect(found).toEqual([77])
    expect(asked).toBeLessThanOrEqual(15)
  })

  test('several, all, none, and a sum that no half reproduces', async () => {
    expect((await search(10, (indices) => indices.includes(1) || indices.includes(8))).found).toEqual([1, 8])
    expect((await search(3, () => true)).found).toEqual([0, 1, 2])
    expect((await search(3, () => false)).found).toEqual([])
    expect((await search(4, (indices) => indices.length > 2)).found).toEqual([0, 1, 2, 3])
  })
})
