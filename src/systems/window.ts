/**
 * Which clips are in view: a window of w clips around the one that grounding chose, and which clip a grounding agent meant.
 * Knows clip order only; says nothing about time.
 */
import type { Clip, Episode } from '../types.ts'

/**
 * The window of `width` clips: for odd w, (w-1)/2 on either side of the centre; for even w one more after it; cut off at the episode's
 * ends (spec longvideoagent.md, section 5, row 12).
 */
export function evidenceWindow<One>(episode: { clips: readonly One[] }, centre: One, width: number): readonly One[] {
  const position = episode.clips.indexOf(centre)
  const before = Math.floor((width - 1) / 2)
  return episode.clips.slice(Math.max(0, position - before), position - before + width)
}

/** The clip of this episode that `name` means: its id or its label, brackets and case aside; null when there is none (row 17). */
export function findClip(episode: Episode, name: string): Clip | null {
  const wanted = name.replace(/[<>[\]/"'`\s]/g, '').toLowerCase()
  if (wanted === '') return null
  const prefixed = `${episode.id}_${wanted}`.toLowerCase()
  return episode.clips.find(({ id }) => id.toLowerCase() === wanted || id.toLowerCase() === prefixed) ?? null
}
