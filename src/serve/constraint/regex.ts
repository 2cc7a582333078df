/**
 * Regular expressions as acceptors: JavaScript's syntax in Unicode mode, matched against the whole text. Parsing, determinising and
 * minimising are refa's. Look-around, word boundaries and back references are refused: an automaton of bounded size cannot hold them.
 */
import { DFA, JS, NFA, TooManyNodesError } from 'refa'
import type { Acceptor, State } from './acceptor.ts'

/** Action grammars need tens or hundreds; exponential expressions end here. */
const MOST_NODES = 5_000

/** Throws an Error with one line about what is wrong with the expression. */
export function regexAcceptor(source: string): Acceptor {
  const dfa = automatonOf(source)
  if (dfa.isEmpty) throw new Error('nothing matches it')
  const nodes = [...dfa.nodes()]
  const numbers = new Map(nodes.map((node, number) => [node, number]))
  /** Of every state: ranges of characters in order, and where they lead. */
  const ranges = nodes.map((node) =>
    [...node.out].map(([{ min, max }, to]) => ({ min, max, to: numbers.get(to) as number })),
  )
  const finals = new Set([...dfa.finals].map((node) => numbers.get(node)))
  return {
    start: numbers.get(dfa.initial) as number,
    step: (state, codePoint) =>
      ranges[state as number]?.find(({ min, max }) => min <= codePoint && codePoint <= max)?.to ?? null,
    isFinal: (state: State) => finals.has(state as number),
  }
}

/** One of these texts, whole. */
export function choiceAcceptor(choices: readonly string[]): Acceptor {
  return regexAcceptor(choices.map((choice) => choice.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')).join('|'))
}

function automatonOf(source: string): DFA {
  try {
    // anchors around the whole say what holds anyway
    const inner = source.replace(/^\^/, '').replace(/(?<!\\)\$$/, '')
    const { expression, maxCharacter } = JS.Parser.fromLiteral({ source: inner, flags: 'u' }).parse({
      assertions: 'throw',
      backreferences: 'throw',
      maxNodes: MOST_NODES,
    })
    const nfa = NFA.fromRegex(expression, { maxCharacter }, {}, new NFA.LimitedNodeFactory(MOST_NODES))
    const dfa = DFA.fromFA(nfa, new DFA.LimitedNodeFactory(MOST_NODES))
    dfa.minimize()
    return dfa
  } catch (error) {
    if (error instanceof TooManyNodesError) throw new Error(`it needs more than ${MOST_NODES} states`)
    throw new Error((error as Error).message.split('\n')[0])
  }
}
