/** Divides sequences into padded micro-batches of bounded size. Knows no loss: it says where each target token is to be found. */

/** Token ids and the positions (from 1) whose token is to be predicted from what precedes it, ascending. */
export interface TargetSequence {
  ids: readonly number[]
  positions: readonly number[]
}

export interface MicroBatch {
  /** Indices of the sequences in it, in row order. */
  members: readonly number[]
  batch: number
  time: number
  /** [batch, time]; padding is id 0 and is never attended to, as it stands last. */
  ids: Int32Array
  /** Of each target, in the order of members and positions: index b * time + t of the state that predicts it, and its id. */
  rows: Int32Array
  targets: Int32Array
}

/**
 * Micro-batches of at most `maxTokens` padded tokens (one sequence may be longer). Sequences of like length go together; what
 * follows the last target of a sequence is left out. Sequences without targets are in no micro-batch.
 */
export function microBatches(sequences: readonly TargetSequence[], maxTokens: number): MicroBatch[] {
  const lengths = sequences.map(({ positions }) => positions.at(-1) ?? 0)
  const order = sequences.map((_, index) => index).filter((index) => lengths[index]! > 0)
  order.sort((a, b) => lengths[b]! - lengths[a]! || a - b)
  const batches: MicroBatch[] = []
  let start = 0
  while (start < order.length) {
    const time = lengths[order[start]!]!
    const batch = Math.max(1, Math.floor(maxTokens / time))
    batches.push(pack(sequences, order.slice(start, start + batch), time))
    start += batch
  }
  return batches
}

function pack(sequences: readonly TargetSequence[], members: readonly number[], time: number): MicroBatch {
  const ids = new Int32Array(members.length * time)
  const rows: number[] = []
  const targets: number[] = []
  members.forEach((member, row) => {
    const sequence = sequences[member]!
    const length = sequence.positions.at(-1)!
    for (let t = 0; t < length; t += 1) ids[row * time + t] = sequence.ids[t]!
    for (const position of sequence.positions) {
      rows.push(row * time + position - 1)
      targets.push(sequence.ids[position]!)
    }
  })
  return { members, batch: members.length, time, ids, rows: Int32Array.from(rows), targets: Int32Array.from(targets) }
}
