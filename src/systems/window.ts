/**
 * Which clips are in view: a window of w clips around the one that grounding chose, which clip a grounding agent meant, and clips
 * chosen without one. Knows clip order only; says nothing about time.
 */
import seedrandom from 'seedrandom'
import type { Clip, Episode } from '../types.ts'

/**
 * The window of `width` clips: for odd w, (w-1)/2 on either side of the centre; for even w one more after it; cut off at the ends of
 * the episode or of the centre's segment (spec longvideoagent.md, section 5, row 12).
 */
export function evidenceWindow<One extends { id: string }>(
  episode: { clips: readonly One[] },
  centre: One,
  width: number,
  within: 'episode' | 'segment' = 'episode',
): readonly One[] {
  const position = episode.clips.indexOf(centre)
  const before = Math.floor((width - 1) / 2)
  const window = episode.clips.slice(Math.max(0, position - before), position - before + width)
  return within === 'episode' ? window : window.filter(({ id }) => segmentOf(id) === segmentOf(centre.id))
}

/** `s05e02_seg02_clip_00` -> `s05e02_seg02`; a clip named otherwise is a segment of its own. */
function segmentOf(clipId: string): string {
  return clipId.replace(/_clip_\d+$/i, '')
}

/** The clip of this episode that `name` means: its id or its label, brackets and case aside; null when there is none (row 17). */
export function findClip(episode: Episode, name: string): Clip | null {
  const wanted = name.replace(/[<>()[\]{}/"'`\s]/g, '').toLowerCase()
  if (wanted === '') return null
  const prefixed = `${episode.id}_${wanted}`.toLowerCase()
  return episode.clips.find(({ id }) => id.toLowerCase() === wanted || id.toLowerCase() === prefixed) ?? null
}

/** Any clip of the episode; the same one each time for the same question. Null for an episode without clips. */
export function randomClip(episode: Episode, qid: string): Clip | null {
  const draw = seedrandom(`initial clip/${qid}`)()
  return episode.clips[Math.floor(draw * episode.clips.length)] ?? null
}

/** At most `most` clips at the centres of equal stretches of the episode, in order. */
export function spacedClips(episode: Episode, most: number): readonly Clip[] {
  const { clips } = episode
  if (clips.length <= most) return clips
  return Array.from({ length: most }, (_, i) => clips[Math.floor(((i + 0.5) * clips.length) / most)] as Clip)
}
