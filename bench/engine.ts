/**
 * `npm run bench -- engine [size ...] [--threads 1,2] [--seconds 12] [--repeats 1] [--engine tfjs] [--rival PYTHON]`: how fast the
 * engine samples and updates. One JSON line per size, number of threads and repeat. Forced length: the end token is one id among others.
 *
 * Each case runs in a process of its own, so that its peak memory is its own. Per repetition: a batch is sampled in groups of one
 * prompt, then trained on with log-probabilities as recorded, as a step of training does; the clock reads both parts. Tokens are the
 * sampled ones in `sampling`, prompts and sampled ones in `update` and `step`. CPU seconds are those of the whole process.
 *
 * With `--rival`, a Python that has TRL, each case is followed by the same case on TRL (`bench/rivals/trl_engine.py`), and each size by a
 * line of ratios, ours over theirs: the least, the median and the most over the repeats.
 */

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import seedrandom from 'seedrandom'
import { median } from 'simple-statistics'
import { openDevice } from '../src/engine/device.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../src/grpo/options.ts'
import type { PolicyRow } from '../src/grpo/rows.ts'
import { updatePolicy } from '../src/grpo/update.ts'
import { weightShapes } from '../src/policy/architecture.ts'
import { openDecoder } from '../src/policy/decoder.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { uploadWeights } from '../src/policy/weights.ts'

interface Size {
  hidden: number
  layers: number
  vocabulary: number
  /** Tokens sampled per row. */
  completion: number
  /** Rows, in groups of GROUP. */
  batch: number
}

const SIZES: Record<string, Size> = {
  S: { hidden: 64, layers: 2, vocabulary: 331, completion: 32, batch: 8 },
  M: { hidden: 128, layers: 4, vocabulary: 331, completion: 64, batch: 16 },
  'M-vocab': { hidden: 128, layers: 4, vocabulary: 8192, completion: 64, batch: 16 },
  L: { hidden: 256, layers: 6, vocabulary: 331, completion: 128, batch: 16 },
}
const PROMPT = 35
const GROUP = 8
/** The first repetitions build sessions, fill the arena and let the JIT compile. */
const WARM_UP = 5

interface Cost {
  seconds: number
  cpuSeconds: number
}

const PARTS = ['sampling', 'update', 'step'] as const

interface Speed {
  tokensPerSecond: number
  tokensPerCpuSecond: number
  seconds: ReturnType<typeof spread>
  cpuSeconds: ReturnType<typeof spread>
}

/** What this program and the rival's print of a case. */
type Line = Record<(typeof PARTS)[number], Speed> & { peakMegabytes: number }

async function measure(name: string, engine: string, threads: number, seconds: number): Promise<void> {
  const { hidden, layers, vocabulary, completion, batch } = SIZES[name]!
  const config = decoderConfig({
    model_type: 'qwen2',
    vocab_size: vocabulary,
    hidden_size: hidden,
    intermediate_size: 3 * hidden,
    num_hidden_layers: layers,
    num_attention_heads: 4,
    num_key_value_heads: 2,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: 512,
  })
  const random = seedrandom('bench/engine')
  const weights = new Map(
    [...weightShapes(config)].map(([weight, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      const center = weight.includes('norm') ? 1 : 0
      return [weight, { shape, data: Float32Array.from({ length }, () => center + 0.07 * (random() - 0.5)) }]
    }),
  )
  const device = await openDevice(engineOptions.parse(engine === 'tfjs' ? engine : { type: engine, threads }))
  await uploadWeights(device, config, weights)
  const decoder = await openDecoder(device, config, { rows: batch, cacheTokens: batch * (PROMPT + completion + 32) })
  const trainer = await openTrainer(device, config)
  const options = grpoOptions.parse({})

  async function sample(repetition: number): Promise<PolicyRow[]> {
    const prompts = Array.from({ length: batch / GROUP }, () =>
      Array.from({ length: PROMPT }, () => Math.floor(random() * vocabulary)),
    )
    return Promise.all(
      Array.from({ length: batch }, async (_, row): Promise<PolicyRow> => {
        const prompt = prompts[Math.floor(row / GROUP)]!
        const outcome = await decoder.generate({
          ids: prompt,
          maxTokens: completion,
          temperature: 1,
          seed: `${repetition}/${row}`,
          isEnd: () => false,
        })
        if (outcome.kind !== 'length') throw new Error(`A row ended with ${outcome.kind}`)
        return {
          ids: [...prompt, ...outcome.ids],
          actionMask: [...prompt.map((): 0 | 1 => 0), ...outcome.ids.map((): 0 | 1 => 1)],
          logprobs: [...prompt.map(() => 0), ...outcome.logprobs],
          advantage: row % 2 === 0 ? 1 : -1,
          value: null,
        }
      }),
    )
  }

  const costs: Record<(typeof PARTS)[number], Cost[]> = { sampling: [], update: [], step: [] }
  let began = performance.now()
  for (let repetition = 0; ; repetition += 1) {
    if (repetition === WARM_UP) began = performance.now()
    const start = now()
    const rows = await sample(repetition)
    const sampled = now()
    const { ratioMax } = await updatePolicy(trainer, rows, options, { temperature: 1, totalSteps: 1 })
    const end = now()
    decoder.dropCaches()
    if (Math.abs(ratioMax - 1) > 1e-4) throw new Error(`Sampler and trainer disagree: ratio ${ratioMax}`)
    if (repetition < WARM_UP) continue
    costs.sampling.push(between(start, sampled))
    costs.update.push(between(sampled, end))
    costs.step.push(between(start, end))
    if (performance.now() - began > seconds * 1000 && costs.step.length >= 4) break
  }
  await trainer.close()
  await decoder.close()
  await device.close()

  const tokens = batch * (PROMPT + completion)
  print({
    bench: 'engine',
    engine: device.inUse,
    size: name,
    threads,
    parameters: [...weights.values()].reduce((sum, { data }) => sum + data.length, 0),
    repetitions: costs.step.length,
    sampling: describe(costs.sampling, batch * completion),
    update: describe(costs.update, tokens),
    step: describe(costs.step, tokens),
    peakMegabytes: Math.round(process.resourceUsage().maxRSS / 1024),
  })
}

function now(): Cost {
  const { user, system } = process.cpuUsage()
  return { seconds: performance.now() / 1000, cpuSeconds: (user + system) / 1e6 }
}

function between(start: Cost, end: Cost): Cost {
  return { seconds: end.seconds - start.seconds, cpuSeconds: end.cpuSeconds - start.cpuSeconds }
}

function describe(costs: readonly Cost[], tokens: number): Speed {
  const seconds = costs.map((cost) => cost.seconds)
  const cpuSeconds = costs.map((cost) => cost.cpuSeconds)
  return {
    tokensPerSecond: Math.round(tokens / median(seconds)),
    tokensPerCpuSecond: Math.round(tokens / median(cpuSeconds)),
    seconds: spread(seconds),
    cpuSeconds: spread(cpuSeconds),
  }
}

function spread(values: readonly number[]) {
  const rounded = (value: number) => Number(value.toFixed(4))
  return { min: rounded(Math.min(...values)), median: rounded(median([...values])), max: rounded(Math.max(...values)) }
}

function print(line: unknown): void {
  process.stdout.write(`${JSON.stringify(line)}\n`)
}

/** Runs a program that prints one JSON line, shows the line, and gives it back; null when there was none. */
function runCase(program: string, words: readonly string[]): Line | null {
  const { stdout } = spawnSync(program, words, { stdio: ['ignore', 'pipe', 'inherit'], encoding: 'utf8' })
  process.stdout.write(stdout)
  const line = stdout.split('\n').find((candidate) => candidate.startsWith('{'))
  if (line !== undefined) return JSON.parse(line)
  process.exitCode = 1
  return null
}

/** Ours over theirs, by part of the step and by clock. */
function ratios(pairs: readonly { ours: Line; theirs: Line }[]) {
  const over = (of: (line: Line) => number) => spread(pairs.map(({ ours, theirs }) => of(ours) / of(theirs)))
  const parts = PARTS.map((part) => [
    part,
    { cpu: over((line) => line[part].tokensPerCpuSecond), wall: over((line) => line[part].tokensPerSecond) },
  ])
  return { ...Object.fromEntries(parts), peakMegabytes: over((line) => line.peakMegabytes) }
}

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    threads: { type: 'string', default: '1,2' },
    seconds: { type: 'string', default: '12' },
    repeats: { type: 'string', default: '1' },
    engine: { type: 'string', default: 'onnxruntime' },
    rival: { type: 'string' },
  },
})
const threads = values.threads.split(',').map(Number)
const [first, ...rest] = positionals
if (first === 'case') await measure(rest[0]!, values.engine, threads[0]!, Number(values.seconds))
else {
  const unknown = positionals.find((size) => !(size in SIZES))
  if (unknown !== undefined) throw new Error(`Unknown size ${unknown}; there are ${Object.keys(SIZES).join(', ')}`)
  for (const size of positionals.length > 0 ? positionals : Object.keys(SIZES)) {
    for (const count of threads) {
      const options = ['--threads', String(count), '--seconds', values.seconds]
      const pairs: { ours: Line; theirs: Line }[] = []
      for (let repeat = 0; repeat < Number(values.repeats); repeat += 1) {
        const self = fileURLToPath(import.meta.url)
        const own = [...process.execArgv, self, 'case', size, '--engine', values.engine, ...options]
        const ours = runCase(process.execPath, own)
        if (values.rival === undefined) continue
        const script = fileURLToPath(new URL('rivals/trl_engine.py', import.meta.url))
        const theirs = runCase(values.rival, [script, size, ...options])
        if (ours !== null && theirs !== null) pairs.push({ ours, theirs })
      }
      if (pairs.length > 0)
        print({ bench: 'engine over trl', size, threads: count, repeats: pairs.length, ...ratios(pairs) })
    }
  }
}
