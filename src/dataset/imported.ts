/**
 * Opens a data set that `dataset import` wrote (layout.ts). What is read was checked when it was written; a file that is cut short or
 * was edited into something else is a failure that names the line. Boxes are not read (`boxes.ts`).
 */
import { basename, join, resolve } from 'node:path'
import type { Clip, Episode, FrameSource, Gold, Question, Result } from '../types.ts'
import type { Dataset } from './dataset.ts'
import { failed } from './failure.ts'
import { type DatasetMarker, type EpisodeLine, type GoldLine, paths, type QuestionLine } from './layout.ts'
import { readLines } from './lines.ts'

export async function openImported(
  directory: string,
  marker: DatasetMarker,
  split: string | null,
): Promise<Result<Dataset>> {
  const splits = Object.keys(marker.splits).filter((name) => split === null || name === split.toLowerCase())
  if (splits.length === 0) {
    const have = Object.entries(marker.splits).map(([name, { questions }]) => `${name} (${questions} questions)`)
    return failed('missing_file', `${directory}: no split "${split}"; it has ${have.join(', ')}`)
  }
  const to = paths(directory)
  const shared = internal()
  const questions: Question[] = []
  const gold = new Map<string, Gold>()
  const splitOf = new Map<string, string>()
  const asked = new Set<string>()
  for (const name of splits) {
    for await (const line of readLines<QuestionLine>(to.questions(name))) {
      if (!line.ok) return line
      const { qid, episode, q, options } = line.value
      const episodeId = shared(episode)
      questions.push({ qid, episodeId, text: q, options })
      splitOf.set(qid, name)
      asked.add(episodeId)
    }
    for await (const line of readLines<GoldLine>(to.gold(name))) {
      if (!line.ok) return line
      const { qid, answer, clip, ts, episodeTs, kind } = line.value
      if (answer === null || clip === null) continue
      gold.set(qid, { qid, answer, clipId: shared(clip), span: ts, episodeSpan: episodeTs, kind: kind ?? null })
    }
  }
  const episodes = new Map<string, Episode>()
  for await (const line of readLines<EpisodeLine>(to.episodes)) {
    if (!line.ok) return line
    if (asked.has(line.value.id)) episodes.set(shared(line.value.id), episodeOf(line.value, directory, shared))
  }
  const orphan = questions.find((question) => !episodes.has(question.episodeId))
  if (orphan) {
    return failed(
      'bad_file',
      `${to.episodes}: lacks episode ${orphan.episodeId} of question ${orphan.qid}; the file was cut short, import the data set again`,
    )
  }
  const unanswered = questions.length - gold.size
  const dataset: Dataset = {
    name: basename(resolve(directory)),
    directory,
    split,
    episodes,
    questions,
    tasks: () => questions.map((question) => ({ episode: episodes.get(question.episodeId) as Episode, question })),
    gold,
    splitOf,
    notes: [
      ...(unanswered > 0
        ? [`${unanswered} question${unanswered > 1 ? 's have' : ' has'} no answer: rollouts can run, rewards cannot`]
        : []),
      ...marker.notes,
    ],
  }
  return { ok: true, value: dataset }
}

function episodeOf(line: EpisodeLine, directory: string, shared: (text: string) => string): Episode {
  const clips = line.clips.map(({ id, start, end, subtitles, source }, index): Clip => {
    for (const subtitle of subtitles) if (subtitle.speaker !== undefined) subtitle.speaker = shared(subtitle.speaker)
    return { id: shared(id), index, start, end, subtitles, source: resolved(source, directory) }
  })
  return { id: line.id, show: shared(line.show), clips }
}

function resolved(source: FrameSource, directory: string): FrameSource {
  if (source.kind === 'video') return { ...source, path: join(directory, source.path) }
  return source.kind === 'frames' ? { ...source, directory: join(directory, source.directory) } : source
}

/** One copy of each text that comes again and again: a parser makes a new one each time. */
function internal(): (text: string) => string {
  const known = new Map<string, string>()
  return (text) => {
    const first = known.get(text)
    if (first !== undefined) return first
    known.set(text, text)
    return text
  }
}
