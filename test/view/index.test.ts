/** The index of a run: filters against a plain reading of the store, searches, a run that grows, and one that was cut back. */
import { mkdtempSync, renameSync, rmSync, statSync, truncateSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Label } from '../../src/trajectory/labels.ts'
import { readTrajectories } from '../../src/trajectory/read.ts'
import type { TrajectoryRow } from '../../src/trajectory/schema.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { type ListQuery, matching } from '../../src/view/filter.ts'
import { openRunIndex, type RunIndex } from '../../src/view/runIndex.ts'
import { Searches } from '../../src/view/search.ts'
import { type MadeRun, madeGroup, writeMadeRun } from './madeRun.ts'

const root = mkdtempSync(join(tmpdir(), 'view-index-'))
const directory = join(root, 'run')
const made: MadeRun = { trajectories: 3000, groupSize: 6, groupsPerStep: 25, reasoningWords: 12 }
let index: RunIndex
let rows: TrajectoryRow[]

beforeAll(async () => {
  await writeMadeRun(directory, made)
  index = await opened(directory)
  await index.refresh()
  rows = await rowsOf(directory)
})
afterAll(async () => {
  await index.close()
  rmSync(root, { recursive: true, force: true })
})

async function opened(run: string): Promise<RunIndex> {
  const index = await openRunIndex(run)
  if (!index.ok) throw new Error(index.failure.message)
  return index.value
}

async function rowsOf(run: string): Promise<TrajectoryRow[]> {
  const read = await readTrajectories(run)
  if (!read.ok) throw new Error(read.failure.message)
  const all: TrajectoryRow[] = []
  for await (const row of read.value) all.push(row)
  return all
}

const positionsOf = (test: (row: TrajectoryRow) => boolean) => [...rows.keys()].filter((at) => test(rows[at]!))

test.each<[ListQuery, (row: TrajectoryRow) => boolean]>([
  [{}, () => true],
  [{ outcome: 'right' }, (row) => row.correct],
  [{ outcome: 'wrong' }, (row) => !row.correct && row.reward !== null],
  [{ outcome: 'failed' }, (row) => row.reward === null],
  [{ stop: 'turn_limit', turns: 5 }, (row) => row.stopReason === 'turn_limit' && row.turns.length === 5],
  [{ kind: 'visual' }, (row) => row.kind === 'visual'],
  [{ least: 1.1 }, (row) => (row.reward?.total ?? 0) >= 1.1],
  [{ least: 0.1, most: 0.1 }, (row) => row.reward?.total === 0.1],
  [{ from: 3, to: 5, system: 'direct' }, (row) => row.step >= 3 && row.step <= 5 && row.system === 'direct'],
  [{ version: 'made@7' }, (row) => row.policyVersion === 'made@7'],
  [{ version: 'no such version' }, () => false],
])('%j finds what reading everything finds', (query, test) => {
  const expected = positionsOf(test)
  expect([...matching(index.columns, query, new Map())]).toEqual(expected)
})

test('labels filter by position', () => {
  const label = (kinds: Label['kinds']) => ({ kinds }) as Label
  const labels = new Map([
    [4, label(['vision_wrong'])],
    [9, label([])],
  ])
  const found = (query: ListQuery) => [...matching(index.columns, query, labels)]
  expect(found({ label: 'any' })).toEqual([4, 9])
  expect(found({ label: 'vision_wrong' })).toEqual([4])
  expect(found({ label: 'none' })).toHaveLength(rows.length - 2)
})

test('ids and bodies are those of the store', async () => {
  for (const at of [0, 5, 6, 1234, rows.length - 1]) {
    expect(index.idAt(at)).toBe(rows[at]!.trajectoryId)
    expect(index.positionOf(rows[at]!.trajectoryId)).toBe(at)
    expect(await index.row(at)).toEqual(rows[at])
  }
  expect(await index.group(1234)).toHaveLength(made.groupSize)
  for (const id of ['0/q0/99', '999/q0/0', 'nonsense', '']) expect(index.positionOf(id)).toBeNull()
})

test.each<[string, (row: TrajectoryRow) => boolean]>([
  ['zanzibar', (row) => row.turns.some(({ response }) => response.includes('Zanzibar'))],
  ['ÜBERMUT  zanzibar', (row) => row.turns.some(({ response }) => response.includes('Übermut'))],
  ['kite Harbour number 7', (row) => `${row.trajectoryId} ${row.question}`.includes('7')],
  ['3/q4/2', (row) => row.trajectoryId.includes('3/q4/2')],
  ['nobody-says-this', () => false],
])('searching %s finds what reading everything finds', async (text, test) => {
  const search = new Searches(index).of(text)
  await search.advance()
  expect(search.searched).toBe(index.batches)
  expect(search.found).toEqual(positionsOf(test))
})

test('a search is kept, however its words are put, and goes on where the run grew', async () => {
  const run = join(root, 'searched')
  await writeMadeRun(run, { ...made, trajectories: 600 }, { close: false })
  const index = await opened(run)
  await index.refresh()
  const searches = new Searches(index)
  const search = searches.of('Zanzibar')
  await search.advance()
  expect(search.found).toEqual([0])
  await writeMadeRun(run, { ...made, trajectories: 1206 }, { from: 100 })
  await index.refresh()
  expect(searches.of(' zanzibar ')).toBe(search)
  await search.advance()
  expect(search.found).toEqual([0, 1000])
  await index.close()
})

test('a run that grows is followed, up to its last whole batch, and closed', async () => {
  const run = join(root, 'growing')
  await writeMadeRun(run, { ...made, trajectories: 60 }, { close: false })
  // what a writer that was killed leaves behind
  truncateSync(join(run, 'trajectories.arrows.partial'), -7 + sizeOf(join(run, 'trajectories.arrows.partial')))
  const index = await opened(run)
  await index.refresh()
  expect(index.columns.length).toBe(54)
  expect(index.complete).toBe(false)
  const before = index.generation
  await writeMadeRun(run, { ...made, trajectories: 120 }, { from: 9 })
  await index.refresh()
  expect(index.columns.length).toBe(120)
  expect(index.complete).toBe(true)
  expect(index.generation).toBe(before)
  expect((await index.row(119)).trajectoryId).toBe(index.idAt(119))
  await index.close()
})

test('a run that was cut back to an earlier step is read anew, even when it is longer again', async () => {
  const run = join(root, 'cut')
  const small = { ...made, groupsPerStep: 2 }
  await writeMadeRun(run, { ...small, trajectories: 60 }, { close: false })
  const index = await opened(run)
  await index.refresh()
  const store = await openStore(run, { resume: true, dropFromStep: 2 })
  if (!store.ok) throw new Error(store.failure.message)
  // other groups than before, and more
  for (let group = 4; group < 14; group++) {
    const { group: own, scored } = madeGroup(group, { ...small, reasoningWords: 20 })
    await store.value.append([{ group: own, scored }])
  }
  await store.value.release()
  await index.refresh()
  expect(index.generation).toBe(1)
  expect(index.columns.length).toBe(14 * 6)
  expect(await index.row(80)).toEqual((await rowsOf(run))[80])
  await index.close()
})

test('a run that is gone keeps what was read, and says so', async () => {
  const run = join(root, 'gone')
  await writeMadeRun(run, { ...made, trajectories: 60 })
  const index = await opened(run)
  await index.refresh()
  renameSync(run, join(root, 'elsewhere'))
  await index.refresh()
  expect(index.failure?.kind).toBe('missing_file')
  expect(index.columns.length).toBe(60)
  await index.close()
})

test('a folder without a run is a failure', async () => {
  const opened = await openRunIndex(join(root, 'nothing'))
  expect(!opened.ok && opened.failure.message).toMatch(/expected the trajectories of a run/)
})

function sizeOf(path: string): number {
  return statSync(path).size
}
