/**
 * What a constrained answer may look like, as an automaton over characters. Regular expressions (`regex.ts`) and JSON (`json.ts`) are
 * acceptors; `tokens.ts` turns one into sets of allowed tokens. Knows no tokens.
 */

/** A state, equal as a key of a Map when what may follow is equal. */
export type State = string | number

export interface Acceptor {
  readonly start: State
  /** The state after one more character (a Unicode code point); null when nothing that begins like this is accepted. */
  step(state: State, codePoint: number): State | null
  /** Whether what has been written is accepted as it stands. */
  isFinal(state: State): boolean
}
