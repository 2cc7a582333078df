/**
 * Which tokens may come next in a constrained answer. One `TokenConstraint` serves all answers with the same constraint and vocabulary;
 * each answer follows it with a `ConstraintCursor` of its own. Chooses no token.
 */
import type { Acceptor, State } from './acceptor.ts'
import type { TokenTexts, Vocabulary } from './vocabulary.ts'

/** Sets of allowed tokens that are kept; each is a byte per token. */
const MOST_KEPT = 1024

export class TokenConstraint {
  private readonly kept = new Map<string, Uint8Array>()
  /** Places from which the answer can be completed, and from which not. */
  private readonly completable = new Map<string, boolean>()

  constructor(
    readonly acceptor: Acceptor,
    readonly texts: TokenTexts,
    private readonly vocabulary: Vocabulary,
  ) {}

  /**
   * 1 for every token that may follow, [vocabularySize], and after which the vocabulary can complete the answer. End tokens may where it
   * is complete. All 0 only at the start, of an answer that the vocabulary cannot write.
   */
  allowed(state: State, previous: number | null): Uint8Array {
    const context = this.texts.contextOf(previous)
    const key = keyOf(state, context)
    let allowed = this.kept.get(key)
    if (allowed === undefined) {
      allowed = new Uint8Array(this.vocabulary.vocabularySize)
      for (const [id, to] of this.texts.following(this.acceptor, state, context))
        if (this.canComplete(to, this.texts.contextOf(id))) allowed[id] = 1
      if (this.acceptor.isFinal(state)) for (const id of this.vocabulary.endIds) allowed[id] = 1
      if (this.kept.size >= MOST_KEPT) this.kept.clear()
      this.kept.set(key, allowed)
    }
    return allowed
  }

  /** Searches depth first for a way to a final state. What a failed search has seen is all dead. */
  private canComplete(state: State, context: number | null): boolean {
    const start = keyOf(state, context)
    const known = this.completable.get(start)
    if (known !== undefined) return known
    const seen = new Set([start])
    const path = [{ key: start, state, next: this.texts.following(this.acceptor, state, context) }]
    let found = this.acceptor.isFinal(state)
    while (!found && path.length > 0) {
      const step = path.at(-1)!.next.next()
      if (step.done) {
        path.pop()
        continue
      }
      const [id, to] = step.value
      const key = keyOf(to, this.texts.contextOf(id))
      found = this.acceptor.isFinal(to) || this.completable.get(key) === true
      if (seen.has(key) || this.completable.has(key)) continue
      seen.add(key)
      path.push({ key, state: to, next: this.texts.following(this.acceptor, to, this.texts.contextOf(id)) })
    }
    for (const key of found ? path.map((place) => place.key) : seen) this.completable.set(key, found)
    return found
  }
}

function keyOf(state: State, context: number | null): string {
  return `${context ?? ''} ${state}`
}

export class ConstraintCursor {
  private state: State
  private previous: number | null = null

  constructor(private readonly constraint: TokenConstraint) {
    this.state = constraint.acceptor.start
  }

  /** 1 for every token that may come next, [vocabularySize]. */
  allowed(): Uint8Array {
    return this.constraint.allowed(this.state, this.previous)
  }

  /** To be called with each token that was sampled. Throws for one that was not allowed. */
  advance(id: number): void {
    const { acceptor, texts } = this.constraint
    for (const character of texts.textOf(id, this.previous)) {
      const next = acceptor.step(this.state, character.codePointAt(0) as number)
      if (next === null) throw new Error(`token ${id} leaves the constraint`)
      this.state = next
    }
    this.previous = id
  }
}
