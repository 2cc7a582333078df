/**
 * Arrow IPC streams as a sequence of messages, so that a stream that a crash cut off can be read up to its last whole batch, cut there
 * and continued. (The Arrow file format has no such recovery, and the library's reader gives up on a cut-off stream.)
 *
 * A message is: FF FF FF FF, int32 length of the metadata, metadata (flatbuffer, padded to 8), body. A length of 0 ends the stream.
 * https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
 */
import type { FileHandle } from 'node:fs/promises'
import { Message, type RecordBatch, RecordBatchReader, type Schema, Table, tableToIPC } from 'apache-arrow'

const PREFIX_BYTES = 8
const CONTINUATION = 0xffffffff

/** Ends a stream. */
export const endOfStream = new Uint8Array([0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0])

/** The message that begins every stream of this schema. */
export function schemaMessage(schema: Schema): Uint8Array {
  const stream = tableToIPC(new Table(schema), 'stream')
  return stream.slice(0, firstMessageBytes(stream))
}

/** The message of one batch, ready to be appended to a stream of its schema. */
export function batchMessage(batch: RecordBatch): Uint8Array {
  const stream = tableToIPC(new Table([batch]), 'stream')
  return stream.slice(firstMessageBytes(stream), stream.length - endOfStream.length)
}

/** The batch of a message. */
export function decodeBatch(schema: Uint8Array, message: Uint8Array): RecordBatch {
  const [batch] = RecordBatchReader.from(Buffer.concat([schema, message, endOfStream]))
  if (batch === undefined) throw new Error('expected a record batch message')
  return batch
}

/** The schema of a message. */
export function decodeSchema(message: Uint8Array): Schema {
  return RecordBatchReader.from(Buffer.concat([message, endOfStream])).open().schema
}

export interface Frame {
  kind: 'schema' | 'batch'
  start: number
  /** Where the next message begins. */
  end: number
  /** The whole message. */
  bytes: Uint8Array
}

/**
 * The whole messages of a stream, in order, beginning at `from`, which is 0 or the end of an earlier message. Ends quietly at the end
 * marker, at the end of the file, and at the first message that is torn or no message: what follows was never written completely.
 */
export async function* readFrames(file: FileHandle, from = 0): AsyncGenerator<Frame> {
  const { size } = await file.stat()
  const ahead = readAhead(file)
  for (let start = from; ; ) {
    const prefix = await ahead(start, PREFIX_BYTES)
    if (prefix === null || prefix.readUInt32LE(0) !== CONTINUATION) return
    const metadataBytes = prefix.readInt32LE(4)
    if (metadataBytes <= 0 || start + PREFIX_BYTES + metadataBytes > size) return
    const metadata = await ahead(start + PREFIX_BYTES, metadataBytes)
    const header = metadata === null ? null : decodeMetadata(metadata)
    if (header === null) return
    const end = start + PREFIX_BYTES + metadataBytes + header.bodyBytes
    const bytes = end > size ? null : await ahead(start, end - start)
    if (bytes === null) return
    yield { kind: header.kind, start, end, bytes }
    start = end
  }
}

/** Messages are small and many: reading them one by one would be thousands of calls. */
const AHEAD_BYTES = 1 << 20

/** Exactly `length` bytes at `position`, or null when the file ends before. Every buffer is its own: none is written again. */
function readAhead(file: FileHandle): (position: number, length: number) => Promise<Buffer | null> {
  let window: Buffer = Buffer.alloc(0)
  let begin = 0
  return async (position, length) => {
    if (position < begin || position + length > begin + window.length) {
      window = await readUpTo(file, position, Math.max(length, AHEAD_BYTES))
      begin = position
    }
    const from = position - begin
    return from + length > window.length ? null : window.subarray(from, from + length)
  }
}

function decodeMetadata(metadata: Uint8Array): { kind: Frame['kind']; bodyBytes: number } | null {
  try {
    const message = Message.decode(metadata)
    const kind = message.isSchema() ? 'schema' : message.isRecordBatch() ? 'batch' : null
    const bodyBytes = Number(message.bodyLength)
    return kind === null || !Number.isSafeInteger(bodyBytes) || bodyBytes < 0 ? null : { kind, bodyBytes }
  } catch {
    return null // bytes that are no flatbuffer: the tail of a write that never finished
  }
}

/** `length` bytes, or fewer at the end of the file. */
export async function readUpTo(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length)
  let filled = 0
  while (filled < length) {
    const { bytesRead } = await file.read(buffer, filled, length - filled, position + filled)
    if (bytesRead === 0) break
    filled += bytesRead
  }
  return buffer.subarray(0, filled)
}

function firstMessageBytes(stream: Uint8Array): number {
  const view = new DataView(stream.buffer, stream.byteOffset, stream.byteLength)
  const metadataBytes = view.getInt32(4, true)
  const { bodyLength } = Message.decode(stream.subarray(PREFIX_BYTES, PREFIX_BYTES + metadataBytes))
  return PREFIX_BYTES + metadataBytes + Number(bodyLength)
}
