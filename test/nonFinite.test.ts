/** A training run that meets a NaN, from the command line: it stops before weights change, keeps the rows, and they replay. */

import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { runConfig } from '../src/config.ts'
import { NonFiniteError } from '../src/grpo/nonFinite.ts'
import { grpoOptions } from '../src/grpo/options.ts'
import { readNonFinite, stoppedAt } from '../src/nonFinite.ts'
import { replayNonFinite, replayText } from '../src/replay.ts'
import { showrunner } from './commandLine.ts'
import { tinyMaster } from './tinyMaster.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-non-finite-'))
  await tinyMaster(join(folder, 'checkpoints/tiny'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const configuration = {
  name: 'damaged',
  dataset: {
    path: 'datasets/damaged',
    miniature: { seed: 4, episodes: 2, words: 'training', split: 'train', questionsPerEpisode: 8 },
  },
  policy: { type: 'checkpoint', path: 'checkpoints/damaged' },
  agents: { vision: { type: 'embedded', framesPerClip: 1, width: 384 } },
  reward: { alpha: 0.1 },
  rollout: { groupSize: 2, budget: { turns: 2, tokensPerTurn: 6 } },
  training: { steps: 1, tasksPerStep: 2 },
}

async function tiny() {
  const loaded = await loadCheckpoint(join(folder, 'checkpoints/tiny'))
  if (!loaded.ok) throw new Error(loaded.failure.message)
  return loaded.value
}

test('a NaN among the weights: training ends with the folder, and replay sees it again', {
  timeout: 120_000,
}, async () => {
  const files = await tiny()
  const name = 'model.layers.1.mlp.down_proj.weight'
  const { shape, data } = files.weights.get(name)!
  const weights = new Map([...files.weights, [name, { shape, data: Float32Array.from(data).fill(Number.NaN, 5, 6) }]])
  const saved = await saveCheckpoint(join(folder, 'checkpoints/damaged'), { ...files, weights })
  expect(saved.ok).toBe(true)
  await writeFile(join(folder, 'damaged.yaml'), JSON.stringify(configuration))

  const trained = await showrunner(folder, 'train', '--config', 'damaged.yaml')
  expect(trained.code).toBe(1)
  const kept = 'checkpoints/damaged/non-finite-step-000000'
  expect(trained.stderr).toMatch(/distribution is not finite in sampling; the weights were not changed/)
  expect(trained.stderr).toContain(`showrunner replay ${kept}`)
  // No step was taken: there is no checkpoint of one.
  expect((await readdir(join(folder, 'checkpoints/damaged'))).filter((entry) => entry.startsWith('step-'))).toEqual([])

  const replayed = await showrunner(folder, 'replay', kept)
  expect(replayed.code).toBe(0)
  expect(replayed.stdout).toMatch(/^row 0 \(\d+ tokens\): logprobs is not finite$/m)
  expect(replayed.stdout.trim().endsWith('reproduced')).toBe(true)
})

test('rows of an update are kept with NaN and infinity, and replay row by row', { timeout: 60_000 }, async () => {
  const rows = [
    { ids: [1, 2, 3, 4], positions: [2, 3], oldLogprobs: [-4, -1000], advantage: -1 },
    { ids: [1, 2, 5], positions: [2], oldLogprobs: Float64Array.of(-5), advantage: Number.NEGATIVE_INFINITY },
    { ids: [1, 2, 6], positions: [2], oldLogprobs: [-5], advantage: 1 },
  ].map((row) => ({ ...row, referenceLogprobs: null, importanceWeights: null, tokenWeight: 0.25, value: null }))
  const error = new NonFiniteError('loss', 'at optimizer step 3', {
    phase: 'update',
    objective: grpoOptions.parse({}),
    temperature: 1,
    indices: [0, 6, 7],
    rows,
  })
  const config = runConfig.parse({ ...configuration, policy: { type: 'checkpoint', path: 'elsewhere' } })
  const directory = join(folder, 'checkpoints/kept')
  const failure = await stoppedAt(
    directory,
    { step: 12, optimizerStep: 3, policyVersion: 'kept@12', error: error as never, config },
    await tiny(),
  )
  const kept = join(directory, 'non-finite-step-000012')
  expect(failure.message).toContain(kept)
  expect(await readFile(join(kept, 'non-finite.json'), 'utf8')).toContain('"advantage":"-Infinity"')
  const read = await readNonFinite(kept)
  if (!read.ok) throw new Error(read.failure.message)
  expect(read.value.evidence.rows[1]).toEqual({ ...rows[1], oldLogprobs: [-5] })

  const replayed = await replayNonFinite(kept)
  if (!replayed.ok) throw new Error(replayed.failure.message)
  expect(replayed.value.rows).toEqual([
    { row: 0, tokens: 4, tensor: 'loss' },
    { row: 6, tokens: 3, tensor: 'advantage' },
    { row: 7, tokens: 3, tensor: null },
  ])
  expect(replayText(replayed.value)).toMatch(
    /row 7 \(3 tokens\): finite\nall together: advantage is not finite\nreproduced$/,
  )
})

test('a folder without such rows says what was expected', async () => {
  const missing = await showrunner(folder, 'replay', 'checkpoints/tiny')
  expect(missing.code).toBe(1)
  expect(missing.stderr).toContain('checkpoints/tiny/non-finite.json: expected what a training run keeps')
  expect(existsSync(join(folder, 'checkpoints/tiny/model.safetensors'))).toBe(true)
})
