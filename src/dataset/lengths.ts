/** How long clips and episodes are, and which segments lack clips, over the episodes whose durations are known. */
import { mean, median, quantile } from 'simple-statistics'
import type { Episode } from '../types.ts'
import { parseClipName } from './names.ts'

export interface Range {
  min: number
  median: number
  max: number
}

export interface Lengths {
  episodes: number
  episodeMinutes: Range
  clips: number
  clipSeconds: Range & { mean: number; p95: number }
  clipsOver60Seconds: number
  /** Segments: how many there are, how many lack an index between others, and how many begin after clip 0. */
  segments: number
  segmentsWithGaps: number
  segmentsNotFromZero: number
}

/** null where no episode has a timeline. */
export function lengthsOf(all: readonly Episode[]): Lengths | null {
  const episodes = all.filter(({ clips }) => (clips.at(-1)?.end ?? 0) > 0)
  if (episodes.length === 0) return null
  const seconds = episodes.flatMap(({ clips }) => clips.map(({ start, end }) => end - start))
  const segments = episodes.flatMap(segmentsOf)
  return {
    episodes: episodes.length,
    episodeMinutes: rangeOf(episodes.map(({ clips }) => (clips.at(-1)?.end as number) / 60)),
    clips: seconds.length,
    clipSeconds: { ...rangeOf(seconds), mean: mean(seconds), p95: quantile(seconds, 0.95) },
    clipsOver60Seconds: seconds.filter((one) => one > 60).length,
    segments: segments.length,
    segmentsWithGaps: segments.filter((clips) => (clips.at(-1) as number) - (clips[0] as number) >= clips.length)
      .length,
    segmentsNotFromZero: segments.filter((clips) => (clips[0] as number) > 0).length,
  }
}

/** The numbers of an episode's clips, in order, by segment. */
function segmentsOf({ clips }: Episode): number[][] {
  const segments = new Map<number, number[]>()
  for (const { id } of clips) {
    const name = parseClipName(id)
    if (name) segments.set(name.segment, [...(segments.get(name.segment) ?? []), name.clip])
  }
  return [...segments.values()]
}

/** Of at least one value. Not `Math.min(...values)`: there may be more values than a call may have arguments. */
export function rangeOf(values: readonly number[]): Range {
  return { min: quantile([...values], 0), median: median([...values]), max: quantile([...values], 1) }
}
