/**
 * `npm run bench -- rollout [part ...]`: the rollout loop against a mock endpoint in a process of its own that answers after a fixed delay.
 * Systems, recorder, budgets, HTTP and JSON are those of `showrunner rollout`; grounding and vision answer at once from a list.
 *
 *   20, 200   at this delay in milliseconds and 1 to 512 rollouts at a time: rollouts per second against the ideal, rollouts at a time over
 *             the time on the wire of one rollout, which is what bare requests to the idle mock take; CPU of this process per turn; three
 *             passes each, median with least and most
 *   tokens    the same at 200 ms and 256, prompts and answers as token ids with log-probabilities
 *   loop      no endpoint, a policy that answers at once: CPU per turn of everything but HTTP
 *   memory    heap per rollout in flight, at 2,000 ms and 512
 *   long      10,000 tasks through the store: heap after each 1,000
 *
 * Prints one JSON line per case. Default: all parts.
 */
import { spawn } from 'node:child_process'
import { mkdtemp, rm } from 'node:fs/promises'
import { Agent, createServer, request } from 'node:http'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { openEndpoint } from '../src/policy/endpoint.ts'
import { endpointPolicyOptions } from '../src/policy/options.ts'
import { openTokenizer, type TextTokenizer } from '../src/policy/tokenizer.ts'
import { scoreGroup } from '../src/reward/index.ts'
import { rewardOptions } from '../src/reward/options.ts'
import { rolloutStream } from '../src/rollout/index.ts'
import { rolloutOptions } from '../src/rollout/options.ts'
import { createSystem } from '../src/systems/index.ts'
import { systemsOptions } from '../src/systems/options.ts'
import { openStore } from '../src/trajectory/store.ts'
import type { Agents, Clip, Policy, Result, Task, Usage } from '../src/types.ts'

/** What the master writes, turn by turn; the mock tells the turn from the number of its own messages in the prompt. */
const SAID = [
  '<request_grounding/>',
  '<visual_query>what is on the table beside the door of the kitchen</visual_query>',
  '<answer>a2</answer>',
] as const
const TURNS = SAID.length

/** Rollouts of a pass, by concurrency. */
const WAVES = 10

/** What the mock process is told as JSON in its argument. */
interface MockSettings {
  delay: number
  /** Token id with which the assistant begins to write, and the ids of what it says; null: chat messages. */
  tokens: { assistant: number; said: number[][] } | null
}

// ---------------------------------------------------------------- the mock endpoint

function serveMock({ delay, tokens }: MockSettings): void {
  const usage = { prompt_tokens: 100, completion_tokens: 10 }
  const reply = (body: string): string => {
    if (tokens === null) {
      const turn = body.split('"role":"assistant"').length - 1
      const choice = { index: 0, message: { role: 'assistant', content: SAID[turn] }, finish_reason: 'stop' }
      return JSON.stringify({ choices: [choice], usage })
    }
    const prompt = (JSON.parse(body) as { prompt: number[] }).prompt
    const turn = prompt.filter((id) => id === tokens.assistant).length - 1
    const ids = tokens.said[turn] as number[]
    const logprobs = { token_logprobs: ids.map((_, i) => -0.1 - i / 64) }
    return JSON.stringify({
      choices: [{ index: 0, text: SAID[turn], finish_reason: 'stop', token_ids: ids, logprobs }],
      usage,
    })
  }
  const server = createServer((request, response) => {
    const chunks: Buffer[] = []
    request.on('data', (chunk: Buffer) => chunks.push(chunk))
    request.on('end', () => {
      const answer = reply(Buffer.concat(chunks).toString())
      setTimeout(() => {
        response.writeHead(200, { 'content-type': 'application/json', 'content-length': Buffer.byteLength(answer) })
        response.end(answer)
      }, delay)
    })
  })
  server.keepAliveTimeout = 60_000
  server.listen(0, '127.0.0.1', () => console.log((server.address() as AddressInfo).port))
}

/** Starts it in a process of its own; resolves to its base URL. */
async function startMock(settings: MockSettings): Promise<{ baseUrl: string; stop: () => void }> {
  const words = [...process.execArgv, fileURLToPath(import.meta.url), '--mock', JSON.stringify(settings)]
  const child = spawn(process.execPath, words, { stdio: ['ignore', 'pipe', 'inherit'] })
  const port = await new Promise<string>((resolve) => child.stdout.once('data', (data) => resolve(String(data).trim())))
  return { baseUrl: `http://127.0.0.1:${port}/v1`, stop: () => void child.kill() }
}

// ---------------------------------------------------------------- tasks and agents

const clips: Clip[] = Array.from({ length: 24 }, (_, index) => ({
  id: `s01e01_seg02_clip_${String(index).padStart(2, '0')}`,
  index,
  start: index * 60,
  end: index * 60 + 60,
  subtitles: Array.from({ length: 12 }, (_, line) => ({
    speaker: 'Sheldon',
    text: `line ${line} of clip ${index}, about what the others have put on the table beside the door`,
    start: 5 * line,
    end: 5 * line + 4,
  })),
  source: { kind: 'none' },
}))
const episode = { id: 's01e01', show: 'bbt', clips }

function* taskStream(count: number): Generator<Task> {
  for (let index = 0; index < count; index++)
    yield {
      episode,
      question: {
        qid: String(index),
        episodeId: episode.id,
        text: `What did Sheldon say was on the table when question ${index} was asked?`,
        options: ['a red mug', 'a blue book', 'the keys', 'a sandwich', 'nothing at all'],
      },
    }
}

const used: Usage = {
  calls: 1,
  promptTokens: 0,
  completionTokens: 0,
  frames: 0,
  seconds: 0,
  costUsd: 0,
  cached: 0,
}
const agents: Agents = {
  grounding: {
    name: 'list',
    ground: async ({ question }) => ({
      ok: true,
      value: { clipId: clips[Number(question.qid) % clips.length]?.id as string, reason: '', usage: used },
    }),
  },
  vision: {
    name: 'list',
    look: async ({ clips: [clip] }) => ({
      ok: true,
      value: {
        text: 'A blue book and a red mug lie on a round table beside the door.',
        frames: [{ clipId: clip?.id as string, time: 1 }],
        usage: used,
      },
    }),
  },
}
const system = createSystem(
  systemsOptions.parse({ name: 'longVideoAgent', prompt: 'instructed', initialGrounding: 'none' }),
)
const reward = rewardOptions.parse({ alpha: 0.1 })

interface Pass {
  rollouts: number
  seconds: number
  cpuSeconds: number
}

/** Runs so many tasks, one rollout each; throws unless every one is answered in three turns. */
async function pass(policy: Policy, tasks: number, concurrency: number): Promise<Pass> {
  const options = rolloutOptions.parse({ groupSize: 1, concurrency, temperature: 1, budget: { turns: 5 } })
  const cpu = process.cpuUsage()
  const began = performance.now()
  let rollouts = 0
  const run = { system, policy, agents, options, step: 0, runSeed: 'bench', order: 'completion' as const }
  for await (const { trajectories } of rolloutStream(taskStream(tasks), run)) {
    for (const { stopReason, turns, failure } of trajectories) {
      if (stopReason !== 'answered' || turns.length !== TURNS)
        throw new Error(`${stopReason} after ${turns.length} turns: ${failure?.message}`)
      rollouts++
    }
  }
  const { user, system: kernel } = process.cpuUsage(cpu)
  return { rollouts, seconds: (performance.now() - began) / 1000, cpuSeconds: (user + kernel) / 1e6 }
}

/** Seconds of one request on the wire: the median of 20, one after another over one connection, whose answer is not even parsed. */
async function wireSeconds(baseUrl: string, body: string): Promise<number> {
  const agent = new Agent({ keepAlive: true })
  const seconds: number[] = []
  for (let i = 0; i < 20; i++) {
    const began = performance.now()
    await new Promise<void>((resolve, reject) => {
      const sent = request(`${baseUrl}/completions`, { agent, method: 'POST' }, (response) => {
        response.resume()
        response.on('end', resolve)
      })
      sent.on('error', reject)
      sent.end(body)
    })
    seconds.push((performance.now() - began) / 1000)
  }
  agent.destroy()
  return spread(seconds).median
}

/** Three passes after one to warm up. `wire`: seconds that one rollout is on the wire. */
async function measured(policy: Policy, tasks: number, concurrency: number, wire: number | null) {
  await pass(policy, Math.min(tasks, 4 * concurrency), concurrency)
  const passes: Pass[] = []
  for (let i = 0; i < 3; i++) passes.push(await pass(policy, tasks, concurrency))
  const rate = spread(passes.map(({ rollouts, seconds }) => rollouts / seconds))
  const ideal = wire === null ? null : concurrency / wire
  return {
    concurrency,
    rollouts: tasks,
    rolloutsPerSecond: rate,
    ...(ideal === null || wire === null
      ? {}
      : {
          wireMilliseconds: round((1000 * wire) / TURNS),
          ideal: round(ideal),
          ofIdeal: spread(passes.map((one) => one.rollouts / one.seconds / ideal)),
        }),
    cpuMillisecondsPerTurn: spread(passes.map((one) => (1000 * one.cpuSeconds) / one.rollouts / TURNS)),
  }
}

// ---------------------------------------------------------------- the parts

async function bench(parts: readonly string[]): Promise<void> {
  const all: Record<string, () => Promise<void>> = {
    '20': () => delayed(20),
    '200': () => delayed(200),
    tokens: inTokens,
    loop: withoutEndpoint,
    memory: inFlight,
    long: manyTasks,
  }
  for (const part of parts.length > 0 ? parts : Object.keys(all)) {
    const run = all[part]
    if (run === undefined) throw new Error(`there is no part ${part}; expected ${Object.keys(all).join(', ')}`)
    await run()
  }
}

async function delayed(delay: number): Promise<void> {
  const mock = await startMock({ delay, tokens: null })
  const policy = endpoint(mock.baseUrl)
  const wire = TURNS * (await wireSeconds(mock.baseUrl, '{"messages":[]}'))
  for (const concurrency of [1, 4, 16, 64, 128, 256, 512]) {
    print({
      part: delay,
      delayMilliseconds: delay,
      ...(await measured(policy, WAVES * concurrency, concurrency, wire)),
    })
  }
  mock.stop()
}

async function inTokens(): Promise<void> {
  const delay = 200
  const tokenizer = await baseTokenizer()
  const tokens = inIds(tokenizer)
  const mock = await startMock({ delay, tokens })
  const policy = endpoint(mock.baseUrl, tokenizer)
  const wire = TURNS * (await wireSeconds(mock.baseUrl, JSON.stringify({ prompt: [tokens.assistant] })))
  print({ part: 'tokens', delayMilliseconds: delay, ...(await measured(policy, WAVES * 256, 256, wire)) })
  mock.stop()
}

async function withoutEndpoint(): Promise<void> {
  const tokenizer = await baseTokenizer()
  const { said } = inIds(tokenizer)
  for (const ids of [null, said]) {
    const policy = instant(ids, tokenizer)
    print({ part: 'loop', tokens: ids !== null, ...(await measured(policy, 4096, 256, null)) })
  }
}

/** Heap with 512 rollouts that wait for their second answer, less that with one, per rollout. */
async function inFlight(): Promise<void> {
  const tokenizer = await baseTokenizer()
  for (const tokens of [null, inIds(tokenizer)]) {
    const mock = await startMock({ delay: 2000, tokens })
    const policy = tokens === null ? endpoint(mock.baseUrl) : endpoint(mock.baseUrl, tokenizer)
    const heaps: number[] = []
    for (const concurrency of [1, 512]) {
      const running = pass(policy, concurrency, concurrency)
      await new Promise((resolve) => setTimeout(resolve, 3500))
      heaps.push(heapBytes())
      await running
    }
    const [one, many] = heaps as [number, number]
    print({
      part: 'memory',
      tokens: tokens !== null,
      concurrency: 512,
      kibibytesPerRollout: round((many - one) / 511 / 1024),
    })
    mock.stop()
  }
}

/** As `showrunner rollout` stores them: scored, group by group, and nothing kept. */
async function manyTasks(): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'showrunner-bench-'))
  const tokenizer = await baseTokenizer()
  const mock = await startMock({ delay: 20, tokens: inIds(tokenizer) })
  try {
    const store = must(await openStore(join(directory, 'store'), { resume: false }))
    const policy = endpoint(mock.baseUrl, tokenizer)
    const options = rolloutOptions.parse({ groupSize: 1, concurrency: 64, temperature: 1, budget: { turns: 5 } })
    const run = { system, policy, agents, options, step: 0, runSeed: 'bench', order: 'completion' as const }
    const heaps: number[] = []
    let done = 0
    for await (const group of rolloutStream(taskStream(10_000), run)) {
      const { qid } = group.task.question
      must(await store.append([scoreGroup(group, { qid, answer: 2, clipId: 'none', span: null, kind: null }, reward)]))
      done++
      if (done % 1000 === 0) heaps.push(heapBytes() / 2 ** 20)
    }
    must(await store.close())
    print({
      part: 'long',
      rollouts: done,
      heapMiB: heaps.map(round),
      residentMiB: round(process.memoryUsage().rss / 2 ** 20),
      bytesPerRolloutFrom2000To10000: Math.round((((heaps[9] as number) - (heaps[1] as number)) * 2 ** 20) / 8000),
    })
  } finally {
    mock.stop()
    await rm(directory, { recursive: true })
  }
}

// ---------------------------------------------------------------- pieces

function endpoint(baseUrl: string, tokenizer?: TextTokenizer): Policy {
  const options = endpointPolicyOptions.parse({
    type: 'endpoint',
    baseUrl,
    model: 'mock',
    returnTokenIds: tokenizer !== undefined,
  })
  return must(openEndpoint(options, tokenizer))
}

/** Answers at once: `said` as ids, or as text. */
function instant(said: readonly number[][] | null, tokenizer: TextTokenizer): Policy {
  return {
    name: 'instant',
    version: '0',
    contextLength: null,
    ...(said === null ? {} : { tokenizer }),
    async generate({ messages }) {
      const turn = messages.filter(({ role }) => role === 'assistant').length
      const ids = said?.[turn] ?? null
      return {
        ok: true,
        value: {
          text: SAID[turn] as string,
          tokenIds: ids,
          logprobs: ids?.map(() => -0.5) ?? null,
          finishReason: 'stop',
          version: '0',
          usage: { ...used, promptTokens: 100, completionTokens: 10 },
        },
      }
    },
    async close() {},
  }
}

async function baseTokenizer(): Promise<TextTokenizer> {
  return must(openTokenizer(must(await loadCheckpoint('checkpoints/base')), 'base'))
}

function inIds(tokenizer: TextTokenizer): { assistant: number; said: number[][] } {
  const assistant = tokenizer.encodePrompt([{ role: 'user', content: '' }]).at(-1) as number
  return { assistant, said: SAID.map((text) => tokenizer.encode(text)) }
}

/** After a full collection. */
function heapBytes(): number {
  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc') as () => void
  collect()
  collect()
  return process.memoryUsage().heapUsed
}

function spread(values: readonly number[]): { median: number; least: number; most: number } {
  const sorted = [...values].sort((a, b) => a - b).map(round)
  return { median: sorted[sorted.length >> 1] as number, least: sorted[0] as number, most: sorted.at(-1) as number }
}

function round(value: number): number {
  return Number(value.toPrecision(4))
}

function print(row: object): void {
  console.log(JSON.stringify({ bench: 'rollout', ...row }))
}

function must<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

if (process.argv[2] === '--mock') serveMock(JSON.parse(process.argv[3] as string) as MockSettings)
else await bench(process.argv.slice(2))
