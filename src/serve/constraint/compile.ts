/** From what a request asks its answer to look like to the tokens that may come next. Keeps what it compiled. */
import type { TextTokenizer } from '../../policy/tokenizer.ts'
import type { ChatTokenizer } from '../../types.ts'
import type { Format } from '../requests.ts'
import { refused } from '../schema.ts'
import type { Acceptor } from './acceptor.ts'
import { jsonObject } from './json.ts'
import { choiceAcceptor, regexAcceptor } from './regex.ts'
import { ConstraintCursor, TokenConstraint } from './tokens.ts'
import { TokenTexts } from './vocabulary.ts'

const MOST_KEPT = 32

interface Compiled {
  texts: TokenTexts
  constraints: Map<string, TokenConstraint>
}

const compiledFor = new WeakMap<ChatTokenizer, Compiled>()

/** Fails with 400 where the format is not understood, too large, or cannot be written with this vocabulary. */
export function constraintFor(format: Format, tokenizer: ChatTokenizer | undefined): TokenConstraint {
  if (!knowsVocabulary(tokenizer) || tokenizer.endIds.size === 0)
    throw refused(
      'response_format',
      'only "text" is supported by this model, whose vocabulary or end tokens are not known',
    )
  let compiled = compiledFor.get(tokenizer)
  if (compiled === undefined) {
    compiled = { texts: new TokenTexts(tokenizer), constraints: new Map() }
    compiledFor.set(tokenizer, compiled)
  }
  const key = JSON.stringify(format)
  let constraint = compiled.constraints.get(key)
  if (constraint === undefined) {
    constraint = new TokenConstraint(acceptorOf(format), compiled.texts, tokenizer)
    const { constraints } = compiled
    if (constraints.size >= MOST_KEPT) constraints.delete(constraints.keys().next().value as string)
    constraints.set(key, constraint)
  }
  if (!constraint.allowed(constraint.acceptor.start, null).includes(1))
    throw refused('response_format', 'nothing that matches can be written with the tokens of this model')
  return constraint
}

/** For `Sampling.allowed`: follows one answer. */
export function allowedTokens(constraint: TokenConstraint): (sampled: readonly number[]) => Uint8Array {
  const cursor = new ConstraintCursor(constraint)
  let read = 0
  return (sampled) => {
    for (; read < sampled.length; read++) cursor.advance(sampled[read] as number)
    return cursor.allowed()
  }
}

function acceptorOf(format: Format): Acceptor {
  if (format.kind === 'json') return jsonObject
  try {
    return format.kind === 'regex' ? regexAcceptor(format.regex) : choiceAcceptor(format.choices)
  } catch (error) {
    throw refused('response_format', `${format.kind}: ${(error as Error).message}`)
  }
}

function knowsVocabulary(tokenizer: ChatTokenizer | undefined): tokenizer is TextTokenizer {
  return tokenizer !== undefined && 'vocabularySize' in tokenizer
}
