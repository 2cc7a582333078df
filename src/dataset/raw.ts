/**
 * Reads question files as they were published (LongTVQA, LongTVQA+, TVQA, TVQA+, or a miniature data set), with whatever clip files lie beside them.
 *
 * What a policy and agents may see (`Task`) and what only rewards may see (`Gold`) come from separate modules and lie in separate
 * maps. No row is dropped in silence: a bad row is a failure that names it, and what was tolerated stands in `notes`.
 * Holds all rows in memory: for large files, `import/` makes a data set that opens faster.
 */
import { stat } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import type { Clip, Episode, Gold, Question, Result } from '../types.ts'
import type { Dataset } from './dataset.ts'
import { failed } from './failure.ts'
import { goldOf, onEpisode } from './gold.ts'
import { type ClipMaterial, type Material, readMaterial } from './material.ts'
import { type ClipName, compareClips, compareEpisodes, parseClipName, parseEpisodeName } from './names.ts'
import { publicQuestion } from './question.ts'
import { findQuestionFiles, noQuestionFiles, type Row, readRows } from './rows.ts'

/** As `openDataset`, for folders that were not imported. `split`: null reads all. */
export async function openRaw(directory: string, split: string | null): Promise<Result<Dataset>> {
  const found = await findQuestionFiles(directory)
  if (!found.ok) return found
  const files = split === null ? found.value : found.value.filter((file) => file.split === split.toLowerCase())
  const miniature =
    files.some((file) => basename(file.path).startsWith(MINIATURE_PREFIX)) ||
    (await exists(join(directory, MINIATURE_STARTED)))
  if (miniature && !(await exists(join(directory, MINIATURE_MARKER)))) {
    return failed(
      'bad_file',
      `${directory}: this miniature data set is unfinished (no ${MINIATURE_MARKER}); run \`showrunner dataset miniature\` with the same arguments again`,
    )
  }
  if (files.length === 0) return noQuestionFiles(directory, split ?? undefined, found.value)

  const rows: Row[] = []
  for (const file of files) {
    const read = await readRows(file)
    if (!read.ok) return read
    // not push(...): a large file has more rows than a call may have arguments
    for (const row of read.value) rows.push(row)
  }
  const material = await readMaterial(directory)
  if (!material.ok) return material
  return assemble(directory, split, rows, material.value)
}

export const MINIATURE_PREFIX = 'LongTVQA_miniature_'
/** Written first and removed last. */
export const MINIATURE_STARTED = 'unfinished.json'
/** Written last: its presence means that a miniature data set is whole. */
export const MINIATURE_MARKER = 'dataset.json'

async function assemble(
  directory: string,
  split: string | null,
  rows: readonly Row[],
  material: Material,
): Promise<Result<Dataset>> {
  const questions = new Map<string, Question>()
  const gold = new Map<string, Gold>()
  const splitOf = new Map<string, string>()
  const firstPlace = new Map<string, string>()
  const clipsOf = new Map<string, Set<string>>()
  let repeated = 0
  let unanswered = 0
  let unusableSpans = 0
  for (const row of rows) {
    const question = publicQuestion(row)
    if (!question.ok) return question
    const secret = goldOf(row)
    if (!secret.ok) return secret
    const unknown = unknownClip(row, material)
    if (unknown) return failed('bad_file', unknown)
    const earlier = questions.get(row.qid)
    if (earlier) {
      if (!same(earlier, question.value) || !same(gold.get(row.qid) ?? null, secret.value.gold)) {
        return failed(
          'bad_file',
          `${row.where}: duplicate qid: ${firstPlace.get(row.qid)} has the same qid and other content; give each question its own`,
        )
      }
      repeated++
      continue
    }
    questions.set(row.qid, question.value)
    firstPlace.set(row.qid, row.where)
    splitOf.set(row.qid, row.split)
    if (secret.value.gold) gold.set(row.qid, secret.value.gold)
    else unanswered++
    if (secret.value.unusableSpan) unusableSpans++
    const clips = clipsOf.get(row.episodeId) ?? new Set(material.clipsOf.get(row.episodeId))
    if (row.clip) clips.add(row.clip.id)
    clipsOf.set(row.episodeId, clips)
  }

  const episodes = new Map<string, Episode>()
  for (const id of [...clipsOf.keys()].sort(compareEpisodes)) {
    const episode = await readEpisode(id, [...(clipsOf.get(id) as Set<string>)], material)
    if (!episode.ok) return episode
    episodes.set(id, episode.value)
  }
  for (const [qid, secret] of gold) {
    const clip = episodes.get((questions.get(qid) as Question).episodeId)?.clips.find((one) => one.id === secret.clipId)
    if (secret.span && clip) gold.set(qid, { ...secret, episodeSpan: onEpisode(secret.span, clip) })
  }
  const notes = [
    ...(repeated > 0
      ? [
          `${repeated} row${repeated > 1 ? 's repeat' : ' repeats'} an earlier row of the same qid and ${repeated > 1 ? 'were' : 'was'} read once`,
        ]
      : []),
    ...(unanswered > 0
      ? [`${unanswered} question${unanswered > 1 ? 's have' : ' has'} no answer: rollouts can run, rewards cannot`]
      : []),
    ...(unusableSpans > 0
      ? [
          `${unusableSpans} time span${unusableSpans > 1 ? 's are' : ' is'} not usable (NaN or reversed) and count${unusableSpans > 1 ? '' : 's'} as absent`,
        ]
      : []),
    ...material.notes(),
  ]
  const dataset: Dataset = {
    name: basename(resolve(directory)),
    directory,
    split,
    episodes,
    questions: [...questions.values()],
    tasks: () =>
      [...questions.values()].map((question) => ({ episode: episodes.get(question.episodeId) as Episode, question })),
    gold,
    splitOf,
    notes,
  }
  return { ok: true, value: dataset }
}

/** Where `clips.json` lists an episode's clips, a question about another clip cannot be answered. */
function unknownClip(row: Row, material: Material): string | null {
  if (!row.clip || !material.complete.has(row.episodeId) || material.clipsOf.get(row.episodeId)?.has(row.clip.id))
    return null
  return `${row.where}: unknown clip "${row.clip.id}"; clips.json lists ${material.clipsOf.get(row.episodeId)?.size} other clips of ${row.episodeId}`
}

/**
 * One episode with its clips in (segment, clip) order. Spans on the episode's timeline are running sums of durations (row 23), and 0
 * in an episode where the duration of any clip is unknown: an offset after a gap would be a guess.
 */
async function readEpisode(id: string, clipIds: readonly string[], material: Material): Promise<Result<Episode>> {
  const names = clipIds.map((clip) => parseClipName(clip) as ClipName).sort(compareClips)
  const read: ClipMaterial[] = []
  for (const name of names) {
    const clip = await material.read(name)
    if (!clip.ok) return clip
    read.push(clip.value)
  }
  const timed = read.every((clip) => clip.duration !== null)
  let end = 0
  const clips: Clip[] = read.map(({ subtitles, source, duration }, index) => {
    const start = end
    end = timed ? start + (duration as number) : 0
    return { id: (names[index] as ClipName).id, index, start, end, subtitles, source }
  })
  return { ok: true, value: { id, show: (parseEpisodeName(id) as { show: string }).show, clips } }
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  )
}

function same(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b)
}
