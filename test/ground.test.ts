/** `showrunner ground` against a chat endpoint: what it keeps, what it asks again, and when it gives up. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { runConfig } from '../src/config.ts'
import { groundQuestions } from '../src/ground.ts'
import { silentProgress } from '../src/progress.ts'
import { type ChatServer, type ScriptedReply, says, startChatServer, status } from './agents/server.ts'
import { row } from './dataset/folder.ts'

let server: ChatServer
let folder: string
beforeAll(async () => {
  server = await startChatServer()
})
afterAll(() => server.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'showrunner-ground-'))
  mkdirSync(join(folder, 'data'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const file = () => join(folder, 'grounding.jsonl')
const rows = () =>
  readFileSync(file(), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)

function ground(questions: number, changes: object = {}) {
  writeFileSync(
    join(folder, 'data/x_val.json'),
    JSON.stringify(Array.from({ length: questions }, (_, qid) => row(qid))),
  )
  const grounding = { type: 'endpoint', baseUrl: server.baseUrl, model: 'g', retries: 0 }
  const config = runConfig.parse({
    name: 'run',
    dataset: { path: join(folder, 'data') },
    policy: { type: 'endpoint', baseUrl: server.baseUrl, model: 'm' },
    agents: {
      grounding,
      vision: { type: 'descriptions' },
      cacheDirectory: null,
      groundingCache: file(),
      ...changes,
    },
    rollout: { concurrency: 1 },
    reward: { alpha: 0.1 },
  })
  return groundQuestions(config, silentProgress, new AbortController().signal)
}

const found = says('The door. <clip>seg02_clip_01</clip>')

test('one row per question; what had no answer is asked again, and nothing else', async () => {
  server.script(found, says('I do not know.'), status(500), found)
  expect(await ground(4)).toEqual({ ok: true, value: { ok: 2, empty: 1, error: 1 } })
  expect(rows().map(({ qid, status, clip }) => [qid, status, clip])).toEqual([
    ['0', 'ok', 's05e02_seg02_clip_01'],
    ['1', 'empty', null],
    ['2', 'error', null],
    ['3', 'ok', 's05e02_seg02_clip_01'],
  ])
  server.script(found)
  expect(await ground(4)).toEqual({ ok: true, value: { ok: 3, empty: 1, error: 0 } })
  expect(server.received).toHaveLength(1)
  expect(rows()).toHaveLength(5)
  expect(await ground(4)).toMatchObject({ ok: true })
  expect(server.received).toHaveLength(1)
})

test('an outage ends it with what to do; what was found stays', async () => {
  const down: ScriptedReply = status(500)
  server.script(found, down)
  const stopped = await ground(60)
  expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'grounding', kind: 'server_error' } })
  expect(!stopped.ok && stopped.failure.message).toMatch(/1 of 60 questions are in .*grounding\.jsonl; run the same/)
  expect(server.received.length).toBeLessThan(30)
})

test('it wants to know where to write', async () => {
  const refused = await ground(1, { groundingCache: null })
  expect(!refused.ok && refused.failure.message).toContain('--set agents.groundingCache=')
})
