/** A tokenizer whose ids are character codes, so that tests can read token ids. */
import type { TextTokenizer } from '../../src/policy/tokenizer.ts'
import type { ChatMessage } from '../../src/types.ts'

const encode = (text: string) => [...text].map((letter) => letter.charCodeAt(0))
const render = (messages: readonly ChatMessage[], open: boolean) =>
  messages.map(({ role, content }) => `${role}:${content}\n`).join('') + (open ? 'assistant:' : '')

export const letters: TextTokenizer = {
  encode,
  render,
  encodePrompt: (messages) => encode(render(messages, true)),
  encodeContinuation: (messages) => encode(`\n${render(messages, true)}`),
  decode: (ids) => String.fromCharCode(...ids),
  idOf: (token) => token.charCodeAt(0),
  endIds: new Set(),
  vocabularySize: 65_536,
}
