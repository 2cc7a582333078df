/** Sessions over HTTP become trajectories, and what was told to a client is never lost: also with the process killed. */
import { type ChildProcess, spawn } from 'node:child_process'
import { appendFileSync, existsSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import OpenAI from 'openai'
import { afterAll, afterEach, expect, test, vi } from 'vitest'
import { writeReport } from '../../src/report/write.ts'
import { openCapture } from '../../src/serve/capture.ts'
import type { ChatTokenizer } from '../../src/types.ts'
import { viewOptions } from '../../src/view/options.ts'
import { openViewer } from '../../src/viewer.ts'
import { type CaptureServer, clientOf, logprobOf, SayingPolicy, startCaptureServer, storedIn } from './captureServer.ts'
import { letters } from './letters.ts'

const root = mkdtempSync(join(tmpdir(), 'showrunner-capture-'))
afterAll(() => rmSync(root, { recursive: true, force: true }))
const running: CaptureServer[] = []
const children: ChildProcess[] = []
afterEach(async () => {
  for (const server of running.splice(0)) await server.close()
  for (const child of children.splice(0)) child.kill('SIGKILL')
})

let runs = 0
const newRun = () => join(root, `run${++runs}`)

async function serve(
  directory: string,
  ...rest: Parameters<typeof startCaptureServer> extends [string, ...infer Rest] ? Rest : never
) {
  const server = await startCaptureServer(directory, ...rest)
  running.push(server)
  return server
}

/** Closes it before the test ends. */
async function end(server: CaptureServer) {
  running.splice(running.indexOf(server), 1)
  return server.close()
}

/** A server in a process of its own, with `limitKiB` as the longest file that it may write. */
async function spawnServer(directory: string, limitKiB: number | 'unlimited' = 'unlimited') {
  const words = [
    '--import',
    resolve('node_modules/tsx/dist/loader.mjs'),
    resolve('test/serve/captureServer.ts'),
    directory,
  ]
  const limited = ['-c', `ulimit -f ${limitKiB}; exec "$@"`, 'bash', process.execPath, ...words]
  const child = spawn('bash', limited, { stdio: ['ignore', 'pipe', 'inherit'] })
  children.push(child)
  const url = await new Promise<string>((told) => child.stdout!.once('data', (line) => told(String(line).trim())))
  const kill = async () => {
    child.kill('SIGKILL')
    await new Promise((gone) => child.once('exit', gone))
  }
  return { url, kill }
}

test('calls that go on from one another are one trajectory of one segment, with the sampled ids and their log-probabilities', async () => {
  const directory = newRun()
  const { url } = await serve(directory)
  const client = clientOf(url, { 'x-session-id': 'a' })
  await client.chat(['say ab'], { seed: 7, max_tokens: 50 })
  await client.chat(['say ab', 'ab', 'say cde'], { max_tokens: 50 })
  const closed = await client.reward(0.75, { correct: true })
  expect(closed).toMatchObject({
    status: 200,
    body: { trajectory_id: '0/a/0', calls: 2, segments: 1, sampled_tokens: 5, stored: true },
  })

  // while the server runs
  const { trajectories, segments } = await storedIn(directory)
  const first = 'user:say ab\nassistant:'
  const second = '\nuser:say cde\nassistant:'
  const of = (values: [text: string, sampled: 0 | 1][]) => values.flatMap(([text, bit]) => [...text].map(() => bit))
  expect(segments).toMatchObject([
    {
      trajectoryId: '0/a/0',
      groupId: '0/a',
      index: 0,
      ids: letters.encode(`${first}ab${second}cde`),
      actionMask: of([
        [first, 0],
        ['ab', 1],
        [second, 0],
        ['cde', 1],
      ]),
      promptLength: first.length,
      policyVersion: 'saying@1',
    },
  ])
  const [segment] = segments
  expect(segment?.logprobs).toEqual(segment?.ids.map((id, t) => (segment.actionMask[t] === 1 ? logprobOf(id) : 0)))
  expect(trajectories).toMatchObject([
    {
      trajectoryId: '0/a/0',
      system: 'captured',
      seed: '7',
      question: first,
      correct: true,
      stopReason: 'answered',
      reward: { total: 0.75, answer: 0.75, format: 0, turnCost: 0 },
      sampledTokens: 5,
      segmentCount: 1,
      policyVersion: 'saying@1',
      turns: [{ response: 'ab' }, { response: 'cde' }],
      usage: {
        master: { calls: 2, completionTokens: 5, promptTokens: 2 * first.length + 'ab'.length + second.length },
      },
    },
  ])
})

/** Two letters in one token, as merges of real tokenizers do: `ab` that was sampled letter by letter reads back as one id. */
const merging: ChatTokenizer = {
  ...letters,
  encode: (text) => letters.encode(text.replaceAll('ab', '\u0100')),
  encodePrompt: (messages) => merging.encode(letters.render(messages, true)),
  encodeContinuation: (messages) => merging.encode(`\n${letters.render(messages, true)}`),
}

test('a chat goes on from the ids that were sampled where tokenising its text again would give others', async () => {
  const directory = newRun()
  const { url } = await serve(directory, new SayingPolicy(merging))
  const client = clientOf(url, { 'x-session-id': 'merged' })
  const { body } = await client.chat(['say ab'], { return_token_ids: true })
  expect(body).toMatchObject({ choices: [{ token_ids: [97, 98] }] })
  const next = await client.chat(['say ab', 'ab', 'say c'], { return_token_ids: true })
  const prompt = [...merging.encode('user:say ab\nassistant:'), 97, 98, ...letters.encode('\nuser:say c\nassistant:')]
  expect(next.body).toMatchObject({ prompt_token_ids: prompt, usage: { prompt_tokens: prompt.length } })
  await client.reward(1)
  expect((await storedIn(directory)).segments.map(({ ids }) => ids)).toEqual([[...prompt, 99]])
})

test('a prompt that does not begin with what was sampled, n answers, and other weights begin segments of their own', async () => {
  const directory = newRun()
  const policy = new SayingPolicy()
  const { url } = await serve(directory, policy)
  const client = clientOf(url, { 'x-session-id': 'apart' })
  await client.complete('say a')
  await client.complete('XY say b')
  await client.complete('say c', { n: 2 })
  policy.version = 'saying@2'
  // goes on from the first, but under other weights
  await client.complete('say aa and say d')
  expect((await client.reward(1)).body).toMatchObject({ calls: 4, segments: 5, sampled_tokens: 5 })
  const { segments, trajectories } = await storedIn(directory)
  expect(segments.map(({ ids, policyVersion, index }) => [index, letters.decode(ids), policyVersion])).toEqual([
    [0, 'say aa', 'saying@1'],
    [1, 'XY say bb', 'saying@1'],
    [2, 'say cc', 'saying@1'],
    [3, 'say cc', 'saying@1'],
    [4, 'say aa and say dd', 'saying@2'],
  ])
  // the prompt of both answers counts once
  expect(trajectories[0]?.usage.master.promptTokens).toBe('say a XY say b say c say aa and say d'.length - 3)
  expect(trajectories[0]?.budget.turns).toBe(5)
})

test('streamed answers are recorded when they end; one whose client left is not', async () => {
  const directory = newRun()
  const { url } = await serve(directory)
  const client = new OpenAI({
    baseURL: `${url}/v1`,
    apiKey: 'any',
    defaultHeaders: { 'x-session-id': 'streamed', authorization: null },
    maxRetries: 0,
  })
  const ask = { model: 'saying', stream: true as const, max_tokens: 100 }
  for await (const _ of await client.completions.create({ ...ask, prompt: 'say streamed' }));
  const abort = new AbortController()
  const left = client.completions.create({ ...ask, prompt: 'wait 5000 say nothing' }, { signal: abort.signal })
  for await (const _ of await left) abort.abort()
  await vi.waitFor(async () => expect(await metric(url, 'showrunner_clients_left_total')).toBe(1), { timeout: 20_000 })
  await clientOf(url, { 'x-session-id': 'streamed' }).reward(1)
  expect((await storedIn(directory)).segments.map(({ ids }) => letters.decode(ids))).toEqual(['say streamedstreamed'])
})

async function metric(url: string, name: string): Promise<number> {
  const text = await (await fetch(`${url}/metrics`)).text()
  return Number(new RegExp(`^${name.replace(/[{}"]/g, '\\$&')} (\\S+)`, 'm').exec(text)?.[1] ?? 0)
}

test('a missing reward is refused, none is not 0, and without a session nothing is recorded', async () => {
  const directory = newRun()
  const { url } = await serve(directory)
  const [none, zero, nobody] = ['none', 'zero', ''].map((id) => clientOf(url, id === '' ? {} : { 'x-session-id': id }))
  await none!.complete('say a')
  await zero!.complete('say b')
  await nobody!.complete('say c')
  expect(await none!.post('/v1/rewards', { session_id: 'none' })).toMatchObject({
    status: 400,
    body: { error: { param: 'reward' } },
  })
  await none!.reward(null)
  await zero!.reward(0)
  expect(await zero!.reward(0)).toMatchObject({ status: 404, body: { error: { param: 'session_id' } } })
  const { trajectories } = await storedIn(directory)
  expect(trajectories.map(({ qid, reward, stopReason }) => [qid, reward?.total ?? null, stopReason])).toEqual([
    ['none', null, 'cancelled'],
    ['zero', 0, 'answered'],
  ])
  expect(await metric(url, 'showrunner_captured_calls_total{outcome="recorded"}')).toBe(2)
  expect(await metric(url, 'showrunner_captured_calls_total{outcome="no_session"}')).toBe(1)
})

test('what cannot be recorded is refused', async () => {
  const { url } = await serve(newRun(), new SayingPolicy(null))
  const { status, body } = await clientOf(url, { 'x-session-id': 'a' }).chat(['say a'], { max_tokens: 9 })
  expect([status, body]).toMatchObject([502, { error: { message: expect.stringContaining('no token ids') } }])
  const bad: [Record<string, string>, string][] = [
    [{ 'x-session-id': 'two words' }, 'x-session-id'],
    [{ 'x-session-id': 'x'.repeat(201) }, 'x-session-id'],
    [{ 'x-session-id': 'a', 'x-group-size': '4' }, 'X-Group-Size'],
    [{ 'x-session-id': 'a', 'x-group-id': 'g', 'x-group-size': '2.5' }, 'X-Group-Size'],
    [{ 'x-group-id': 'g' }, 'X-Group-ID'],
  ]
  for (const [headers, param] of bad)
    expect(await clientOf(url, headers).chat(['say a'])).toMatchObject({ status: 400, body: { error: { param } } })
})

test('forty sessions at once do not mix, and keys keep sessions of one name apart', async () => {
  const directory = newRun()
  const { url } = await serve(directory, new SayingPolicy(), {}, ['one', 'two'])
  const names = Array.from({ length: 20 }, (_, at) => `s${at}`)
  await Promise.all(
    ['one', 'two'].flatMap((key) =>
      names.map(async (name, at) => {
        const client = clientOf(url, { 'x-session-id': name, authorization: `Bearer ${key}` })
        const said = `${key}-${name}`
        await client.chat([`wait ${(at * 7) % 11} say ${said}`])
        await client.chat([`wait ${(at * 7) % 11} say ${said}`, said, `wait ${at % 3} say ${said}`])
        expect(await client.reward(at)).toMatchObject({ status: 200, body: { calls: 2, segments: 1 } })
      }),
    ),
  )
  const { trajectories } = await storedIn(directory)
  expect(trajectories).toHaveLength(40)
  expect(new Set(trajectories.map(({ trajectoryId }) => trajectoryId)).size).toBe(40)
  for (const { turns, qid, reward } of trajectories) {
    const [name, at] = /^s(\d+)/.exec(qid)!
    expect([`one-${name}`, `two-${name}`]).toContain(turns[0]?.response)
    expect(turns.map(({ response }) => response)).toEqual([turns[0]?.response, turns[0]?.response])
    expect(reward?.total).toBe(Number(at))
  }
})

test('a group is stored when all of it is closed, with its samples in that order', async () => {
  const directory = newRun()
  const { url } = await serve(directory)
  const member = (id: string) => clientOf(url, { 'x-session-id': id, 'x-group-id': 'task', 'x-group-size': '3' })
  for (const id of ['p', 'q', 'r']) await member(id).complete(`say ${id}`)
  expect((await member('q').reward(1)).body).toMatchObject({ trajectory_id: '0/task/0', stored: false })
  expect((await member('p').reward(0)).body).toMatchObject({ trajectory_id: '0/task/1', stored: false })
  expect((await storedIn(directory)).trajectories).toEqual([])
  expect((await member('r').reward(0.5)).body).toMatchObject({ trajectory_id: '0/task/2', stored: true })
  const { trajectories } = await storedIn(directory)
  expect(
    trajectories.map((row) => [row.groupId, row.sample, row.qid, row.turns[0]?.response, row.reward?.total]),
  ).toEqual([
    ['0/task', 0, 'task', 'q', 1],
    ['0/task', 1, 'task', 'p', 0],
    ['0/task', 2, 'task', 'r', 0.5],
  ])
})

test('sessions that fall silent, and groups of which no more come, are stored without rewards', async () => {
  const directory = newRun()
  const { url, capture } = await serve(directory, new SayingPolicy(), { sessionSeconds: 0.4 })
  await clientOf(url, { 'x-session-id': 'silent' }).complete('say a')
  const member = clientOf(url, { 'x-session-id': 'm', 'x-group-id': 'short', 'x-group-size': '2' })
  await member.complete('say b')
  await member.reward(1)
  await vi.waitFor(async () => expect((await storedIn(directory)).trajectories).toHaveLength(2), { timeout: 20_000 })
  const { trajectories } = await storedIn(directory)
  const rewards = trajectories.map(({ qid, reward }) => [qid, reward?.total ?? null])
  expect(rewards.sort()).toEqual([
    ['short', 1],
    ['silent', null],
  ])
  expect(capture.waiting).toEqual({ sessions: 0, groups: 0 })
})

test('closing the server stores what is open; the store is ended and the journal gone', async () => {
  const directory = newRun()
  const server = await serve(directory)
  await clientOf(server.url, { 'x-session-id': 'open' }).complete('say a')
  await end(server)
  expect(readdirSync(directory).sort()).toEqual(['segments.arrows', 'trajectories.arrows'])
  // and goes on in the same folder; a name that was used before gets a number
  const again = await serve(directory)
  const client = clientOf(again.url, { 'x-session-id': 'open' })
  await client.complete('say b')
  expect((await client.reward(1)).body).toMatchObject({ trajectory_id: '0/open.2/0' })
  await end(again)
  expect((await storedIn(directory)).trajectories.map(({ groupId }) => groupId)).toEqual(['0/open', '0/open.2'])
})

test('a killed server loses nothing that was answered: stored, open, and waiting for its group', async () => {
  const directory = newRun()
  const { url, kill } = await spawnServer(directory)
  const grouped = { 'x-group-id': 'pair', 'x-group-size': '2' }
  const stored = clientOf(url, { 'x-session-id': 'stored' })
  const waiting = clientOf(url, { 'x-session-id': 'w', ...grouped })
  const open = clientOf(url, { 'x-session-id': 'open', authorization: 'Bearer secret-key' })
  await stored.complete('say a')
  await stored.reward(1)
  await waiting.complete('say b')
  await waiting.reward(0.25)
  await open.chat(['say c'])
  void open.chat(['say c', 'c', 'wait 60000 say never']).catch(() => {})
  await new Promise((sent) => setTimeout(sent, 100))
  await kill()
  // killed in the middle of a line
  const journal = join(directory, 'open-sessions')
  const files = readdirSync(journal)
  expect(files).toHaveLength(2)
  for (const file of files) appendFileSync(join(journal, file), '{"kind":"called","call":{"promp')
  expect(files.map((file) => readFileSync(join(journal, file), 'utf8')).join()).not.toContain('secret-key')

  const again = await serve(directory)
  expect((await storedIn(directory)).trajectories.map(({ qid }) => qid)).toEqual(['stored'])
  const reopened = clientOf(again.url, { 'x-session-id': 'open', authorization: 'Bearer secret-key' })
  await reopened.chat(['say c', 'c', 'say d'])
  expect((await reopened.reward(2)).body).toMatchObject({ calls: 2, segments: 1, sampled_tokens: 2 })
  const other = clientOf(again.url, { 'x-session-id': 'v', ...grouped })
  await other.complete('say e')
  expect((await other.reward(0)).body).toMatchObject({ trajectory_id: '0/pair/1', stored: true })
  await end(again)
  expect(existsSync(journal)).toBe(false)
  const { trajectories } = await storedIn(directory)
  expect(
    trajectories.map((row) => [row.trajectoryId, row.reward?.total, row.turns.map((turn) => turn.response)]),
  ).toEqual([
    ['0/stored/0', 1, ['a']],
    ['0/open/0', 2, ['c', 'd']],
    ['0/pair/0', 0.25, ['b']],
    ['0/pair/1', 0, ['e']],
  ])
})

test('one server at a time captures into a folder', async () => {
  const directory = newRun()
  const server = await serve(directory)
  await clientOf(server.url, { 'x-session-id': 'a' }).complete('say a')
  expect(await openCapture({ capture: directory, sessionSeconds: 1 })).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining(`${directory}: another server captures into it`) },
  })
  expect((await clientOf(server.url, { 'x-session-id': 'a' }).reward(1)).body).toMatchObject({ stored: true })
  await end(server)
  await end(await serve(directory))
})

test('a session is of one group, and a group of one size', async () => {
  const { url } = await serve(newRun())
  const member = (id: string, group: string, size: string) =>
    clientOf(url, { 'x-session-id': id, 'x-group-id': group, 'x-group-size': size })
  await member('a', 'g', '2').complete('say a')
  const refused = (param: string) => ({ status: 400, body: { error: { param } } })
  expect(await member('a', 'h', '2').complete('say a')).toMatchObject(refused('X-Group-ID'))
  expect(await member('b', 'g', '3').complete('say b')).toMatchObject(refused('X-Group-Size'))
  await member('a', 'g', '2').reward(1)
  expect(await member('b', 'g', '3').complete('say b')).toMatchObject(refused('X-Group-Size'))
  // a later call may leave its group out
  await member('b', 'g', '2').complete('say b')
  expect((await clientOf(url, { 'x-session-id': 'b' }).complete('say b')).status).toBe(200)
  expect((await member('b', 'g', '2').reward(0)).body).toMatchObject({ trajectory_id: '0/g/1', stored: true })
})

test('what can no longer be written down is told, also at the end, and sessions stay open for the next server', async () => {
  const directory = newRun()
  const server = await serve(directory)
  const client = clientOf(server.url, { 'x-session-id': 'a' })
  await client.complete('say a')
  const journal = join(directory, 'open-sessions')
  renameSync(journal, `${journal}.away`)
  expect(await client.complete('say ab')).toMatchObject({ status: 500 })
  expect(await client.reward(1)).toMatchObject({ status: 500 })
  expect(await end(server)).toMatchObject({
    ok: false,
    failure: { message: expect.stringMatching(/no such file.*the next server goes on from it\.$/) },
  })
  renameSync(`${journal}.away`, journal)
  const again = await serve(directory)
  expect((await clientOf(again.url, { 'x-session-id': 'a' }).reward(1)).body).toMatchObject({ calls: 1, stored: true })
})

test.skipIf(process.platform === 'win32')('a call that a full disk cuts in the middle is not half there', async () => {
  const directory = newRun()
  const { url, kill } = await spawnServer(directory, 16)
  const client = clientOf(url, { 'x-session-id': 'a' })
  let calls = 0
  while ((await client.complete(`say ${'a'.repeat(90)}`)).status === 200) calls++
  expect(calls).toBeGreaterThan(2)
  await kill()
  const journal = join(directory, 'open-sessions')
  const [file] = readdirSync(journal) as [string]
  expect(readFileSync(join(journal, file), 'utf8').split('\n')).toHaveLength(calls + 2)
  const again = await serve(directory)
  expect((await clientOf(again.url, { 'x-session-id': 'a' }).reward(1)).body).toMatchObject({ calls, stored: true })
})

test('a group that was being stored when the server was killed is stored once', async () => {
  const directory = newRun()
  const server = await serve(directory)
  const client = clientOf(server.url, { 'x-session-id': 'a' })
  await client.complete('say a')
  const journal = join(directory, 'open-sessions')
  const [file] = readdirSync(journal) as [string]
  const begun = readFileSync(join(journal, file), 'utf8')
  await client.reward(1)
  await end(server)
  const lines = (groupId: string) =>
    `${begun}{"kind":"closed","reward":1,"correct":false,"sample":0}\n{"kind":"storing","groupId":"${groupId}"}\n`
  const stored = async () => (await storedIn(directory)).trajectories.map(({ groupId }) => groupId)

  // killed between the store and the end of the journal
  const { mkdirSync, writeFileSync } = await import('node:fs')
  mkdirSync(journal)
  writeFileSync(join(journal, file), lines('0/a'))
  await end(await serve(directory))
  expect(await stored()).toEqual(['0/a'])

  // killed before the store had it
  mkdirSync(journal)
  writeFileSync(join(journal, file), lines('0/a.2'))
  await end(await serve(directory))
  expect(await stored()).toEqual(['0/a', '0/a.2'])
})

test('report and viewer read what was captured', async () => {
  const directory = newRun()
  const server = await serve(directory)
  for (const [id, reward] of [
    ['won', 1],
    ['lost', 0],
  ] as const) {
    const client = clientOf(server.url, { 'x-session-id': id })
    await client.chat([`say I ${id}`])
    await client.reward(reward, { correct: reward === 1 })
  }
  const quiet = { stage() {}, tick() {}, to() {}, line() {}, done() {} }
  const viewer = await openViewer({ directory, datasets: [], ...viewOptions.parse({ port: 0 }) }, quiet as never)
  if (!viewer.ok) throw new Error(viewer.failure.message)
  try {
    const page = async (path: string) => (await fetch(viewer.value.url + path)).text()
    // the list is there when the store was read
    await vi.waitFor(async () => expect(await page('/')).toContain('lost'), { timeout: 20_000 })
    expect(await page(`/t/${['0', 'won', '0'].join('/')}`)).toContain('I won')
  } finally {
    await viewer.value.close()
  }
  await end(server)
  const written = await writeReport(directory)
  if (!written.ok) throw new Error(written.failure.message)
  expect(readFileSync(written.value, 'utf8')).toContain('0/lost/0')
})
