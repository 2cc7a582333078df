/** Stores that were begun before a column existed: readable, and never mixed with what is stored today. */
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import { open } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Data, DataType, Field, List, makeData, RecordBatch, Schema, Struct } from 'apache-arrow'
import { afterAll, expect, test } from 'vitest'
import { batchMessage, decodeBatch, endOfStream, readFrames, schemaMessage } from '../../src/trajectory/frames.ts'
import { readTrajectories } from '../../src/trajectory/read.ts'
import type { TrajectoryRow } from '../../src/trajectory/schema.ts'
import { openStore } from '../../src/trajectory/store.ts'
import { usageOf } from '../rollout/scripted.ts'
import { madeGroup } from './groups.ts'

const root = mkdtempSync(join(tmpdir(), 'earlier-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))

/** Rewrites a store as if the columns that `keep` refuses had never been thought of. */
async function without(directory: string, keep: (path: string) => boolean): Promise<void> {
  const path = join(directory, 'trajectories.arrows')
  const file = await open(path)
  const messages: Uint8Array[] = []
  let schema: Uint8Array | null = null
  for await (const { kind, bytes } of readFrames(file)) {
    if (kind === 'schema') {
      schema = bytes
      continue
    }
    const batch = decodeBatch(schema!, bytes)
    const data = strip(batch.data, '', keep) as Data<Struct>
    const earlier = new Schema(data.type.children, batch.schema.metadata)
    if (messages.length === 0) messages.push(schemaMessage(earlier))
    messages.push(batchMessage(new RecordBatch(earlier, data)))
  }
  await file.close()
  writeFileSync(`${path}.new`, Buffer.concat([...messages, endOfStream]))
  renameSync(`${path}.new`, path)
}

function strip(data: Data, path: string, keep: (path: string) => boolean): Data {
  const { type, length, nullCount } = data
  if (DataType.isList(type)) {
    const child = strip(data.children[0]!, path, keep)
    const item = new List(new Field('item', child.type, false))
    return makeData({ type: item, length, nullCount, valueOffsets: data.valueOffsets as Int32Array, child })
  }
  if (!DataType.isStruct(type)) return data
  const kept = type.children
    .map((field, index) => ({ field, data: data.children[index]!, path: path ? `${path}.${field.name}` : field.name }))
    .filter((child) => keep(child.path))
    .map((child) => ({ field: child.field, data: strip(child.data, child.path, keep) }))
  const fields = kept.map(({ field, data: { type } }) => new Field(field.name, type, field.nullable, field.metadata))
  return makeData({ type: new Struct(fields), length, nullCount, children: kept.map((child) => child.data) })
}

async function stored(name: string): Promise<string> {
  const directory = join(root, name)
  const store = await openStore(directory, { resume: false })
  if (!store.ok) throw new Error(store.failure.message)
  await store.value.append([madeGroup(0, 1), madeGroup(0, 2)])
  await store.value.close()
  return directory
}

async function rowsOf(directory: string): Promise<TrajectoryRow[]> {
  const read = await readTrajectories(directory)
  if (!read.ok) throw new Error(read.failure.message)
  const rows: TrajectoryRow[] = []
  for await (const row of read.value) rows.push(row)
  return rows
}

test('a store from before pictures were recorded is read, without pictures', async () => {
  const directory = await stored('pictures')
  const today = await rowsOf(directory)
  expect(today[0]?.turns[2]?.frames[1]?.picture).toEqual({
    path: '/videos/e1.mp4',
    at: 61.5,
    width: 384,
    hash: 'f00d',
  })
  await without(directory, (path) => !/^turns\.frames\.(path|at|width|hash)$/.test(path))
  const earlier = await rowsOf(directory)
  expect(earlier[0]?.turns[2]?.frames).toEqual([
    { clipId: 'e1_seg01_clip_00', time: 0.5 },
    { clipId: 'e1_seg01_clip_01', time: 1 },
  ])
  expect(earlier.map(({ seconds, qid }) => [seconds, qid])).toEqual(today.map(({ seconds, qid }) => [seconds, qid]))
})

test('nothing is added to it, and what it has stays', async () => {
  const directory = await stored('resumed')
  await without(directory, (path) => !path.endsWith('frames.hash'))
  const before = await rowsOf(directory)
  const store = await openStore(directory, { resume: true })
  if (!store.ok) throw new Error(store.failure.message)
  expect([...store.value.groupIds]).toEqual(['0/q1', '0/q2'])
  const added = await store.value.append([madeGroup(0, 3)])
  expect(!added.ok && added.failure.message).toMatch(/was begun before turns\.frames\.hash was stored; .*go on/)
  await store.value.close()
  expect(await rowsOf(directory)).toEqual(before)
})

test('a store that lacks what it always had is no store', async () => {
  const directory = await stored('damaged')
  await without(directory, (path) => path !== 'qid')
  const read = await readTrajectories(directory)
  expect(!read.ok && read.failure.kind).toBe('bad_file')
})

test('what systems of several roles store comes back, and a store from before they were is read as it was', async () => {
  const directory = join(root, 'roles')
  const { group, scored } = madeGroup(0, 1)
  const usage = usageOf({ completionTokens: 4 })
  const several = scored.map((one) => ({
    ...one,
    categories: { duration: 'long' },
    reward: one.reward && { ...one.reward, extras: { verified: 0.3 } },
    trajectory: {
      ...one.trajectory,
      task: { ...group.task, videos: [{ id: 'video 1', role: 'reference', episode: group.task.episode }] },
      answerText: 'a mug',
      measures: { verified: 1 },
      usage: { ...one.trajectory.usage, roles: { judge: { ...usage, frozen: true } }, agents: { captioner: usage } },
      turns: [
        {
          role: 'judge',
          frozen: true as const,
          response: '{"score": 1}',
          action: { kind: 'call' as const, tool: 'captioner', query: '3 to 5' },
          wellFormed: true,
          output: { score: 1 },
          observation: 'a mug',
          failure: null,
          clipId: null,
          frames: [],
        },
        ...one.trajectory.turns,
      ],
    },
  }))
  const store = await openStore(directory, { resume: false })
  if (!store.ok) throw new Error(store.failure.message)
  await store.value.append([{ group, scored: several }])
  await store.value.close()
  const [today] = await rowsOf(directory)
  const [first] = several
  expect(today).toMatchObject({
    turns: first?.trajectory.turns,
    usage: first?.trajectory.usage,
    reward: first?.reward,
    categories: { duration: 'long' },
    measures: { verified: 1 },
    answerText: 'a mug',
    videos: ['video 1'],
  })

  const later =
    /^(turns\.(role|frozen|tool|output)|videos|categories|answer_text|measures|reward_extras|usage_roles|usage_agents)(\.|$)/
  const before = await stored('single')
  const whole = await rowsOf(before)
  await without(before, (path) => !later.test(path))
  expect(await rowsOf(before)).toEqual(whole)
})
