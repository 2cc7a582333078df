/** How things are called and counted on the pages: one place, so that lists, trajectories and legends agree. */
import type { LabelKind } from '../trajectory/labels.ts'
import type { Turn } from '../types.ts'
import { type Html, html, type Part } from './html.ts'

/** The letters are those of the report. */
const ACTIONS: Record<string, { letter: string; name: string }> = {
  ground: { letter: 'g', name: 'asks where to look' },
  look: { letter: 'v', name: 'asks what is there' },
  call: { letter: 'c', name: 'calls' },
  output: { letter: 'o', name: 'says' },
  answer: { letter: 'a', name: 'answers' },
  invalid: { letter: 'x', name: 'malformed' },
}

export function actionWords(kind: string): { letter: string; name: string } {
  return ACTIONS[kind] ?? { letter: kind.slice(0, 1), name: kind }
}

export function chip({ action, role }: Pick<Turn, 'action' | 'role'>): Html {
  const { letter, name } = actionWords(action.kind)
  const title = [role, action.kind === 'call' ? `${name} ${action.tool}` : name].filter(Boolean).join(' ')
  return html`<abbr class="chip ${action.kind}" title="${title}">${letter}</abbr>`
}

export function chips(turns: readonly Pick<Turn, 'action' | 'role'>[]): Html {
  const said = turns.map(({ action }) => actionWords(action.kind).name).join(', ')
  return html`<span class="chips" role="img" aria-label="${said || 'no turns'}">${turns.map(chip)}</span>`
}

export const LABEL_WORDS: Record<LabelKind, string> = {
  grounding_wrong: 'grounding wrong',
  vision_wrong: 'vision wrong',
  reasoning_wrong: 'reasoning wrong',
  question_ambiguous: 'question ambiguous',
  other: 'other',
}

/** Right, wrong, or failed outside the policy: a shape and a word besides the colour. */
export function outcome(correct: boolean, scored: boolean): Html {
  if (!scored) return html`<span class="outcome failed"><span aria-hidden="true">–</span> failed</span>`
  return correct
    ? html`<span class="outcome right"><span aria-hidden="true">✓</span> right</span>`
    : html`<span class="outcome wrong"><span aria-hidden="true">✕</span> wrong</span>`
}

export const words = (name: string) => name.replaceAll('_', ' ')

export const count = (value: number) => value.toLocaleString('en-US')

export const decimal = (value: number, digits = 2) => value.toFixed(digits).replace('-', '−')

export const signed = (value: number, digits = 2) => `${value >= 0 ? '+' : ''}${decimal(value, digits)}`

export const percent = (share: number) => `${(share * 100).toFixed(1)} %`

/** `8 s`, `3 min 20 s`, `1 h 05 min`. */
export function duration(seconds: number): string {
  const whole = Math.round(seconds)
  if (whole < 60) return `${seconds < 10 ? decimal(seconds, 1) : whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${String(whole % 60).padStart(2, '0')} s`
  return `${Math.floor(whole / 3600)} h ${String(Math.floor((whole % 3600) / 60)).padStart(2, '0')} min`
}

/** `12:05` on the episode's clock. */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds)
  const [hours, minutes] = [Math.floor(whole / 3600), Math.floor((whole % 3600) / 60)]
  const two = (value: number) => String(value).padStart(2, '0')
  return hours > 0 ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`
}

/** The end of a clip's name that tells it apart: `seg01_clip_02` of `mini_s01e08_seg01_clip_02`. */
export function clipName(clipId: string, episodeId: string): string {
  return clipId.startsWith(`${episodeId}_`) ? clipId.slice(episodeId.length + 1) : clipId
}

/** A list of facts, each with what it means on hover. */
export function facts(entries: readonly (readonly [name: string, value: Part, meaning?: string] | false)[]): Html {
  return html`<dl class="facts">${entries.map(
    (entry) =>
      entry !== false &&
      html`<div><dt${entry[2] !== undefined && html` title="${entry[2]}"`}>${entry[0]}</dt><dd>${entry[1]}</dd></div>`,
  )}</dl>`
}
