/**
 * The text of an answer from its token ids, all at once or as they come. Both give the same: a stream holds back what a later token may
 * change (part of a character) or take away (the beginning of a stop string). Decides when nothing ends; the policy does.
 */
import type { ChatTokenizer } from '../types.ts'
import type { ServeRequest } from './requests.ts'

type TextSettings = Pick<ServeRequest, 'stop' | 'stopIds' | 'includeStop' | 'ignoreEnd' | 'skipSpecial'>

export class AnswerText {
  private readonly ids: number[] = []
  /** ids[from..read) have been decoded; what comes later is decoded behind them. */
  private from = 0
  private read = 0
  /** Decoded and not returned yet. No stop string begins before it: what could begin one is held back. */
  private rest = ''
  /** Whether a stop string was written, behind which there is no text. */
  private ended = false
  private stoppedBy: string | number | null = null

  constructor(
    private readonly tokenizer: ChatTokenizer,
    private readonly settings: TextSettings,
  ) {}

  /** The stop string or token that ended the answer; null when none did, or a token that ends messages. */
  get stopReason(): string | number | null {
    return this.stoppedBy
  }

  /** Returns the text that has become certain with one more token. */
  push(id: number): string {
    if (this.ended || this.stoppedBy !== null) return ''
    if (this.settings.stopIds.includes(id)) {
      this.stoppedBy = id
      if (!this.settings.includeStop) return ''
    } else if (!this.settings.ignoreEnd && this.tokenizer.endIds?.has(id)) return ''
    this.ids.push(id)
    const { before, both } = this.decoded()
    // Part of a character so far.
    if (both.length <= before.length || both.endsWith('\ufffd')) return ''
    this.add(both.slice(before.length))
    this.from = this.read
    this.read = this.ids.length
    return this.take(this.ended ? 0 : heldBack(this.rest, this.settings.stop))
  }

  /** Returns what was held back: the answer has ended. */
  finish(): string {
    const { before, both } = this.decoded()
    if (!this.ended) this.add(both.slice(before.length))
    this.from = this.ids.length
    this.read = this.ids.length
    return this.take(0)
  }

  private decoded(): { before: string; both: string } {
    const { skipSpecial } = this.settings
    return {
      before: this.tokenizer.decode(this.ids.slice(this.from, this.read), skipSpecial),
      both: this.tokenizer.decode(this.ids.slice(this.from), skipSpecial),
    }
  }

  private add(piece: string): void {
    const { stop, includeStop } = this.settings
    this.rest += piece
    let first: { at: number; word: string } | null = null
    for (const word of stop) {
      const at = this.rest.indexOf(word)
      if (at >= 0 && (first === null || at < first.at)) first = { at, word }
    }
    if (first === null) return
    this.rest = this.rest.slice(0, first.at + (includeStop ? first.word.length : 0))
    this.ended = true
    this.stoppedBy = first.word
  }

  /** All but the last `keep` characters of what is left. */
  private take(keep: number): string {
    const piece = this.rest.slice(0, this.rest.length - keep)
    this.rest = this.rest.slice(piece.length)
    return piece
  }
}

/** The text of a whole answer, and what ended it. */
export function textOf(
  tokenizer: ChatTokenizer,
  ids: readonly number[],
  settings: TextSettings,
): { text: string; stopReason: string | number | null } {
  const answer = new AnswerText(tokenizer, settings)
  let text = ''
  for (const id of ids) text += answer.push(id)
  return { text: text + answer.finish(), stopReason: answer.stopReason }
}

/** Length of the longest end of the text that a stop string begins with. */
function heldBack(text: string, stop: readonly string[]): number {
  let most = 0
  for (const word of stop)
    for (let length = Math.min(word.length - 1, text.length); length > most; length--)
      if (text.endsWith(word.slice(0, length))) most = length
  return most
}
