import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { answerKeyOf, readAnswerKey, writeAnswerKey } from '../../src/trajectory/answerKey.ts'
import type { Gold, Task } from '../../src/types.ts'
import { tinyTask } from '../rollout/scripted.ts'

let folder: string
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-key-'))
})
afterEach(() => rm(folder, { recursive: true }))

const gold = ({ question, episode }: Task): Gold => ({
  qid: question.qid,
  answer: 3,
  clipId: episode.clips[0]?.id ?? '',
  span: [1, 2.5],
  kind: null,
})

test('comes back as written; later questions join the earlier ones, and no partial file is left', async () => {
  expect(await readAnswerKey(folder)).toEqual({ ok: true, value: null })
  for (const qid of ['q1', 'q2'])
    expect(await writeAnswerKey(folder, answerKeyOf([tinyTask(qid)], gold))).toEqual({ ok: true, value: undefined })
  const { episode } = tinyTask('q1')
  const clipId = episode.clips[0]?.id
  const question = { answer: 3, clipId, span: [1, 2.5] }
  expect(await readAnswerKey(folder)).toEqual({
    ok: true,
    value: {
      questions: { q1: question, q2: question },
      episodes: { [episode.id]: episode.clips.map(({ id, start, end }) => ({ id, start, end })) },
    },
  })
  expect(await readdir(folder)).toEqual(['answerKey.json'])
})

test.each(['{"questions":', '{"questions": {"q1": {"answer": "a1"}}, "episodes": {}}'])(
  'a key that is none is a failure that names the file: %s',
  async (text) => {
    await writeFile(join(folder, 'answerKey.json'), text)
    const read = await readAnswerKey(folder)
    expect(read).toMatchObject({ ok: false, failure: { boundary: 'store', kind: 'bad_file' } })
    if (!read.ok) expect(read.failure.message).toMatch(/answerKey\.json: expected questions and episodes/)
  },
)
