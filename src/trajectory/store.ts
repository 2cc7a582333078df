/**
 * The rollout store: two uncompressed Arrow IPC streams, `trajectories.arrows` and `segments.arrows`, that grow by one record batch per
 * group and are `.partial` until the store is closed.
 *
 * After a crash both files are readable up to their last whole batch. Opening with `resume` cuts off what is torn and what only one
 * of the two has, so a group is in both or in neither; nothing that `append` reported as stored is lost, nothing is stored twice.
 * It does not lock: one process writes a store at a time.
 */
import { type FileHandle, mkdir, open, rename, stat } from 'node:fs/promises'
import type { Result, ScoredGroup } from '../types.ts'
import { failureOf, StoreError } from './failure.ts'
import { exists, finalPath, locate, partialPath, schemas, type TableName } from './files.ts'
import { batchMessage, decodeBatch, endOfStream, readFrames, schemaMessage } from './frames.ts'
import { checkSchema } from './read.ts'
import { groupOf, segmentBatch, trajectoryBatch } from './schema.ts'

export interface OpenOptions {
  /** Continue what lies in the directory; without it, a directory that holds a store is refused. */
  resume: boolean
  /** With `resume`: drop the groups of this step and later, because training starts over from there. */
  dropFromStep?: number
}

export interface Store {
  /** Ids (`{step}/{qid}`) of the groups that are stored. */
  readonly groupIds: ReadonlySet<string>
  /**
   * Stores groups, each with one write and flush per file. `advantages[g][i]` belongs to `groups[g].scored[i]`. When it fails, the groups
   * before the failing one are stored and the store can still be used. Throws on a group that is already stored.
   */
  append(groups: readonly ScoredGroup[], advantages?: readonly (readonly (number | null)[])[]): Promise<Result<void>>
  /** Ends both files and gives them their final names. */
  close(): Promise<Result<void>>
  /** Lets go of the files as they are, to be continued later; nothing to do after `close`. */
  release(): Promise<void>
}

/** Opens the store in `directory`, which is made if needed. */
export async function openStore(directory: string, { resume, dropFromStep }: OpenOptions): Promise<Result<Store>> {
  try {
    await mkdir(directory, { recursive: true })
    const found = {
      trajectories: await locate(directory, 'trajectories'),
      segments: await locate(directory, 'segments'),
    }
    if (found.trajectories === null && found.segments === null)
      return { ok: true, value: storeOver(directory, await createTables(directory), new Set()) }
    if (!resume)
      throw new StoreError(
        'bad_file',
        `${found.trajectories ?? found.segments}: expected no earlier run in ${directory}, found one; continue it with --resume or name another directory`,
      )
    await refuseHalf(directory, found)

    const trajectories = await reopenTable(directory, 'trajectories')
    const segments = await closingOnError(trajectories.table, () => reopenTable(directory, 'segments'))
    const groups = await closingOnError(trajectories.table, () =>
      closingOnError(segments.table, () => reconcile(directory, trajectories, segments, dropFromStep)),
    )
    return {
      ok: true,
      value: storeOver(directory, { trajectories: trajectories.table, segments: segments.table }, groups),
    }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `opening the store ${directory}`) }
  }
}

// ---------------------------------------------------------------- one file that grows

interface GrowingTable {
  path: string
  file: FileHandle
  /** End of the last whole message. */
  size: number
  /** Columns that are stored today and that this file was begun without; then nothing can be added to it. */
  missing: readonly string[]
}

type Tables = Record<TableName, GrowingTable>

/** Writes at the end, without flushing. After an error the caller cuts back to where it began. */
async function write(table: GrowingTable, bytes: Uint8Array): Promise<void> {
  for (let written = 0; written < bytes.length; ) {
    const { bytesWritten } = await table.file.write(bytes, written, bytes.length - written, table.size + written)
    written += bytesWritten
  }
  table.size += bytes.length
}

async function closingOnError<T>({ file }: GrowingTable, work: () => Promise<T>): Promise<T> {
  try {
    return await work()
  } catch (error) {
    await file.close()
    throw error
  }
}

async function cutTo(table: GrowingTable, size: number): Promise<void> {
  await table.file.truncate(size)
  table.size = size
}

/** Makes new files and renames in a directory survive a power cut. */
async function flushDirectory(directory: string): Promise<void> {
  const handle = await open(directory)
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}

// ---------------------------------------------------------------- opening

async function createTables(directory: string): Promise<Tables> {
  const create = async (name: TableName): Promise<GrowingTable> => {
    const path = partialPath(directory, name)
    const table = { path, file: await open(path, 'w+'), size: 0, missing: [] }
    await closingOnError(table, async () => {
      await write(table, schemaMessage(schemas[name]))
      await table.file.sync()
    })
    return table
  }
  const segments = await create('segments')
  const tables = { segments, trajectories: await closingOnError(segments, () => create('trajectories')) }
  await flushDirectory(directory)
  return tables
}

/** One file without the other is what a crash at the very beginning leaves; later on it is damage, and resuming would drop what is left. */
async function refuseHalf(directory: string, found: Record<TableName, string | null>): Promise<void> {
  for (const [missing, other] of [
    ['trajectories', 'segments'],
    ['segments', 'trajectories'],
  ] as const) {
    const path = found[other]
    if (found[missing] !== null || path === null) continue
    if ((await stat(path)).size > schemaMessage(schemas[other]).length)
      throw new StoreError(
        'missing_file',
        `${finalPath(directory, missing)}: expected it beside ${path}, which holds groups; restore it from a copy or start in another directory`,
      )
  }
}

interface ReopenedTable {
  table: GrowingTable
  /** Of every whole batch: where it ends, and, in `trajectories`, its group. */
  batches: { end: number; groupId: string; step: number }[]
  schemaEnd: number
}

/** Reopens a table under its partial name, up to its last whole batch; an absent one begins anew. Cuts nothing off yet. */
async function reopenTable(directory: string, name: TableName): Promise<ReopenedTable> {
  const path = partialPath(directory, name)
  const closed = finalPath(directory, name)
  if (await exists(closed)) {
    if (await exists(path))
      throw new StoreError(
        'bad_file',
        `${path}: expected only one of ${name}.arrows and ${name}.arrows.partial, found both; remove the one you do not want`,
      )
    await rename(closed, path)
  }
  const existed = await exists(path)
  const table: GrowingTable = { path, file: await open(path, existed ? 'r+' : 'w+'), size: 0, missing: [] }
  return closingOnError(table, async () => {
    if (await beginIfEmpty(table, schemaMessage(schemas[name]))) return { table, batches: [], schemaEnd: table.size }
    const batches: ReopenedTable['batches'] = []
    const frames = readFrames(table.file)
    const schema = await checkSchema(frames, path, name)
    table.size = schema.end
    table.missing = schema.missing
    for await (const frame of frames) {
      batches.push({
        end: frame.end,
        ...(name === 'trajectories' ? groupOf(decodeBatch(schema.bytes, frame.bytes)) : { groupId: '', step: 0 }),
      })
      table.size = frame.end
    }
    return { table, batches, schemaEnd: schema.end }
  })
}

/** Writes the schema into a file that holds nothing, or only a part of it because a crash came that early. */
async function beginIfEmpty(table: GrowingTable, schema: Uint8Array): Promise<boolean> {
  const { size } = await table.file.stat()
  if (size >= schema.length) return false
  const begun = Buffer.alloc(size)
  await table.file.read(begun, 0, size, 0)
  if (!begun.equals(schema.subarray(0, size))) return false
  await write(table, schema)
  return true
}

/** Cuts both tables to the batches they share, and to the steps before `dropFromStep`. Returns the groups that are left. */
async function reconcile(
  directory: string,
  trajectories: ReopenedTable,
  segments: ReopenedTable,
  dropFromStep: number | undefined,
): Promise<Set<string>> {
  const { batches } = trajectories
  const difference = Math.abs(batches.length - segments.batches.length)
  // Each group is flushed in both before the next is written, so a crash can leave them one apart. More is damage that cutting would make worse.
  if (difference > 1)
    throw new StoreError(
      'bad_file',
      `${directory}: expected the same groups in trajectories and segments, found ${batches.length} and ${segments.batches.length}; restore the damaged file from a copy or start in another directory`,
    )
  let keep = Math.min(batches.length, segments.batches.length)
  if (dropFromStep !== undefined) {
    const first = batches.findIndex(({ step }) => step >= dropFromStep)
    if (first >= 0 && batches.slice(first, keep).some(({ step }) => step < dropFromStep))
      throw new StoreError(
        'bad_file',
        `${directory}: expected the groups of step ${dropFromStep} and later at the end, found earlier steps after them; start in another directory`,
      )
    if (first >= 0) keep = Math.min(keep, first)
  }
  for (const { table, batches: own, schemaEnd } of [trajectories, segments]) {
    await cutTo(table, keep === 0 ? schemaEnd : (own[keep - 1]?.end ?? schemaEnd))
    await table.file.sync()
  }
  await flushDirectory(directory)
  return new Set(batches.slice(0, keep).map(({ groupId }) => groupId))
}

// ---------------------------------------------------------------- appending and closing

function storeOver(directory: string, tables: Tables, groupIds: Set<string>): Store {
  let last: Promise<unknown> = Promise.resolve()
  /** One at a time, in the order of the calls. */
  const inTurn = <T>(work: () => Promise<T>): Promise<T> => {
    const done = last.then(work)
    last = done.catch(() => {})
    return done
  }

  const appendGroup = async (
    group: ScoredGroup,
    advantages: readonly (number | null)[] | undefined,
  ): Promise<Result<void>> => {
    const { id } = group.group
    if (groupIds.has(id)) throw new Error(`store ${directory}: group ${id} is already stored`)
    const messages = {
      segments: batchMessage(segmentBatch(group)),
      trajectories: batchMessage(trajectoryBatch(group, advantages)),
    }
    const before = { segments: tables.segments.size, trajectories: tables.trajectories.size }
    try {
      for (const { path, missing } of Object.values(tables))
        if (missing.length > 0)
          throw new StoreError(
            'bad_file',
            `${path}: was begun before ${missing.join(', ')} ${missing.length === 1 ? 'was' : 'were'} stored; it can be read, but to go on use the version that began it or another directory`,
          )
      await write(tables.segments, messages.segments)
      await write(tables.trajectories, messages.trajectories)
      await Promise.all([tables.segments.file.sync(), tables.trajectories.file.sync()])
    } catch (error) {
      for (const name of ['segments', 'trajectories'] as const) {
        tables[name].size = before[name]
        // Should this fail too, the next write goes over the torn bytes, and readers stop in front of them.
        await tables[name].file.truncate(before[name]).catch(() => {})
      }
      return { ok: false, failure: failureOf(error, `storing group ${id} in ${directory}`) }
    }
    groupIds.add(id)
    return { ok: true, value: undefined }
  }

  return {
    groupIds,
    append: (groups, advantages) =>
      inTurn(async () => {
        for (const [index, group] of groups.entries()) {
          const stored = await appendGroup(group, advantages?.[index])
          if (!stored.ok) return stored
        }
        return { ok: true, value: undefined }
      }),
    release: () =>
      inTurn(async () => {
        for (const { file } of Object.values(tables)) await file.close().catch(() => {})
      }),
    close: () =>
      inTurn(async () => {
        try {
          for (const name of ['segments', 'trajectories'] as const) {
            const { path, file } = tables[name]
            await write(tables[name], endOfStream)
            await file.sync()
            await file.close()
            await rename(path, finalPath(directory, name))
          }
          await flushDirectory(directory)
          return { ok: true, value: undefined }
        } catch (error) {
          return { ok: false, failure: failureOf(error, `closing the store ${directory}`) }
        }
      }),
  }
}
