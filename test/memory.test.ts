/** The memory budget of training: what it allows, what it refuses before training starts, and that real processes keep it. */

import { spawnSync } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { expect, test } from 'vitest'
import { runConfig } from '../src/config.ts'
import { paddedTokens } from '../src/grpo/batching.ts'
import { rowsShape } from '../src/grpo/memory.ts'
import { planMemory } from '../src/memory.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { showrunner } from './commandLine.ts'
import { tinyMaster } from './tinyMaster.ts'

const decoder = decoderConfig({
  model_type: 'qwen2',
  vocab_size: 8192,
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  max_position_embeddings: 1024,
})
const CONTEXT = 512

function plan(memoryGiB: number | null, overrides: Record<string, unknown> = {}) {
  const config = runConfig.parse({
    name: 'budget',
    dataset: { path: 'none' },
    policy: { type: 'checkpoint', path: 'none', rows: 16, cacheTokens: 16 * CONTEXT },
    reward: { alpha: 0.1 },
    rollout: { concurrency: 16 },
    training: { memoryGiB },
    ...overrides,
  })
  return planMemory(config, decoder, CONTEXT)
}

/** The most padded tokens, in rows of 64, that a budget allows. */
function mostTokens(memoryGiB: number): number {
  const planned = plan(memoryGiB)
  if (!planned.ok) throw new Error(planned.failure.message)
  let rows = 0
  while (rows < 1000 && planned.value.withinMemory(rowsShape(rows + 1, 64))) rows += 1
  return paddedTokens(rowsShape(rows, 64))
}

test('too little: refused, with the least that is enough, which then is', () => {
  const refused = plan(0.3)
  if (refused.ok) throw new Error('expected a refusal')
  expect(refused.failure.message).toMatch(/^training\.memoryGiB: 0\.3 GiB are too little for one row of 512 tokens/)
  const least = Number(/at least ([\d.]+) GiB/.exec(refused.failure.message)![1])
  expect(plan(least).ok).toBe(true)
  expect(plan(least - 0.02).ok).toBe(false)
})

test('more memory, larger micro-batches; what was chosen is said in a line; without a budget nothing is', () => {
  const [small, large] = [mostTokens(1.2), mostTokens(2)]
  expect(small).toBeGreaterThan(CONTEXT)
  expect(large / small).toBeGreaterThan(1.5)
  const planned = plan(1.2)
  expect(planned.ok && planned.value.line).toMatch(
    /^memory: micro-batches of \d+ tokens in the longest rows, estimated 1\.\d\d GiB of 1\.2 GiB$/,
  )
  const unbounded = plan(null)
  expect(unbounded.ok && unbounded.value.line).toBe(null)
  expect(unbounded.ok && unbounded.value.withinMemory(rowsShape(10_000, 512))).toBe(true)
})

test('what an update runs besides counts: a reference, scoring, the attention of long rows', () => {
  const least = (overrides: Record<string, unknown>) => {
    const refused = plan(0.1, overrides)
    return Number(/at least ([\d.]+) GiB/.exec(refused.ok ? '' : refused.failure.message)![1])
  }
  expect(least({ grpo: { klCoefficient: 0.1 } })).toBeGreaterThan(least({}))
  expect(least({ grpo: { oldLogprobs: 'recomputed' } })).toBeGreaterThan(least({}))
  const planned = plan(2)
  if (!planned.ok) throw new Error(planned.failure.message)
  const { withinMemory } = planned.value
  const tokens = mostTokens(2)
  // The same tokens in rows of 512 need T x T attention of eight times the size.
  expect(withinMemory(rowsShape(Math.floor(tokens / 512), 512))).toBe(false)
})

test.each([
  ['quickstart', 0.8],
  ['vocabulary', 1],
])('%s: a process that samples and updates stays below %s GiB', { timeout: 120_000 }, (model, budget) => {
  const words = ['--import', resolve('node_modules/tsx/dist/loader.mjs'), resolve('bench/memory.ts'), 'case', model]
  const env = { ...process.env, MALLOC_MMAP_THRESHOLD_: '8589934592', MALLOC_TRIM_THRESHOLD_: '8589934592' }
  const { stdout, stderr } = spawnSync(process.execPath, [...words, String(budget), '2'], { env, encoding: 'utf8' })
  expect(stderr).not.toContain('Error')
  const { peakGiB, largestMicroBatch } = JSON.parse(stdout)
  expect(peakGiB).toBeLessThan(budget)
  // It is the budget that bounded it, not the batch.
  expect(largestMicroBatch).toBeGreaterThan(200)
  expect(largestMicroBatch).toBeLessThan(5000)
})

test('train refuses before it starts', { timeout: 60_000 }, async () => {
  const folder = await mkdtemp(join(tmpdir(), 'showrunner-memory-'))
  try {
    await tinyMaster(join(folder, 'tiny'))
    const config = {
      name: 'small',
      dataset: {
        path: 'datasets/small',
        miniature: { seed: 4, episodes: 1, words: 'training', split: 'train', questionsPerEpisode: 8 },
      },
      policy: { type: 'checkpoint', path: 'tiny' },
      reward: { alpha: 0.1 },
      training: { steps: 1, tasksPerStep: 1, memoryGiB: 0.2 },
    }
    await writeFile(join(folder, 'small.yaml'), JSON.stringify(config))
    const refused = await showrunner(folder, 'train', '--config', 'small.yaml')
    expect(refused.code).toBe(2)
    expect(refused.stderr).toContain('training.memoryGiB: 0.2 GiB are too little for one row of 512 tokens')
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
})
