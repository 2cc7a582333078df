/** Log-probabilities in the forms of the two endpoints: OpenAI's for chat, the older one for completions, vLLM's for prompts. */
import type { ChatTokenizer, ToldToken } from '../types.ts'
import type { ComingToken } from './generate.ts'

/** What the forms differ by besides the tokens. */
export interface TokenNaming {
  tokenizer: ChatTokenizer | undefined
  /** Tokens are written `token_id:N` instead of as text. */
  tokensAsIds: boolean
}

/** JSON knows no infinity; this is how vLLM writes it. */
const LOWEST = -9999

export function chatLogprobs(tokens: readonly ComingToken[], naming: TokenNaming) {
  const entry = ({ id, logprob }: ComingToken) => {
    const token = nameOf(id, naming)
    return { token, logprob: finite(logprob), bytes: bytesOf(id, naming) }
  }
  return tokens.map((token) => ({ ...entry(token), top_logprobs: (token.alternatives ?? []).map(entry) }))
}

/** The sampled token is among its alternatives, as in vLLM. `textOffset`: where the first token begins in the answer. */
export function completionLogprobs(tokens: readonly ComingToken[], naming: TokenNaming, textOffset = 0) {
  let offset = textOffset
  return {
    tokens: tokens.map(({ id }) => nameOf(id, naming)),
    token_logprobs: tokens.map(({ logprob }) => finite(logprob)),
    top_logprobs: tokens.map((token) =>
      Object.fromEntries(
        [token, ...(token.alternatives ?? [])].map(({ id, logprob }) => [nameOf(id, naming), finite(logprob)]),
      ),
    ),
    text_offset: tokens.map(({ id }) => {
      const at = offset
      offset += naming.tokenizer?.decode([id]).length ?? 0
      return at
    }),
  }
}

/** By id, the prompt's own token first; null for the first token, of which nothing is known. */
export function promptLogprobs(told: readonly (ToldToken | null)[], { tokenizer }: TokenNaming) {
  return told.map((token) => {
    if (token === null) return null
    const entry = (id: number, logprob: number, rank: number) => [
      String(id),
      { logprob: finite(logprob), rank, decoded_token: tokenizer ? textOf(id, tokenizer) : null },
    ]
    return Object.fromEntries([
      entry(token.id, token.logprob, token.rank),
      ...token.alternatives.map(({ id, logprob }, index) => entry(id, logprob, index + 1)),
    ])
  })
}

function nameOf(id: number, { tokensAsIds, tokenizer }: TokenNaming): string {
  return tokensAsIds || !tokenizer ? `token_id:${id}` : textOf(id, tokenizer)
}

/** Texts of single tokens, which are asked for again and again. */
const texts = new WeakMap<ChatTokenizer, Map<number, string>>()

function textOf(id: number, tokenizer: ChatTokenizer): string {
  const known = texts.get(tokenizer) ?? new Map<number, string>()
  texts.set(tokenizer, known)
  const text = known.get(id) ?? tokenizer.decode([id])
  known.set(id, text)
  return text
}

/** null for a token that is part of a character. */
function bytesOf(id: number, { tokenizer }: TokenNaming): number[] | null {
  const text = tokenizer ? textOf(id, tokenizer) : '\ufffd'
  return text.includes('\ufffd') ? null : [...Buffer.from(text)]
}

function finite(logprob: number): number {
  return Math.max(logprob, LOWEST)
}
