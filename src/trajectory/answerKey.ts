/**
 * The answer key of a store, `answerKey.json` beside its tables: for each question the right option, the clip with the evidence and
 * its span, and for each episode where its clips lie in time. No trajectory carries these, yet accuracy by clip and by time, and a
 * timeline, need them when the data set is gone. Readers show nothing of it before they are asked. Knows no data set.
 */
import { mkdir, open, readFile, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import type { Gold, Result, Task } from '../types.ts'
import { failureOf, StoreError } from './failure.ts'

const FILE = 'answerKey.json'

const answerKeySchema = z.object({
  questions: z.record(
    z.string(),
    z.object({
      answer: z.number().int().describe('Index of the right option.'),
      clipId: z.string().nullable().describe('The clip with the evidence; null: unknown.'),
      span: z.tuple([z.number(), z.number()]).nullable().describe('Evidence in seconds on the clip; null: unknown.'),
    }),
  ),
  episodes: z.record(
    z.string(),
    z
      .array(z.object({ id: z.string(), start: z.number(), end: z.number() }))
      .describe('In order; seconds on the episode, both 0 where durations are unknown.'),
  ),
})

export type AnswerKey = z.output<typeof answerKeySchema>
export type KeyedQuestion = AnswerKey['questions'][string]
export type KeyedClip = AnswerKey['episodes'][string][number]

/** The key of these tasks. */
export function answerKeyOf(tasks: readonly Task[], goldOf: (task: Task) => Gold): AnswerKey {
  const key: AnswerKey = { questions: {}, episodes: {} }
  for (const task of tasks) {
    const { episode, question, videos = [] } = task
    const { answer, clipId, span } = goldOf(task)
    key.questions[question.qid] = { answer, clipId, span: span === null ? null : [...span] }
    for (const { id, clips } of [episode, ...videos.map((video) => video.episode)])
      key.episodes[id] ??= clips.map((clip) => ({ id: clip.id, start: clip.start, end: clip.end }))
  }
  return key
}

/** Writes the key into the folder of a store, which is made if needed. Questions of an earlier key are kept. */
export async function writeAnswerKey(directory: string, key: AnswerKey): Promise<Result<void>> {
  const path = join(directory, FILE)
  try {
    const before = await readAnswerKey(directory)
    if (!before.ok) return before
    const whole = {
      questions: { ...before.value?.questions, ...key.questions },
      episodes: { ...before.value?.episodes, ...key.episodes },
    }
    await mkdir(directory, { recursive: true })
    const file = await open(`${path}.partial`, 'w')
    try {
      await file.writeFile(JSON.stringify(whole))
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(`${path}.partial`, path)
    return { ok: true, value: undefined }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `writing ${path}`) }
  }
}

/** null where there is none: stores of earlier versions have no key. */
export async function readAnswerKey(directory: string): Promise<Result<AnswerKey | null>> {
  const path = join(directory, FILE)
  try {
    const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return null
      throw error
    })
    if (text === null) return { ok: true, value: null }
    const parsed = answerKeySchema.safeParse(parsedJson(text))
    if (!parsed.success)
      throw new StoreError(
        'bad_file',
        `${path}: expected questions and episodes, ${parsed.error.issues[0]?.path.join('.')}: ${parsed.error.issues[0]?.message}; delete it and run the command that wrote it again`,
      )
    return { ok: true, value: parsed.data }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading ${path}`) }
  }
}

/** undefined for text that is no JSON, which no schema accepts. */
function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}
