/** A story as rows and subtitles in the layout of LongTVQA+. Does not write them. */
import type { ClipSpan } from './render.ts'
import type { Story, StoryClip } from './story.ts'

/** One row of the question file: LongTVQA+'s columns and `kind`. */
export function questionRows(story: Story, spans: readonly ClipSpan[]): Record<string, unknown>[] {
  return story.questions.map((question) => {
    const clip = story.clips[question.clip] as StoryClip
    const span = spans[question.clip] as ClipSpan
    const lines = lineSpans(clip, span)
    const line = lines[question.line]
    const evidence = question.kind === 'dialogue' && line ? [line.start, line.end] : [0, round(span.end - span.start)]
    return {
      qid: question.qid,
      q: question.text,
      ...Object.fromEntries(question.options.map((option, i) => [`a${i}`, option])),
      answer: `a${question.answer}`,
      ts: evidence,
      episode_name: story.episodeId,
      occur_clip: clip.id,
      show_name: 'Miniature',
      kind: question.kind,
    }
  })
}

/** `Speaker : words <eos> Speaker : words`, as LongTVQA's clip-level subtitles. */
export function clipText(clip: StoryClip): string {
  return clip.lines.map(({ speaker, text }) => `${speaker} : ${text}`).join(' <eos> ')
}

/** The clip's dialogue as TVQA's subtitle files: times on the clip's own timeline, the speaker in `(Name:)`. */
export function clipSrt(clip: StoryClip, span: ClipSpan): string {
  const cues = lineSpans(clip, span).map(({ start, end }, i) => {
    const { speaker, text } = clip.lines[i] as StoryClip['lines'][number]
    return `${i + 1}\n${timestamp(start)} --> ${timestamp(end)}\n(${speaker}:)${text}\n`
  })
  return cues.join('\n')
}

/** Lines share the clip by their number of words, with a short pause after each. Seconds on the clip's timeline. */
function lineSpans(clip: StoryClip, span: ClipSpan): { start: number; end: number }[] {
  const words = clip.lines.map((line) => line.text.split(' ').length)
  const secondsPerWord = (span.end - span.start) / words.reduce((sum, n) => sum + n, 0)
  let spoken = 0
  return words.map((n) => {
    const start = spoken * secondsPerWord
    spoken += n
    return { start: round(start), end: round(spoken * secondsPerWord - 0.05) }
  })
}

/** To milliseconds, as subtitle files have them. */
function round(seconds: number): number {
  return Math.round(seconds * 1000) / 1000
}

function timestamp(seconds: number): string {
  const ms = Math.round(seconds * 1000)
  const two = (n: number) => String(Math.floor(n)).padStart(2, '0')
  return `${two(ms / 3_600_000)}:${two((ms / 60_000) % 60)}:${two((ms / 1000) % 60)},${String(ms % 1000).padStart(3, '0')}`
}
