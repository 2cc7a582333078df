/** Lines of dialogue of a place, on the episode's timeline. Judges none. */
import type { Clip, Place, Result, Stretch, SubtitleAnswer } from '../types.ts'
import { stretchOf } from './moments.ts'

export type PlacedLine = SubtitleAnswer['lines'][number]

/**
 * Of the whole video, every line; of a stretch, those that are heard in it, where a line without times lasts as long as its clip.
 * Fails for a stretch of an episode without times.
 */
export function dialogueOf(place: Place): Result<PlacedLine[]> {
  const lines = place.episode.clips.flatMap((clip) => clip.subtitles.map((line) => placed(clip, line)))
  if (place.stretch === null) return { ok: true, value: lines.map(({ line }) => line) }
  const stretch = stretchOf(place)
  if (!stretch.ok) return stretch
  const { start, end } = stretch.value
  return { ok: true, value: lines.filter(({ span }) => span.start < end && span.end > start).map(({ line }) => line) }
}

/** `span`: where the line is heard, at the widest. */
function placed(
  { id, start: begin, end: finish }: Clip,
  { speaker, text, start, end }: Clip['subtitles'][number],
): { line: PlacedLine; span: Stretch } {
  const timed = finish > begin && start !== undefined
  const from = timed ? begin + start : begin
  const to = timed && end !== undefined ? begin + end : null
  return {
    line: {
      clipId: id,
      start: timed ? from : null,
      end: to,
      speaker: speaker ?? null,
      text: text.replace(/\s+/g, ' ').trim(),
    },
    span: { start: from, end: to ?? finish },
  }
}

export function spokenLine({ speaker, text }: PlacedLine): string {
  return speaker === null ? text : `${speaker} : ${text}`
}
