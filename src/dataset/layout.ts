/**
 * The layout of an imported data set: which files, and what a line of each holds. Writer (`import/`) and reader (`imported.ts`) share it.
 *
 *     dataset.json            what the folder is, and its counts; written last
 *     import-report.json      inputs, and what was dropped, changed or noted
 *     episodes.jsonl          public: an episode a line, with its clips, dialogue, and where its pictures are
 *     questions/<split>.jsonl public: question and options
 *     gold/<split>.jsonl      secret: answer, clip, span; line n belongs to question n
 *     gold/<split>.boxes.jsonl  secret: boxes around what question and answer name, where the data has them
 *
 * Nothing but line order and qid ties the public files to the secret ones.
 */
import { join } from 'node:path'
import type { FrameSource, QuestionKind, SubtitleLine } from '../types.ts'

export const LAYOUT = 'showrunner-episodes'
export const LAYOUT_VERSION = 1
/** Its presence says that the data set is whole. */
export const MARKER = 'dataset.json'
/** Holds the state of an unfinished import. */
export const WORK_FOLDER = '.import'

export const paths = (directory: string) => ({
  marker: join(directory, MARKER),
  report: join(directory, 'import-report.json'),
  episodes: join(directory, 'episodes.jsonl'),
  questions: (split: string) => join(directory, 'questions', `${split}.jsonl`),
  gold: (split: string) => join(directory, 'gold', `${split}.jsonl`),
  boxes: (split: string) => join(directory, 'gold', `${split}.boxes.jsonl`),
  work: join(directory, WORK_FOLDER),
})

export interface EpisodeLine {
  id: string
  show: string
  clips: {
    id: string
    /** Seconds on the episode's timeline; all 0 where the duration of any clip is unknown. */
    start: number
    end: number
    subtitles: readonly SubtitleLine[]
    /** Paths are relative to the data set's folder. */
    source: FrameSource
  }[]
}

export interface QuestionLine {
  qid: string
  episode: string
  q: string
  options: readonly string[]
}

export interface GoldLine {
  qid: string
  /** null where the answer is withheld. */
  answer: number | null
  /** null where the row does not tell. */
  clip: string | null
  /** Seconds on the clip's own timeline, as annotated; null where absent or unusable. */
  ts: readonly [number, number] | null
  /** The same on the episode's timeline, cut to the clip; null where durations are unknown. */
  episodeTs: readonly [number, number] | null
  kind?: QuestionKind
}

/** Left, top, width and height in pixels of a 640 x 360 picture, and what is in the box. */
export type BoxTuple = readonly [number, number, number, number, string]

export interface BoxesLine {
  qid: string
  /** By number of the picture in the clip's folder of frames, from 1. */
  boxes: Readonly<Record<string, readonly BoxTuple[]>>
}

export interface SplitCounts {
  /** Which published files the rows came from: TVQA, TVQA+, LongTVQA, LongTVQA+. */
  formats: string[]
  questions: number
  answered: number
  /** With a usable span; `zeroLength` of them have no length. */
  spans: number
  zeroLength: number
  questionsWithBoxes: number
  framesWithBoxes: number
  boxes: number
}

export interface DatasetMarker {
  layout: typeof LAYOUT
  version: number
  /** Tells whether another import has the same inputs. */
  inputs: string
  splits: Record<string, SplitCounts>
  episodes: number
  clips: number
  notes: string[]
}
