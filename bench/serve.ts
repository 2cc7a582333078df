/**
 * `npm run bench -- serve [size] [--clients 1,8,32,64] [--rounds 5] [--seconds 2.5] [--threads 1]`: how much of the engine's speed reaches
 * clients over HTTP. One JSON line per number of clients.
 *
 * The server runs in a process of its own and the clients in this one, on one core each (`taskset`, where there is one), so that clients do
 * not eat the server's time. In that server process, in turn and on the same policy: `engine` calls `generate` with no HTTP between, `whole`
 * are answers to `/v1/completions` with ids and log-probabilities as trainers ask for them, `streamed` are the same with a chunk for each
 * token. A round has so many requests for each client, one after another, with prompts of 64 ids and 32 to 96 tokens to write, whatever is
 * sampled; the lengths are the same in all three.
 * `share` is the speed against the engine's in the same round; `cpuShare` is the engine's processor time for a token against the server's,
 * which what else runs on the machine changes little. Times to the first token are the client's.
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { Agent, request } from 'node:http'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import seedrandom from 'seedrandom'
import { quantile } from 'simple-statistics'
import { engineOptions } from '../src/engine/options.ts'
import { openPolicy } from '../src/policy/embedded.ts'
import { initializeWeights } from '../src/policy/initialize.ts'
import { buildWordTokenizer } from '../src/policy/wordTokenizer.ts'
import { keysOf } from '../src/serve/keys.ts'
import { ModelRegistry } from '../src/serve/models.ts'
import { serveOptions } from '../src/serve/options.ts'
import { createServer } from '../src/serve/server.ts'

/** Widths and layers as in `bench/engine.ts`. */
const SIZES: Record<string, { hidden: number; layers: number; vocabulary: number }> = {
  M: { hidden: 128, layers: 4, vocabulary: 331 },
  'M-vocab': { hidden: 128, layers: 4, vocabulary: 8192 },
  L: { hidden: 256, layers: 6, vocabulary: 331 },
}
const PROMPT = 64
const ANSWER = [32, 96] as const

const { values: words, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    clients: { type: 'string', default: '1,8,32,64' },
    rounds: { type: 'string', default: '5' },
    seconds: { type: 'string', default: '2.5' },
    threads: { type: 'string', default: '1' },
  },
})
const [size = 'M', role = 'clients'] = positionals
const shape = SIZES[size]
if (shape === undefined) throw new Error(`Unknown size ${size}; there are ${Object.keys(SIZES).join(', ')}`)

/** What is measured: a round of so many clients. */
interface Round {
  clients: number
  /** Requests of each client. */
  requests: number
  /** Rounds of the same seed have the same lengths. */
  seed: number
  /** No prompt comes twice, since the server would know it. */
  prompts: string
}

interface Request {
  prompt: number[]
  tokens: number
}

interface Measured {
  tokens: number
  seconds: number
  /** Processor time of the server's process, all its threads. */
  cpuSeconds: number
  /** Seconds from each request to its first token. */
  firstTokens: number[]
}

/** `ask` returns the seconds to the first token. */
async function measure(
  { clients, requests, seed, prompts }: Round,
  cpuSeconds: () => Promise<number>,
  ask: (request: Request) => Promise<number>,
): Promise<Measured> {
  const firstTokens: number[] = []
  const [length, id] = [seedrandom(`lengths/${seed}`), seedrandom(`${prompts}/${seed}`)]
  const asked = Array.from({ length: clients }, () =>
    Array.from(
      { length: requests },
      (): Request => ({
        prompt: Array.from({ length: PROMPT }, () => Math.floor(id() * 300)),
        tokens: ANSWER[0] + Math.floor(length() * (ANSWER[1] - ANSWER[0] + 1)),
      }),
    ),
  )
  const tokens = asked.flat().reduce((sum, request) => sum + request.tokens, 0)
  const cpu = await cpuSeconds()
  const began = performance.now()
  await Promise.all(
    asked.map(async (own) => {
      for (const request of own) firstTokens.push(await ask(request))
    }),
  )
  const seconds = (performance.now() - began) / 1000
  return { tokens, seconds, cpuSeconds: (await cpuSeconds()) - cpu, firstTokens }
}

if (role === 'server') await serve(shape)
else await runClients()

// ---------------------------------------------------------------- the server's process

/** Tells its port, then measures the engine each time it is asked to. */
async function serve({ hidden, layers, vocabulary }: { hidden: number; layers: number; vocabulary: number }) {
  const files = buildWordTokenizer(
    Array.from({ length: 320 }, (_, i) => `word${i}`),
    [],
  )
  const config = {
    model_type: 'qwen2',
    vocab_size: vocabulary,
    hidden_size: hidden,
    intermediate_size: 3 * hidden,
    num_hidden_layers: layers,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: 512,
  }
  const opened = await openPolicy(
    {
      config,
      weights: initializeWeights(config, { seed: 1, embeddingScale: 0.1, previousTokenHeads: 1 }),
      tokenizer: files.tokenizerJson,
      tokenizerConfig: files.tokenizerConfig,
      chatTemplate: files.chatTemplate,
      generationConfig: null,
    },
    engineOptions.parse({ threads: Number(words.threads) }),
    { name: 'bench', rows: 128, cacheTokens: 65_536 },
  )
  if (!opened.ok) throw new Error(opened.failure.message)
  const policy = opened.value
  const models = new ModelRegistry()
  models.add({ name: 'bench', policy, created: new Date(), root: null, parent: null, stopStrings: [] })
  const server = createServer(serveOptions.parse({}), { models, keys: keysOf([]) })
  const generate = ({ prompt, tokens }: Request) => {
    const sampling = { temperature: 1, maxTokens: tokens, stop: [], ignoreEnd: true }
    const began = performance.now()
    return new Promise<number>((resolve, reject) => {
      let first = 0
      const onToken = () => {
        first ||= performance.now() - began
      }
      policy
        .generate({ messages: [], promptIds: prompt, sampling, seed: prompt.slice(0, 8).join(), onToken })
        .then((result) => (result.ok ? resolve(first / 1000) : reject(new Error(result.failure.message))), reject)
    })
  }
  const cpuSeconds = async () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  }
  process.on('message', async (asked: Round | 'cpu') => {
    const told = asked === 'cpu' ? cpuSeconds() : measure(asked, cpuSeconds, generate)
    process.send?.(await told)
  })
  process.on('disconnect', async () => {
    await server.close()
    await policy.close()
  })
  process.send?.(await server.listen({ host: '127.0.0.1', port: 0 }))
}

// ---------------------------------------------------------------- the clients' process

async function runClients() {
  const pinned = spawnSync('taskset', ['-acp', '1', String(process.pid)]).status === 0
  const own = [...process.execArgv, fileURLToPath(import.meta.url), size, 'server', '--threads', words.threads]
  const command = pinned ? ['taskset', '-c', '0', process.execPath, ...own] : [process.execPath, ...own]
  const child = spawn(command[0]!, command.slice(1), { stdio: ['ignore', 'inherit', 'inherit', 'ipc'] })
  const url = (await nextMessage(child)) as string
  const agent = new Agent({ keepAlive: true, maxSockets: Number.POSITIVE_INFINITY })
  const engine = async (round: Round) => {
    child.send(round)
    return (await nextMessage(child)) as Measured
  }
  const cpuSeconds = async () => {
    child.send('cpu')
    return (await nextMessage(child)) as number
  }
  const http = (stream: boolean) => (round: Round) =>
    measure(round, cpuSeconds, (request) => complete(url, agent, request, stream))
  const kinds = { engine, whole: http(false), streamed: http(true) }

  for (const clients of words.clients.split(',').map(Number)) {
    const kindNames = ['engine', 'whole', 'streamed'] as const
    let seed = 0
    const round = (name: (typeof kindNames)[number], requests: number) =>
      kinds[name]({ clients, requests, seed, prompts: `${clients}/${name}` })
    // the engine's caches, the JIT and the connections; and how many requests fill the time
    for (const name of kindNames) await round(name, 2)
    seed = 1
    const { seconds } = await round('engine', 2)
    const requests = Math.max(1, Math.round((2 * Number(words.seconds)) / seconds))
    const measured: Record<keyof typeof kinds, Measured[]> = { engine: [], whole: [], streamed: [] }
    for (seed = 2; seed < Number(words.rounds) + 2; seed++) {
      // each comes first as often as the others
      const first = seed % kindNames.length
      for (const name of [...kindNames.slice(first), ...kindNames.slice(0, first)])
        measured[name].push(await round(name, requests))
    }
    const against = (name: 'whole' | 'streamed', cost: 'seconds' | 'cpuSeconds') =>
      spread(
        measured[name].map((one, at) => measured.engine[at]![cost] / one[cost]),
        3,
      )
    const firstTokens = (name: keyof typeof kinds) => percentiles(measured[name].flatMap((one) => one.firstTokens))
    print({
      bench: 'serve',
      size,
      clients,
      threads: Number(words.threads),
      pinned,
      requests: clients * requests,
      tokensPerSecond: mapped(measured, (rounds) =>
        spread(
          rounds.map(({ tokens, seconds }) => tokens / seconds),
          0,
        ),
      ),
      share: { whole: against('whole', 'seconds'), streamed: against('streamed', 'seconds') },
      cpuShare: { whole: against('whole', 'cpuSeconds'), streamed: against('streamed', 'cpuSeconds') },
      firstTokenMs: { engine: firstTokens('engine'), streamed: firstTokens('streamed') },
    })
  }
  agent.destroy()
  child.disconnect()
}

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

/** One request; seconds to the first token where it is streamed, else to the answer. */
function complete(url: string, agent: Agent, { prompt, tokens }: Request, stream: boolean): Promise<number> {
  const body = JSON.stringify({
    model: 'bench',
    prompt,
    max_tokens: tokens,
    temperature: 1,
    ignore_eos: true,
    ...(stream ? { stream: true } : { logprobs: 0, return_token_ids: true }),
  })
  const began = performance.now()
  return new Promise((resolve, reject) => {
    const asked = request(
      `${url}/v1/completions`,
      { method: 'POST', agent, headers: { 'content-type': 'application/json', 'content-length': body.length } },
      (response) => {
        let text = ''
        let first = 0
        response.setEncoding('utf8')
        response.on('data', (part: string) => {
          text += part
          // the first event has no token
          if (stream && first === 0 && text.indexOf('data: ', 1) > 0) first = performance.now() - began
        })
        response.on('error', reject)
        response.on('end', () => {
          const whole = stream
            ? text.endsWith('data: [DONE]\n\n')
            : JSON.parse(text).choices[0].token_ids.length === tokens
          if (response.statusCode !== 200 || !whole) return reject(new Error(`${response.statusCode}: ${text}`))
          resolve((stream ? first : performance.now() - began) / 1000)
        })
      },
    )
    asked.on('error', reject)
    asked.end(body)
  })
}

// ---------------------------------------------------------------- numbers

function spread(values: readonly number[], digits: number) {
  const at = (share: number) => Number(quantile([...values], share).toFixed(digits))
  return { min: at(0), median: at(0.5), max: at(1) }
}

function percentiles(seconds: readonly number[]) {
  const at = (share: number) => Number((1000 * quantile([...seconds], share)).toFixed(1))
  return { median: at(0.5), p95: at(0.95) }
}

function mapped<Value, Mapped>(record: Record<string, Value>, map: (value: Value) => Mapped): Record<string, Mapped> {
  return Object.fromEntries(Object.entries(record).map(([name, value]) => [name, map(value)]))
}

function print(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}
