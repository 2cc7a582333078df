/** A film of five scenes of two seconds for the tests of further agents: one clip each, with dialogue, and how to open agents on it. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { OpenAgents } from '../../src/agents/index.ts'
import { agentsOptions, openAgents } from '../../src/agents/index.ts'
import type { Clip, Episode, FrameSource, Question, Result, SubtitleLine } from '../../src/types.ts'
import { encodeVideo } from '../../src/video/index.ts'
import { type Drawing, draw } from './drawing.ts'

const [width, height, fps, clipSeconds] = [384, 216, 4, 2]

const sign = { word: 'LANTERN', panel: '#d9161c', ink: '#ffffff', y: 12 }
const scenes: ((frame: number) => Drawing)[] = [
  () => ({ signs: [sign], photographs: [{ name: 'car', x: 40, y: 120, height: 42 }] }),
  () => ({
    photographs: [
      { name: 'zebra', x: 30, y: 70, height: 110 },
      { name: 'zebra', x: 215, y: 70, height: 110 },
    ],
  }),
  () => ({ wall: '#1433e6' }),
  // the car drives to the right
  (frame) => ({ photographs: [{ name: 'car', x: 20 + 14 * frame, y: 100, height: 70 }] }),
  () => ({ signs: [{ ...sign, word: 'HARBOR', panel: '#1f9a3c' }] }),
]

const dialogue: SubtitleLine[][] = [
  [
    { speaker: 'mira', text: 'i left the kettle at Ashford .', start: 0.2, end: 1 },
    { speaker: 'omar', text: 'what a lovely day .', start: 1.2, end: 1.9 },
  ],
  [{ speaker: 'ivan', text: 'the guitar cost 12 coins .', start: 0.5, end: 1.5 }],
  [{ speaker: 'lena', text: 'our puppy ran away into the garden .', start: 0.5, end: 1.5 }],
  [],
  [],
]

export interface Film {
  path: string
  scratch: string
  episode: Episode
  remove(): void
}

export async function makeFilm(): Promise<Film> {
  const scratch = mkdtempSync(join(tmpdir(), 'showrunner-film-'))
  const path = join(scratch, 'film.mp4')
  const frames = scenes.flatMap((scene) => Array.from({ length: fps * clipSeconds }, (_, frame) => draw(scene(frame))))
  const pictures = await Promise.all(frames)
  value(
    await encodeVideo(
      pictures.map(({ data }) => data),
      { width, height, fps, path },
    ),
  )
  return {
    path,
    scratch,
    episode: episodeOf((index) => ({ kind: 'video', path, offset: index * clipSeconds, duration: clipSeconds })),
    remove: () => rmSync(scratch, { recursive: true, force: true }),
  }
}

export function episodeOf(source: (index: number) => FrameSource): Episode {
  const clips = dialogue.map(
    (subtitles, index): Clip => ({
      id: `film_s01e01_seg01_clip_0${index}`,
      index,
      start: index * clipSeconds,
      end: (index + 1) * clipSeconds,
      subtitles,
      source: source(index),
    }),
  )
  return { id: 'film_s01e01', show: 'film', clips }
}

export function asks(text: string, options: readonly string[] = []): Question {
  return { qid: '1', episodeId: 'film_s01e01', text, options }
}

export async function open(options: Record<string, unknown>): Promise<OpenAgents> {
  const parsed = agentsOptions.parse({ cacheDirectory: null, video: { cacheDirectory: null }, ...options })
  return value(await openAgents(parsed))
}

export function value<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(`${result.failure.kind}: ${result.failure.message}`)
  return result.value
}

export function failure<T>(result: Result<T>) {
  if (result.ok) throw new Error(`expected a failure, got ${JSON.stringify(result.value).slice(0, 200)}`)
  return result.failure
}
