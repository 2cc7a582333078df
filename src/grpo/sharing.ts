/**
 * Which sequences begin alike, so that what they share runs through the model once: samples of one prompt, turns that agree, and
 * sequences that are equal or contained in one another. Works on ids; knows no groups, no losses and no padding.
 */

/** Sequences whose first `prefix` ids are the same. */
export interface SharedPrefix {
  /** At least 1 and less than the length of any of the branches. */
  prefix: number
  branches: Branch[]
}

export interface Branch {
  /** The sequence that is run. */
  sequence: number
  /** It and those that are equal to it or to a beginning of it. */
  covers: number[]
}

/**
 * Divides sequences (the first `lengths[i]` ids of each; 0 leaves one out) into prefixes with branches, so that the sum of all prefix and
 * remaining lengths is least for one level of sharing: at every node of their trie, either all that is below shares the path to the
 * node, or each child is divided on its own. A sequence of one id has no prefix to give: see `prefix` 0.
 */
export function sharedPrefixes(sequences: readonly (readonly number[])[], lengths: readonly number[]): SharedPrefix[] {
  const order = sequences.map((_, index) => index).filter((index) => lengths[index]! > 0)
  order.sort((a, b) => compare(sequences[a]!, lengths[a]!, sequences[b]!, lengths[b]!) || a - b)

  // In this order a sequence that begins another stands right before it or before others that begin it too.
  const leaves: Branch[] = []
  let pending: number[] = []
  order.forEach((index, place) => {
    pending.push(index)
    const next = order[place + 1]
    if (next !== undefined && common(sequences, lengths, index, next, 0) === lengths[index]!) return
    leaves.push({ sequence: index, covers: pending })
    pending = []
  })

  /** The best division of leaves [from, to), which agree in their first `depth` ids. */
  function divide(from: number, to: number, depth: number): { cost: number; groups: SharedPrefix[] } {
    const first = leaves[from]!.sequence
    if (to - from === 1) {
      // Alone: its first id stands as prefix, so that every group has one.
      const cost = lengths[first]!
      return { cost, groups: [{ prefix: Math.min(1, cost - 1), branches: [leaves[from]!] }] }
    }
    const prefix = common(sequences, lengths, first, leaves[to - 1]!.sequence, depth)
    const parts: { cost: number; groups: SharedPrefix[] }[] = []
    let together = prefix
    let start = from
    for (let leaf = from; leaf < to; leaf += 1) {
      together += lengths[leaves[leaf]!.sequence]! - prefix
      const isLast =
        leaf === to - 1 ||
        sequences[leaves[leaf + 1]!.sequence]![prefix] !== sequences[leaves[start]!.sequence]![prefix]
      if (!isLast) continue
      parts.push(divide(start, leaf + 1, prefix))
      start = leaf + 1
    }
    const apart = parts.reduce((sum, { cost }) => sum + cost, 0)
    if (prefix > 0 && together <= apart)
      return { cost: together, groups: [{ prefix, branches: leaves.slice(from, to) }] }
    return { cost: apart, groups: parts.flatMap(({ groups }) => groups) }
  }

  return leaves.length === 0 ? [] : divide(0, leaves.length, 0).groups
}

/** Ids that two sequences have in common, known to be at least `from`. */
function common(
  sequences: readonly (readonly number[])[],
  lengths: readonly number[],
  a: number,
  b: number,
  from: number,
): number {
  const [left, right] = [sequences[a]!, sequences[b]!]
  const most = Math.min(lengths[a]!, lengths[b]!)
  let same = from
  while (same < most && left[same] === right[same]) same += 1
  return same
}

/** Lexicographic; a beginning stands before what it begins. */
function compare(a: readonly number[], lengthA: number, b: readonly number[], lengthB: number): number {
  const most = Math.min(lengthA, lengthB)
  for (let place = 0; place < most; place += 1) if (a[place] !== b[place]) return a[place]! - b[place]!
  return lengthA - lengthB
}
