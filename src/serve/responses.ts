/**
 * The bodies that clients get back, whole or in chunks. Field names are OpenAI's and vLLM's (spec/endpoint.md, 3.4).
 *
 * In a stream every chunk has the ids and log-probabilities that are new in it, and the one that ends a choice has all of them once more
 * (`all_token_ids`, `all_token_logprobs`), so that no consumer can lose any (spec/pitfalls.md, row 22).
 */
import type { ChatTokenizer } from '../types.ts'
import type { Choice, ComingToken } from './generate.ts'
import { chatLogprobs, completionLogprobs, promptLogprobs } from './logprobs.ts'
import type { ServeRequest } from './requests.ts'
import { parseToolCalls } from './toolCalls.ts'

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
  const { endpoint, request } = head
  const [first] = choices
  return {
    ...common(head, versionsOf(choices)),
    object: endpoint === 'chat' ? 'chat.completion' : 'text_completion',
    choices: choices.map((choice) => (endpoint === 'chat' ? chatChoice(head, choice) : completionChoice(head, choice))),
    usage: usageOf(choices),
    ...(endpoint === 'chat' && request.tokenIds ? { prompt_token_ids: first?.prompt.ids } : {}),
    ...(endpoint === 'chat' && first?.toldPrompt
      ? { prompt_logprobs: promptLogprobs(first.toldPrompt, naming(head)) }
      : {}),
  }
}

/** The version that sampled all choices; several, joined by commas, when the weights changed in between. */
export const versionsOf = (choices: readonly Choice[]) =>
  [...new Set(choices.map((choice) => choice.version))].join(',')

/** What a stream begins with: a chat's choices name the role; the prompt's ids come here and nowhere else. */
export function openingChunks(head: ResponseHead, version: string, prompts: readonly (readonly number[] | null)[]) {
  const { endpoint, request } = head
  const ids = (index: number) => prompts[Math.floor(index / request.n)] ?? null
  return Array.from({ length: prompts.length * request.n }, (_, index) =>
    endpoint === 'chat'
      ? {
          ...chunk(head, version, [
            { index, delta: { role: 'assistant', content: '' }, logprobs: null, finish_reason: null },
          ]),
          ...(index === 0 && request.tokenIds ? { prompt_token_ids: ids(index) } : {}),
        }
      : chunk(head, version, [
          {
            index,
            text: '',
            logprobs: null,
            finish_reason: null,
            ...(request.tokenIds ? { prompt_token_ids: ids(index), token_ids: [] } : {}),
          },
        ]),
  )
}

/** What is new of a choice: text that has become certain, and tokens. `textOffset`: length of what came before. */
export interface Piece {
  index: number
  text: string
  tokens: readonly ComingToken[]
  textOffset: number
}

export function pieceChunk(head: ResponseHead, version: string, piece: Piece) {
  return chunk(head, version, [pieceChoice(head, piece)])
}

/** The last chunk of a choice: what is left of it, and all its ids and log-probabilities. */
export function endingChunk(head: ResponseHead, choice: Choice, piece: Piece) {
  const { request } = head
  const { delta, ...rest } = pieceChoice(head, piece) as ReturnType<typeof pieceChoice> & { delta?: object }
  const { message, finishReason } = withTools(head, choice)
  const calls = message.tool_calls?.map((call, index) => ({ index, ...call }))
  return chunk(head, choice.version, [
    {
      ...rest,
      ...(delta ? { delta: { ...delta, ...(calls ? { content: message.content, tool_calls: calls } : {}) } } : {}),
      finish_reason: finishReason,
      stop_reason: choice.stopReason,
      ...cutOf(choice),
      ...(request.tokenIds ? { all_token_ids: choice.ids } : {}),
      ...(request.logprobs === null ? {} : { all_token_logprobs: choice.logprobs }),
    },
  ])
}

export function usageChunk(head: ResponseHead, choices: readonly Choice[]) {
  return { ...chunk(head, versionsOf(choices), []), usage: usageOf(choices) }
}

/** Tokens of a whole answer, each with what was told of it. */
export function tokensOf({ ids, logprobs, told }: Choice): ComingToken[] {
  return (ids ?? []).map((id, index) => ({ ...told?.[index], id, logprob: logprobs?.[index] ?? Number.NaN }))
}

function pieceChoice(head: ResponseHead, { index, text, tokens, textOffset }: Piece) {
  const { endpoint, request } = head
  const asked = request.logprobs !== null
  const ids = request.tokenIds ? { token_ids: tokens.map(({ id }) => id) } : {}
  return endpoint === 'chat'
    ? {
        index,
        delta: { content: text },
        logprobs: asked ? { content: chatLogprobs(tokens, naming(head)), refusal: null } : null,
        finish_reason: null,
        ...ids,
      }
    : {
        index,
        text,
        logprobs: asked ? completionLogprobs(tokens, naming(head), textOffset) : null,
        finish_reason: null,
        ...ids,
      }
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
  const { message, finishReason } = withTools(head, choice)
  const { request } = head
  return {
    index: choice.index,
    message: { role: 'assistant', ...message, refusal: null },
    finish_reason: finishReason,
    ...ending(request, choice),
    logprobs:
      request.logprobs === null ? null : { content: chatLogprobs(tokensOf(choice), naming(head)), refusal: null },
  }
}

/** With the calls of tools taken out of the text, where the request gave tools. */
function withTools({ id, request, tokenizer }: ResponseHead, { index, text, finishReason }: Choice) {
  if (!request.parseTools || tokenizer?.toolSyntax === undefined) return { message: { content: text }, finishReason }
  const { content, calls } = parseToolCalls(text, tokenizer.toolSyntax, `${id}/${index}`)
  if (calls.length === 0) return { message: { content }, finishReason }
  return { message: { content, tool_calls: calls }, finishReason: 'tool_calls' }
}

function completionChoice(head: ResponseHead, choice: Choice) {
  const { request } = head
  return {
    index: choice.index,
    text: choice.text,
    finish_reason: choice.finishReason,
    ...ending(request, choice),
    logprobs: request.logprobs === null ? null : completionLogprobs(tokensOf(choice), naming(head)),
    ...(request.tokenIds ? { prompt_token_ids: choice.prompt.ids } : {}),
    ...(choice.toldPrompt ? { prompt_logprobs: promptLogprobs(choice.toldPrompt, naming(head)) } : {}),
  }
}

function ending(request: ServeRequest, choice: Choice) {
  return {
    stop_reason: choice.stopReason,
    ...cutOf(choice),
    ...(request.tokenIds ? { token_ids: choice.ids } : {}),
  }
}

/**
 * Log-probabilities are those of the whole distribution. Where cuts or a bias made another one to draw from, `kept_mass` tells of each token
 * what it was divided by: log-probability minus its logarithm is that of the distribution drawn from (spec/pitfalls.md, row 6).
 */
function cutOf({ cut }: Choice) {
  return cut ? { sampling_cut: { by: cut.by, kept_mass: cut.keptMass } } : {}
}

function naming({ request, tokenizer }: ResponseHead) {
  return { tokenizer, tokensAsIds: request.tokensAsIds }
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
