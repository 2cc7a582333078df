/**
 * What clients may send: the schemas of `/v1/chat/completions` and `/v1/completions`, and their common form.
 *
 * Whatever changes the distribution that is sampled from, other than the temperature, is refused and not ignored: the
 * log-probabilities returned are what training divides by (spec/pitfalls.md, row 6). Neutral values are accepted, since clients
 * send them.
 */
import { z } from 'zod'
import type { Message } from '../types.ts'
import { ApiError } from './errors.ts'

/** OpenAI's default for `/v1/completions`; chat takes what the context leaves. */
const COMPLETION_TOKENS = 16

const flag = z.boolean().nullish()
/** Accepts only the value that changes nothing. */
const neutral = <Value extends number | boolean>(...values: [Value, ...Value[]]) =>
  z.literal(values, { error: `only ${values.join(' or ')} is supported` }).nullish()

const common = {
  model: z.string(),
  n: z.number().int().min(1).nullish(),
  seed: z.number().int().nullish(),
  temperature: z.number().min(0).max(2).nullish(),
  max_tokens: z.number().int().min(1).nullish(),
  stop: z.union([z.string().min(1), z.array(z.string().min(1)).max(16)]).nullish(),
  stream: flag,
  stream_options: z.object({ include_usage: flag }).strict().nullish(),
  return_token_ids: flag,
  return_tokens_as_token_ids: flag,
  include_stop_str_in_output: flag,
  user: z.string().nullish(),
  // the text always has them, except the one that ends the message
  skip_special_tokens: neutral(false),
  top_p: neutral(1),
  top_k: neutral(0, -1),
  min_p: neutral(0),
  presence_penalty: neutral(0),
  frequency_penalty: neutral(0),
  repetition_penalty: neutral(1),
}

const textPart = z
  .object({ type: z.literal('text', { error: 'only text parts are supported' }), text: z.string() })
  .strict()

const message = z
  .object({
    role: z.enum(['system', 'developer', 'user', 'assistant']),
    content: z.union([z.string(), z.array(textPart).min(1)], { error: 'expected text, or a list of text parts' }),
    name: z.string().optional(),
  })
  .strict()

const chatRequest = z
  .object({
    ...common,
    messages: z.array(message).min(1),
    max_completion_tokens: z.number().int().min(1).nullish(),
    logprobs: flag,
    top_logprobs: neutral(0),
    response_format: z
      .object({ type: z.literal('text') })
      .strict()
      .nullish(),
  })
  .strict()

const ids = z.array(z.number().int().min(0)).min(1)

const completionRequest = z
  .object({
    ...common,
    prompt: z.union([z.string(), ids, z.array(z.string()).min(1), z.array(ids).min(1)], {
      error: 'expected a string, a list of strings, a list of token ids, or a list of lists of token ids',
    }),
    // 1 is how OpenAI's clients usually ask; the alternatives that it also means are not told (top_logprobs is null)
    logprobs: z
      .union([z.boolean(), z.literal([0, 1])], {
        error:
          'only 0, 1, true or false is supported: the log-probabilities of the sampled tokens, without alternatives',
      })
      .nullish(),
    echo: neutral(false),
    best_of: neutral(1),
  })
  .strict()

/** One thing to continue: messages, a text as it stands, or token ids. */
export type Prompt =
  | { kind: 'messages'; messages: readonly Message[] }
  | { kind: 'text'; text: string }
  | { kind: 'ids'; ids: readonly number[] }

/** Both endpoints' requests in one form. */
export interface ServeRequest {
  model: string
  prompts: readonly Prompt[]
  /** Samples per prompt. */
  n: number
  /** null: a fresh one. */
  seed: number | null
  temperature: number
  /** null: as many as the context leaves. */
  maxTokens: number | null
  stop: readonly string[]
  includeStop: boolean
  stream: boolean
  includeUsage: boolean
  logprobs: boolean
  tokenIds: boolean
  /** Tokens in log-probabilities are written `token_id:N` instead of as text. */
  tokensAsIds: boolean
}

export function parseChatRequest(body: unknown): ServeRequest {
  const request = parse(chatRequest, body)
  if (request.max_tokens != null && request.max_completion_tokens != null) {
    throw new ApiError(400, 'max_tokens and max_completion_tokens are the same thing: give one of them.', {
      param: 'max_tokens',
    })
  }
  const messages = request.messages.map(
    ({ role, content }): Message => ({
      role: role === 'developer' ? 'system' : role,
      content: typeof content === 'string' ? content : content.map((part) => part.text).join(''),
    }),
  )
  return {
    ...shared(request),
    prompts: [{ kind: 'messages', messages }],
    maxTokens: request.max_completion_tokens ?? request.max_tokens ?? null,
    logprobs: request.logprobs === true,
  }
}

export function parseCompletionRequest(body: unknown): ServeRequest {
  const request = parse(completionRequest, body)
  return {
    ...shared(request),
    prompts: promptsOf(request.prompt),
    maxTokens: request.max_tokens ?? COMPLETION_TOKENS,
    logprobs: request.logprobs != null && request.logprobs !== false,
  }
}

function promptsOf(prompt: z.output<typeof completionRequest>['prompt']): Prompt[] {
  if (typeof prompt === 'string') return [{ kind: 'text', text: prompt }]
  if (isIds(prompt)) return [{ kind: 'ids', ids: prompt }]
  return prompt.map(
    (one): Prompt => (typeof one === 'string' ? { kind: 'text', text: one } : { kind: 'ids', ids: one }),
  )
}

const isIds = (list: number[] | (string | number[])[]): list is number[] => typeof list[0] === 'number'

function shared(request: z.output<typeof chatRequest> | z.output<typeof completionRequest>) {
  if (request.stream_options && !request.stream) {
    throw new ApiError(400, 'stream_options is for requests with "stream": true.', { param: 'stream_options' })
  }
  const stop = request.stop ?? []
  return {
    model: request.model,
    n: request.n ?? 1,
    seed: request.seed ?? null,
    temperature: request.temperature ?? 1,
    stop: typeof stop === 'string' ? [stop] : stop,
    includeStop: request.include_stop_str_in_output === true,
    stream: request.stream === true,
    includeUsage: request.stream_options?.include_usage === true,
    tokenIds: request.return_token_ids === true,
    tokensAsIds: request.return_tokens_as_token_ids === true,
  }
}

/** Fails with 400 naming the first bad parameter, and every unknown one. */
function parse<Schema extends z.ZodType>(schema: Schema, body: unknown): z.output<Schema> {
  const parsed = schema.safeParse(body)
  if (parsed.success) return parsed.data
  const { issues } = parsed.error
  const unknown = issues.find((issue) => issue.code === 'unrecognized_keys')
  if (unknown) {
    const names = unknown.keys.map((key) => [...unknown.path, key].join('.'))
    throw new ApiError(400, `Unsupported parameter${names.length > 1 ? 's' : ''}: ${names.join(', ')}.`, {
      param: names[0] ?? null,
      code: 'unsupported_parameter',
    })
  }
  const issue = issues[0]
  const param = issue?.path.join('.') || null
  throw new ApiError(400, `${param ?? 'body'}: ${issue?.message.replace(/^Invalid input: /, '')}.`, {
    param,
    code: 'invalid_value',
  })
}
