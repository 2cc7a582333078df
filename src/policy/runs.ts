/**
 * What one run of the decoder's programs is fed: rows with their new tokens, their pages and where new keys and values go.
 * Pure; it does not choose the rows. Inputs are those of `decodeGraph.ts`.
 */
import type { TensorData } from '../engine/protocol.ts'
import type { DecoderConfig } from './architecture.ts'
import { cacheRow, PAGE_SIZE, ROW_BLOCK } from './decodeGraph.ts'

/** A row as a run sees it. */
export interface RunRow {
  /** The whole sequence. */
  ids: readonly number[]
  /** How many of its tokens have keys and values in `pages`. */
  cached: number
  /** Pages for those and for the new ones. */
  pages: readonly number[]
  /** Factor on the logits. */
  scale: number
  /** Whether logits after every new token are wanted, or after the last one alone. */
  everywhere: boolean
}

export interface RunInputs {
  feeds: Record<string, TensorData>
  /** Row of a cache tensor for each new key and value of each head: -1 for padding. */
  targets: Int32Array
  /** For each row of the run, the first of its rows in the outputs; and one more behind the last. */
  outputs: number[]
}

const int32 = (data: Int32Array, ...dims: number[]): TensorData => ({ type: 'int32', dims, data })
const float32 = (data: Float32Array, ...dims: number[]): TensorData => ({ type: 'float32', dims, data })

/** Fills up to what `decodeGraph.ts` takes: as many as two, up to a block, or whole blocks. */
const filled = (count: number) => (count <= ROW_BLOCK ? Math.max(2, count) : Math.ceil(count / ROW_BLOCK) * ROW_BLOCK)

const FILLER: RunRow = { ids: [0], cached: 0, pages: [], scale: 1, everywhere: false }

/** One new token for each row. */
export function stepInputs(config: DecoderConfig, rows: readonly RunRow[]): RunInputs {
  const all = Array.from({ length: filled(rows.length) }, (_, b) => rows[b] ?? FILLER)
  const heads = config.keyValueHeads
  const targets = new Int32Array(all.length * heads).fill(-1)
  rows.forEach(({ pages, cached }, b) => {
    for (let head = 0; head < heads; head++)
      targets[b * heads + head] = cacheRow(config, pages[Math.floor(cached / PAGE_SIZE)]!, head, cached % PAGE_SIZE)
  })
  return {
    feeds: {
      ids: int32(
        Int32Array.from(all, ({ ids, cached }) => ids[cached]!),
        all.length,
      ),
      positions: int32(
        Int32Array.from(all, ({ cached }) => cached),
        all.length,
      ),
      pages: pageTable(all),
      scales: float32(
        Float32Array.from(all, ({ scale }) => scale),
        all.length,
      ),
    },
    targets,
    outputs: [...rows.keys(), rows.length],
  }
}

/** `counts[b]` new tokens for each row, at least two for one of them. */
export function prefillInputs(config: DecoderConfig, rows: readonly RunRow[], counts: readonly number[]): RunInputs {
  const batch = rows.length
  let time = Math.max(...counts)
  while (filled(batch * time) !== batch * time) time++
  const heads = config.keyValueHeads
  const pages = pageTable(rows)
  const paged = pages.dims[1]! * PAGE_SIZE
  const width = Math.max(...rows.map(({ cached }, b) => cached + counts[b]!))
  const ids = new Int32Array(batch * time)
  const positions = new Int32Array(batch * time)
  const columns = new Int32Array(batch * heads * width)
  const targets = new Int32Array(batch * heads * time).fill(-1)
  const wanted: number[] = []
  const scales: number[] = []
  const outputs = [0]
  rows.forEach((row, b) => {
    const count = counts[b]!
    for (let t = 0; t < count; t++) {
      ids[b * time + t] = row.ids[row.cached + t]!
      positions[b * time + t] = row.cached + t
    }
    for (let head = 0; head < heads; head++) {
      const line = b * heads + head
      const first = line * (paged + time)
      for (let s = 0; s < row.cached + count; s++)
        columns[line * width + s] = first + (s < row.cached ? s : paged + s - row.cached)
      for (let t = 0; t < count; t++) {
        const position = row.cached + t
        const page = row.pages[Math.floor(position / PAGE_SIZE)]!
        targets[line * time + t] = cacheRow(config, page, head, position % PAGE_SIZE)
      }
    }
    for (let t = row.everywhere ? 0 : count - 1; t < count; t++) {
      wanted.push(b * time + t)
      scales.push(row.scale)
    }
    outputs.push(wanted.length)
  })
  while (filled(wanted.length) !== wanted.length) {
    wanted.push(wanted[0]!)
    scales.push(scales[0]!)
  }
  return {
    feeds: {
      ids: int32(ids, batch, time),
      positions: int32(positions, batch, time),
      pages,
      columns: int32(columns, batch, heads, width),
      rows: int32(Int32Array.from(wanted), wanted.length),
      scales: float32(Float32Array.from(scales), wanted.length),
    },
    targets,
    outputs,
  }
}

/** Pages that hold what is cached: [rows, N], N >= 1. */
function pageTable(rows: readonly RunRow[]): TensorData {
  const used = rows.map(({ cached }) => Math.ceil(cached / PAGE_SIZE))
  const width = Math.max(1, ...used)
  const table = new Int32Array(rows.length * width)
  rows.forEach(({ pages }, b) => {
    for (let n = 0; n < used[b]!; n++) table[b * width + n] = pages[n]!
  })
  return int32(table, rows.length, width)
}
