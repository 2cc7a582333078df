/**
 * Divides sequences into micro-batches: what sequences have in common is run once (`sharing.ts`), rows of like length go together, and
 * each micro-batch stays within a limit. Knows no loss: it says where each target token is to be found.
 */

import { sharedPrefixes } from './sharing.ts'

/** Token ids and the positions (from 1) whose token is to be predicted from what precedes it, ascending. */
export interface TargetSequence {
  ids: readonly number[]
  positions: readonly number[]
}

/** Sizes of a micro-batch, named as the dimensions of the programs that run it. */
export interface BatchShape {
  /** Prefixes, and their padded length. */
  G: number
  P: number
  /** Rows that continue a prefix, and their padded length. */
  B: number
  T: number
  /** States in prefixes and in rows from which something is predicted. */
  prefixStates: number
  rowStates: number
  /** Predicted tokens. */
  M: number
  /** Sequences. */
  S: number
}

/**
 * Hidden states are numbered: first those wanted in prefixes, then those wanted in rows. A prefix and a row are right-padded with id 0,
 * which nothing attends to.
 */
export interface MicroBatch {
  shape: BatchShape
  /** Positions that hold a token. */
  tokens: number
  /** Indices of the sequences in it, in the order of their targets. */
  members: readonly number[]
  /** [G, P] and how many ids of each prefix are real. */
  prefixIds: Int32Array
  prefixLengths: Int32Array
  /** [B, T], and the prefix that each row continues. */
  ids: Int32Array
  prefixOf: Int32Array
  /** Wanted states: index g * P + p, and b * T + t. The first has at least one, which may be nobody's. */
  prefixStates: Int32Array
  rowStates: Int32Array
  /** Of each target, in the order of members and positions: the number of the state that predicts it, and its id. */
  stateOf: Int32Array
  targets: Int32Array
}

/** Positions, padding included, that a micro-batch runs through the model. */
export function paddedTokens({ G, P, B, T }: Pick<BatchShape, 'G' | 'P' | 'B' | 'T'>): number {
  return G * P + B * T
}

/** Share of the positions that micro-batches run through the model which hold no token. */
export function paddingShare(batches: readonly Pick<MicroBatch, 'shape' | 'tokens'>[]): number {
  const sum = (of: (batch: Pick<MicroBatch, 'shape' | 'tokens'>) => number) =>
    batches.reduce((total, batch) => total + of(batch), 0)
  return batches.length === 0 ? 0 : 1 - sum(({ tokens }) => tokens) / sum(({ shape }) => paddedTokens(shape))
}

/** What the fixed cost of one more run is worth, in tokens. */
const RUN_TOKENS = 64

/** A row to be: the part of a sequence behind its prefix. */
interface Row {
  group: number
  prefix: number
  length: number
  /** The sequence that is run, and all that it answers for. */
  sequence: number
  covers: readonly number[]
  /** Wanted states in the row, and at most in its prefix. */
  rowStates: number
  prefixStates: number
  targets: number
}

/**
 * Micro-batches that `fits` accepts; a row that it never accepts stands alone. What follows the last target of a sequence is left out.
 * Sequences without targets are in no micro-batch. The result is the cheapest division of two orders of the rows: by prefix, and by length.
 */
export function microBatches(sequences: readonly TargetSequence[], fits: (shape: BatchShape) => boolean): MicroBatch[] {
  const lengths = sequences.map(({ positions }) => positions.at(-1) ?? 0)
  const rows: Row[] = []
  const shared = sharedPrefixes(
    sequences.map(({ ids }) => ids),
    lengths,
  )
  for (const [group, { prefix, branches }] of shared.entries()) {
    for (const { sequence, covers } of branches) {
      const states = new Set(covers.flatMap((cover) => sequences[cover]!.positions.map((position) => position - 1)))
      const inPrefix = [...states].filter((state) => state < prefix).length
      rows.push({
        group,
        prefix,
        length: lengths[sequence]! - prefix,
        sequence,
        covers,
        rowStates: states.size - inPrefix,
        prefixStates: inPrefix,
        targets: covers.reduce((sum, cover) => sum + sequences[cover]!.positions.length, 0),
      })
    }
  }
  const longest = new Map<number, number>()
  for (const { group, length } of rows) longest.set(group, Math.max(longest.get(group) ?? 0, length))
  const byLength = rows.toSorted((a, b) => b.length - a.length || a.group - b.group)
  const byGroup = rows.toSorted(
    (a, b) => longest.get(b.group)! - longest.get(a.group)! || a.group - b.group || b.length - a.length,
  )
  const [one, other] = [cheapest(byLength, fits), cheapest(byGroup, fits)]
  return (one.cost < other.cost ? one : other).parts.map((part) => pack(sequences, part))
}

/** The division of rows, in their order, into runs of least padded tokens and runs together: dynamic programming over the last run. */
function cheapest(rows: readonly Row[], fits: (shape: BatchShape) => boolean): { cost: number; parts: Row[][] } {
  const costs = [0]
  const starts = [0]
  for (let end = 1; end <= rows.length; end += 1) {
    let best = Number.POSITIVE_INFINITY
    const shape: BatchShape = { G: 0, P: 1, B: 0, T: 1, prefixStates: 0, rowStates: 0, M: 0, S: 0 }
    const groups = new Set<number>()
    for (let start = end - 1; start >= 0; start -= 1) {
      const row = rows[start]!
      groups.add(row.group)
      shape.G = groups.size
      shape.B += 1
      shape.P = Math.max(shape.P, row.prefix)
      shape.T = Math.max(shape.T, row.length)
      shape.prefixStates += row.prefixStates
      shape.rowStates += row.rowStates
      shape.M += row.targets
      shape.S += row.covers.length
      if (start < end - 1 && !fits(shape)) break
      const cost = costs[start]! + paddedTokens(shape) + RUN_TOKENS
      if (cost < best) {
        best = cost
        starts[end] = start
      }
    }
    costs[end] = best
  }
  const parts: Row[][] = []
  for (let end = rows.length; end > 0; end = starts[end]!) parts.unshift(rows.slice(starts[end]!, end))
  return { cost: costs[rows.length]!, parts }
}

function pack(sequences: readonly TargetSequence[], rows: readonly Row[]): MicroBatch {
  const groups = [...new Set(rows.map(({ group }) => group))]
  const P = Math.max(1, ...rows.map(({ prefix }) => prefix))
  const T = Math.max(...rows.map(({ length }) => length))
  const prefixIds = new Int32Array(groups.length * P)
  const prefixLengths = new Int32Array(groups.length)
  const ids = new Int32Array(rows.length * T)
  const prefixOf = new Int32Array(rows.length)
  const members: number[] = []
  /** Each target's state, as an index into all prefix or all row positions; they are numbered below. */
  const wanted: { inPrefix: boolean; at: number }[] = []
  const targets: number[] = []
  rows.forEach(({ group, prefix, length, sequence, covers }, b) => {
    const g = groups.indexOf(group)
    const source = sequences[sequence]!.ids
    prefixOf[b] = g
    prefixLengths[g] = prefix
    for (let p = 0; p < prefix; p += 1) prefixIds[g * P + p] = source[p]!
    for (let t = 0; t < length; t += 1) ids[b * T + t] = source[prefix + t]!
    for (const cover of covers) {
      members.push(cover)
      for (const position of sequences[cover]!.positions) {
        const state = position - 1
        const inPrefix = state < prefix
        wanted.push({ inPrefix, at: inPrefix ? g * P + state : b * T + state - prefix })
        targets.push(sequences[cover]!.ids[position]!)
      }
    }
  })
  const distinct = (inPrefix: boolean) =>
    [...new Set(wanted.filter((state) => state.inPrefix === inPrefix).map(({ at }) => at))].sort((a, b) => a - b)
  const prefixStates = distinct(true)
  const rowStates = distinct(false)
  // Empty tensors are not every operator's strength.
  if (prefixStates.length === 0) prefixStates.push(0)
  const numbers = [prefixStates, rowStates].map((states, part) => {
    const first = part === 0 ? 0 : prefixStates.length
    return new Map(states.map((at, index) => [at, first + index]))
  })
  return {
    shape: {
      G: groups.length,
      P,
      B: rows.length,
      T,
      prefixStates: prefixStates.length,
      rowStates: rowStates.length,
      M: targets.length,
      S: members.length,
    },
    tokens: prefixLengths.reduce((sum, length) => sum + length, 0) + rows.reduce((sum, { length }) => sum + length, 0),
    members,
    prefixIds,
    prefixLengths,
    ids,
    prefixOf,
    prefixStates: Int32Array.from(prefixStates),
    rowStates: Int32Array.from(rowStates),
    stateOf: Int32Array.from(wanted, ({ inPrefix, at }) => numbers[inPrefix ? 0 : 1]!.get(at)!),
    targets: Int32Array.from(targets),
  }
}
