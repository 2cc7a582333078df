import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openGroundingCache, openGroundingWriter } from '../../src/agents/groundingCache.ts'
import { failure, folder, value } from '../dataset/folder.ts'
import { tinyTask } from '../rollout/scripted.ts'

const ask = async (path: string, qid = 'q1', text = tinyTask().question.text) => {
  const { episode, question } = tinyTask(qid)
  return openGroundingCache(path).ground({ episode, question: { ...question, text }, visited: [] }, {})
}
const clipOf = async (...words: Parameters<typeof ask>) => value(await ask(...words)).clipId

describe('the form of the released code', () => {
  const rows = {
    '1': { question: 'Who  opens the door?', clip: 'e9_seg01_clip_02', vid_name: 'e9_seg01_clip_02', status: 'ok' },
    '2': { question: 'who opens the door? ', clip: 'seg01_clip_03', vid_name: 'e1_seg01_clip_00', status: 'ok' },
    '3': { question: 'who sits?', clip: '', vid_name: 'e1_seg01_clip_00', status: 'empty_clip' },
    '4': { question: 'who calls?', clip: null, vid_name: 'e1_seg01_clip_00', status: 'error' },
  }

  test('rows are found by the words of the question and a clip of its episode', async () => {
    const path = join(folder({ 'cache.json': rows }), 'cache.json')
    expect(await clipOf(path, 'any', 'WHO opens the door?')).toBe('e1_seg01_clip_03')
    for (const question of ['who sits?', 'who calls?', 'who else?'])
      expect(failure(await ask(path, 'any', question)).kind).toBe('bad_response')
  })

  test('it is not added to', async () => {
    const path = join(folder({ 'cache.json': rows }), 'cache.json')
    const before = readFileSync(path, 'utf8')
    expect(failure(await openGroundingWriter(path)).message).toContain('only read')
    expect(readFileSync(path, 'utf8')).toBe(before)
  })
})

describe('our own form', () => {
  const made = { reason: '', agent: 'x' }

  test('rows are added, a later one of a question counts, and a torn line costs itself alone', async () => {
    const path = join(folder(), 'deep/cache.jsonl')
    const first = value(await openGroundingWriter(path))
    expect(first.statuses.size).toBe(0)
    value(await first.append({ ...made, qid: 'q1', status: 'error', clip: null }))
    value(await first.append({ ...made, qid: 'q2', status: 'empty', clip: null }))
    await first.close()
    appendFileSync(path, '{"qid":"q3","sta')
    const second = value(await openGroundingWriter(path))
    expect([...second.statuses]).toEqual([
      ['q1', 'error'],
      ['q2', 'empty'],
    ])
    value(await second.append({ ...made, qid: 'q1', status: 'ok', clip: 'e1_seg01_clip_02' }))
    await second.close()
    expect(await clipOf(path, 'q1')).toBe('e1_seg01_clip_02')
    expect(failure(await ask(path, 'q2')).message).toContain('got status empty')
    expect(failure(await ask(path, 'q3')).message).toContain('no row for question q3')
  })

  test('a clip of another episode is none', async () => {
    const path = join(
      folder({ 'c.jsonl': `${JSON.stringify({ ...made, qid: 'q1', status: 'ok', clip: 'e2_x' })}\n` }),
      'c.jsonl',
    )
    expect(failure(await ask(path)).kind).toBe('bad_response')
  })

  test('a file that is absent or something else is named, with the line', async () => {
    const root = folder({ 'other.jsonl': '{"qid":"q1","status":"ok","clip":"x","reason":"","agent":""}\n{"qid":7}\n' })
    expect(failure(await ask(join(root, 'none.jsonl')))).toMatchObject({ boundary: 'grounding', kind: 'missing_file' })
    expect(failure(await ask(join(root, 'other.jsonl'))).message).toMatch(/other\.jsonl:2: expected .*got \{"qid":7\}/)
    expect(failure(await openGroundingWriter(join(root, 'other.jsonl'))).kind).toBe('bad_file')
    expect(existsSync(join(root, 'none.jsonl'))).toBe(false)
  })
})
