/**
 * Writes a miniature data set: stories told, pictures rendered, everything in the layout of LongTVQA+ with videos.
 *
 * Resumable: a note with the arguments is written first, videos appear only when whole, and `dataset.json` is written last. The
 * encoder comes in as an argument, since this room does not know video.
 */
import { mkdir, readdir, rm, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Result } from '../../types.ts'
import { failed, fileFailure } from '../failure.ts'
import { readOrNull, writeWhole } from '../files.ts'
import { type MiniatureOptions, miniatureOptions } from '../options.ts'
import { MINIATURE_MARKER, MINIATURE_PREFIX, MINIATURE_STARTED } from '../raw.ts'
import { FRAME, loadMaterial, type PictureMaterial } from './picture.ts'
import { clipSpans, FRAMES_PER_SECOND, renderEpisode } from './render.ts'
import { clipSrt, clipText, questionRows } from './rows.ts'
import { type Story, tellStory } from './story.ts'

/** Changes whenever the same arguments would give other stories or pictures. */
const VERSION = 1
/** Each renders in this process and encodes in another; more than two only wait for each other. */
const EPISODES_AT_ONCE = 2

/** Writes an H.264 file from raw rgb24 frames, atomically. `encodeVideo` of the video room is one. */
export type Encode = (
  frames: AsyncIterable<Uint8Array>,
  options: { width: number; height: number; fps: number; path: string; signal?: AbortSignal },
) => Promise<Result<void>>

export type MiniatureArguments = Partial<MiniatureOptions> & {
  out: string
  encode: Encode
  /** Called after each episode, and once at the start. */
  onProgress?: (done: number, total: number) => void
  signal?: AbortSignal
}

export interface WrittenMiniature {
  directory: string
  /** False when the same data set was there already. */
  written: boolean
  episodes: number
  clips: number
  questions: number
  /** Of video. */
  seconds: number
}

/**
 * Renders episodes `firstEpisode` to `firstEpisode + episodes - 1` of the data set `seed` into `out`.
 * Fails with `bad_file` when `out` holds something else, `disk_full`, `cancelled`, or with the encoder's failure; run again to go on.
 */
export async function writeMiniature({
  out,
  encode,
  onProgress,
  signal,
  ...given
}: MiniatureArguments): Promise<Result<WrittenMiniature>> {
  const options = miniatureOptions.parse(given)
  const identity = JSON.stringify({ version: VERSION, ...options })
  try {
    await mkdir(join(out, 'videos'), { recursive: true })
    await mkdir(join(out, 'subtitles'), { recursive: true })
    const state = await stateOf(out, identity)
    if (state.kind === 'other')
      return failed('bad_file', `${out}: ${state.what}; delete that folder or choose another --out`)
    if (state.kind === 'complete') return { ok: true, value: { ...state.summary, directory: out, written: false } }

    await writeWhole(join(out, MINIATURE_STARTED), identity)
    const stories = Array.from({ length: options.episodes }, (_, i) =>
      tellStory({ ...options, episode: options.firstEpisode + i }),
    )
    const rendered = await renderAll(stories, options, await loadMaterial(), { out, encode, onProgress, signal })
    if (!rendered.ok) return rendered
    const summary = await writeText(stories, options, out)
    await writeWhole(
      join(out, MINIATURE_MARKER),
      `${JSON.stringify({ version: VERSION, ...options, ...summary }, null, 2)}\n`,
    )
    await rm(join(out, MINIATURE_STARTED), { force: true })
    return { ok: true, value: { ...summary, directory: out, written: true } }
  } catch (error) {
    return fileFailure(out, error)
  }
}

type State = { kind: 'complete'; summary: Summary } | { kind: 'unfinished' } | { kind: 'other'; what: string }
type Summary = Omit<WrittenMiniature, 'directory' | 'written'>

/** What `out` holds: this data set, whole or in part (nothing counts as part), or something else. */
async function stateOf(out: string, identity: string): Promise<State> {
  const marker = await readOrNull(join(out, MINIATURE_MARKER))
  if (marker !== null) {
    const { clips, questions, seconds, ...found } = readMarker(marker)
    if (JSON.stringify(found) !== identity)
      return { kind: 'other', what: `holds the miniature data set ${JSON.stringify(found)}, not ${identity}` }
    return {
      kind: 'complete',
      summary: {
        episodes: Number(found.episodes),
        clips: Number(clips),
        questions: Number(questions),
        seconds: Number(seconds),
      },
    }
  }
  const unfinished = await readOrNull(join(out, MINIATURE_STARTED))
  if (unfinished !== null) {
    return unfinished === identity
      ? { kind: 'unfinished' }
      : { kind: 'other', what: `holds an unfinished data set ${unfinished.slice(0, 200)}, not ${identity}` }
  }
  const strange = (await readdir(out)).filter((name) => name !== 'videos' && name !== 'subtitles')
  return strange.length > 0
    ? { kind: 'other', what: `is not empty (${strange.slice(0, 3).join(', ')})` }
    : { kind: 'unfinished' }
}

function readMarker(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>
  } catch {
    return { broken: text.slice(0, 80) }
  }
}

interface RenderContext extends Pick<MiniatureArguments, 'out' | 'encode' | 'onProgress' | 'signal'> {}

/** Renders what is not there yet, a few episodes at a time; stops at the first failure. */
async function renderAll(
  stories: readonly Story[],
  options: MiniatureOptions,
  material: PictureMaterial,
  { out, encode, onProgress, signal }: RenderContext,
): Promise<Result<void>> {
  const waiting = stories.values()
  let done = 0
  let outcome: Result<void> = { ok: true, value: undefined }
  onProgress?.(0, stories.length)
  const worker = async () => {
    for (const story of waiting) {
      if (!outcome.ok) return
      if (signal?.aborted) {
        outcome = failed(
          'cancelled',
          `${out}: stopped after ${done} of ${stories.length} episodes; run the same command again to go on`,
        )
        return
      }
      const path = join(out, videoName(story))
      const there = await stat(path).catch(() => null)
      if (!there?.size) {
        const frames = renderEpisode(story, String(options.seed), material)
        const encoded = await encode(frames, { ...FRAME, fps: FRAMES_PER_SECOND, path, signal })
        if (!encoded.ok) {
          outcome = encoded
          return
        }
      }
      done++
      onProgress?.(done, stories.length)
    }
  }
  await Promise.all(Array.from({ length: EPISODES_AT_ONCE }, worker))
  return outcome
}

function videoName(story: Story): string {
  return `videos/${story.episodeId}.mp4`
}

/** Writes everything but the videos. */
async function writeText(stories: readonly Story[], options: MiniatureOptions, out: string): Promise<Summary> {
  const rows: Record<string, unknown>[] = []
  const texts: Record<string, string> = {}
  const clips: Record<string, { video: string; start: number; end: number }> = {}
  let seconds = 0
  for (const story of stories) {
    const spans = clipSpans(story, String(options.seed))
    rows.push(...questionRows(story, spans))
    for (const [i, clip] of story.clips.entries()) {
      const span = spans[i] as { start: number; end: number }
      texts[clip.id] = clipText(clip)
      clips[clip.id] = { video: videoName(story), ...span }
      seconds += span.end - span.start
      await writeWhole(join(out, 'subtitles', `${clip.id}.srt`), clipSrt(clip, span))
    }
  }
  await writeWhole(
    join(out, `${MINIATURE_PREFIX}${options.split}.json`),
    `[\n${rows.map((row) => JSON.stringify(row)).join(',\n')}\n]\n`,
  )
  await writeWhole(join(out, `${MINIATURE_PREFIX}subtitle_clip_level.json`), `${JSON.stringify(texts, null, 1)}\n`)
  await writeWhole(join(out, 'clips.json'), `${JSON.stringify(clips, null, 1)}\n`)
  return { episodes: stories.length, clips: Object.keys(clips).length, questions: rows.length, seconds }
}
