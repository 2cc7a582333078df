/**
 * A policy that says what a function tells it to: the oracle of the budget curves, the traces for supervised training,
 * and the tests of loops. Samples nothing; its log-probabilities are 0.
 */
import type { GenerateRequest, Generation, Message, Policy, Result } from '../types.ts'
import type { TextTokenizer } from './tokenizer.ts'

export type Script = (messages: readonly Message[], request: GenerateRequest) => string | Promise<string>

export interface ScriptedPolicyOptions {
  name?: string
  /** With one, generations carry the ids of what was said. */
  tokenizer?: TextTokenizer
  contextLength?: number | null
}

/** Text beyond `maxTokens` is cut when there is a tokenizer, as a real policy would be; a stop string ends the text. */
export class ScriptedPolicy implements Policy {
  readonly name: string
  readonly version = 'scripted'
  readonly tokenizer?: TextTokenizer
  readonly contextLength: number | null

  constructor(
    private readonly script: Script,
    options: ScriptedPolicyOptions = {},
  ) {
    this.name = options.name ?? 'scripted'
    if (options.tokenizer) this.tokenizer = options.tokenizer
    this.contextLength = options.contextLength ?? null
  }

  async generate(request: GenerateRequest): Promise<Result<Generation>> {
    if (request.signal?.aborted)
      return {
        ok: false,
        failure: { boundary: 'policy', kind: 'cancelled', message: `${this.name}: cancelled by the caller` },
      }
    const begin = performance.now()
    let text = await this.script(request.messages, request)
    const { stop, maxTokens } = request.sampling
    const ends = stop.flatMap((word) => (text.includes(word) ? text.indexOf(word) + word.length : []))
    text = text.slice(0, Math.min(text.length, ...ends))
    let ids: number[] | null = this.tokenizer?.encode(text) ?? null
    const promptTokens = request.promptIds?.length ?? this.tokenizer?.encodePrompt(request.messages).length ?? 0
    let finishReason: Generation['finishReason'] = 'stop'
    if (this.tokenizer && ids && ids.length > maxTokens) {
      ids = ids.slice(0, maxTokens)
      text = this.tokenizer.decode(ids)
      finishReason = 'length'
    }
    return {
      ok: true,
      value: {
        text,
        tokenIds: ids,
        logprobs: ids?.map(() => 0) ?? null,
        finishReason,
        version: this.version,
        usage: {
          calls: 1,
          promptTokens,
          completionTokens: ids?.length ?? 0,
          frames: 0,
          seconds: (performance.now() - begin) / 1000,
          costUsd: 0,
          cached: 0,
        },
      },
    }
  }

  async close(): Promise<void> {}
}
