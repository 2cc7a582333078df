/** Moments of an episode: which clip plays then, and where in it. Reads no pictures. Times are seconds; the episode's timeline joins its clips. */
import type { Clip, Episode, Place, Result, SeenFrame, Stretch } from '../types.ts'
import { uniformTimes } from '../video/index.ts'
import { failed } from './failure.ts'

export interface Moment {
  clip: Clip
  /** On the episode's timeline, as it was asked for. */
  at: number
  /** The same on the clip's own timeline. */
  time: number
}

/**
 * The moments at `times`; those that no clip covers are left out. The end of the last clip belongs to it.
 * Fails where the durations of clips are unknown.
 */
export function momentsAt(episode: Episode, times: readonly number[]): Result<Moment[]> {
  const whole = wholeOf(episode)
  if (!whole.ok) return whole
  const moments = times.flatMap((at) => {
    const clip =
      episode.clips.find(({ start, end }) => at >= start && at < end) ??
      episode.clips.find(({ start, end }) => at === end && end > start)
    return clip === undefined ? [] : [{ clip, at, time: at - clip.start }]
  })
  return { ok: true, value: moments }
}

/** All of an episode, or the stretch of a place cut to it; empty (`start === end`) when it lies outside. */
export function stretchOf({ episode, stretch }: Place): Result<Stretch> {
  const whole = wholeOf(episode)
  if (!whole.ok || stretch === null) return whole
  const { start, end } = whole.value
  const from = Math.min(end, Math.max(start, stretch.start))
  return { ok: true, value: { start: from, end: Math.max(from, Math.min(end, stretch.end)) } }
}

function wholeOf({ id, clips }: Episode): Result<Stretch> {
  const known = clips.filter(({ start, end }) => end > start)
  if (known.length > 0)
    return {
      ok: true,
      value: { start: Math.min(...known.map((c) => c.start)), end: Math.max(...known.map((c) => c.end)) },
    }
  return failed(
    'agent',
    'missing_file',
    `episode ${id}: how long its clips are is unknown, so seconds name no place in it; add video files or frame folders to the data set`,
  )
}

/** Centres of `count` equal spans of a stretch. */
export function spread({ start, end }: Stretch, count: number): number[] {
  return uniformTimes(end - start, count).map((time) => start + time)
}

/** Moments one after another in `seconds` steps, at most `most`: longer stretches are looked at in wider steps. */
export function everyFew(stretch: Stretch, seconds: number, most: number): number[] {
  const length = stretch.end - stretch.start
  return length <= 0 ? [] : spread(stretch, Math.min(most, Math.max(1, Math.round(length / seconds))))
}

export function hasPictures({ source }: Clip): boolean {
  return source.kind === 'video' || source.kind === 'frames'
}

/** What people wrote about a moment; empty where nobody wrote anything. */
export function describedAt({ clip: { source }, time }: Moment): string {
  if (source.kind !== 'descriptions') return ''
  return source.lines
    .filter(({ start, end }) => time >= start && time <= end)
    .map(({ text }) => text.replace(/\s+/g, ' ').trim())
    .join(' ')
}

/** The record of a picture that was looked at. */
export function seenFrame({ clip, time }: Moment, picture: SeenFrame['picture']): SeenFrame {
  return { clipId: clip.id, time, ...(picture === undefined ? {} : { picture }) }
}

/** At most `most` of them, evenly spread. */
export function thinned(moments: readonly Moment[], most: number): readonly Moment[] {
  if (moments.length <= most) return moments
  return Array.from({ length: most }, (_, index) => moments[Math.floor(((index + 0.5) * moments.length) / most)]!)
}
