/**
 * Single columns of a record batch, straight from the bytes of its message: for those who pass over a whole run and need little of
 * each batch. Decoding all columns takes some ten times as long. Nothing is copied; texts are decoded when asked for.
 *
 * Buffers lie in the order of the schema, each field before its children: validity, then offsets, then data; structs have validity only
 * (https://arrow.apache.org/docs/format/Columnar.html#recordbatch-message).
 */
import { DataType, type Field, type Schema } from 'apache-arrow'
import { Message } from 'apache-arrow/fb/message'
import { RecordBatch } from 'apache-arrow/fb/record-batch'
import { ByteBuffer } from 'flatbuffers'

const PREFIX_BYTES = 8

/** A field's own buffers begin at this index, its node is this one. */
interface Position {
  buffer: number
  node: number
  type: DataType
}

/** Where the columns of a table lie in its batches; items of lists and fields of structs are named with dots: `turns.response`. */
export class Layout {
  private readonly positions = new Map<string, Position>()

  constructor(schema: Schema) {
    let buffer = 0
    let node = 0
    const place = ({ type, name }: Field, parent: string): void => {
      // the items of a list go by the name of the list
      const path = parent === '' ? name : name === 'item' ? parent : `${parent}.${name}`
      const list = DataType.isList(type)
      const own = list ? `${path}[]` : path
      if (name !== 'item' || !DataType.isStruct(type)) this.positions.set(own, { buffer, node, type })
      node += 1
      buffer += DataType.isStruct(type) ? 1 : DataType.isUtf8(type) ? 3 : 2
      for (const child of type.children ?? []) place(child, path)
    }
    for (const field of schema.fields) place(field, '')
  }

  /** Throws when there is no such column: a programming error, as the schema of the file was checked. */
  at(path: string): Position {
    const position = this.positions.get(path)
    if (position === undefined) throw new Error(`no column ${path} in this table`)
    return position
  }

  open(message: Uint8Array): ProjectedBatch {
    return new ProjectedBatch(this, message)
  }
}

/** UTF-8 texts of a column, one after the other. */
export class Texts {
  constructor(
    private readonly offsets: Int32Array,
    private readonly bytes: Buffer,
    private readonly isNull: (index: number) => boolean,
  ) {}

  /** Empty for a null. */
  at(index: number): string {
    return this.isNull(index) ? '' : this.between(index, index + 1)
  }

  /** Texts `from` to before `to`, as one. */
  between(from: number, to: number): string {
    return this.bytes.toString('utf8', this.offsets[from], this.offsets[to])
  }
}

export class ProjectedBatch {
  readonly rows: number
  private readonly header: RecordBatch
  private readonly body: Buffer

  constructor(
    private readonly layout: Layout,
    message: Uint8Array,
  ) {
    // numbers are read in place, which needs them where the format puts them: at multiples of 8
    const whole = message.byteOffset % 8 === 0 ? message : new Uint8Array(message)
    const bytes = Buffer.from(whole.buffer, whole.byteOffset, whole.byteLength)
    const metadataBytes = bytes.readInt32LE(4)
    const metadata = new ByteBuffer(bytes.subarray(PREFIX_BYTES, PREFIX_BYTES + metadataBytes))
    const header = Message.getRootAsMessage(metadata).header(new RecordBatch()) as RecordBatch | null
    if (header === null) throw new Error('expected a record batch message')
    this.header = header
    this.body = bytes.subarray(PREFIX_BYTES + metadataBytes)
    this.rows = Number(header.length())
  }

  /** Values of an Int32 column; what stands where a value is null is undefined. */
  integers(path: string): Int32Array {
    const data = this.buffer(this.layout.at(path).buffer + 1)
    return new Int32Array(data.buffer, data.byteOffset, data.byteLength >> 2)
  }

  /** Values of a Float64 column, NaN where null. */
  numbers(path: string): (index: number) => number {
    const { buffer } = this.layout.at(path)
    const data = this.buffer(buffer + 1)
    const values = new Float64Array(data.buffer, data.byteOffset, data.byteLength >> 3)
    const isNull = this.nulls(path)
    return (index) => (isNull(index) ? Number.NaN : (values[index] as number))
  }

  flags(path: string): (index: number) => boolean {
    const bits = this.buffer(this.layout.at(path).buffer + 1)
    return (index) => bit(bits, index)
  }

  texts(path: string): Texts {
    const { buffer } = this.layout.at(path)
    return new Texts(this.offsetsAt(buffer + 1), this.buffer(buffer + 2), this.nulls(path))
  }

  /** Where each row's items begin in a list column, and where the last row's end. */
  offsets(path: string): Int32Array {
    return this.offsetsAt(this.layout.at(`${path}[]`).buffer + 1)
  }

  private offsetsAt(index: number): Int32Array {
    const data = this.buffer(index)
    return new Int32Array(data.buffer, data.byteOffset, data.byteLength >> 2)
  }

  private nulls(path: string): (index: number) => boolean {
    const { buffer, node } = this.layout.at(path)
    if (Number(this.header.nodes(node)?.nullCount() ?? 0) === 0) return () => false
    const validity = this.buffer(buffer)
    return (index) => !bit(validity, index)
  }

  private buffer(index: number): Buffer {
    const place = this.header.buffers(index)
    if (place === null) throw new Error(`expected a buffer ${index} in the record batch`)
    const start = Number(place.offset())
    return this.body.subarray(start, start + Number(place.length()))
  }
}

function bit(bits: Uint8Array, index: number): boolean {
  return (((bits[index >> 3] as number) >> (index & 7)) & 1) === 1
}
