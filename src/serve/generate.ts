/**
 * Runs one request over a policy: renders its prompts, checks that they fit, waits for places, and samples every answer.
 * Nothing is ever truncated to fit (spec/pitfalls.md, row 19). Knows no HTTP beyond the errors it throws.
 */
import { randomUUID } from 'node:crypto'
import type { ChatMessage, GenerateRequest, Generation, Message, Policy, TokenLogprob, ToldToken } from '../types.ts'
import { allowedTokens, constraintFor } from './constraint/compile.ts'
import type { TokenConstraint } from './constraint/tokens.ts'
import { ApiError, apiErrorOf } from './errors.ts'
import type { FairQueue } from './queue.ts'
import type { Prompt, ServeRequest } from './requests.ts'
import { refused } from './schema.ts'
import { textOf } from './text.ts'

/** A prompt in the policy's own token ids; null where the policy takes messages only. */
export type RenderedPrompt = { prompt: Prompt; ids: readonly number[] | null }

/** One answer. `index` is prompt-major: prompt p's sample j has index p * n + j. */
export interface Choice {
  index: number
  prompt: RenderedPrompt
  /** Without the stop string, unless the request asked for it. */
  text: string
  finishReason: 'stop' | 'length'
  /** The stop string or token that ended it. */
  stopReason: string | number | null
  /** All sampled ids, those of the stop string among them; as many as log-probabilities. */
  ids: readonly number[] | null
  logprobs: readonly number[] | null
  told: readonly ToldToken[] | null
  /** What changed the distribution that was drawn from, and by how much at each token. */
  cut: Generation['cut'] | null
  toldPrompt: readonly (ToldToken | null)[] | null
  version: string
  promptTokens: number
  completionTokens: number
}

/** A token as it comes. */
export type ComingToken = TokenLogprob & Partial<ToldToken>

export interface SampleSettings {
  policy: Policy
  queue: FairQueue
  /** Whose turn it is in the queue. */
  client: string
  /** The client's conversation, whose key-value cache may be kept. */
  session: string | null
  signal: AbortSignal
  onToken?(index: number, token: ComingToken): void
}

/** Samples of one prompt that enter the queue together, and so share its prefill. */
const TOGETHER = 16
/** Texts have a fifteenth of that for each token; only runs of white space and unknown words have more. */
const TOKEN_CHARACTERS = 64

/** Fails with 400 when the policy cannot do what is asked, or a prompt and its answer do not fit into the context. */
export function renderPrompts(request: ServeRequest, policy: Policy): RenderedPrompt[] {
  const { tokenizer } = policy
  const needsIds = (
    [
      ['return_token_ids', request.tokenIds],
      ['logprobs', request.logprobs !== null],
      ['prompt_logprobs', request.promptLogprobs !== null],
    ] as const
  ).find(([, asked]) => asked)
  if (!tokenizer && needsIds) throw refused(needsIds[0], `the policy ${policy.name} does not work in token ids`)
  checkIds('logit_bias', [...request.logitBias.keys()], policy)
  checkIds('stop_token_ids', request.stopIds, policy)
  return request.prompts.map((prompt) => {
    if (!tokenizer) {
      if (prompt.kind === 'messages') return { prompt, ids: null }
      throw refused('prompt', `the policy ${policy.name} takes messages only; use /v1/chat/completions`)
    }
    checkLength(prompt, policy)
    const ids = promptIds(prompt, policy)
    if (prompt.kind === 'ids') checkIds('prompt', ids, policy)
    checkRoom(request, prompt, ids.length, policy)
    return { prompt, ids }
  })
}

/** Fails with 400 when the policy has no such token. */
export function checkIds(param: string, ids: readonly number[], { name, vocabularySize }: Policy): void {
  const unknown = ids.find((id) => vocabularySize !== undefined && id >= vocabularySize)
  if (unknown !== undefined)
    throw refused(param, `token id ${unknown}, expected 0 to ${(vocabularySize ?? 0) - 1}, which ${name} has`)
}

/**
 * Fails with 400 when a text is so long that no context holds it: to tokenise a body of the largest size would keep everybody waiting for
 * many seconds.
 */
export function checkLength(prompt: Prompt, { contextLength }: Pick<Policy, 'contextLength'>): void {
  if (prompt.kind === 'ids' || contextLength === null) return
  const texts = prompt.kind === 'text' ? [prompt.text] : prompt.messages.map(({ content }) => content)
  const characters = texts.reduce((sum, text) => sum + text.length, 0)
  if (characters <= contextLength * TOKEN_CHARACTERS && texts.length <= contextLength) return
  const what = `${characters} characters${prompt.kind === 'text' ? '' : ` in ${texts.length} messages`}`
  throw new ApiError(
    400,
    `This model's maximum context length is ${contextLength} tokens, which ${what} do not fit into. Shorten the prompt.`,
    { param: paramOf(prompt), code: 'context_length_exceeded' },
  )
}

/** Ids of a prompt. Fails with 400 naming messages or tools when the chat template refuses them. */
export function promptIds(prompt: Prompt, { name, tokenizer }: Pick<Policy, 'name' | 'tokenizer'>): readonly number[] {
  if (prompt.kind === 'ids') return prompt.ids
  if (!tokenizer) throw refused('prompt', `the policy ${name} has no tokenizer`)
  if (prompt.kind === 'text') return tokenizer.encode(prompt.text)
  if (prompt.settings.tools && tokenizer.toolSyntax === undefined)
    throw refused('tools', `the chat template of ${name} knows no tools`)
  try {
    return tokenizer.encodePrompt(prompt.messages, prompt.settings)
  } catch (error) {
    throw refused('messages', `the chat template of ${name} refuses them: ${(error as Error).message}`)
  }
}

/** Fails with 400 and the numbers when a prompt of so many tokens leaves no room for its answer. */
export function checkRoom(
  request: ServeRequest,
  prompt: Prompt,
  length: number,
  { contextLength }: Pick<Policy, 'contextLength'>,
): void {
  if (length === 0) throw refused(paramOf(prompt), 'has no tokens')
  const wanted = request.maxTokens ?? Math.max(1, request.minTokens)
  if (contextLength === null || length + wanted <= contextLength) return
  throw new ApiError(
    400,
    // clients know an overlong prompt by the first words
    `This model's maximum context length is ${contextLength} tokens, but the prompt has ${length} and the answer may take ${wanted}: ${length + wanted} together. Shorten the prompt or lower max_tokens.`,
    { param: paramOf(prompt), code: 'context_length_exceeded' },
  )
}

function paramOf(prompt: Prompt): string {
  return prompt.kind === 'messages' ? 'messages' : 'prompt'
}

/**
 * Queues every sample and returns a promise for each, in index order. The same seed gives the same samples; without one every request
 * gets its own. The promises fail with an ApiError when the policy fails, or as soon as `signal` is aborted.
 */
export function generateChoices(
  request: ServeRequest,
  prompts: readonly RenderedPrompt[],
  settings: SampleSettings,
): Promise<Choice>[] {
  const constraint = request.format === null ? null : constraintFor(request.format, settings.policy.tokenizer)
  const seed = request.seed === null ? randomUUID() : String(request.seed)
  return prompts.flatMap((prompt, p) => {
    const admitted = new Map<number, Promise<void>>()
    return Array.from({ length: request.n }, async (_, sample) => {
      const batch = Math.floor(sample / TOGETHER)
      const size = Math.min(TOGETHER, request.n - batch * TOGETHER)
      const { queue, client, signal } = settings
      if (!admitted.has(batch)) admitted.set(batch, queue.enter(client, size, request.priority, signal))
      await admitted.get(batch)
      try {
        const index = p * request.n + sample
        return await sampleOne(request, prompt, index, `${seed}/${p}/${sample}`, constraint, settings)
      } finally {
        queue.leave(client)
      }
    })
  })
}

async function sampleOne(
  request: ServeRequest,
  prompt: RenderedPrompt,
  index: number,
  seed: string,
  constraint: TokenConstraint | null,
  { policy, session, signal, onToken }: SampleSettings,
): Promise<Choice> {
  const result = await orAborted(
    policy.generate({
      messages: prompt.prompt.kind === 'messages' ? plainMessages(prompt.prompt.messages, policy) : [],
      ...(prompt.ids === null ? {} : { promptIds: prompt.ids }),
      sampling: samplingOf(request, prompt.ids, policy, constraint),
      seed,
      ...(session === null ? {} : { session }),
      // without alternatives nothing but the log-probability is told, which every generation has
      ...(request.logprobs ? { tellSampled: request.logprobs } : {}),
      ...(request.promptLogprobs === null ? {} : { tellPrompt: request.promptLogprobs }),
      ...(onToken ? { onToken: (token: ComingToken) => onToken(index, token) } : {}),
      signal,
    }),
    signal,
  )
  if (!result.ok) throw apiErrorOf(result.failure)
  checkGeneration(request, policy, result.value)
  return choiceOf(request, prompt, index, policy, result.value)
}

function samplingOf(
  request: ServeRequest,
  ids: readonly number[] | null,
  policy: Policy,
  constraint: TokenConstraint | null,
): GenerateRequest['sampling'] {
  const { temperature, minTokens, stop, stopIds, ignoreEnd, topP, topK, minP, logitBias } = request
  return {
    temperature,
    maxTokens: request.maxTokens ?? roomFor(ids, policy),
    stop,
    ...(minTokens > 0 ? { minTokens } : {}),
    ...(stopIds.length > 0 ? { stopIds } : {}),
    ...(ignoreEnd ? { ignoreEnd } : {}),
    ...(topP < 1 ? { topP } : {}),
    ...(topK > 0 ? { topK } : {}),
    ...(minP > 0 ? { minP } : {}),
    ...(logitBias.size > 0 ? { logitBias } : {}),
    ...(constraint ? { allowed: allowedTokens(constraint) } : {}),
  }
}

/** For policies that take messages, which know no tools. */
function plainMessages(messages: readonly ChatMessage[], policy: Policy): Message[] {
  return messages.map(({ role, content }) => {
    if (role !== 'tool') return { role, content }
    if (policy.tokenizer) return { role: 'user', content }
    throw refused('messages', `the policy ${policy.name} knows no tools`)
  })
}

/** What the context leaves for the answer when the client set no limit. */
function roomFor(ids: readonly number[] | null, policy: Policy): number {
  if (ids === null || policy.contextLength === null)
    throw refused('max_tokens', `needed, since the context length of ${policy.name} is unknown`)
  return policy.contextLength - ids.length
}

/** Ids and log-probabilities are what training uses: a gap or a NaN fails here instead of becoming a null in JSON (pitfalls, row 5). */
function checkGeneration(request: ServeRequest, policy: Policy, generation: Generation) {
  const { tokenIds, logprobs, told, toldPrompt } = generation
  const bad = (status: number, problem: string) =>
    new ApiError(status, `The policy ${policy.name} returned ${problem}.`, { code: 'bad_response' })
  if ((request.tokenIds || request.logprobs !== null) && (!tokenIds || !logprobs))
    throw bad(502, 'no token ids with its answer')
  if (tokenIds && logprobs && (tokenIds.length !== logprobs.length || !logprobs.every(Number.isFinite)))
    throw bad(
      500,
      `${tokenIds.length} token ids with ${logprobs.length} log-probabilities, ${logprobs.filter((x) => !Number.isFinite(x)).length} of them not finite`,
    )
  if (request.logprobs && told?.length !== tokenIds?.length) throw bad(502, 'no alternatives of what it sampled')
  if (request.promptLogprobs !== null && !toldPrompt) throw bad(502, 'no log-probabilities of the prompt')
}

function choiceOf(
  request: ServeRequest,
  prompt: RenderedPrompt,
  index: number,
  policy: Policy,
  generation: Generation,
): Choice {
  const { tokenIds, finishReason } = generation
  const { text, stopReason } =
    policy.tokenizer && tokenIds ? textOf(policy.tokenizer, tokenIds, request) : atStop(generation.text, request)
  return {
    index,
    prompt,
    text,
    stopReason,
    finishReason,
    ids: tokenIds,
    logprobs: generation.logprobs,
    told: generation.told ?? null,
    cut: generation.cut ?? null,
    toldPrompt: generation.toldPrompt ?? null,
    version: generation.version,
    promptTokens: prompt.ids?.length ?? generation.usage.promptTokens,
    completionTokens: tokenIds?.length ?? generation.usage.completionTokens,
  }
}

/** Policies keep the stop string in the text; OpenAI's interface leaves it out. */
function atStop(text: string, request: ServeRequest): { text: string; stopReason: string | null } {
  const found = request.stop.map((stop) => ({ stop, at: text.indexOf(stop) })).filter(({ at }) => at >= 0)
  const first = found.sort((a, b) => a.at - b.at)[0]
  if (!first) return { text, stopReason: null }
  return { text: text.slice(0, first.at + (request.includeStop ? first.stop.length : 0)), stopReason: first.stop }
}

/** A policy may be slow to notice the signal; the client is answered at once. */
function orAborted<Value>(work: Promise<Value>, signal: AbortSignal): Promise<Value> {
  return new Promise((resolve, reject) => {
    const abort = () => reject(signal.reason)
    if (signal.aborted) return abort()
    signal.addEventListener('abort', abort, { once: true })
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', abort))
  })
}
