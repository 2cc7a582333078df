/**
 * What each token writes, for constraints: a prefix tree over the texts of a vocabulary. A token that writes part of a character only
 * (byte-level tokenizers have them) is left out, so a constrained answer consists of characters that some token writes whole.
 */
import type { Acceptor, State } from './acceptor.ts'

/** What is needed of a tokenizer. */
export interface Vocabulary {
  readonly vocabularySize: number
  readonly endIds: ReadonlySet<number>
  decode(ids: readonly number[]): string
}

interface Node {
  next: Map<number, Node>
  /** Tokens whose text ends here. */
  ids: number[]
}

/** Texts of tokens: after a token, or at the beginning of an answer (`null`). */
export class TokenTexts {
  private readonly trees = new Map<number | null, Node>()
  private readonly dependsOnPrevious: boolean

  constructor(private readonly vocabulary: Vocabulary) {
    this.dependsOnPrevious = !isConcatenation(vocabulary)
  }

  /** What `id` adds to an answer that ends with `previous`. */
  textOf(id: number, previous: number | null): string {
    if (previous === null || !this.dependsOnPrevious) return this.vocabulary.decode([id])
    const before = this.vocabulary.decode([previous])
    const both = this.vocabulary.decode([previous, id])
    return both.startsWith(before) ? both.slice(before.length) : '\ufffd'
  }

  /** The tokens that may follow, each with the state that it leads to. */
  *following(acceptor: Acceptor, from: State, previous: number | null): Generator<[id: number, to: State]> {
    const open: [Node, State][] = [[this.treeAfter(previous), from]]
    for (let at = open.pop(); at !== undefined; at = open.pop()) {
      const [node, state] = at
      for (const id of node.ids) yield [id, state]
      for (const [codePoint, child] of node.next) {
        const next = acceptor.step(state, codePoint)
        if (next !== null) open.push([child, next])
      }
    }
  }

  /** What of the answer so far decides what the next token writes: its last token, or nothing. */
  contextOf(previous: number | null): number | null {
    return this.dependsOnPrevious ? previous : null
  }

  /** Trees after different tokens are as many as tokens were sampled; the oldest are forgotten. */
  private treeAfter(previous: number | null): Node {
    const key = this.contextOf(previous)
    let tree = this.trees.get(key)
    if (tree === undefined) {
      if (this.trees.size >= MOST_TREES) this.trees.delete(this.trees.keys().next().value as number | null)
      tree = this.build(key)
      this.trees.set(key, tree)
    }
    return tree
  }

  private build(previous: number | null): Node {
    const root: Node = { next: new Map(), ids: [] }
    for (let id = 0; id < this.vocabulary.vocabularySize; id++) {
      if (this.vocabulary.endIds.has(id)) continue
      const text = this.textOf(id, previous)
      // Tokens without text would let an answer stand still for ever.
      if (text === '' || text.includes('\ufffd')) continue
      let node = root
      for (const character of text) {
        const codePoint = character.codePointAt(0) as number
        let child = node.next.get(codePoint)
        if (child === undefined) {
          child = { next: new Map(), ids: [] }
          node.next.set(codePoint, child)
        }
        node = child
      }
      node.ids.push(id)
    }
    return root
  }
}

const MOST_TREES = 64
const PROBES = 40

/** Whether texts of tokens simply follow each other (byte-level BPE), by trying pairs; word-piece tokenizers put spaces between. */
function isConcatenation({ vocabularySize, decode, endIds }: Vocabulary): boolean {
  const step = Math.max(1, Math.floor(vocabularySize / PROBES))
  const whole: number[] = []
  for (let id = 0; id < vocabularySize; id += step)
    if (!endIds.has(id) && !decode([id]).includes('\ufffd')) whole.push(id)
  return whole.every((id, index) => {
    const other = whole[(index * 7 + 3) % whole.length] as number
    return decode([id, other]) === decode([id]) + decode([other])
  })
}
