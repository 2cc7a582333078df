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
  time: number
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

/** Each frame with its caption, and each line of dialogue where `subtitles` asks for it, video by video. Clips of unknown times stand in order. */
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
      return [{ time: frame.time, text: `frame ${number} : ${neutralise(caption.trim().replace(/\s+/g, ' '))}` }]
    })
    const spoken = (subtitles ? episode.clips : []).flatMap(({ start, subtitles }) =>
      subtitles.map((line) => ({
        time: start + (line.start ?? 0),
        text: neutralise(line.speaker ? `${line.speaker} : ${line.text}` : line.text),
      })),
    )
    const named = videos.length > 1 ? [{ time: 0, text: `video ${neutralise(id)} :` }] : []
    // the sort is stable: what has no time keeps its order
    return [...named, ...[...captioned, ...spoken].sort((a, b) => a.time - b.time)]
  })
}

function episodesOf({ episode, videos }: Task): readonly { id: string; episode: Episode }[] {
  return videos ?? [{ id: episode.id, episode }]
}
