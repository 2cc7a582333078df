/**
 * What is in a data set, and what in it would let a master answer without watching: counts and a leak audit.
 *
 * Reads files only; does not decode video and does not judge whether a leak matters.
 */
import { stat } from 'node:fs/promises'
import type { Clip, Question, QuestionKind, Result } from '../types.ts'
import type { Dataset } from './dataset.ts'
import type { DatasetMarker } from './layout.ts'
import { type Lengths, lengthsOf, rangeOf } from './lengths.ts'
import { readMarker } from './lines.ts'
import { openDataset } from './open.ts'
import { type Comparison, comparePublished } from './published.ts'
import { type SurveyedRow, surveyRows } from './survey.ts'

/** A guessing rule, held against the right answers. Chance is 0.2. */
export interface Guess {
  /** Questions that the rule decides and whose answer is known. */
  n: number
  accuracy: number
}

export interface LeakAudit {
  /** Choosing the option whose words stand in the question, where exactly one does. */
  optionInQuestion: Guess
  /** Choosing the longest option; ties share. */
  longestOption: Guess
  /** Always choosing the most frequent position. */
  fixedPosition: Guess
  /** Goodness of fit of the answers' positions to equal shares, 4 degrees of freedom: 13.28 and above has p < 0.01. */
  positionChiSquared: number
  /** Names of gold fields found inside what a policy is given; empty when all is well. */
  goldKeysInTasks: string[]
  /** Episodes whose clip list comes from the questions alone, so that it tells where evidence is. */
  episodesKnownFromQuestionsOnly: number
  /** Naming a clip of the episode at random: how often it is the one with the evidence. */
  randomClip: Guess
  /** Questions with equal text about one episode, qids and episodes that occur in two splits. */
  sharedBetweenSplits: { splits: [string, string]; sameQuestion: number; sameQid: number; sameEpisode: number }[]
}

export interface DatasetReport {
  name: string
  directory: string
  /** Rows of each question file. */
  files: { file: string; split: string; rows: number }[]
  questions: number
  answered: number
  spans: number
  zeroLengthSpans: number
  /** Of an imported data set; null where boxes were not looked for. */
  boxes: { questions: number; pictures: number; boxes: number } | null
  episodes: number
  /** Two numbers in one name, such as `s06e24-25`. */
  doubleEpisodes: number
  clips: number
  /** null where not every duration is known. */
  hours: number | null
  shows: Record<string, { episodes: number; clips: number; questions: number }>
  clipsPerEpisode: { min: number; median: number; max: number }
  /** null where no episode has a timeline. */
  lengths: Lengths | null
  questionsPerKind: Record<QuestionKind | 'unstated', number>
  /** How often each of a0..a4 is the answer. */
  answerPositions: [number, number, number, number, number]
  subtitles: { timed: number; untimed: number; missing: number; missingClips: string[] }
  pictures: { video: number; frames: number; descriptions: number; missing: number; missingVideos: string[] }
  leaks: LeakAudit
  /** What is here of what was published; empty for raw files. */
  published: Comparison[]
  notes: readonly string[]
}

/** Fields of rows that tell the answer or where it is; none may appear as a key in a task. */
const GOLD_KEYS = new Set([
  'answer',
  'answer_idx',
  'gold',
  'occur_clip',
  'vid_name',
  'ts',
  'bbox',
  'span',
  'clipId',
  'evidence',
  'episodeTs',
  'episodeSpan',
  'boxes',
])
/** Names that are given as examples of a larger number. */
export const SHOWN = 5

/** Opens every split of a data set and reports on it. Fails as `openDataset` does. */
export async function inspectDataset(directory: string): Promise<Result<DatasetReport>> {
  const opened = await openDataset(directory)
  if (!opened.ok) return opened
  const marker = await readMarker(directory)
  if (!marker.ok) return marker
  const survey = await surveyRows(directory, marker.value)
  if (!survey.ok) return survey
  const { files, rows } = survey.value
  const named = new Set(rows.map((row) => row.clipId))
  const dataset = opened.value
  const episodes = [...dataset.episodes.values()]
  const clips = episodes.flatMap((episode) => episode.clips)
  const clipCounts = episodes.map((episode) => episode.clips.length)
  const gold = [...dataset.gold.values()]
  const shows: DatasetReport['shows'] = {}
  for (const episode of episodes) {
    const show = shows[episode.show] ?? { episodes: 0, clips: 0, questions: 0 }
    shows[episode.show] = show
    show.episodes++
    show.clips += episode.clips.length
  }
  const questionsPerKind: DatasetReport['questionsPerKind'] = { dialogue: 0, visual: 0, both: 0, unstated: 0 }
  const answerPositions: DatasetReport['answerPositions'] = [0, 0, 0, 0, 0]
  for (const question of dataset.questions) {
    const show = dataset.episodes.get(question.episodeId)?.show
    if (show !== undefined) (shows[show] as { questions: number }).questions++
    const secret = dataset.gold.get(question.qid)
    questionsPerKind[secret?.kind ?? 'unstated']++
    if (secret) answerPositions[secret.answer as 0 | 1 | 2 | 3 | 4]++
  }
  const report: DatasetReport = {
    name: dataset.name,
    directory,
    files,
    questions: dataset.questions.length,
    answered: gold.length,
    spans: gold.filter((one) => one.span !== null).length,
    zeroLengthSpans: gold.filter(({ span }) => span !== null && span[0] === span[1]).length,
    boxes: marker.value && boxesOf(marker.value),
    episodes: episodes.length,
    doubleEpisodes: episodes.filter(({ id }) => /-\d\d$/.test(id)).length,
    clips: clips.length,
    hours: clips.every((clip) => clip.end > clip.start)
      ? clips.reduce((sum, clip) => sum + clip.end - clip.start, 0) / 3600
      : null,
    shows,
    clipsPerEpisode: rangeOf(clipCounts),
    lengths: lengthsOf(episodes),
    questionsPerKind,
    answerPositions,
    subtitles: subtitleReport(clips),
    pictures: await pictureReport(clips),
    leaks: {
      ...guesses(dataset, answerPositions),
      goldKeysInTasks: goldKeysIn(dataset),
      episodesKnownFromQuestionsOnly: episodes.filter((episode) =>
        episode.clips.every((clip) => named.has(clip.id) && bare(clip)),
      ).length,
      sharedBetweenSplits: sharedBetweenSplits(rows),
    },
    published: marker.value ? comparePublished(marker.value, shows) : [],
    notes: dataset.notes,
  }
  return { ok: true, value: report }
}

function boxesOf({ splits }: DatasetMarker): DatasetReport['boxes'] {
  const sum = (key: 'questionsWithBoxes' | 'framesWithBoxes' | 'boxes') =>
    Object.values(splits).reduce((total, split) => total + split[key], 0)
  return { questions: sum('questionsWithBoxes'), pictures: sum('framesWithBoxes'), boxes: sum('boxes') }
}

function bare(clip: Clip): boolean {
  return clip.subtitles.length === 0 && clip.source.kind === 'none'
}

function subtitleReport(clips: readonly Clip[]): DatasetReport['subtitles'] {
  const missing = clips.filter((clip) => clip.subtitles.length === 0)
  const timed = clips.filter((clip) => clip.subtitles.some((line) => line.start !== undefined)).length
  return {
    timed,
    untimed: clips.length - missing.length - timed,
    missing: missing.length,
    missingClips: missing.slice(0, SHOWN).map((clip) => clip.id),
  }
}

async function pictureReport(clips: readonly Clip[]): Promise<DatasetReport['pictures']> {
  const count = (kind: Clip['source']['kind']) => clips.filter((clip) => clip.source.kind === kind).length
  const videos = new Set(clips.flatMap((clip) => (clip.source.kind === 'video' ? [clip.source.path] : [])))
  const missingVideos: string[] = []
  for (const path of videos) if (!(await stat(path).catch(() => null))?.size) missingVideos.push(path)
  return {
    video: count('video'),
    frames: count('frames'),
    descriptions: count('descriptions'),
    missing: count('none'),
    missingVideos,
  }
}

function guesses(
  dataset: Dataset,
  positions: readonly number[],
): Pick<LeakAudit, 'optionInQuestion' | 'longestOption' | 'fixedPosition' | 'positionChiSquared' | 'randomClip'> {
  const answered = dataset.questions.filter((question) => dataset.gold.has(question.qid))
  const right = (question: Question) => dataset.gold.get(question.qid)?.answer as number
  let inQuestion = 0
  let inQuestionRight = 0
  let longestRight = 0
  let clipRight = 0
  for (const question of answered) {
    const text = words(question.text)
    const named = question.options.flatMap((option, i) =>
      words(option) !== '' && ` ${text} `.includes(` ${words(option)} `) ? [i] : [],
    )
    if (named.length === 1) {
      inQuestion++
      if (named[0] === right(question)) inQuestionRight++
    }
    clipRight += 1 / (dataset.episodes.get(question.episodeId)?.clips.length as number)
    const lengths = question.options.map((option) => option.length)
    const longest = Math.max(...lengths)
    if (lengths[right(question)] === longest) longestRight += 1 / lengths.filter((length) => length === longest).length
  }
  const expected = answered.length / positions.length
  return {
    optionInQuestion: { n: inQuestion, accuracy: share(inQuestionRight, inQuestion) },
    longestOption: { n: answered.length, accuracy: share(longestRight, answered.length) },
    fixedPosition: { n: answered.length, accuracy: share(Math.max(...positions), answered.length) },
    randomClip: { n: answered.length, accuracy: share(clipRight, answered.length) },
    positionChiSquared:
      answered.length === 0 ? 0 : positions.reduce((sum, count) => sum + (count - expected) ** 2 / expected, 0),
  }
}

/** Lower-case words with single spaces: `Sheldon's car .` -> `sheldon s car`. */
function words(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}]+/gu, ' ')
    .trim()
}

function share(part: number, whole: number): number {
  return whole === 0 ? 0 : part / whole
}

/** Searches all tasks for keys that only gold may have. */
function goldKeysIn(dataset: Dataset): string[] {
  const seen = new Set<unknown>()
  const bad = new Set<string>()
  const walk = (value: unknown) => {
    if (typeof value !== 'object' || value === null || seen.has(value)) return
    seen.add(value)
    for (const [key, inner] of Object.entries(value)) {
      if (GOLD_KEYS.has(key)) bad.add(key)
      walk(inner)
    }
  }
  dataset.tasks().forEach(walk)
  return [...bad].sort()
}

function sharedBetweenSplits(rows: readonly SurveyedRow[]): LeakAudit['sharedBetweenSplits'] {
  const splits = [...new Set(rows.map((row) => row.split))]
  const question = (row: SurveyedRow) => `${row.episodeId} ${words(row.text)}`
  const common = (a: string, b: string, of: (row: SurveyedRow) => string) => {
    const values = (split: string) => new Set(rows.filter((row) => row.split === split).map(of))
    const first = values(a)
    return [...values(b)].filter((value) => first.has(value)).length
  }
  return splits.flatMap((a, i) =>
    splits.slice(i + 1).map((b) => ({
      splits: [a, b] as [string, string],
      sameQuestion: common(a, b, question),
      sameQid: common(a, b, (row) => row.qid),
      sameEpisode: common(a, b, (row) => row.episodeId),
    })),
  )
}
