/** The store: there and back, killed in the middle, cut anywhere, out of room. */
import { type ChildProcess, spawn } from 'node:child_process'
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { RecordBatchReader, tableFromIPC } from 'apache-arrow'
import { afterAll, expect, test } from 'vitest'
import { readSegments, readTrajectories } from '../../src/trajectory/read.ts'
import type { SegmentRow, TrajectoryRow } from '../../src/trajectory/schema.ts'
import { openStore, type Store } from '../../src/trajectory/store.ts'
import type { Result } from '../../src/types.ts'
import { madeGroup } from './groups.ts'

const root = mkdtempSync(join(tmpdir(), 'store-'))
let directories = 0
const fresh = (): string => join(root, `run${directories++}`)
afterAll(() => rmSync(root, { recursive: true, force: true }))

function must<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

async function collect<Row>(rows: Promise<Result<AsyncIterable<Row>>>): Promise<Row[]> {
  const all: Row[] = []
  for await (const row of must(await rows)) all.push(row)
  return all
}

/** Group ids in both tables, in order, and that each group is whole. */
async function storedGroups(directory: string): Promise<string[]> {
  const trajectories: TrajectoryRow[] = await collect(readTrajectories(directory))
  const segments: SegmentRow[] = await collect(readSegments(directory))
  const ids = [...new Set(trajectories.map(({ groupId }) => groupId))]
  expect(trajectories.map(({ trajectoryId }) => trajectoryId)).toHaveLength(
    new Set(trajectories.map(({ trajectoryId }) => trajectoryId)).size,
  )
  expect([...new Set(segments.map(({ groupId }) => groupId))]).toEqual(ids)
  for (const { trajectoryId, segmentCount } of trajectories)
    expect(segments.filter((segment) => segment.trajectoryId === trajectoryId).map(({ index }) => index)).toEqual([
      ...Array(segmentCount).keys(),
    ])
  return ids
}

async function storeOf(directory: string, count: number): Promise<Store> {
  const store = must(await openStore(directory, { resume: false }))
  for (let index = 0; index < count; index++) must(await store.append([madeGroup(0, index)]))
  return store
}

/** What a crash leaves of a store of `count` groups: partial files without an end. */
async function crashedStore(directory: string, count: number): Promise<void> {
  must(await (await storeOf(directory, count)).close())
  for (const name of ['trajectories', 'segments']) {
    const path = join(directory, `${name}.arrows`)
    truncateSync(path, statSync(path).size - 8)
    renameSync(path, `${path}.partial`)
  }
}

test('what is stored comes back, field by field', async () => {
  const directory = fresh()
  const store = must(await openStore(directory, { resume: false }))
  const groups = [madeGroup(2, 1), madeGroup(2, 4)]
  must(
    await store.append(groups, [
      [0.5, -0.5, null],
      [1, 2, 3],
    ]),
  )
  must(await store.close())
  expect(readdirSync(directory).sort()).toEqual(['segments.arrows', 'trajectories.arrows'])

  const rows = await collect(readTrajectories(directory))
  const scored = groups.flatMap((group) => group.scored)
  expect(rows).toHaveLength(6)
  expect(rows.map(({ advantage }) => advantage)).toEqual([0.5, -0.5, null, 1, 2, 3])
  for (const [index, row] of rows.entries()) {
    const { trajectory, reward, correct, grounded, kind } = scored[index]!
    const {
      step,
      sample,
      seed,
      system,
      policyVersion,
      budget,
      turns,
      answer,
      visited,
      stopReason,
      failure,
      usage,
      seconds,
    } = trajectory
    expect(row).toEqual({
      step,
      groupId: `2/${trajectory.task.question.qid}`,
      trajectoryId: trajectory.id,
      sample,
      seed,
      system,
      policyVersion,
      show: 'test',
      episodeId: 'e1',
      qid: trajectory.task.question.qid,
      question: trajectory.task.question.text,
      options: trajectory.task.question.options,
      kind,
      budget,
      turns,
      answer,
      correct,
      grounded,
      visited,
      stopReason,
      failure,
      reward,
      advantage: row.advantage,
      sampledTokens: trajectory.segments.flatMap(({ actionMask }) => actionMask).filter((bit) => bit === 1).length,
      segmentCount: trajectory.segments.length,
      usage,
      seconds,
    })
  }

  const segments = await collect(readSegments(directory))
  expect(segments.map(({ step, groupId, trajectoryId, index, ...segment }) => segment)).toEqual(
    scored.flatMap(({ trajectory }) => trajectory.segments),
  )
  expect(segments.map(({ trajectoryId, index }) => `${trajectoryId}#${index}`)).toEqual(
    scored.flatMap(({ trajectory }) => trajectory.segments.map((_, index) => `${trajectory.id}#${index}`)),
  )
})

test("the library's own reader reads the files, a batch per group, with the meaning of every column", async () => {
  const directory = fresh()
  must(await (await storeOf(directory, 3)).close())
  for (const name of ['trajectories', 'segments']) {
    const bytes = readFileSync(join(directory, `${name}.arrows`))
    expect([...RecordBatchReader.from(bytes)]).toHaveLength(3)
    const { schema } = tableFromIPC(bytes)
    expect(schema.fields.filter(({ metadata }) => (metadata.get('description') ?? '') === '')).toEqual([])
  }
})

test('groups without segments (a policy in text only) have an empty batch, and stay in step', async () => {
  const directory = fresh()
  const store = must(await openStore(directory, { resume: false }))
  const bare = madeGroup(0, 0)
  for (const { trajectory } of bare.scored) Object.assign(trajectory, { segments: [] })
  must(await store.append([bare, madeGroup(0, 1)]))
  expect(await collect(readTrajectories(directory))).toHaveLength(6)
  expect((await collect(readSegments(directory))).every(({ groupId }) => groupId === '0/q1')).toBe(true)
  must(await store.close())
  const again = must(await openStore(directory, { resume: true }))
  expect([...again.groupIds]).toEqual(['0/q0', '0/q1'])
  await again.close()
})

test('a store can be read while it is written', async () => {
  const directory = fresh()
  const store = await storeOf(directory, 2)
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1'])
  must(await store.append([madeGroup(0, 2)]))
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1', '0/q2'])
  await store.close()
})

test('an earlier run is never written over', async () => {
  const directory = fresh()
  const store = await storeOf(directory, 1)
  const refused = {
    ok: false,
    failure: { boundary: 'store', kind: 'bad_file', message: expect.stringContaining('--resume') },
  }
  expect(await openStore(directory, { resume: false })).toMatchObject(refused)
  await store.close()
  expect(await openStore(directory, { resume: false })).toMatchObject(refused)
  expect(await storedGroups(directory)).toEqual(['0/q0'])
})

test('a closed store is continued, too', async () => {
  const directory = fresh()
  must(await (await storeOf(directory, 2)).close())
  const store = must(await openStore(directory, { resume: true }))
  expect([...store.groupIds]).toEqual(['0/q0', '0/q1'])
  must(await store.append([madeGroup(0, 2)]))
  must(await store.close())
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1', '0/q2'])
  expect(tableFromIPC(readFileSync(join(directory, 'trajectories.arrows'))).numRows).toBe(9)
})

test('nothing is stored twice', async () => {
  const store = await storeOf(fresh(), 1)
  await expect(store.append([madeGroup(0, 0)])).rejects.toThrow('group 0/q0 is already stored')
  await store.close()
})

test('lengths that do not agree are refused before anything is written', async () => {
  const directory = fresh()
  const store = await storeOf(directory, 1)
  const broken = madeGroup(0, 1)
  Object.assign(broken.scored[0]!.trajectory.segments[0]!, { logprobs: [-1] })
  await expect(store.append([broken])).rejects.toThrow('log-probabilities')
  await expect(store.append([madeGroup(0, 2)], [[1]])).rejects.toThrow('3 trajectories and 1 advantages')
  must(await store.append([madeGroup(0, 3)]))
  await store.close()
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q3'])
})

test('concurrent appends take turns', async () => {
  const directory = fresh()
  const store = await storeOf(directory, 0)
  for (const result of await Promise.all([1, 2, 3].map((index) => store.append([madeGroup(0, index)])))) must(result)
  await store.close()
  expect(await storedGroups(directory)).toEqual(['0/q1', '0/q2', '0/q3'])
})

test('training that starts over from a step drops what came after it', async () => {
  const directory = fresh()
  const store = must(await openStore(directory, { resume: false }))
  for (const step of [0, 1, 2]) must(await store.append([madeGroup(step, 0), madeGroup(step, 1)]))
  await store.close()
  const again = must(await openStore(directory, { resume: true, dropFromStep: 1 }))
  expect([...again.groupIds]).toEqual(['0/q0', '0/q1'])
  must(await again.append([madeGroup(1, 0)]))
  await again.close()
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1', '1/q0'])
})

test('cut anywhere, in either file: readable up to the last whole batch, and resumable with each group in both or in neither', async () => {
  const whole = fresh()
  const store = await storeOf(whole, 3)
  const sizes = { trajectories: 0, segments: 0 }
  for (const name of ['trajectories', 'segments'] as const)
    sizes[name] = statSync(join(whole, `${name}.arrows.partial`)).size
  must(await store.append([madeGroup(0, 3)]))
  await store.close()

  for (const torn of ['trajectories', 'segments'] as const) {
    const path = join(whole, `${torn}.arrows`)
    const end = statSync(path).size - 8
    const last = end - sizes[torn]
    for (const cut of [
      sizes[torn],
      sizes[torn] + 1,
      sizes[torn] + 4,
      sizes[torn] + 8,
      sizes[torn] + Math.floor(last / 2),
      end - 1,
      end,
      end + 3,
    ]) {
      const directory = fresh()
      mkdirSync(directory)
      for (const name of ['trajectories', 'segments'])
        copyFileSync(join(whole, `${name}.arrows`), join(directory, `${name}.arrows`))
      truncateSync(join(directory, `${torn}.arrows`), cut)
      const expected = cut >= end ? ['0/q0', '0/q1', '0/q2', '0/q3'] : ['0/q0', '0/q1', '0/q2']
      expect([
        ...new Set(
          (
            await collect<TrajectoryRow | SegmentRow>(
              torn === 'trajectories' ? readTrajectories(directory) : readSegments(directory),
            )
          ).map(({ groupId }) => groupId),
        ),
      ]).toEqual(expected)
      const resumed = must(await openStore(directory, { resume: true }))
      expect([...resumed.groupIds]).toEqual(expected)
      must(await resumed.append([madeGroup(0, 9)]))
      must(await resumed.close())
      expect(await storedGroups(directory)).toEqual([...expected, '0/q9'])
    }
  }
})

test('zeros after the last whole batch, as a power cut leaves them, are cut off', async () => {
  const directory = fresh()
  await crashedStore(directory, 2)
  const path = join(directory, 'trajectories.arrows.partial')
  writeFileSync(path, Buffer.concat([readFileSync(path), Buffer.alloc(5000)]))
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1'])
  const resumed = must(await openStore(directory, { resume: true }))
  must(await resumed.append([madeGroup(0, 2)]))
  must(await resumed.close())
  expect(await storedGroups(directory)).toEqual(['0/q0', '0/q1', '0/q2'])
})

test('a crash before the schema was whole, or before the second file existed, is no loss', async () => {
  for (const damage of ['empty', 'half', 'absent']) {
    const directory = fresh()
    await crashedStore(directory, 0)
    const path = join(directory, 'trajectories.arrows.partial')
    if (damage === 'absent') rmSync(path)
    else truncateSync(path, damage === 'empty' ? 0 : 100)
    const resumed = must(await openStore(directory, { resume: true }))
    must(await resumed.append([madeGroup(0, 0)]))
    must(await resumed.close())
    expect(await storedGroups(directory)).toEqual(['0/q0'])
  }
})

test('damage that cutting would make worse is refused, and nothing is touched', async () => {
  const directory = fresh()
  await (await storeOf(directory, 3)).close()
  const [trajectories, segments] = [join(directory, 'trajectories.arrows'), join(directory, 'segments.arrows')]
  const kept = readFileSync(segments)

  truncateSync(segments, 2000)
  const sizes = [statSync(trajectories).size, 2000]
  expect(await openStore(directory, { resume: true })).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file', message: expect.stringContaining('found 3 and') },
  })
  expect([statSync(`${trajectories}.partial`).size, statSync(`${segments}.partial`).size]).toEqual(sizes)

  rmSync(`${segments}.partial`)
  for (let attempt = 0; attempt < 2; attempt++)
    expect(await openStore(directory, { resume: true })).toMatchObject({
      ok: false,
      failure: { kind: 'missing_file', message: expect.stringContaining('segments.arrows') },
    })

  writeFileSync(segments, kept)
  const resumed = must(await openStore(directory, { resume: true }))
  expect(resumed.groupIds.size).toBe(3)
  await resumed.close()
})

test('a file that is no store: one line that names it', async () => {
  const directory = fresh()
  await (await storeOf(directory, 1)).close()
  writeFileSync(join(directory, 'trajectories.arrows'), 'these are notes, not Arrow')
  const named = {
    ok: false,
    failure: {
      boundary: 'store',
      kind: 'bad_file',
      message: expect.stringMatching(/^[^\n]*trajectories\.arrows[^\n]*$/),
    },
  }
  expect(await readTrajectories(directory)).toMatchObject(named)
  expect(await openStore(directory, { resume: true })).toMatchObject(named)
  expect(readFileSync(join(directory, 'trajectories.arrows.partial'), 'utf8')).toBe('these are notes, not Arrow')
  expect(await readSegments(join(directory, 'nowhere'))).toMatchObject({
    ok: false,
    failure: { kind: 'missing_file', message: expect.stringContaining('nowhere') },
  })
})

test('a directory that cannot be made is a failure', async () => {
  const file = join(root, 'a-file')
  writeFileSync(file, '')
  expect(await openStore(join(file, 'run'), { resume: false })).toMatchObject({
    ok: false,
    failure: { boundary: 'store' },
  })
})

/** Runs the appending child; `seen` collects its lines. */
function startChild(
  directory: string,
  count: number,
  size: number,
  limitKiB?: number,
): { child: ChildProcess; seen: string[]; ended: Promise<void> } {
  const script = [
    process.execPath,
    '--import',
    'tsx',
    join(import.meta.dirname, 'appendingChild.ts'),
    directory,
    String(count),
    String(size),
  ]
  const child =
    limitKiB === undefined
      ? spawn(script[0]!, script.slice(1))
      : spawn('bash', ['-c', `ulimit -f ${limitKiB}; exec "$@"`, 'bash', ...script])
  const seen: string[] = []
  createInterface({ input: child.stdout! }).on('line', (line) => void seen.push(line))
  let errors = ''
  child.stderr!.on('data', (data) => (errors += data))
  const ended = new Promise<void>((resolve, reject) =>
    child.on('close', (code, signal) => (code === 0 || signal === 'SIGKILL' ? resolve() : reject(new Error(errors)))),
  )
  return { child, seen, ended }
}

const storedIn = (seen: readonly string[]): string[] =>
  seen.filter((line) => line.startsWith('stored ')).map((line) => line.slice('stored '.length))

test('kill -9 in the middle of appending, again and again: nothing reported as stored is lost, nothing is there twice', async () => {
  const directory = fresh()
  const reported = new Set<string>()
  for (let kill = 0; kill < 3; kill++) {
    const { child, seen, ended } = startChild(directory, 100_000, 8)
    while (storedIn(seen).length < 8 + 7 * kill) await new Promise((resolve) => setTimeout(resolve, 1))
    child.kill('SIGKILL')
    await ended
    for (const id of storedIn(seen)) {
      expect(reported.has(id)).toBe(false)
      reported.add(id)
    }
    // readable as it lies
    const readable = new Set((await collect(readTrajectories(directory))).map(({ groupId }) => groupId))
    expect([...reported].filter((id) => !readable.has(id))).toEqual([])
    const resumed = must(await openStore(directory, { resume: true }))
    expect([...reported].filter((id) => !resumed.groupIds.has(id))).toEqual([])
    expect(resumed.groupIds.size - reported.size).toBeLessThanOrEqual(1) // stored, and killed before saying so
    for (const id of resumed.groupIds) reported.add(id)
    await resumed.close()
    expect(await storedGroups(directory)).toEqual([...resumed.groupIds])
  }
  expect(reported.size).toBeGreaterThan(40)
}, 60_000)

test.skipIf(process.platform === 'win32')(
  'out of room in the middle of a write: a failure, what was stored is whole, and the run goes on when there is room',
  async () => {
    const directory = fresh()
    const { seen, ended } = startChild(directory, 1000, 8, 300)
    await ended
    expect(seen.at(-1)).toMatch(/^failure .*"kind":"disk_full"/)
    const stored = storedIn(seen)
    expect(stored.length).toBeGreaterThan(5)
    expect(await storedGroups(directory)).toEqual(stored)
    const more = startChild(directory, stored.length + 3, 8)
    await more.ended
    expect(more.seen.at(-1)).toBe('closed')
    expect(await storedGroups(directory)).toEqual(
      Array.from({ length: stored.length + 3 }, (_, index) => `0/q${index}`),
    )
  },
  30_000,
)

test.skipIf(!existsSync('/dev/full'))('a device that is always full: the message says what to do', async () => {
  const full = fresh()
  mkdirSync(full)
  for (const name of ['segments', 'trajectories']) symlinkSync('/dev/full', join(full, `${name}.arrows.partial`))
  expect(await openStore(full, { resume: true })).toMatchObject({
    ok: false,
    failure: { boundary: 'store', kind: 'disk_full', message: expect.stringContaining('make room') },
  })
})

test('what was found while its store was open is read after the store was closed, which renames the files', async () => {
  const directory = fresh()
  const store = await storeOf(directory, 2)
  const trajectories = must(await readTrajectories(directory))
  must(await store.close())
  const ids: string[] = []
  for await (const { groupId } of trajectories) ids.push(groupId)
  expect([...new Set(ids)]).toHaveLength(2)
})
