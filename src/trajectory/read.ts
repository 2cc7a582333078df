/** Reads a store back, one group at a time, also while it is being written and after a crash. Never writes. */
import { DataType, type Field, type RecordBatch, type Schema } from 'apache-arrow'
import type { Result } from '../types.ts'
import { failureOf, StoreError } from './failure.ts'
import { finalPath, openLocated, schemas, type TableName } from './files.ts'
import { decodeBatch, decodeSchema, type Frame, readFrames } from './frames.ts'
import { type SegmentRow, segmentRows, type TrajectoryRow, trajectoryRows } from './schema.ts'

/** The trajectories of a store, in the order they were stored, decoded group by group while iterating. */
export async function readTrajectories(directory: string): Promise<Result<AsyncIterable<TrajectoryRow>>> {
  return readTable(directory, 'trajectories', trajectoryRows)
}

/** The training segments of a store, in the order they were stored, decoded group by group while iterating. */
export async function readSegments(directory: string): Promise<Result<AsyncIterable<SegmentRow>>> {
  return readTable(directory, 'segments', segmentRows)
}

async function readTable<Row>(
  directory: string,
  table: TableName,
  rowsOf: (batch: RecordBatch) => Row[],
): Promise<Result<AsyncIterable<Row>>> {
  try {
    // a first look, so that a wrong file is a failure now and not in the middle
    const { path, file } = await openLocated(directory, table)
    try {
      await checkSchema(readFrames(file), path, table)
    } finally {
      await file.close()
    }
    return { ok: true, value: { [Symbol.asyncIterator]: () => rowsIn(directory, table, rowsOf) } }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading ${finalPath(directory, table)}`) }
  }
}

async function* rowsIn<Row>(
  directory: string,
  table: TableName,
  rowsOf: (batch: RecordBatch) => Row[],
): AsyncGenerator<Row> {
  const { path, file } = await openLocated(directory, table)
  try {
    const frames = readFrames(file)
    const schema = await checkSchema(frames, path, table)
    for await (const frame of frames) yield* rowsOf(decodeBatch(schema.bytes, frame.bytes))
  } finally {
    await file.close()
  }
}

/** Takes the first message and makes sure that it is this table's schema, or one from before the columns in `missing` were stored. */
export async function checkSchema(
  frames: AsyncGenerator<Frame>,
  path: string,
  table: TableName,
): Promise<Frame & { missing: readonly string[] }> {
  const first = await frames.next()
  if (first.done || first.value.kind !== 'schema')
    throw new StoreError('bad_file', `${path}: expected an Arrow IPC stream, found none; was it written by showrunner?`)
  const found = decodeSchema(first.value.bytes)
  const wanted = schemas[table]
  const missing = versionOf(found) === versionOf(wanted) ? laterColumns(found.fields, wanted.fields) : null
  if (missing === null)
    throw new StoreError(
      'bad_file',
      `${path}: expected the columns of this version of the store, found others; read it with the version that wrote it`,
    )
  return { ...first.value, missing }
}

function versionOf({ metadata }: Schema): string {
  return `${metadata.get('showrunner_table')} ${metadata.get('showrunner_store_version')}`
}

/**
 * Names of columns, also inside lists and structs, that `found` lacks because it was written before there were any: they can be null,
 * and come back as undefined. null when the columns differ in another way. Descriptions may change.
 */
function laterColumns(found: readonly Field[], wanted: readonly Field[]): string[] | null {
  const missing: string[] = []
  let place = 0
  for (const { name, type, nullable } of wanted) {
    const field = found[place]
    if (field?.name !== name) {
      if (!nullable) return null
      missing.push(name)
      continue
    }
    place++
    if (field.nullable !== nullable || field.typeId !== type.typeId) return null
    const inside = DataType.isList(type) || DataType.isStruct(type)
    if (!inside && String(field.type) !== String(type)) return null
    const deeper = inside ? laterColumns(field.type.children ?? [], type.children) : []
    if (deeper === null) return null
    missing.push(...deeper.map((child) => `${name}.${child.replace(/^item\./, '')}`))
  }
  return place === found.length ? missing : null
}
