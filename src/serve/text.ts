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
  private text = ''
  private sent = 0
  /** Where the text ends because a stop string was written. */
  private end: number | null = null
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
    if (this.end !== null || this.stoppedBy !== null) return ''
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
    return this.take(this.end ?? this.text.length - heldBack(this.text, this.settings.stop))
  }

  /** Returns what was held back: the answer has ended. */
  finish(): string {
    const { before, both } = this.decoded()
    if (this.end === null) this.add(both.slice(before.length))
    this.from = this.ids.length
    this.read = this.ids.length
    return this.take(this.end ?? this.text.length)
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
    const longest = Math.max(0, ...stop.map((word) => word.length))
    const begin = Math.max(0, this.text.length - longest)
    this.text += piece
    let first: { at: number; word: string } | null = null
    for (const word of stop) {
      const at = this.text.indexOf(word, begin)
      if (at >= 0 && (first === null || at < first.at)) first = { at, word }
    }
    if (first === null) return
    this.end = first.at + (includeStop ? first.word.length : 0)
    this.stoppedBy = first.word
  }

  private take(end: number): string {
    const piece = this.text.slice(this.sent, Math.max(this.sent, end))
    this.sent += piece.length
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
