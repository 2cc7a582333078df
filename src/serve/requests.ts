/**
 * What clients may send to `/v1/chat/completions` and `/v1/completions`, and the common form of both: OpenAI's parameters and vLLM's
 * (spec/endpoint.md, 3.4). Parameters that would change what is sampled and that no policy here has (penalties, beam search) are refused
 * except for their neutral values. Renders and samples nothing.
 */
import { z } from 'zod'
import type { ChatMessage, PromptSettings } from '../types.ts'
import { flag, neutral, parse, refused, tokenIds } from './schema.ts'

/** OpenAI's default for `/v1/completions`; chat takes what the context leaves. */
const COMPLETION_TOKENS = 16
/** Alternatives for each token at most: an answer with more is mostly numbers. */
const MOST_LOGPROBS = 128

const alternatives = z.number().int().min(0).max(MOST_LOGPROBS)
const choices = z.array(z.string().min(1)).min(1).max(1000)
const stopString = z.string().min(1)

const responseFormat = z.discriminatedUnion(
  'type',
  [
    z.object({ type: z.literal('text') }).strict(),
    z.object({ type: z.literal('json_object') }).strict(),
    z.object({ type: z.literal('regex'), regex: z.string().min(1) }).strict(),
    z.object({ type: z.literal('choice'), choice: choices }).strict(),
  ],
  { error: 'only {"type": "text"}, "json_object", "regex" (with regex) and "choice" (with choice) are supported' },
)

/** vLLM's way of saying the same. */
const structuredOutputs = z
  .object({ regex: z.string().min(1).nullish(), choice: choices.nullish(), json_object: flag })
  .strict()

const common = {
  model: z.string(),
  n: z.number().int().min(1).nullish(),
  seed: z.number().int().nullish(),
  temperature: z.number().min(0).nullish(),
  top_p: z.number().gt(0).max(1).nullish(),
  top_k: z.number().int().min(-1).nullish(),
  min_p: z.number().min(0).max(1).nullish(),
  max_tokens: z.number().int().min(1).nullish(),
  min_tokens: z.number().int().min(0).nullish(),
  stop: z.union([stopString, z.array(stopString).max(16)]).nullish(),
  stop_token_ids: z.array(z.number().int().min(0)).max(64).nullish(),
  include_stop_str_in_output: flag,
  ignore_eos: flag,
  logit_bias: z
    .record(z.string().regex(/^\d+$/, 'expected token ids as keys'), z.number().min(-100).max(100))
    .nullish(),
  prompt_logprobs: alternatives.nullish(),
  return_token_ids: flag,
  return_tokens_as_token_ids: flag,
  skip_special_tokens: flag,
  spaces_between_special_tokens: neutral(true),
  stream: flag,
  stream_options: z.object({ include_usage: flag }).strict().nullish(),
  response_format: responseFormat.nullish(),
  structured_outputs: structuredOutputs.nullish(),
  priority: z.number().int().nullish(),
  user: z.string().nullish(),
  presence_penalty: neutral(0),
  frequency_penalty: neutral(0),
  repetition_penalty: neutral(1),
  length_penalty: neutral(1),
  // texts are taken as they stand: templates write what begins a prompt
  add_special_tokens: neutral(false),
  use_beam_search: neutral(false),
}

const textPart = z
  .object({ type: z.literal('text', { error: 'only text parts are supported' }), text: z.string() })
  .strict()
const content = z.union([z.string(), z.array(textPart).min(1)], { error: 'expected text, or a list of text parts' })

const toolCall = z
  .object({
    id: z.string(),
    type: z.literal('function'),
    function: z.object({ name: z.string(), arguments: z.string() }).strict(),
  })
  .strict()

/** Clients send answers back as they got them, with what other servers put into theirs. */
const emptyParts = {
  refusal: z.null().optional(),
  audio: z.null().optional(),
  annotations: z.array(z.never()).nullish(),
  function_call: z.null().optional(),
  reasoning: z.null().optional(),
  reasoning_content: z.null().optional(),
}

const message = z.discriminatedUnion(
  'role',
  [
    z.object({ role: z.enum(['system', 'developer', 'user']), content, name: z.string().optional() }).strict(),
    z
      .object({
        role: z.literal('assistant'),
        content: content.nullish(),
        name: z.string().optional(),
        tool_calls: z.array(toolCall).nullish(),
        ...emptyParts,
      })
      .strict(),
    z.object({ role: z.literal('tool'), content, tool_call_id: z.string(), name: z.string().optional() }).strict(),
  ],
  { error: 'expected a message whose role is system, developer, user, assistant or tool' },
)

const tool = z
  .object({
    type: z.literal('function'),
    function: z
      .object({
        name: z.string().min(1),
        description: z.string().optional(),
        parameters: z.record(z.string(), z.unknown()).optional(),
        strict: neutral(false),
      })
      .loose(),
  })
  .strict()

const chatRequest = z
  .object({
    ...common,
    messages: z.array(message).min(1),
    max_completion_tokens: z.number().int().min(1).nullish(),
    logprobs: flag,
    top_logprobs: alternatives.nullish(),
    tools: z.array(tool).nullish(),
    tool_choice: z.literal(['none', 'auto'], { error: 'only "none" and "auto" are supported' }).nullish(),
    parallel_tool_calls: neutral(true),
    chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
    add_generation_prompt: flag,
    continue_final_message: flag,
  })
  .strict()

const completionRequest = z
  .object({
    ...common,
    prompt: z.union([z.string(), tokenIds, z.array(z.string()).min(1), z.array(tokenIds).min(1)], {
      error: 'expected a string, a list of strings, a list of token ids, or a list of lists of token ids',
    }),
    // true is how skyrl-tx asks for the sampled tokens' own
    logprobs: z.union([z.boolean(), alternatives]).nullish(),
    echo: neutral(false),
    suffix: neutral(''),
    best_of: neutral(1),
  })
  .strict()

/** One thing to continue: messages, a text as it stands, or token ids. */
export type Prompt =
  | { kind: 'messages'; messages: readonly ChatMessage[]; settings: PromptSettings }
  | { kind: 'text'; text: string }
  | { kind: 'ids'; ids: readonly number[] }

/** What an answer must look like. */
export type Format =
  | { kind: 'json' }
  | { kind: 'regex'; regex: string }
  | { kind: 'choice'; choices: readonly string[] }

/** Both endpoints' requests in one form. */
export interface ServeRequest {
  model: string
  prompts: readonly Prompt[]
  /** Samples per prompt. */
  n: number
  /** null: a fresh one. */
  seed: number | null
  temperature: number
  topP: number
  /** 0: all tokens. */
  topK: number
  minP: number
  /** null: as many as the context leaves. */
  maxTokens: number | null
  /** Before so many, nothing ends the answer. */
  minTokens: number
  stop: readonly string[]
  stopIds: readonly number[]
  includeStop: boolean
  /** Goes on behind tokens that end a message. */
  ignoreEnd: boolean
  logitBias: ReadonlyMap<number, number>
  format: Format | null
  stream: boolean
  includeUsage: boolean
  /** Log-probabilities of what is sampled, with so many alternatives for each token; null: none. */
  logprobs: number | null
  /** The same of the prompt. */
  promptLogprobs: number | null
  tokenIds: boolean
  /** Tokens in log-probabilities are written `token_id:N` instead of as text. */
  tokensAsIds: boolean
  /** Tokens such as `<|im_end|>` are left out of the text. */
  skipSpecial: boolean
  /** Tools that the answer may call, where calls are to be taken out of the text. */
  parseTools: boolean
  /** Waiting requests of one client with a lower number go first. */
  priority: number
  user: string | null
}

export function parseChatRequest(body: unknown): ServeRequest {
  const request = parse(chatRequest, body)
  if (request.max_tokens != null && request.max_completion_tokens != null)
    throw refused('max_tokens', 'the same thing as max_completion_tokens; give one of them')
  if (request.top_logprobs != null && request.top_logprobs > 0 && request.logprobs !== true)
    throw refused('top_logprobs', 'needs "logprobs": true')
  const messages = request.messages.map(chatMessage)
  const tools = request.tools ?? []
  return {
    ...shared(request),
    prompts: [{ kind: 'messages', messages, settings: promptSettings(request, messages) }],
    logprobs: request.logprobs === true ? (request.top_logprobs ?? 0) : null,
    parseTools: tools.length > 0 && request.tool_choice !== 'none',
  }
}

export function parseCompletionRequest(body: unknown): ServeRequest {
  const request = parse(completionRequest, body)
  const { logprobs } = request
  return {
    ...shared(request),
    prompts: promptsOf(request.prompt),
    maxTokens: request.max_tokens ?? Math.max(COMPLETION_TOKENS, request.min_tokens ?? 0),
    logprobs: logprobs === true ? 0 : logprobs === false ? null : (logprobs ?? null),
    parseTools: false,
  }
}

/** Body of `/tokenize`, as vLLM reads it: a prompt, or messages. */
export function parseTokenizeRequest(body: unknown) {
  const request = parse(tokenizeRequest, body)
  if (request.messages === undefined) {
    if (request.prompt === undefined) throw refused('prompt', 'expected a prompt, or messages')
    const others = ['tools', 'chat_template_kwargs', 'add_generation_prompt', 'continue_final_message'] as const
    const given = others.find((name) => request[name] != null)
    if (given !== undefined) throw refused(given, 'goes with messages, not with a prompt')
    return { ...request, content: { kind: 'text', text: request.prompt } as Prompt }
  }
  if (request.prompt !== undefined) throw refused('prompt', 'expected a prompt or messages, got both')
  const messages = request.messages.map(chatMessage)
  return { ...request, content: { kind: 'messages', messages, settings: promptSettings(request, messages) } as Prompt }
}

const tokenizeRequest = z
  .object({
    model: z.string().nullish(),
    prompt: z.string().optional(),
    messages: z.array(message).min(1).optional(),
    tools: z.array(tool).nullish(),
    chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
    add_generation_prompt: flag,
    continue_final_message: flag,
    return_token_strs: flag,
    add_special_tokens: neutral(false),
  })
  .strict()

export function parseDetokenizeRequest(body: unknown) {
  return parse(z.object({ model: z.string().nullish(), tokens: z.array(z.number().int().min(0)) }).strict(), body)
}

function promptsOf(prompt: z.output<typeof completionRequest>['prompt']): Prompt[] {
  if (typeof prompt === 'string') return [{ kind: 'text', text: prompt }]
  if (isIds(prompt)) return [{ kind: 'ids', ids: prompt }]
  return prompt.map(
    (one): Prompt => (typeof one === 'string' ? { kind: 'text', text: one } : { kind: 'ids', ids: one }),
  )
}

const isIds = (list: number[] | (string | number[])[]): list is number[] => typeof list[0] === 'number'

function chatMessage({ content, role, ...rest }: z.output<typeof message>): ChatMessage {
  const { tool_calls, tool_call_id, name } = rest as Partial<ChatMessage>
  return {
    role: role === 'developer' ? 'system' : role,
    content: typeof content === 'string' ? content : (content ?? []).map((part) => part.text).join(''),
    ...(name === undefined ? {} : { name }),
    ...(tool_call_id === undefined ? {} : { tool_call_id }),
    // templates expect arguments as what they mean, clients send them as text
    ...(tool_calls?.length ? { tool_calls: tool_calls.map(withParsedArguments) } : {}),
  }
}

function withParsedArguments(call: unknown): unknown {
  const { function: called, ...rest } = call as z.output<typeof toolCall>
  try {
    return { ...rest, function: { ...called, arguments: JSON.parse(called.arguments) } }
  } catch {
    return call
  }
}

function promptSettings(
  request: Pick<
    z.output<typeof chatRequest>,
    'tools' | 'chat_template_kwargs' | 'add_generation_prompt' | 'continue_final_message'
  >,
  messages: readonly ChatMessage[],
): PromptSettings {
  const { tools, chat_template_kwargs, add_generation_prompt, continue_final_message } = request
  const last = messages.at(-1)
  if (continue_final_message === true) {
    if (add_generation_prompt === true)
      throw refused('continue_final_message', 'cannot be asked for together with add_generation_prompt')
    if (last?.role !== 'assistant') throw refused('continue_final_message', 'needs an assistant message at the end')
  }
  const taken = ['messages', 'tools', 'add_generation_prompt'].find((name) =>
    Object.hasOwn(chat_template_kwargs ?? {}, name),
  )
  if (taken !== undefined) throw refused(`chat_template_kwargs.${taken}`, 'is a parameter of its own; give it beside')
  return {
    opening: continue_final_message ? 'final message' : add_generation_prompt === false ? 'none' : 'new message',
    ...(tools?.length ? { tools } : {}),
    ...(chat_template_kwargs == null ? {} : { variables: chat_template_kwargs }),
  }
}

function shared(request: z.output<typeof chatRequest> | z.output<typeof completionRequest>) {
  if (request.stream_options && !request.stream) throw refused('stream_options', 'is for requests with "stream": true')
  if (request.stream && request.prompt_logprobs != null)
    throw refused('prompt_logprobs', 'cannot be streamed; ask without "stream"')
  const stop = request.stop ?? []
  const most = 'max_completion_tokens' in request ? request.max_completion_tokens : null
  const maxTokens = most ?? request.max_tokens ?? null
  if (maxTokens !== null && (request.min_tokens ?? 0) > maxTokens)
    throw refused('min_tokens', `${request.min_tokens} is more than the ${maxTokens} that the answer may have`)
  return {
    model: request.model,
    n: request.n ?? 1,
    seed: request.seed ?? null,
    temperature: request.temperature ?? 1,
    topP: request.top_p ?? 1,
    topK: Math.max(0, request.top_k ?? 0),
    minP: request.min_p ?? 0,
    maxTokens,
    minTokens: request.min_tokens ?? 0,
    stop: typeof stop === 'string' ? [stop] : stop,
    stopIds: request.stop_token_ids ?? [],
    includeStop: request.include_stop_str_in_output === true,
    ignoreEnd: request.ignore_eos === true,
    logitBias: new Map(Object.entries(request.logit_bias ?? {}).map(([id, bias]) => [Number(id), bias])),
    format: formatOf(request),
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    promptLogprobs: request.prompt_logprobs ?? null,
    tokenIds: request.return_token_ids === true,
    tokensAsIds: request.return_tokens_as_token_ids === true,
    skipSpecial: request.skip_special_tokens === true,
    priority: request.priority ?? 0,
    user: request.user ?? null,
  }
}

function formatOf({
  response_format: format,
  structured_outputs: structured,
}: Pick<z.output<typeof chatRequest>, 'response_format' | 'structured_outputs'>): Format | null {
  const asked: Format[] = []
  if (format?.type === 'json_object' || structured?.json_object) asked.push({ kind: 'json' })
  const regex = format?.type === 'regex' ? format.regex : structured?.regex
  if (regex != null) asked.push({ kind: 'regex', regex })
  const choice = format?.type === 'choice' ? format.choice : structured?.choice
  if (choice != null) asked.push({ kind: 'choice', choices: choice })
  const [first = null, second] = asked
  if (second !== undefined) throw refused(structured ? 'structured_outputs' : 'response_format', 'ask for one format')
  return first
}
