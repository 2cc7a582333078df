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

async function run(out: string, signal = new AbortController().signal, more: object = {}) {
  const config = pretrainConfig.parse({
    name: 'tiny',
    seed: 5,
    out,
    ...('from' in more ? {} : { model: { hiddenSize: 32, layers: 2, heads: 2, intermediateSize: 48 } }),
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
    ...more,
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

const role = { system: { name: 'videoHvAgent', prompt: 'brief', summaryParts: 1, summaryWords: 30 }, role: 'answer' }

test('goes on from a checkpoint in a role of another system, with the words that its vocabulary lacks', {
  timeout: 60_000,
}, async () => {
  const out = join(folder, 'further')
  const further = await run(out, undefined, { from: join(folder, 'first'), lessons: role })
  expect(further).toMatchObject({ ok: true, value: { steps: 7, accuracy: { acting: expect.any(Number) } } })
  const [before, after] = [await weightsOf(join(folder, 'first')), await weightsOf(out)]
  const vocabulary = ({ tokenizer }: typeof before) => (tokenizer as { model: { vocab: object } }).model.vocab
  const added = Object.keys(vocabulary(after)).length - Object.keys(vocabulary(before)).length
  expect(vocabulary(after)).toMatchObject(vocabulary(before))
  expect(vocabulary(after)).toHaveProperty('"final_answer"')
  const embedding = (one: typeof before) => one.weights.get('model.embed_tokens.weight')?.shape
  expect(embedding(after)).toEqual([(embedding(before)?.[0] as number) + added, 32])
  expect(after.config.vocab_size).toBe(embedding(after)?.[0])
  // it ends its messages itself
  expect(before.generationConfig).toHaveProperty('stop_strings')
  expect(after.generationConfig).not.toHaveProperty('stop_strings')
})

test.each([
  [{ from: 'nowhere' }, /nowhere/],
  [{ lessons: { ...role, role: 'poet' } }, /system videoHvAgent has no poet; it has answer, thinker, judge, verifier/],
  [{ lessons: { ...role, role: 'judge' } }, /of videoHvAgent the stand-ins teach answer; got judge/],
  [
    { lessons: { system: { name: 'wholeEpisode' } } },
    /of wholeEpisode the stand-ins teach none of its roles; got master/,
  ],
])('%j is refused', async (more, message) => {
  const refused = await run(join(folder, 'refused'), undefined, more)
  expect(!refused.ok && refused.failure.message).toMatch(message)
})

test('a shape and a checkpoint that has one are one too many', () => {
  const parsed = pretrainConfig.safeParse({ name: 'x', seed: 1, out: 'x', from: 'y', model: {}, phases: [] })
  expect(parsed.error?.issues.map(({ path }) => path.join('.'))).toContain('model')
})
