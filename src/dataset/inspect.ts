/**
 * What is in a data set, and what in it would let a master answer without watching: counts and a leak audit.
 *
 * Reads files only; does not decode video and does not judge whether a leak matters.
 */
import { stat } from 'node:fs/promises'
import { basename } from 'node:path'
import { median } from 'simple-statistics'
import type { Clip, Question, QuestionKind, Result } from '../types.ts'
import { type Dataset, openDataset } from './dataset.ts'
import { findQuestionFiles, type Row, readRows } from './rows.ts'

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
  episodes: number
  clips: number
  /** null where not every duration is known. */
  hours: number | null
  shows: Record<string, { episodes: number; clips: number; questions: number }>
  clipsPerEpisode: { min: number; median: number; max: number }
  questionsPerKind: Record<QuestionKind | 'unstated', number>
  /** How often each of a0..a4 is the answer. */
  answerPositions: [number, number, number, number, number]
  subtitles: { timed: number; untimed: number; missing: number; missingClips: string[] }
  pictures: { video: number; frames: number; descriptions: number; missing: number; missingVideos: string[] }
  leaks: LeakAudit
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
])
const SHOWN = 5

/** Opens every split of a data set and reports on it. Fails as `openDataset` does. */
export async function inspectDataset(directory: string): Promise<Result<DatasetReport>> {
  const opened = await openDataset(directory)
  if (!opened.ok) return opened
  const found = await findQuestionFiles(directory)
  if (!found.ok) return found
  const files: DatasetReport['files'] = []
  const rows: Row[] = []
  for (const file of found.value) {
    const read = await readRows(file)
    if (!read.ok) return read
    files.push({ file: basename(file.path), split: file.split, rows: read.value.length })
    rows.push(...read.value)
  }
  const named = new Set(rows.map((row) => row.clip?.id))
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
    episodes: episodes.length,
    clips: clips.length,
    hours: clips.every((clip) => clip.end > clip.start)
      ? clips.reduce((sum, clip) => sum + clip.end - clip.start, 0) / 3600
      : null,
    shows,
    clipsPerEpisode: { min: Math.min(...clipCounts), median: median(clipCounts), max: Math.max(...clipCounts) },
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
    notes: dataset.notes,
  }
  return { ok: true, value: report }
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

function sharedBetweenSplits(rows: readonly Row[]): LeakAudit['sharedBetweenSplits'] {
  const splits = [...new Set(rows.map((row) => row.split))]
  const question = (row: Row) => `${row.episodeId} ${words(String(row.fields.q))}`
  const common = (a: string, b: string, of: (row: Row) => string) => {
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

/** The 0.99 quantile of chi-squared with 4 degrees of freedom: from here on positions of answers are uneven at p < 0.01. */
const UNEVEN = 13.277

/** The report as lines for a terminal. */
export function formatReport(report: DatasetReport): string {
  const percent = (x: number) => `${(100 * x).toFixed(1)} %`
  const { subtitles, pictures, leaks } = report
  const rows: [string, string][] = [
    ['data set', `${report.name} (${report.directory})`],
    ['question files', report.files.map(({ file, split, rows: n }) => `${file} (${split}, ${n} rows)`).join('; ')],
    ['questions', `${report.questions}, ${report.answered} with an answer, ${report.spans} with a time span`],
    [
      'kinds',
      Object.entries(report.questionsPerKind)
        .filter(([, n]) => n > 0)
        .map(([kind, n]) => `${kind} ${n}`)
        .join(', ') || 'none',
    ],
    [
      'episodes',
      `${report.episodes} with ${report.clips} clips${report.hours === null ? ', durations unknown' : `, ${report.hours.toFixed(2)} hours`}`,
    ],
    [
      'clips per episode',
      `min ${report.clipsPerEpisode.min}, median ${report.clipsPerEpisode.median}, max ${report.clipsPerEpisode.max}`,
    ],
    [
      'shows',
      Object.entries(report.shows)
        .map(
          ([show, { episodes, clips, questions }]) =>
            `${show}: ${episodes} episodes, ${clips} clips, ${questions} questions`,
        )
        .join('; '),
    ],
    [
      'subtitles',
      `timed in ${subtitles.timed} clips, without times in ${subtitles.untimed}, missing in ${subtitles.missing}${some(subtitles.missingClips, subtitles.missing)}`,
    ],
    [
      'frames',
      `from video in ${pictures.video} clips, from folders in ${pictures.frames}, descriptions instead in ${pictures.descriptions}, missing in ${pictures.missing}`,
    ],
    ...(pictures.missingVideos.length > 0
      ? [
          [
            'video files missing',
            `${pictures.missingVideos.length}${some(pictures.missingVideos.slice(0, SHOWN), pictures.missingVideos.length)}`,
          ] as [string, string],
        ]
      : []),
    ['answers', report.answerPositions.map((n, i) => `a${i} ${n}`).join(', ')],
  ]
  const audit: [string, string][] = [
    [
      'option words in the question',
      leaks.optionInQuestion.n === 0
        ? 'in no question'
        : `in ${leaks.optionInQuestion.n} questions; choosing that option is right in ${percent(leaks.optionInQuestion.accuracy)}`,
    ],
    ['longest option', `choosing it is right in ${percent(leaks.longestOption.accuracy)} (chance 20.0 %)`],
    [
      'position',
      `always the most frequent one is right in ${percent(leaks.fixedPosition.accuracy)}; chi-squared ${leaks.positionChiSquared.toFixed(1)}, ${leaks.positionChiSquared >= UNEVEN ? 'uneven' : 'even'} at p = 0.01`,
    ],
    ['random clip', `holds the evidence in ${percent(leaks.randomClip.accuracy)}`],
    [
      'gold in what a policy sees',
      leaks.goldKeysInTasks.length === 0 ? 'none' : `LEAK: ${leaks.goldKeysInTasks.join(', ')}`,
    ],
    ['clips known from questions only', `in ${leaks.episodesKnownFromQuestionsOnly} of ${report.episodes} episodes`],
    ...leaks.sharedBetweenSplits.map(({ splits, sameQuestion, sameQid, sameEpisode }): [string, string] => [
      `shared by ${splits.join(' and ')}`,
      `${sameQuestion} questions, ${sameQid} qids, ${sameEpisode} episodes`,
    ]),
  ]
  const width = Math.max(...[...rows, ...audit].map(([name]) => name.length))
  const lines = (pairs: readonly [string, string][]) =>
    pairs.map(([name, value]) => `  ${name.padEnd(width)}  ${value}`)
  return [
    ...lines(rows),
    '',
    'Leak audit',
    ...lines(audit),
    ...(report.notes.length > 0 ? ['', 'Notes', ...report.notes.map((note) => `  ${note}`)] : []),
  ].join('\n')
}

function some(names: readonly string[], total: number): string {
  return names.length === 0 ? '' : ` (${names.join(', ')}${total > names.length ? ', ...' : ''})`
}
