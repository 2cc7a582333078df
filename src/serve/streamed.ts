/** An answer that is sent as it is sampled, in chunks of what has come within a moment. Samples nothing. */
import type { FastifyReply } from 'fastify'
import { describeError } from './errors.ts'
import type { Choice, ComingToken, RenderedPrompt } from './generate.ts'
import { endingChunk, openingChunks, pieceChunk, type ResponseHead, tokensOf, usageChunk } from './responses.ts'
import { eventStream } from './stream.ts'
import { AnswerText } from './text.ts'

/** Chunks of one answer are this far apart, but for the first, which goes at once: sending each token alone takes a tenth of a small model's speed. */
const CHUNK_MILLISECONDS = 40

interface ComingChoice {
  index: number
  /** null where no text is told before the end. */
  text: AnswerText | null
  /** Characters and tokens that were sent. */
  length: number
  told: number
  pending: { text: string; tokens: ComingToken[] }
  sent: number
  timer: NodeJS.Timeout | null
}

export class StreamedAnswer {
  private readonly events: ReturnType<typeof eventStream>
  private readonly choices = new Map<number, ComingChoice>()

  constructor(
    private readonly head: ResponseHead,
    reply: FastifyReply,
    private readonly version: string,
    prompts: readonly RenderedPrompt[],
  ) {
    reply.hijack()
    this.events = eventStream(reply.raw, { 'x-policy-version': version })
    const ids = prompts.map((prompt) => prompt.ids)
    for (const chunk of openingChunks(head, version, ids)) this.events.send(chunk)
  }

  push(index: number, token: ComingToken) {
    const choice = this.choiceOf(index)
    choice.pending.text += choice.text?.push(token.id) ?? ''
    choice.pending.tokens.push(token)
    const wait = choice.sent + CHUNK_MILLISECONDS - performance.now()
    if (wait <= 0) this.flush(choice)
    else choice.timer ??= setTimeout(() => this.flush(choice), wait)
  }

  /** Resolves when the answer, or the error in its place, has been sent. */
  async send(choices: readonly Promise<Choice>[], finished: (all: readonly Choice[]) => void) {
    try {
      const all = await Promise.all(
        choices.map(async (promise) => {
          const choice = await promise
          this.end(choice)
          return choice
        }),
      )
      finished(all)
      if (this.head.request.includeUsage) this.events.send(usageChunk(this.head, all))
      this.events.end()
    } catch (error) {
      for (const { timer } of this.choices.values()) if (timer) clearTimeout(timer)
      this.events.fail(describeError(error as Error).body)
    }
  }

  private flush(choice: ComingChoice) {
    if (choice.timer) clearTimeout(choice.timer)
    choice.timer = null
    const { index, pending, length } = choice
    const { tokenIds, logprobs } = this.head.request
    if (pending.text === '' && !tokenIds && logprobs === null) return
    this.events.send(pieceChunk(this.head, this.version, { index, ...pending, textOffset: length }))
    choice.length += pending.text.length
    choice.told += pending.tokens.length
    choice.pending = { text: '', tokens: [] }
    choice.sent = performance.now()
  }

  /** What is left of a choice goes into its last chunk. */
  private end(choice: Choice) {
    const { index } = choice
    const { timer, length, told } = this.choiceOf(index)
    if (timer) clearTimeout(timer)
    const text = this.head.request.parseTools ? '' : choice.text.slice(length)
    const tokens = tokensOf(choice).slice(told)
    this.events.send(endingChunk(this.head, choice, { index, text, tokens, textOffset: length }))
  }

  private choiceOf(index: number): ComingChoice {
    const known = this.choices.get(index)
    if (known !== undefined) return known
    const { tokenizer, request } = this.head
    // calls of tools are seen when the whole text is there
    const text = tokenizer && !request.parseTools ? new AnswerText(tokenizer, request) : null
    const pending = { text: '', tokens: [] }
    const choice: ComingChoice = { index, text, length: 0, told: 0, pending, sent: 0, timer: null }
    this.choices.set(index, choice)
    return choice
  }
}
