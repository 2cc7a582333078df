/**
 * What every system writes for a master: clip labels, how a clip's dialogue reads, questions with their options, and how the history
 * is sent. The tags around these are `dialect.ts`. It only writes text: it calls nobody and keeps no state.
 *
 * Text that others wrote (questions, options, subtitles, agents' answers) is neutralised: nothing in it can pass for a tag
 * (spec longvideoagent.md, section 5, row 32).
 */
import type { Clip, Episode, Message } from '../types.ts'

/** Turns whatever looks like a tag (`<answer>`, `</seg01_clip_00>`, `<|im_end|>`) into the same words in square brackets. */
export function neutralise(text: string): string {
  return text.replace(/<(\s*\/?\s*[a-z|!][^<>]*)>/gi, '[$1]')
}

/** The clip's name inside its episode: `s05e02_seg01_clip_03` becomes `seg01_clip_03`. */
export function clipLabel(episode: Episode, clip: Clip): string {
  const prefix = `${episode.id}_`
  return clip.id.startsWith(prefix) ? clip.id.slice(prefix.length) : clip.id
}

/** One line per subtitle, with its speaker where that is known. */
export function dialogue({ subtitles }: Clip): string[] {
  return subtitles.map(({ speaker, text }) => neutralise(speaker ? `${speaker} : ${text}` : text))
}

/** The lines that end every message to the master: a notice on the last turn if wanted, and how many turns are left. */
export function countdownLines(turnsLeft: number, options: { showTurnsLeft: boolean; notice: boolean }): string[] {
  return [
    ...(options.notice && turnsLeft === 1 ? ['this is the last turn : answer now .'] : []),
    ...(options.showTurnsLeft ? [`<turns_left_${turnsLeft}>`] : []),
  ]
}

/**
 * The history with one more turn, the master's own words included (row 26): as two more messages, or all in the one user message
 * (`single`).
 */
export function withTurn(
  messages: readonly Message[],
  response: string,
  observation: string,
  form: 'chat' | 'single',
): readonly Message[] {
  if (form === 'chat')
    return [...messages, { role: 'assistant', content: response }, { role: 'user', content: observation }]
  return messages.map(({ role, content }) => ({ role, content: `${content}\n${response}\n${observation}` }))
}
