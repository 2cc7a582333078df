/**
 * Random access to a table of a store by record batch, for those who page through it: also while it is being written and after a crash.
 *
 * A group is one batch in each table, in the same order, so batch n of `segments` belongs to batch n of `trajectories`. Keeps nothing
 * but an open file: places are remembered by the caller. Never writes.
 */
import { createHash } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import type { RecordBatch } from 'apache-arrow'
import type { Result } from '../types.ts'
import { failureOf } from './failure.ts'
import { finalPath, openLocated, type TableName } from './files.ts'
import { decodeBatch, decodeSchema, readFrames, readUpTo } from './frames.ts'
import { Layout } from './projection.ts'
import { checkSchema } from './read.ts'

/** Where a batch lies in its file, in bytes. */
export interface Place {
  start: number
  end: number
}

export interface Message {
  place: Place
  /** The batch as it is stored; texts in it are uncompressed UTF-8. */
  bytes: Uint8Array
}

export interface TableFile {
  /** As it was when the file was opened; a `.partial` is renamed when its run ends. */
  readonly path: string
  /** Tells this file from another one that takes its name. */
  readonly identity: string
  /** Bytes, and when they were last written. */
  state(): Promise<{ size: number; written: Date }>
  /** The whole batches from `from` on: the end of a place, or 0 for all. */
  messages(from: number): AsyncGenerator<Message>
  /** Where single columns lie in a message. */
  readonly layout: Layout
  /** The batch at a place. Throws when the file does not have it any more. */
  read(place: Place): Promise<RecordBatch>
  /** A hash of what lies at a place, to see whether a resumed run wrote over it. */
  fingerprint(place: Place): Promise<string>
  close(): Promise<void>
}

/** Opens the table where it lies now, `.partial` or not. */
export async function openTable(directory: string, table: TableName): Promise<Result<TableFile>> {
  let file: FileHandle | null = null
  try {
    const located = await openLocated(directory, table)
    const { path } = located
    file = located.file
    const { ino } = await file.stat()
    const schema = await checkSchema(readFrames(file), path, table)
    return { ok: true, value: tableOver(file, path, String(ino), Buffer.from(schema.bytes), schema.end) }
  } catch (error) {
    await file?.close()
    return { ok: false, failure: failureOf(error, `reading ${finalPath(directory, table)}`) }
  }
}

function tableOver(file: FileHandle, path: string, identity: string, schema: Uint8Array, schemaEnd: number): TableFile {
  const bytesAt = async ({ start, end }: Place): Promise<Buffer> => {
    const bytes = await readUpTo(file, start, end - start)
    if (bytes.length < end - start) throw new Error(`${path}: expected a batch at ${start}, the file ends before`)
    return bytes
  }
  return {
    path,
    identity,
    layout: new Layout(decodeSchema(schema)),
    async state() {
      const { size, mtime } = await file.stat()
      return { size, written: mtime }
    },
    async *messages(from) {
      for await (const { start, end, bytes } of readFrames(file, Math.max(from, schemaEnd)))
        yield { place: { start, end }, bytes }
    },
    read: async (place) => decodeBatch(schema, await bytesAt(place)),
    fingerprint: async (place) =>
      createHash('sha256')
        .update(await readUpTo(file, place.start, place.end - place.start))
        .digest('hex'),
    close: () => file.close(),
  }
}
