/**
 * Vectors of pictures and words from one multimodal embedding model behind `/v1/embeddings`. Each is sent as a chat message, the form in
 * which vLLM takes pictures there (its documentation, "Embeddings API", multi-modal inputs). Kept by content.
 */
import type { Result, Usage } from '../types.ts'
import type { AnswerCache } from './cache.ts'
import { excerpt } from './endpoint.ts'
import { openEndpointCalls } from './endpointCalls.ts'
import { failed } from './failure.ts'
import { summed } from './furtherAgent.ts'
import type { EndpointOptions } from './options.ts'
import { oneCall } from './usage.ts'

export type VectorInput = { text: string } | { picture: string }

export interface VectorEndpoint {
  readonly model: string
  /** One vector per input, all of one length; one call for each that was never asked for. */
  embed(
    inputs: readonly VectorInput[],
    signal: AbortSignal | undefined,
  ): Promise<Result<{ vectors: Float32Array[]; usage: Usage }>>
}

interface Made {
  /** Little-endian 32-bit floats, base64. */
  vector: string
  promptTokens: number
}

export function openVectorEndpoint(options: EndpointOptions, answers: AnswerCache): Result<VectorEndpoint> {
  const opened = openEndpointCalls('agent', options)
  if (!opened.ok) return opened
  const calls = opened.value
  const { baseUrl, model, promptUsdPerMillion } = options

  function make(input: VectorInput, signal: AbortSignal): Promise<Result<Made>> {
    const content =
      'text' in input ? { type: 'text', text: input.text } : { type: 'image_url', image_url: { url: input.picture } }
    const body = { model, messages: [{ role: 'user', content: [content] }], encoding_format: 'float' }
    return calls.call(
      (client, ended) => client.post<unknown>('/embeddings', { body, signal: ended }),
      (reply): Result<Made> => {
        const { data, usage } = reply as { data?: { embedding?: unknown }[]; usage?: { prompt_tokens?: number } }
        const numbers = data?.[0]?.embedding
        if (!Array.isArray(numbers) || numbers.length === 0 || !numbers.every((part) => Number.isFinite(part)))
          return failed(
            'agent',
            'bad_response',
            `${baseUrl} (${model}): expected data[0].embedding with numbers, got ${excerpt(reply)}; does the server embed chat messages with pictures?`,
          )
        const vector = Buffer.from(Float32Array.from(numbers as number[]).buffer).toString('base64')
        return { ok: true, value: { vector, promptTokens: usage?.prompt_tokens ?? 0 } }
      },
      signal,
    )
  }

  return {
    ok: true,
    value: {
      model,
      async embed(inputs, signal) {
        const made = await Promise.all(
          inputs.map((input) =>
            answers.answer<Made>({
              content: ['vector', baseUrl, model, input],
              boundary: 'agent',
              what: `a vector of ${'text' in input ? `"${input.text.slice(0, 40)}"` : 'a picture'} with ${model}`,
              signal,
              answer: (shared) => make(input, shared),
            }),
          ),
        )
        const vectors: Float32Array[] = []
        const usage: Usage[] = []
        for (const [index, one] of made.entries()) {
          if (!one.ok) return one
          const { value, cached } = one.value
          vectors.push(new Float32Array(Uint8Array.from(Buffer.from(value.vector, 'base64')).buffer))
          const { promptTokens } = value
          const spent = cached ? { cached: 1 } : { promptTokens, costUsd: (promptTokens * promptUsdPerMillion) / 1e6 }
          usage.push(oneCall({ ...spent, frames: 'picture' in inputs[index]! ? 1 : 0 }))
        }
        const odd = vectors.find(({ length }) => length !== vectors[0]!.length)
        if (odd)
          return failed(
            'agent',
            'bad_response',
            `${baseUrl} (${model}): expected vectors of one length, got ${vectors[0]!.length} and ${odd.length} numbers`,
          )
        return { ok: true, value: { vectors, usage: summed(usage) } }
      },
    },
  }
}
