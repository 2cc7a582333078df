/**
 * The bodies that clients get back, whole or in chunks. Field names are OpenAI's and vLLM's (spec/endpoint.md, 3.4).
 *
 * In a stream each choice comes as one chunk that carries its text, ids, log-probabilities and finish reason together, so that no
 * consumer can lose ids at the end (spec/pitfalls.md, row 22). A `Policy` answers whole generations, so nothing comes earlier.
 */
import type { ChatTokenizer } from '../types.ts'
import type { Choice } from './generate.ts'
import type { ServeRequest } from './requests.ts'

export type Endpoint = 'chat' | 'completions'

/** What all bodies of one response have in common. */
export interface ResponseHead {
  endpoint: Endpoint
  id: string
  /** Unix time in seconds. */
  created: number
  request: ServeRequest
  tokenizer: ChatTokenizer | undefined
}

export function responseBody(head: ResponseHead, choices: readonly Choice[]) {
  return {
    ...common(head, versionOf(choices)),
    object: head.endpoint === 'chat' ? 'chat.completion' : 'text_completion',
    choices: choices.map((choice) =>
      head.endpoint === 'chat' ? chatChoice(head, choice) : completionChoice(head, choice),
    ),
    usage: usageOf(choices),
    ...(head.endpoint === 'chat' && head.request.tokenIds ? { prompt_token_ids: choices[0]?.prompt.ids } : {}),
  }
}

/** The version that sampled all choices; several, joined by commas, when the weights changed in between. */
export const versionOf = (choices: readonly Choice[]) => [...new Set(choices.map((choice) => choice.version))].join(',')

/** Chat streams begin with one chunk per choice that names the role, and the first also has the prompt's ids. */
export function openingChunks(head: ResponseHead, count: number, version: string, promptIds: readonly number[] | null) {
  if (head.endpoint === 'completions') return []
  return Array.from({ length: count }, (_, index) => ({
    ...chunk(head, version, [
      { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
    ]),
    ...(index === 0 && head.request.tokenIds ? { prompt_token_ids: promptIds } : {}),
  }))
}

export function choiceChunk(head: ResponseHead, choice: Choice) {
  if (head.endpoint === 'completions') return chunk(head, choice.version, [completionChoice(head, choice)])
  const { message, ...rest } = chatChoice(head, choice)
  return chunk(head, choice.version, [{ ...rest, delta: { content: message.content } }])
}

export function usageChunk(head: ResponseHead, choices: readonly Choice[]) {
  return { ...chunk(head, versionOf(choices), []), usage: usageOf(choices) }
}

function chunk(head: ResponseHead, version: string, choices: unknown[]) {
  const object = head.endpoint === 'chat' ? 'chat.completion.chunk' : 'text_completion'
  // OpenAI: every chunk says usage: null when the last one will tell it
  return { ...common(head, version), object, choices, ...(head.request.includeUsage ? { usage: null } : {}) }
}

function common({ id, created, request }: ResponseHead, version: string) {
  // weight_version is the name that rLLM reads
  return { id, created, model: request.model, policy_version: version, weight_version: version }
}

function chatChoice(head: ResponseHead, choice: Choice) {
  return {
    index: choice.index,
    message: { role: 'assistant', content: choice.text, refusal: null },
    ...ending(head, choice),
    logprobs: head.request.logprobs ? { content: chatLogprobs(head, choice), refusal: null } : null,
  }
}

function completionChoice(head: ResponseHead, choice: Choice) {
  return {
    index: choice.index,
    text: choice.text,
    ...ending(head, choice),
    logprobs: head.request.logprobs ? completionLogprobs(head, choice) : null,
    ...(head.request.tokenIds ? { prompt_token_ids: choice.prompt.ids } : {}),
  }
}

function ending({ request }: ResponseHead, { finishReason, stopReason, ids }: Choice) {
  return { finish_reason: finishReason, stop_reason: stopReason, ...(request.tokenIds ? { token_ids: ids } : {}) }
}

function chatLogprobs(head: ResponseHead, choice: Choice) {
  const tokens = tokenTexts(head, choice)
  return (choice.logprobs ?? []).map((logprob, i) => ({
    token: tokens[i],
    logprob,
    bytes: [...Buffer.from(tokens[i] ?? '')],
    top_logprobs: [],
  }))
}

function completionLogprobs(head: ResponseHead, choice: Choice) {
  const tokens = tokenTexts(head, choice)
  let offset = 0
  return {
    tokens,
    token_logprobs: choice.logprobs,
    top_logprobs: null,
    text_offset: tokens.map((token) => {
      const at = offset
      offset += token.length
      return at
    }),
  }
}

/** Each sampled token on its own. */
function tokenTexts({ request, tokenizer }: ResponseHead, { ids }: Choice): string[] {
  return (ids ?? []).map((id) => (request.tokensAsIds || !tokenizer ? `token_id:${id}` : tokenizer.decode([id])))
}

/** Every prompt counts once, however many samples it has. */
function usageOf(choices: readonly Choice[]) {
  const prompts = new Map(choices.map((choice) => [choice.prompt, choice.promptTokens]))
  const promptTokens = [...prompts.values()].reduce((sum, tokens) => sum + tokens, 0)
  const completionTokens = choices.reduce((sum, choice) => sum + choice.completionTokens, 0)
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
}
