/**
 * Episodes in order, each clip with its span on the episode's timeline and where its pictures come from (spec/longvideoagent.md 2.3,
 * row 23). Reads no text; what it cannot use goes to the findings.
 */
import { dirname } from 'node:path'
import type { FrameSource, Result } from '../../types.ts'
import { milli } from '../gold.ts'
import { parseVideoSpan, TVQA_FRAMES_PER_SECOND } from '../material.ts'
import { type ClipName, compareClips, compareEpisodes, parseClipName, parseEpisodeName } from '../names.ts'
import type { ClipIndex } from './clips.ts'
import type { Findings } from './findings.ts'
import type { Inputs } from './inputs.ts'
import type { Looked } from './pictures.ts'
import type { TextReader } from './text.ts'

export interface PlannedClip {
  id: string
  /** Seconds on the episode's timeline, to a millisecond; both 0 in an episode without a timeline. */
  start: number
  end: number
  /** Descriptions are put in when the episode is written. */
  source: FrameSource
}

export interface PlannedEpisode {
  id: string
  show: string
  /** False where the duration of any clip is unknown: an offset after a gap would be a guess. */
  timed: boolean
  clips: PlannedClip[]
}

/** Lengths that differ by more than this do not belong together, or one of the files was cut short. */
const TOLERANCE_SECONDS = 2

/** By id, in order of show, season and number. Fails when a file of video spans changed while it was read. */
export async function planEpisodes(
  index: ClipIndex,
  inputs: Inputs,
  looked: ReadonlyMap<string, Looked>,
  texts: TextReader,
  findings: Findings,
): Promise<Result<Map<string, PlannedEpisode>>> {
  const episodes = new Map<string, PlannedEpisode>()
  for (const id of [...index.episodes.keys()].sort(compareEpisodes)) {
    const names = [...(index.episodes.get(id) as Set<string>)].map((clip) => parseClipName(clip) as ClipName)
    const clips: { id: string; duration: number | null; source: FrameSource }[] = []
    for (const name of names.sort(compareClips)) {
      const spanned = await spanOf(name.id, index, texts, findings)
      if (!spanned.ok) return spanned
      clips.push({ id: name.id, ...pick(name.id, spanned.value, index, inputs, looked, findings) })
    }
    const unknown = clips.find((clip) => clip.duration === null)
    if (unknown)
      findings.add(
        'clip/no-duration',
        unknown.id,
        `no duration in a table and no pictures; ${id} has ${clips.length} clips`,
      )
    let seconds = 0
    const planned = clips.map(({ id: clip, duration, source }): PlannedClip => {
      const start = seconds
      if (!unknown) seconds += duration as number
      return { id: clip, start: milli(start), end: milli(seconds), source }
    })
    const { show } = parseEpisodeName(id) as { show: string }
    const episode: PlannedEpisode = { id, show, timed: !unknown, clips: planned }
    useEpisodeVideo(episode, inputs, looked, findings)
    episodes.set(id, episode)
  }
  return { ok: true, value: episodes }
}

type Span = Extract<FrameSource, { kind: 'video' }> | null

async function spanOf(id: string, index: ClipIndex, texts: TextReader, findings: Findings): Promise<Result<Span>> {
  const place = index.videoSpans.get(id)
  if (!place) return { ok: true, value: null }
  const value = await texts.read(place)
  if (!value.ok) return value
  const span = parseVideoSpan(value.value, dirname(place.file.path))
  if (!span) findings.add('text/format', place.where, 'expected {video, start, end} with 0 <= start < end')
  return {
    ok: true,
    value: span && { kind: 'video', path: span.path, offset: span.start, duration: milli(span.end - span.start) },
  }
}

/** One clip's duration (table, video span, pictures, video: the first that tells) and pictures (span, video, folder). */
function pick(
  id: string,
  span: Span,
  index: ClipIndex,
  inputs: Inputs,
  looked: ReadonlyMap<string, Looked>,
  findings: Findings,
): { duration: number | null; source: FrameSource } {
  const table = index.durations.get(id) ?? span?.duration ?? null
  const folder = inputs.frames.get(id)
  const pictures = folder === undefined ? undefined : looked.get(folder)
  let frames: Extract<FrameSource, { kind: 'frames' }> | null = null
  if (folder !== undefined && pictures?.kind === 'frames') {
    if (pictures.highest === 0) findings.add('frames/none', folder, 'no picture named 00001.jpg')
    else frames = { kind: 'frames', directory: folder, fps: TVQA_FRAMES_PER_SECOND, count: pictures.highest }
    if (pictures.count < pictures.highest)
      findings.add('frames/gap', folder, `${pictures.count} of pictures 1 to ${pictures.highest}`)
    const seconds = pictures.highest / TVQA_FRAMES_PER_SECOND
    if (frames && table !== null && Math.abs(seconds - table) > TOLERANCE_SECONDS)
      findings.add(
        'frames/length',
        folder,
        `${pictures.highest} pictures are ${seconds.toFixed(1)} s, the clip has ${table} s`,
      )
  }
  const path = inputs.clipVideos.get(id)
  const file = path === undefined ? undefined : looked.get(path)
  let video: Span = null
  if (path !== undefined && file?.kind === 'unreadable') findings.add('video/unreadable', path, file.problem)
  if (path !== undefined && file?.kind === 'video') {
    video = { kind: 'video', path, offset: 0, duration: file.seconds }
    if (table !== null && Math.abs(file.seconds - table) > TOLERANCE_SECONDS)
      findings.add('video/length', path, `${file.seconds} s, the clip has ${table} s`)
  }
  return {
    duration: table ?? (frames ? frames.count / frames.fps : (video?.duration ?? null)),
    source: span ?? video ?? frames ?? { kind: 'none' },
  }
}

/** One video of the whole episode serves the clips that have no video of their own, where it is as long as their sum. */
function useEpisodeVideo(
  episode: PlannedEpisode,
  inputs: Inputs,
  looked: ReadonlyMap<string, Looked>,
  findings: Findings,
): void {
  const path = inputs.episodeVideos.get(episode.id)
  const file = path === undefined ? undefined : looked.get(path)
  if (path === undefined || !file) return
  if (file.kind === 'unreadable') findings.add('video/unreadable', path, file.problem)
  if (file.kind !== 'video') return
  const length = episode.clips.at(-1)?.end ?? 0
  if (!episode.timed || Math.abs(file.seconds - length) > TOLERANCE_SECONDS) {
    const clips = episode.timed ? `its clips have ${length} s` : 'not all durations of its clips are known'
    findings.add('video/length', path, `${file.seconds} s, ${clips}: not used`)
    return
  }
  for (const clip of episode.clips) {
    if (clip.source.kind === 'video') continue
    clip.source = { kind: 'video', path, offset: clip.start, duration: milli(clip.end - clip.start) }
  }
}
