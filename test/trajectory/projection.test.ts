/** Single columns from the bytes, against the library's decoder. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { type Message, openTable } from '../../src/trajectory/batches.ts'
import { readTrajectories } from '../../src/trajectory/read.ts'
import type { TrajectoryRow } from '../../src/trajectory/schema.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { madeGroup } from './groups.ts'

const root = mkdtempSync(join(tmpdir(), 'projection-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

test('columns read alone are those of the decoded rows, at any alignment', async () => {
  const directory = join(root, 'run')
  const store = await openStore(directory, { resume: false })
  if (!store.ok) throw new Error(store.failure.message)
  await store.value.append(Array.from({ length: 4 }, (_, index) => madeGroup(index, index, 1 + index * 4)))
  await store.value.close()

  const read = await readTrajectories(directory)
  const table = await openTable(directory, 'trajectories')
  if (!read.ok || !table.ok) throw new Error('the store is not readable')
  const rows: TrajectoryRow[] = []
  for await (const row of read.value) rows.push(row)
  const messages: Message[] = []
  for await (const message of table.value.messages(0)) messages.push(message)
  await table.value.close()

  for (const shift of [0, 3]) {
    const seen = messages.flatMap(({ bytes }) => {
      const shifted = new Uint8Array(bytes.length + 8).subarray(shift, shift + bytes.length)
      shifted.set(bytes)
      const batch = table.value.layout.open(shifted)
      const [reward, deadline, correct] = [
        batch.numbers('reward_total'),
        batch.numbers('deadline_seconds'),
        batch.flags('correct'),
      ]
      const [ids, kinds, options, responses] = ['trajectory_id', 'kind', 'options', 'turns.response'].map((name) =>
        batch.texts(name),
      )
      const [optionEnds, turnEnds] = [batch.offsets('options'), batch.offsets('turns')]
      return Array.from({ length: batch.rows }, (_, row) => ({
        id: ids!.at(row),
        step: batch.integers('step')[row],
        sample: batch.integers('sample')[row],
        reward: reward(row),
        deadline: deadline(row),
        correct: correct(row),
        kind: kinds!.at(row),
        options: options!.between(optionEnds[row]!, optionEnds[row + 1]!),
        turns: Array.from({ length: turnEnds[row + 1]! - turnEnds[row]! }, (_, turn) =>
          responses!.at(turnEnds[row]! + turn),
        ),
      }))
    })
    expect(seen).toEqual(
      rows.map((row) => ({
        id: row.trajectoryId,
        step: row.step,
        sample: row.sample,
        reward: row.reward?.total ?? Number.NaN,
        deadline: row.budget.deadlineSeconds,
        correct: row.correct,
        kind: row.kind ?? '',
        options: row.options.join(''),
        turns: row.turns.map(({ response }) => response),
      })),
    )
  }
})

test('a column that the table has not is a mistake of the caller', async () => {
  const table = await openTable(join(root, 'run'), 'segments')
  if (!table.ok) throw new Error(table.failure.message)
  expect(() => table.value.layout.at('question')).toThrow('no column question')
  await table.value.close()
})
