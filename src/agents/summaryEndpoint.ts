/** The summariser behind a chat endpoint: timed lines in, one text out, cut to the words that were asked for. */
import type { Agent, SummaryAnswer, SummaryRequest } from '../types.ts'
import { askWords, type Behind, inline } from './askEndpoint.ts'
import { furtherAgent } from './furtherAgent.ts'

const instructions = [
  'You summarise notes about a video, such as captions of its pictures and lines of its dialogue, in their order in time.',
  'Keep who does what, with which things, where, and in which order; keep names, numbers and written words exactly. Say nothing that the notes do not say. Reply with the summary alone.',
].join('\n')

export function openSummaryEndpoint(behind: Behind): Agent<SummaryRequest, SummaryAnswer> {
  return furtherAgent('summary', `endpoint:${behind.model}`, async ({ lines, focus, words }, { signal }) => {
    const notes = lines.map(({ time, text }) => `${time === null ? '' : `${time.toFixed(1)} s: `}${inline(text)}`)
    const purpose =
      focus === null ? '' : `\n\nThe summary is to help with this question; do not answer it: ${inline(focus)}`
    const text = `Notes:\n${notes.join('\n')}${purpose}\n\nWrite at most ${words} words.`
    const answered = await askWords(behind, { agent: 'summary', instructions, text, signal })
    if (!answered.ok) return answered
    const { value, usage } = answered.value
    const written = value.split(/\s+/)
    const cut = written.length > words ? `cut off after ${words} of ${written.length} words .` : null
    return { ok: true, value: { text: written.slice(0, words).join(' '), frames: [], caveat: cut, usage } }
  })
}
