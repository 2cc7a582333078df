/**
 * `npm run bench -- learning [seed ...]`: what the quickstart learns, over several training seeds (default 1 2 3).
 *
 * Each seed is a whole quickstart under its own name, and its checkpoint is held against episodes that none of them has seen
 * (rendered from seed 1000 + training seed, every word allowed). Prints one JSON line per seed and one with mean and 95 % interval
 * over seeds (Student's t). Resumes what is there.
 */

import { latestCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { loadConfig } from '../src/config.ts'
import { evaluateCheckpoint } from '../src/evaluate.ts'
import { renderMiniature } from '../src/miniature.ts'
import { createProgress } from '../src/progress.ts'
import { quickstart } from '../src/quickstart.ts'
import type { Result } from '../src/types.ts'

const CONFIG = 'configs/quickstart.yaml'
/** 97.5 % quantile of Student's t for n - 1 degrees of freedom, by n. */
const T = [Number.NaN, Number.NaN, 12.706, 4.303, 3.182, 2.776, 2.571]

await learning(process.argv.slice(2).map(Number))

async function learning(given: readonly number[]): Promise<void> {
  const seeds = given.length > 0 ? given : [1, 2, 3]
  const progress = createProgress()
  const signal = new AbortController().signal
  const rows: Record<string, number>[] = []
  for (const seed of seeds) {
    const name = `learning-seed-${seed}`
    const overrides = [`seed=${seed}`, `name=${name}`]
    const config = must(await loadConfig(CONFIG, overrides))
    const summary = must(await quickstart(config, progress, signal))
    const dataset = `datasets/miniature-other-${seed}`
    must(
      await renderMiniature({
        out: dataset,
        miniature: { seed: 1000 + seed, episodes: 24, words: 'all', split: 'heldout' },
        progress,
        signal,
      }),
    )
    const checkpoint = (await latestCheckpoint(`checkpoints/${name}`))?.directory ?? null
    const other = must(
      await evaluateCheckpoint({
        checkpoint,
        dataset,
        config: CONFIG,
        overrides,
        maxTurns: 5,
        temperature: 0,
        limit: null,
        progress,
        signal,
      }),
    )
    const { before, after } = summary.heldOut ?? fail('the summary has no held-out measurements')
    const row = {
      seed,
      greedyBefore: before.greedy.accuracy,
      greedyAfter: after.greedy.accuracy,
      sampledBefore: before.sampled.accuracy,
      sampledAfter: after.sampled.accuracy,
      sampledGain: after.sampled.accuracy - before.sampled.accuracy,
      otherEpisodes: other.accuracy,
      largestGapToOracle: Math.max(
        ...summary.budgets.map((point) => (point.oracleAccuracy ?? Number.NaN) - point.accuracy),
      ),
      trainingSeconds: summary.training?.seconds ?? Number.NaN,
    }
    rows.push(row)
    console.log(JSON.stringify(row))
  }
  const keys = Object.keys(rows[0] ?? {}).filter((key) => key !== 'seed')
  const over = keys.map((key) => [key, meanInterval(rows.map((row) => row[key] as number))])
  console.log(JSON.stringify({ seeds: rows.length, ...Object.fromEntries(over) }))
}

function meanInterval(values: readonly number[]): { mean: number; ci95: [number, number] | null } {
  const mean = values.reduce((a, b) => a + b, 0) / values.length
  if (values.length < 2) return { mean, ci95: null }
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1))
  const half = ((T[values.length] ?? 1.96) * deviation) / Math.sqrt(values.length)
  return { mean, ci95: [mean - half, mean + half] }
}

function must<T>(result: Result<T>): T {
  return result.ok ? result.value : fail(result.failure.message)
}

function fail(message: string): never {
  throw new Error(message)
}
