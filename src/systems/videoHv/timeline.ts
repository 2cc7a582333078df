/**
 * The videos of a task as text for VideoHV-Agent: moments that are sampled as numbered frames, and their captions and the dialogue in
 * order of time. Asks nobody.
 */
import type { Episode, Task } from '../../types.ts'
import { neutralise } from '../transcript.ts'

/** A sampled moment; its number is its place in the list. `time` in seconds on the episode's timeline. */
export interface Frame {
  episode: Episode
  time: number
}

export interface TimelineLine {
  /** Seconds on the episode's timeline; null where they are unknown. */
  time: number | null
  /** The number of the frame that it captions; null for dialogue. */
  frame: number | null
  text: string
}

/** Centres of equal spans, `count` in all, the same share for each video and at most one per second; none where durations are unknown. */
export function sampleFrames(task: Task, count: number): Frame[] {
  const episodes = episodesOf(task).map(({ episode }) => episode)
  return episodes.flatMap((episode) => {
    const seconds = episode.clips.at(-1)?.end ?? 0
    const share = Math.min(Math.floor(count / episodes.length), Math.ceil(seconds))
    return Array.from({ length: share }, (_, i) => ({ episode, time: ((i + 0.5) * seconds) / share }))
  })
}

/** Each caption, and each line of dialogue where `subtitles` asks for it, by time and video by video. Clips of unknown times stand in order. */
export function timelineOf(
  task: Task,
  frames: readonly Frame[],
  captions: ReadonlyMap<number, string>,
  { subtitles }: { subtitles: boolean },
): TimelineLine[] {
  const videos = episodesOf(task)
  return videos.flatMap(({ id, episode }) => {
    const captioned = frames.flatMap((frame, number) => {
      const caption = captions.get(number)
      if (frame.episode !== episode || caption === undefined) return []
      return [{ time: frame.time, frame: number, text: neutralise(caption.trim().replace(/\s+/g, ' ')) }]
    })
    const known = (episode.clips.at(-1)?.end ?? 0) > 0
    const spoken = (subtitles ? episode.clips : []).flatMap(({ start, subtitles }) =>
      subtitles.map(({ speaker, text, start: within = 0 }) => ({
        time: known ? start + within : null,
        frame: null,
        text: neutralise(speaker ? `${speaker} : ${text}` : text),
      })),
    )
    const named = videos.length > 1 ? [{ time: null, frame: null, text: `video ${neutralise(id)} :` }] : []
    // the sort is stable: what has no time keeps its order
    return [...named, ...[...captioned, ...spoken].sort((a, b) => (a.time ?? 0) - (b.time ?? 0))]
  })
}

/** As a verifier reads it: `12.5 s frame 12 : a red sign`. */
export function toldLine({ time, frame, text }: TimelineLine): string {
  return [
    ...(time === null ? [] : [`${Number(time.toFixed(1))} s`]),
    ...(frame === null ? [text] : [`frame ${frame} : ${text}`]),
  ].join(' ')
}

function episodesOf({ episode, videos }: Task): readonly { id: string; episode: Episode }[] {
  return videos ?? [{ id: episode.id, episode }]
}
