/** One question to an OpenAI-compatible chat endpoint, and what it cost. Knows no prompts and caches nothing; `endpointCalls.ts` retries. */
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions'
import type { Boundary, Result, Usage } from '../types.ts'
import { openEndpointCalls } from './endpointCalls.ts'
import { failed } from './failure.ts'
import type { EndpointOptions } from './options.ts'

export interface ChatReply {
  text: string
  usage: Pick<Usage, 'promptTokens' | 'completionTokens' | 'costUsd'>
}

export interface ChatEndpoint {
  /** Everything but the messages that decides an answer: for cache keys. */
  readonly identity: unknown
  ask(messages: readonly ChatCompletionMessageParam[], signal: AbortSignal | undefined): Promise<Result<ChatReply>>
}

/** Fails when the environment variable with the key is not set. */
export function openChatEndpoint(boundary: Boundary, options: EndpointOptions): Result<ChatEndpoint> {
  const calls = openEndpointCalls(boundary, options)
  if (!calls.ok) return calls
  const { baseUrl, model, temperature, maxTokens, maxTokensField } = options
  const ask: ChatEndpoint['ask'] = (messages, signal) => {
    const body = {
      model,
      messages: [...messages],
      [maxTokensField]: maxTokens,
      ...(temperature === null ? {} : { temperature }),
    }
    return calls.value.call(
      (client, ended) => client.chat.completions.create(body, { signal: ended }),
      (reply): Result<ChatReply> => {
        const text = reply.choices?.[0]?.message?.content
        if (typeof text !== 'string' || text.trim() === '') {
          const reason = reply.choices?.[0]?.finish_reason
          const hint =
            reason === 'length' ? 'raise maxTokens' : 'is this an OpenAI-compatible URL (usually ending in /v1)?'
          return failed(
            boundary,
            'bad_response',
            `${baseUrl} (${model}): expected a message with text, got ${excerpt(reply)}; ${hint}`,
          )
        }
        const promptTokens = reply.usage?.prompt_tokens ?? 0
        const completionTokens = reply.usage?.completion_tokens ?? 0
        const costUsd =
          (promptTokens * options.promptUsdPerMillion + completionTokens * options.completionUsdPerMillion) / 1e6
        return { ok: true, value: { text, usage: { promptTokens, completionTokens, costUsd } } }
      },
      signal,
    )
  }
  return { ok: true, value: { identity: { baseUrl, model, temperature, maxTokens }, ask } }
}

/** For messages. */
export function excerpt(reply: unknown): string {
  return (typeof reply === 'string' ? reply : (JSON.stringify(reply) ?? 'nothing')).slice(0, 120)
}
