/**
 * A table as a list of columns, each with its type, its meaning and where its value comes from; the Arrow schema and the record
 * batches follow from the list. Knows nothing about what the columns hold.
 */
import {
  type Data,
  DataType,
  Field,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  Vector,
  vectorFromArray,
} from 'apache-arrow'

export interface Column<Row> {
  name: string
  type: DataType
  nullable?: boolean
  /** Written into the file as the field's `description`. */
  meaning: string
  value: (row: Row) => unknown
}

export function schemaOf<Row>(columns: readonly Column<Row>[], metadata: Record<string, string>): Schema {
  const fields = columns.map(
    ({ name, type, nullable = false, meaning }) => new Field(name, type, nullable, new Map([['description', meaning]])),
  )
  return new Schema(fields, new Map(Object.entries(metadata)))
}

/** One record batch with a row per element of `rows`; at least one row. */
export function batchOf<Row>(schema: Schema, columns: readonly Column<Row>[], rows: readonly Row[]): RecordBatch {
  const children = columns.map(({ name, type, value }) => {
    const [data, ...more] = vectorFromArray(rows.map(value), type).data
    if (data === undefined || more.length > 0)
      throw new Error(`column ${name}: ${rows.length} rows did not fit one batch`)
    return data
  })
  return new RecordBatch(
    schema,
    makeData({ type: new Struct(schema.fields), length: rows.length, nullCount: 0, children }),
  )
}

/** The rows of a batch as plain objects under their column names. Structs must not be nullable; lists and values may. */
export function plainRows(batch: RecordBatch): Record<string, unknown>[] {
  return structValues(batch.data)
}

/** Column by column and without the library's row proxies, which are several times slower. */
function plainValues(data: Data): unknown[] {
  if (DataType.isStruct(data.type)) return structValues(data)
  if (!DataType.isList(data.type)) return Array.from(new Vector([data]))
  const items = data.children[0] === undefined ? [] : plainValues(data.children[0])
  const offsets = data.valueOffsets as Int32Array
  return Array.from({ length: data.length }, (_, row) =>
    data.getValid(row) ? items.slice(offsets[row], offsets[row + 1]) : null,
  )
}

function structValues({ type, children, length }: Data): Record<string, unknown>[] {
  const rows = Array.from({ length }, (): Record<string, unknown> => ({}))
  for (const [column, { name }] of type.children.entries()) {
    const values = plainValues(children[column] as Data)
    for (const [row, object] of rows.entries()) object[name] = values[row]
  }
  return rows
}
