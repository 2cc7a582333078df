import { expect, test } from 'vitest'
import { loadConfig, runConfig } from '../src/config.ts'
import { batch, furtherBatch } from '../src/stepBatches.ts'
import type { ScoredGroup, Task } from '../src/types.ts'
import { tinyTask } from './rollout/scripted.ts'

const tasks = Array.from({ length: 12 }, (_, i) => tinyTask(`q${i}`))
const qids = (some: readonly Task[]) => some.map(({ question }) => question.qid)
const config = (training: object, seed = 1) => ({
  seed,
  training: runConfig.shape.training.parse({ tasksPerStep: 4, mostBatches: 3, ...training }),
})

/** A group of each task; equal rewards where it teaches nothing. */
const scored = (some: readonly Task[], teaches: (place: number) => boolean): ScoredGroup[] =>
  some.map((task, place) => {
    const totals = teaches(place) ? [0, 1] : [1, 1]
    return {
      group: { id: `0/${task.question.qid}`, step: 0, task, trajectories: [] },
      scored: totals.map((total) => ({ reward: { total, format: 0, answer: total, turnCost: 0 } })),
    } as unknown as ScoredGroup
  })

test('every task once in a pass, in an order that depends on seed and pass', () => {
  const pass = (first: number, seed = 1) => [0, 1, 2].flatMap((i) => qids(batch(tasks, config({}, seed), first + i)))
  expect(pass(0).toSorted()).toEqual(qids(tasks).toSorted())
  expect(pass(3).toSorted()).toEqual(qids(tasks).toSorted())
  expect(pass(0)).not.toEqual(pass(3))
  expect(pass(0)).not.toEqual(pass(0, 2))
})

test('a further batch makes up for groups that teach nothing, with other tasks', () => {
  const first = batch(tasks, config({}), 0)
  const two = furtherBatch(
    tasks,
    config({}),
    0,
    1,
    scored(first, (place) => place < 2),
  )
  expect(two).toHaveLength(2)
  expect(qids(two).some((qid) => qids(first).includes(qid))).toBe(false)
  expect(
    furtherBatch(
      tasks,
      config({}),
      0,
      1,
      scored(first, (place) => place < 2),
    ),
  ).toEqual(two)
  expect(
    furtherBatch(
      tasks,
      config({}),
      0,
      1,
      scored(first, () => true),
    ),
  ).toEqual([])
  // three batches were had
  expect(
    furtherBatch(
      tasks,
      config({}),
      0,
      3,
      scored(first, () => false),
    ),
  ).toEqual([])
  // no more tasks
  expect(
    furtherBatch(
      tasks,
      config({}),
      0,
      2,
      scored(tasks, () => false),
    ),
  ).toEqual([])
})

test('it is for groups that are left out', async () => {
  const overrides = ['dataset.path=d', 'policy.path=c', 'training.mostBatches=2']
  expect(await loadConfig('released-dapo', overrides)).toMatchObject({ ok: true })
  const kept = await loadConfig('released-grpo', overrides)
  expect(!kept.ok && kept.failure.message).toMatch(/training\.mostBatches: makes up for groups that are dropped: set/)
})
