/** Rollouts into a store while the world fails: endpoints in every kind of trouble, a full disk, a changed configuration. */
import { existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest'
import { type RunConfig, runConfig } from '../src/config.ts'
import type { Progress } from '../src/progress.ts'
import { silentProgress } from '../src/progress.ts'
import { generateRollouts } from '../src/rollouts.ts'
import { readTrajectories } from '../src/trajectory/read.ts'
import {
  type ChatServer,
  hangs,
  type ReceivedBody,
  type ScriptedReply,
  says,
  startChatServer,
  status,
} from './agents/server.ts'
import { showrunner, start } from './commandLine.ts'
import { row } from './dataset/folder.ts'

const QUESTIONS = 6
const root = process.cwd()
let server: ChatServer
let folder: string

beforeAll(async () => {
  server = await startChatServer()
})
afterAll(() => server.close())
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'showrunner-rollouts-'))
  mkdirSync(join(folder, 'data'))
  const rows = Array.from({ length: QUESTIONS }, (_, qid) => row(qid))
  writeFileSync(join(folder, 'data/x_val.json'), JSON.stringify(rows))
  process.chdir(folder)
})
afterEach(() => {
  process.chdir(root)
  rmSync(folder, { recursive: true })
})

/** The start of a configuration file. */
const small =
  'name: run\ndataset: {path: data}\nagents: {vision: {type: descriptions}}\nsystem: {initialGrounding: none}\nreward: {alpha: 0.1}\n'

const answer = says('<answer>a1</answer>')

/** Patient, since a machine that is busy answers late. */
const endpoint = (attemptSeconds = 10) => ({
  type: 'endpoint',
  baseUrl: server.baseUrl,
  model: 'm',
  retries: 1,
  attemptSeconds,
})

function configuration(changes: Record<string, unknown> = {}): RunConfig {
  return runConfig.parse({
    name: 'run',
    dataset: { path: 'data' },
    policy: endpoint(),
    agents: { vision: { type: 'descriptions' } },
    rollout: { groupSize: 1, concurrency: 1 },
    system: { initialGrounding: 'none' },
    reward: { alpha: 0.1 },
    ...changes,
  })
}

async function run(config: RunConfig, resume = false, progress: Progress = silentProgress) {
  return generateRollouts(config, progress, new AbortController().signal, { resume })
}

async function storedIds(): Promise<string[]> {
  const rows = await readTrajectories('rollouts/run')
  if (!rows.ok) throw new Error(rows.failure.message)
  const ids: string[] = []
  for await (const { trajectoryId } of rows.value) ids.push(trajectoryId)
  return ids
}

const all = Array.from({ length: QUESTIONS }, (_, qid) => `0/${qid}/0`)

test.each<[string, ScriptedReply, string]>([
  ['answers 429', status(429, { 'retry-after': '0' }), 'rate_limited'],
  ['answers 500', status(500, { 'retry-after': '0' }), 'server_error'],
  ['hangs', hangs, 'timeout'],
  ['loses connections', (response) => response.destroy(), 'unreachable'],
  ['does not know the model', status(404), 'bad_request'],
])(
  'an endpoint that %s stops the run; what was stored stays, and a resumed run asks the rest',
  async (_, trouble, kind) => {
    server.script(answer, answer, trouble)
    const stopped = await run(configuration(kind === 'timeout' ? { policy: endpoint(0.5) } : {}))
    expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'policy', kind } })
    if (stopped.ok) return
    expect(stopped.failure.message).toContain(server.baseUrl)
    expect(stopped.failure.message).toContain('2 of 6 groups are stored in rollouts/run; continue with --resume')
    expect(stopped.failure.message).not.toContain('\n')
    expect(await storedIds()).toEqual(all.slice(0, 2))
    expect(existsSync('rollouts/run/trajectories.arrows')).toBe(false)

    server.script(answer)
    expect(await run(configuration(), true)).toMatchObject({ ok: true, value: { n: 6, accuracy: 1, failures: 0 } })
    expect(server.received).toHaveLength(4)
    expect((await storedIds()).sort()).toEqual(all)
    expect(existsSync('rollouts/run/trajectories.arrows')).toBe(true)
  },
)

test('a question that alone fails is stored as a failure, counted, and told once', async () => {
  const filtered: ScriptedReply = (response) => {
    response.setHeader('content-type', 'application/json')
    response.end('{"choices":[{"message":{"content":""},"finish_reason":"content_filter"}]}')
  }
  server.script(answer, filtered, status(400), answer, filtered, answer)
  const lines: string[] = []
  const measured = await run(configuration(), false, { ...silentProgress, line: (text) => lines.push(text) })
  expect(measured).toMatchObject({ ok: true, value: { n: 6, failures: 3 } })
  expect(lines).toHaveLength(2)
  for (const line of lines) expect(line).toMatch(new RegExp(`^warning: ${server.baseUrl}.*`))
})

test('an agent that fails is told while the run goes on', async () => {
  server.script(says('<request_grounding/>'), status(500, { 'retry-after': '0' }), answer)
  const grounding = { type: 'endpoint', baseUrl: server.baseUrl, model: 'g', retries: 0 }
  const lines: string[] = []
  const config = configuration({
    agents: { grounding, vision: { type: 'descriptions' }, cacheDirectory: null },
    system: { initialGrounding: 'none', onAgentFailure: 'observe' },
  })
  const measured = await run(config, false, { ...silentProgress, line: (text) => lines.push(text) })
  expect(measured).toMatchObject({ ok: true, value: { n: 6, accuracy: 1, failures: 0 } })
  expect(lines).toEqual([expect.stringMatching(/^warning: .*\(g\).*500/)])
})

test('an agent that goes down stops the run, though some questions do without it; a resumed run asks the rest', async () => {
  const asksAgent = ({ model }: ReceivedBody) => model === 'g'
  let agent = says('<clip>seg01_clip_00</clip>')
  let questions = 0
  // every other question is answered without a clip
  const master: ScriptedReply = (...args) =>
    says(args[1].messages.length > 1 || questions++ % 2 === 1 ? '<answer>a1</answer>' : '<request_grounding/>')(...args)
  server.script((...args) => (asksAgent(args[1]) ? agent : master)(...args))
  const grounding = { type: 'endpoint', baseUrl: server.baseUrl, model: 'g', retries: 0 }
  const config = configuration({ agents: { grounding, vision: { type: 'descriptions' }, cacheDirectory: null } })
  agent = status(500, { 'retry-after': '0' })
  const stopped = await run(config)
  expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'grounding', kind: 'server_error' } })
  expect(await storedIds()).toEqual(['0/1/0', '0/3/0'])

  agent = says('<clip>seg01_clip_00</clip>')
  expect(await run(config, true)).toMatchObject({ ok: true, value: { n: 6, failures: 0, accuracy: 1 } })
})

test('the last questions before a server is gone are asked again as well', async () => {
  server.script(answer, answer, answer, answer, (response) => response.destroy())
  const stopped = await run(configuration())
  expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'policy', kind: 'unreachable' } })
  expect(await storedIds()).toEqual(all.slice(0, 4))
})

test('a system that begins with a clip from a file is refused without one, before anything runs', async () => {
  server.script(answer)
  const refused = await run(configuration({ system: { initialGrounding: 'cache' } }))
  expect(refused).toMatchObject({ ok: false, failure: { boundary: 'config', kind: 'bad_request' } })
  expect(!refused.ok && refused.failure.message).toContain('agents.groundingCache')
  const agents = { vision: { type: 'descriptions' }, groundingCache: 'none.jsonl' }
  const missing = await run(configuration({ system: { initialGrounding: 'cache' }, agents }))
  expect(missing).toMatchObject({ ok: false, failure: { boundary: 'grounding', kind: 'missing_file' } })
  expect(!missing.ok && missing.failure.message).toMatch(/^none\.jsonl: .*make one with showrunner ground$/)
  expect(server.received).toHaveLength(0)
  expect(existsSync('rollouts/run')).toBe(false)
})

test('a configuration that would give other trajectories cannot continue a run; one with more patience can', async () => {
  server.script(answer, status(500, { 'retry-after': '0' }))
  await run(configuration())
  server.script(answer)
  const other = await run(configuration({ rollout: { groupSize: 1, temperature: 0 } }), true)
  expect(other).toMatchObject({ ok: false, failure: { boundary: 'config' } })
  if (!other.ok) expect(other.failure.message).toMatch(/^rollouts\/run\/run\.json: .*--set name=/)
  expect(await storedIds()).toEqual(all.slice(0, 1))
  const patient = configuration({
    policy: { type: 'endpoint', baseUrl: server.baseUrl, model: 'm', retries: 9, deadlineSeconds: 500 },
    rollout: { groupSize: 1, concurrency: 2 },
  })
  expect(await run(patient, true)).toMatchObject({ ok: true, value: { n: 6 } })
})

test.skipIf(!existsSync('/dev/full'))('a full disk is one line that names the place and says what to do', async () => {
  mkdirSync('rollouts/run', { recursive: true })
  symlinkSync('/dev/full', 'rollouts/run/run.json.partial')
  const stopped = await run(configuration())
  expect(stopped).toMatchObject({ ok: false, failure: { boundary: 'store', kind: 'disk_full' } })
  if (!stopped.ok) expect(stopped.failure.message).toMatch(/^rollouts\/run\/run\.json: .*make room and run .* again$/)
})

test('from the command line: exit code 1, and the last line names the URL and what to do', async () => {
  writeFileSync(
    'run.yaml',
    `${small}policy: {type: endpoint, baseUrl: 'http://127.0.0.1:9/v1', model: m, retries: 0}\n`,
  )
  process.chdir(root)
  for (const command of ['rollout', 'evaluate']) {
    const { code, stdout, stderr } = await showrunner(folder, command, '--config', 'run.yaml')
    expect(code).toBe(1)
    expect(stdout).toBe('')
    const last = stderr.trim().split('\n').at(-1)
    expect(last).toMatch(/^http:\/\/127\.0\.0\.1:9\/v1 \(m\): cannot be reached .*check the URL/)
  }
})

test('Ctrl-C while an endpoint hangs: exit code 130, what was stored stays, and a resumed run asks the rest', async () => {
  server.script(answer, answer, hangs)
  const policy = `{type: endpoint, baseUrl: '${server.baseUrl}', model: m}`
  writeFileSync('run.yaml', `${small}policy: ${policy}\nrollout: {groupSize: 1, concurrency: 1}\n`)
  process.chdir(root)
  const { child, ended } = start(folder, 'rollout', '--config', 'run.yaml')
  while (server.received.length < 3) await new Promise((wake) => setTimeout(wake, 20))
  child.kill('SIGINT')
  const { code, stderr } = await ended
  expect(code).toBe(130)
  const last = stderr.trim().split('\n').at(-1)
  expect(last).toBe('stopped: 2 of 6 groups are stored in rollouts/run; continue with --resume')
  server.script(answer)
  expect(await showrunner(folder, 'rollout', '--config', 'run.yaml', '--resume')).toMatchObject({ code: 0 })
  process.chdir(folder)
  expect((await storedIds()).sort()).toEqual(all)
})
