/**
 * Runs one request over a policy: renders its prompts, checks that they fit, and generates every sample.
 * Nothing is ever truncated to fit (spec/pitfalls.md, row 19). Knows no HTTP beyond the errors it throws.
 */
import { randomUUID } from 'node:crypto'
import type { Generation, Policy } from '../types.ts'
import { ApiError, apiErrorOf } from './errors.ts'
import type { Prompt, ServeRequest } from './requests.ts'

/** A prompt in the policy's own token ids; null where the policy takes messages only. */
export type RenderedPrompt = { prompt: Prompt; ids: readonly number[] | null }

/** One sample. `index` is prompt-major: prompt p's sample j has index p * n + j. */
export interface Choice {
  index: number
  prompt: RenderedPrompt
  /** Without the stop string, unless the request asked for it. */
  text: string
  finishReason: 'stop' | 'length'
  /** The stop string that ended it. */
  stopReason: string | null
  /** All sampled ids, those of the stop string among them; as many as log-probabilities. */
  ids: readonly number[] | null
  logprobs: readonly number[] | null
  version: string
  promptTokens: number
  completionTokens: number
}

/** Fails with 400 when the policy cannot do what is asked, or a prompt and its answer do not fit into the context. */
export function renderPrompts(request: ServeRequest, policy: Policy): RenderedPrompt[] {
  const { tokenizer, contextLength } = policy
  if (!tokenizer && (request.tokenIds || request.logprobs)) {
    const param = request.tokenIds ? 'return_token_ids' : 'logprobs'
    throw new ApiError(400, `${param}: the policy ${policy.name} does not work in token ids.`, { param })
  }
  return request.prompts.map((prompt) => {
    if (!tokenizer) {
      if (prompt.kind === 'messages') return { prompt, ids: null }
      throw new ApiError(400, `prompt: the policy ${policy.name} takes messages only; use /v1/chat/completions.`, {
        param: 'prompt',
      })
    }
    const ids =
      prompt.kind === 'ids'
        ? prompt.ids
        : prompt.kind === 'text'
          ? tokenizer.encode(prompt.text)
          : tokenizer.encodePrompt(prompt.messages)
    if (ids.length === 0) throw new ApiError(400, 'prompt: has no tokens.', { param: 'prompt' })
    const wanted = request.maxTokens ?? 1
    if (contextLength !== null && ids.length + wanted > contextLength) {
      throw new ApiError(
        400,
        `The context length of ${policy.name} is ${contextLength} tokens, but the prompt has ${ids.length} and the answer may take ${wanted}: ${ids.length + wanted} together. Shorten the prompt or lower max_tokens.`,
        { param: prompt.kind === 'messages' ? 'messages' : 'prompt', code: 'context_length_exceeded' },
      )
    }
    return { prompt, ids }
  })
}

/**
 * Starts every sample at once (the policy batches them) and returns a promise for each, in index order.
 * The same seed gives the same samples; without one every request gets its own.
 * The promises fail with an ApiError when the policy fails, or as soon as `signal` is aborted.
 */
export function generateChoices(
  request: ServeRequest,
  prompts: readonly RenderedPrompt[],
  policy: Policy,
  signal: AbortSignal,
): Promise<Choice>[] {
  const seed = request.seed === null ? randomUUID() : String(request.seed)
  return prompts.flatMap((prompt, p) =>
    Array.from({ length: request.n }, async (_, sample) => {
      const generation = await generateOne(request, prompt, policy, `${seed}/${p}/${sample}`, signal)
      return choiceOf(request, prompt, p * request.n + sample, generation)
    }),
  )
}

async function generateOne(
  request: ServeRequest,
  { prompt, ids }: RenderedPrompt,
  policy: Policy,
  seed: string,
  signal: AbortSignal,
) {
  const result = await orAborted(
    policy.generate({
      messages: prompt.kind === 'messages' ? prompt.messages : [],
      promptIds: ids ?? undefined,
      sampling: {
        temperature: request.temperature,
        maxTokens: request.maxTokens ?? roomFor(ids, policy),
        stop: request.stop,
      },
      seed,
      signal,
    }),
    signal,
  )
  if (!result.ok) throw apiErrorOf(result.failure)
  checkGeneration(request, policy, result.value)
  return result.value
}

/** What the context leaves for the answer when the client set no limit. */
function roomFor(ids: readonly number[] | null, policy: Policy): number {
  if (ids === null || policy.contextLength === null) {
    throw new ApiError(400, `max_tokens: give it, since the context length of ${policy.name} is unknown.`, {
      param: 'max_tokens',
    })
  }
  return policy.contextLength - ids.length
}

/** Ids and log-probabilities are what training uses: a gap or a NaN fails here instead of becoming a null in JSON (pitfalls, row 5). */
function checkGeneration(request: ServeRequest, policy: Policy, { tokenIds, logprobs }: Generation) {
  if ((request.tokenIds || request.logprobs) && (!tokenIds || !logprobs)) {
    throw new ApiError(502, `The policy ${policy.name} returned no token ids with its answer.`, {
      code: 'bad_response',
    })
  }
  if (tokenIds && logprobs && (tokenIds.length !== logprobs.length || !logprobs.every(Number.isFinite))) {
    throw new ApiError(
      500,
      `The policy ${policy.name} returned ${tokenIds.length} token ids with ${logprobs.length} log-probabilities, ${logprobs.filter((x) => !Number.isFinite(x)).length} of them not finite.`,
      { code: 'bad_response' },
    )
  }
}

function choiceOf(request: ServeRequest, prompt: RenderedPrompt, index: number, generation: Generation): Choice {
  const { text, stopReason } = atStop(generation.text, request)
  return {
    index,
    prompt,
    text,
    stopReason,
    finishReason: generation.finishReason,
    ids: generation.tokenIds,
    logprobs: generation.logprobs,
    version: generation.version,
    promptTokens: prompt.ids?.length ?? generation.usage.promptTokens,
    completionTokens: generation.tokenIds?.length ?? generation.usage.completionTokens,
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
