/**
 * A table as a list of columns, each with its type, its meaning and where its value comes from; the Arrow schema and the record
 * batches follow from the list. Knows nothing about what the columns hold.
 */
import { type DataType, Field, makeData, type RecordBatch as ArrowBatch, RecordBatch, Schema, Struct, StructRow, Vector, vectorFromArray } from 'apache-arrow'

export interface Column<Row> {
  name: string
  type: DataType
  nullable?: boolean
  /** Written into the file as the field's `description`. */
  meaning: string
  value: (row: Row) => unknown
}

export function schemaOf<Row>(columns: readonly Column<Row>[], metadata: Record<string, string>): Schema {
  const fields = columns.map(({ name, type, nullable = false, meaning }) => new Field(name, type, nullable, new Map([['description', meaning]])))
  return new Schema(fields, new Map(Object.entries(metadata)))
}

/** One record batch with a row per element of `rows`; at least one row. */
export function batchOf<Row>(schema: Schema, columns: readonly Column<Row>[], rows: readonly Row[]): ArrowBatch {
  const children = columns.map(({ name, type, value }) => {
    const [data, ...more] = vectorFromArray(rows.map(value), type).data
    if (data === undefined || more.length > 0) throw new Error(`column ${name}: ${rows.length} rows did not fit one batch`)
    return data
  })
  return new RecordBatch(schema, makeData({ type: new Struct(schema.fields), length: rows.length, nullCount: 0, children }))
}

/** An Arrow value as plain arrays and objects. */
export function plain(value: unknown): unknown {
  if (value instanceof Vector) return Array.from(value as Vector, plain)
  if (value instanceof StructRow) return Object.fromEntries([...value].map(([key, part]) => [key, plain(part)]))
  return value
}
