/**
 * `npm run bench -- serveSoak [--minutes 60] [--users 8]`: does a server's memory grow under mixed traffic? A small model is served from the
 * folder of a run in a process of its own, watched and captured, while users here chat, complete, stream, leave in the middle, ask for too
 * much, sample in sessions that are rewarded or not, and load and unload adapters; newer checkpoints come all the time.
 *
 * Prints a JSON line every tenth of the time, and one that compares the least of the second half with the least of the first, without its
 * first tenth: resident memory swings by tens of MiB with what runs at the moment, and what leaks raises its floor. Ends with 1 when memory
 * grew by more than the limits below, when an answer was not as expected, or when anything still runs once the users are gone.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import seedrandom from 'seedrandom'
import { type Checkpoint, saveCheckpoint, stepDirectory } from '../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../src/engine/options.ts'
import { newAdapter } from '../src/policy/adapter.ts'
import { initializeWeights } from '../src/policy/initialize.ts'
import { buildWordTokenizer } from '../src/policy/wordTokenizer.ts'
import { startServer } from '../src/serve/open.ts'
import { serveOptions } from '../src/serve/options.ts'

/** Between the floors of the two halves. What is sampled in sessions is stored and its names are kept, some 200 bytes each. */
const MOST_HEAP_GROWTH_MIB = 8
const MOST_RESIDENT_GROWTH_MIB = 48
const SWAP_SECONDS = 2
const CONTEXT = 256

const { values: words, positionals } = parseArgs({
  allowPositionals: true,
  options: { minutes: { type: 'string', default: '60' }, users: { type: 'string', default: '8' } },
})
if (positionals[0] === 'server') await serve(positionals[1]!)
else process.exitCode = await soak(Number(words.minutes) * 60, Number(words.users))

// ---------------------------------------------------------------- the server's process

interface Memory {
  residentMiB: number
  heapMiB: number
  /** Buffers outside the heap. */
  externalMiB: number
}

/** Tells its address, then its memory each time it is asked to. */
async function serve(root: string) {
  const options = serveOptions.parse({ port: 0, watchSeconds: 0.5, capture: join(root, 'captured'), sessionSeconds: 5 })
  const started = await startServer(join(root, 'run'), engineOptions.parse({ threads: 1 }), options)
  if (!started.ok) throw new Error(started.failure.message)
  process.on('message', () => {
    globalThis.gc?.()
    const { rss, heapUsed, external } = process.memoryUsage()
    process.send?.({ residentMiB: mebibytes(rss), heapMiB: mebibytes(heapUsed), externalMiB: mebibytes(external) })
  })
  process.on('disconnect', () => started.value.close())
  process.send?.(started.value.url)
}

function mebibytes(bytes: number): number {
  return Number((bytes / 2 ** 20).toFixed(1))
}

// ---------------------------------------------------------------- the users

async function soak(seconds: number, users: number): Promise<number> {
  const root = mkdtempSync(join(tmpdir(), 'showrunner-soak-'))
  const model = await writeModel(root)
  const own = ['--expose-gc', ...process.execArgv, fileURLToPath(import.meta.url), 'server', root]
  const child = spawn(process.execPath, own, { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  try {
    const url = (await nextMessage(child)) as string
    const until = performance.now() + seconds * 1000
    const counts: Record<string, number> = {}
    const problems: string[] = []
    const traffic = Array.from({ length: users }, (_, user) => use(url, `user${user}`, until, counts, problems))
    const others = [swapAdapters(url, root, until, counts, problems), swapWeights(root, model, until, counts)]
    const tenths: Memory[] = []
    for (let tenth = 1; tenth <= 10; tenth++) {
      await sleep(until - performance.now() - (seconds * 1000 * (10 - tenth)) / 10)
      child.send('memory')
      const memory = (await nextMessage(child)) as Memory
      tenths.push(memory)
      print({
        bench: 'serveSoak',
        minutes: Number(((seconds * tenth) / 600).toFixed(2)),
        ...memory,
        requests: sum(counts),
      })
    }
    await Promise.all([...traffic, ...others])
    await settled(url, problems)
    const floor = (some: readonly Memory[], of: 'heapMiB' | 'residentMiB') => Math.min(...some.map((one) => one[of]))
    const growth = (of: 'heapMiB' | 'residentMiB') =>
      Number((floor(tenths.slice(5), of) - floor(tenths.slice(1, 5), of)).toFixed(1))
    const [heapGrowthMiB, residentGrowthMiB] = [growth('heapMiB'), growth('residentMiB')]
    if (heapGrowthMiB > MOST_HEAP_GROWTH_MIB) problems.push(`the heap grew by ${heapGrowthMiB} MiB`)
    if (residentGrowthMiB > MOST_RESIDENT_GROWTH_MIB) problems.push(`memory grew by ${residentGrowthMiB} MiB`)
    print({ bench: 'serveSoak', heapGrowthMiB, residentGrowthMiB, counts, problems: problems.slice(0, 20) })
    return problems.length === 0 ? 0 : 1
  } finally {
    const exited = new Promise((resolve) => child.once('exit', resolve))
    if (child.connected) child.disconnect()
    if (child.exitCode === null) await exited
    rmSync(root, { recursive: true, force: true })
  }
}

interface Answer {
  status: number
  text: string
}

/** Resolves when the answer begins. As clients do, asks again when a connection that was kept open is closed at that moment. */
async function begin(
  url: string,
  path: string,
  body: unknown,
  headers = {},
  signal?: AbortSignal,
): Promise<{ answer(): Promise<Answer> }> {
  const response = await fetch(url + path, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
    ...(signal ? { signal } : {}),
  })
  if (response.status === 408) return begin(url, path, body, headers, signal)
  return { answer: async () => ({ status: response.status, text: await response.text() }) }
}

async function post(...request: Parameters<typeof begin>): Promise<Answer> {
  return (await begin(...request)).answer()
}

/** One user: a thing at a time, drawn anew each time. */
async function use(url: string, user: string, until: number, counts: Record<string, number>, problems: string[]) {
  const random = seedrandom(`soak/${user}`)
  const below = (limit: number) => Math.floor(random() * limit)
  const words = (count: number) => Array.from({ length: count }, () => `word${below(300)}`).join(' ')
  const ids = (count: number) => Array.from({ length: count }, () => below(300))
  const messages = () => [{ role: 'user', content: words(1 + below(30)) }]
  const model = 'run'
  const expect = (wanted: number, { status, text }: Answer, holds = true) => {
    if (status !== wanted || !holds) problems.push(`${user}: expected ${wanted}, got ${status}: ${text.slice(0, 200)}`)
  }
  const kinds: Record<string, () => Promise<void>> = {
    async chat() {
      expect(200, await post(url, '/v1/chat/completions', { model, messages: messages(), max_tokens: 1 + below(40) }))
    },
    async completions() {
      const body = { model, prompt: [ids(1 + below(60)), ids(5)], n: 1 + below(3), max_tokens: 1 + below(40) }
      expect(200, await post(url, '/v1/completions', { ...body, logprobs: below(4), return_token_ids: true }))
    },
    async streaming() {
      const body = { model, messages: messages(), max_tokens: 1 + below(40), stream: true, return_token_ids: true }
      const answer = await post(url, '/v1/chat/completions', { ...body, logprobs: true })
      expect(200, answer, answer.text.endsWith('data: [DONE]\n\n'))
    },
    async leaving() {
      const abort = new AbortController()
      const body = { model, messages: messages(), max_tokens: 150, ignore_eos: true, stream: random() < 0.5 }
      const asked = post(url, '/v1/chat/completions', body, {}, abort.signal).catch(() => {})
      await sleep(below(100))
      abort.abort()
      await asked
    },
    async tooLong() {
      const answer = await post(url, '/v1/completions', { model, prompt: ids(CONTEXT - 5), max_tokens: 6 })
      expect(400, answer, answer.text.includes('context_length_exceeded'))
    },
    async wrong() {
      expect(400, await post(url, '/v1/chat/completions', { model, messages: messages(), nonsense: 1 }))
      expect(404, await post(url, '/v1/completions', { model: 'nobody', prompt: 'word1' }))
    },
    async session() {
      const headers = { 'x-session-id': `${user}-${counts.session}-${below(1e9)}` }
      const body = { model, prompt: ids(10), max_tokens: 1 + below(20), return_token_ids: true }
      const first = await post(url, '/v1/completions', body, headers)
      expect(200, first)
      if (first.status !== 200) return
      const { token_ids } = JSON.parse(first.text).choices[0]
      expect(200, await post(url, '/v1/completions', { ...body, prompt: [...body.prompt, ...token_ids, 7] }, headers))
      // one in four never says how it went
      if (random() < 0.75)
        expect(200, await post(url, '/v1/rewards', { session_id: headers['x-session-id'], reward: random() }))
    },
  }
  const names = Object.keys(kinds)
  while (performance.now() < until) {
    const kind = names[below(names.length)]!
    counts[kind] = (counts[kind] ?? 0) + 1
    try {
      await kinds[kind]!()
    } catch (error) {
      problems.push(`${user}: ${kind}: ${(error as Error).message}`)
      await sleep(1000)
    }
  }
}

/** Loads an adapter under a new name, samples with it, and unloads it while it samples. */
async function swapAdapters(
  url: string,
  root: string,
  until: number,
  counts: Record<string, number>,
  problems: string[],
) {
  const folder = join(root, 'adapter')
  for (let n = 0; performance.now() < until; n++) {
    const name = `adapter${n}`
    const steps = [
      await post(url, '/v1/load_lora_adapter', { lora_name: name, lora_path: folder }),
      await post(url, '/v1/completions', { model: name, prompt: [1, 2, 3], max_tokens: 8 }),
    ]
    const body = { model: name, prompt: [4, 5], max_tokens: 60, ignore_eos: true, stream: true }
    const running = await begin(url, '/v1/completions', body)
    steps.push(await post(url, '/v1/unload_lora_adapter', { lora_name: name }), await running.answer())
    for (const { status, text } of steps) if (status !== 200) problems.push(`${name}: ${status}: ${text.slice(0, 200)}`)
    counts.adapters = n + 1
    await sleep(500)
  }
}

/** Writes newer checkpoints of the run, as a trainer does, and takes older ones away. */
async function swapWeights(root: string, model: Checkpoint, until: number, counts: Record<string, number>) {
  for (let step = 1; performance.now() < until; step++) {
    await sleep(SWAP_SECONDS * 1000)
    const training = { state: { step }, optimizer: new Map() }
    const saved = await saveCheckpoint(stepDirectory(join(root, 'run'), step), { ...model, training })
    if (!saved.ok) throw new Error(saved.failure.message)
    rmSync(stepDirectory(join(root, 'run'), step - 2), { recursive: true, force: true })
    counts.swaps = step
  }
}

/** What is left when the users are gone, and sessions that were never closed have fallen silent. */
async function settled(url: string, problems: string[]) {
  const text = async () => (await fetch(`${url}/metrics`)).text()
  const gauge = (metrics: string, name: string) => Number(new RegExp(`^${name} (\\S+)`, 'm').exec(metrics)?.[1])
  for (let tries = 0; ; tries++) {
    const metrics = await text()
    const [running, waiting] = ['running', 'waiting'].map((what) => gauge(metrics, `showrunner_sequences_${what}`))
    if (running === 0 && waiting === 0) return
    if (tries === 20) return problems.push(`${running} sequences still run and ${waiting} wait`)
    await sleep(500)
  }
}

/** The first checkpoint of a run, and an adapter on it. */
async function writeModel(root: string): Promise<Checkpoint> {
  const files = buildWordTokenizer(
    Array.from({ length: 320 }, (_, i) => `word${i}`),
    [],
  )
  const config = {
    model_type: 'qwen2',
    vocab_size: 331,
    hidden_size: 32,
    intermediate_size: 64,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: CONTEXT,
  }
  const weights = initializeWeights(config, { seed: 1, embeddingScale: 0.1, previousTokenHeads: 1 })
  const model: Checkpoint = {
    config,
    weights,
    generationConfig: null,
    tokenizer: files.tokenizerJson,
    tokenizerConfig: files.tokenizerConfig,
    chatTemplate: files.chatTemplate,
    training: { state: { step: 0 }, optimizer: new Map() },
  }
  const first = stepDirectory(join(root, 'run'), 0)
  const adapter = newAdapter(config, first, { rank: 8, alpha: 16, targets: ['q_proj', 'v_proj'] }, 1)
  const results = [
    await saveCheckpoint(first, model),
    await saveCheckpoint(join(root, 'adapter'), { ...model, adapter, training: null }),
  ]
  for (const result of results) if (!result.ok) throw new Error(result.failure.message)
  return model
}

// ---------------------------------------------------------------- small things

function nextMessage(child: ChildProcess): Promise<unknown> {
  return new Promise((resolve, reject) => {
    const exited = (code: number | null) => reject(new Error(`the server's process ended with ${code}`))
    child.once('exit', exited)
    child.once('message', (message) => {
      child.off('exit', exited)
      resolve(message)
    })
  })
}

function sleep(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, milliseconds)))
}

function sum(counts: Record<string, number>): number {
  return Object.values(counts).reduce((total, count) => total + count, 0)
}

function print(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}
