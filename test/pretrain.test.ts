import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openPolicy } from '../src/policy/embedded.ts'
import { type PretrainReport, pretrain, pretrainConfig } from '../src/pretrain.ts'
import { silentProgress } from '../src/progress.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-pretrain-'))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

async function run(out: string, signal = new AbortController().signal) {
  const config = pretrainConfig.parse({
    name: 'tiny',
    seed: 5,
    out,
    model: { hiddenSize: 32, layers: 2, heads: 2, intermediateSize: 48 },
    phases: [
      { name: 'lookup', steps: 3, mix: { lookup: 1 } },
      {
        name: 'transcripts',
        steps: 4,
        mix: { sentence: 0.2, binding: 0.2, reading: 0.3, acting: 0.3 },
        finalLearningRate: 0.0001,
      },
    ],
    rowsPerStep: 6,
    warmupSteps: 2,
  })
  return pretrain(config, silentProgress, signal)
}

async function weightsOf(directory: string) {
  const loaded = await loadCheckpoint(directory)
  if (!loaded.ok) throw new Error(loaded.failure.message)
  return loaded.value
}

test('the same config gives the same weights, in a checkpoint that a policy opens and samples from', {
  timeout: 60_000,
}, async () => {
  const first = await run(join(folder, 'first'))
  const second = await run(join(folder, 'second'))
  if (!first.ok || !second.ok) throw new Error('pretraining failed')
  const report: PretrainReport = first.value
  expect(report.steps).toBe(7)
  expect(report.tokens).toBeGreaterThan(500)
  const checkpoint = await weightsOf(join(folder, 'first'))
  const again = await weightsOf(join(folder, 'second'))
  for (const [name, { data }] of checkpoint.weights) expect(again.weights.get(name)?.data, name).toEqual(data)

  const opened = await openPolicy(checkpoint, engineOptions.parse({}), {
    name: 'tiny',
    step: 0,
    rows: 4,
    cacheTokens: 2048,
  })
  if (!opened.ok) throw new Error(opened.failure.message)
  try {
    const messages = [
      { role: 'user' as const, content: 'where did mira leave the kettle ? a0 riverton <turns_left_2>' },
    ]
    const said = await opened.value.generate({
      messages,
      sampling: { temperature: 1, maxTokens: 5, stop: [] },
      seed: 's',
    })
    expect(said).toMatchObject({ ok: true, value: { version: 'tiny@0' } })
  } finally {
    await opened.value.close()
  }
})

test('stopping writes nothing and says so', async () => {
  const stopped = await run(join(folder, 'stopped'), AbortSignal.abort())
  expect(stopped).toMatchObject({ ok: false, failure: { kind: 'cancelled' } })
  expect(await loadCheckpoint(join(folder, 'stopped'))).toMatchObject({ ok: false, failure: { kind: 'missing_file' } })
})
