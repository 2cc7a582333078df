/**
 * Training from the command line on real videos with real agents: a tiny random master, two rendered episodes, a few steps. What is
 * tested is the loop, not learning (see `npm run bench -- learning` for that).
 */
import { existsSync } from 'node:fs'
import { mkdtemp, readdir, readFile, readlink, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { BinaryReader } from '@bufbuild/protobuf/wire'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { latestCheckpoint, loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../src/engine/options.ts'
import { startServer } from '../src/serve/open.ts'
import { serveOptions } from '../src/serve/options.ts'
import { readRatios } from '../src/trajectory/ratios.ts'
import { readSegments, readTrajectories } from '../src/trajectory/read.ts'
import { showrunner, start } from './commandLine.ts'
import { tinyMaster } from './tinyMaster.ts'

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-train-'))
  await tinyMaster(join(folder, 'checkpoints', 'tiny'))
  for (const name of ['straight', 'broken']) await writeFile(join(folder, `${name}.yaml`), configuration(name))
})
afterAll(() => rm(folder, { recursive: true, force: true }))

describe('training', () => {
  test('stores groups, writes metrics and checkpoints; a run killed in mid-step and resumed equals an uninterrupted one', {
    timeout: 180_000,
  }, async () => {
    const straight = await showrunner(folder, 'train', '--config', 'straight.yaml')
    expect(straight.stderr).not.toContain('Error')
    expect(straight.code).toBe(0)

    const first = start(folder, 'train', '--config', 'broken.yaml')
    await until(() => existsSync(join(folder, 'checkpoints/broken/step-000002/training_state.json')))
    first.child.kill('SIGKILL')
    await first.ended
    const again = await showrunner(folder, 'train', '--config', 'broken.yaml')
    expect(again.code).toBe(2)
    expect(again.stderr).toContain('--resume')
    const resumed = await showrunner(folder, 'train', '--config', 'broken.yaml', '--resume')
    expect(resumed.stderr).not.toContain('Error')
    expect(resumed.code).toBe(0)

    const weights = async (name: string) => {
      const newest = await latestCheckpoint(join(folder, 'checkpoints', name))
      expect(newest?.step).toBe(6)
      const loaded = await loadCheckpoint(newest?.directory ?? '')
      if (!loaded.ok) throw new Error(loaded.failure.message)
      return loaded.value.weights
    }
    const expected = await weights('straight')
    for (const [name, tensor] of await weights('broken')) expect(tensor.data, name).toEqual(expected.get(name)?.data)

    const stored = await trajectories('broken')
    expect(stored).toEqual(await trajectories('straight'))
    expect(stored).toHaveLength(6 * 2 * 3)
    expect(new Set(stored.map((row) => row.id)).size).toBe(stored.length)

    const records = (await readFile(join(folder, 'rollouts/straight/metrics.jsonl'), 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    expect(records.map((record) => record.step)).toEqual([0, 1, 2, 3, 4, 5])
    // the sampler and the trainer agree before the first weight moves
    for (const record of records) expect(record.ratioMax).toBeLessThan(1 + 1e-4)
    for (const record of records) expect(record.padding).toBeLessThan(0.25)
    for (const record of records) {
      expect(record.toolRate).toBeLessThanOrEqual(record.grounds + record.looks)
      expect(record.maxTokens).toBeLessThanOrEqual(3 * 6)
      expect(record.meanTokens).toBeLessThanOrEqual(record.maxTokens)
    }
  })

  test('answers the same held-out questions as it goes, and keeps the checkpoint that was best at it', {
    timeout: 60_000,
  }, async () => {
    const straight = await validations('straight')
    expect(straight.map(({ step, n }) => [step, n])).toEqual([
      [0, 6],
      [3, 6],
      [6, 6],
    ])
    const timeless = (rows: Record<string, unknown>[]) => rows.map(({ at, seconds, ...rest }) => rest)
    expect(timeless(await validations('broken'))).toEqual(timeless(straight))
    for (const name of ['straight', 'broken']) {
      const [first, second] = straight.slice(1).map(({ accuracy }) => accuracy)
      const best = (second as number) > (first as number) ? 'step-000006' : 'step-000003'
      const checkpoints = join(folder, 'checkpoints', name)
      expect(await readlink(join(checkpoints, 'best'))).toBe(best)
      // only the newest is kept besides
      expect((await readdir(checkpoints)).sort()).toEqual([...new Set(['best', best, 'step-000006'])])
    }
    const serving = serveOptions.parse({ port: 0 })
    const served = await startServer(join(folder, 'checkpoints/straight/best'), engineOptions.parse({}), serving)
    if (!served.ok) throw new Error(served.failure.message)
    expect(served.value.model).toBe('straight')
    await served.value.close()
    const stored = await readTrajectories(join(folder, 'rollouts/straight/validation/step-000003'))
    if (!stored.ok) throw new Error(stored.failure.message)
    let rows = 0
    for await (const row of stored.value) {
      rows++
      expect(row.policyVersion).toBe('straight@3')
      expect(row.budget.turns).toBe(3)
    }
    expect(rows).toBe(6)
  })

  test('curves are there for TensorBoard too, each point once in a run that was resumed', async () => {
    for (const name of ['straight', 'broken']) {
      const points = await eventPoints(name)
      expect(new Set(points.map(({ tag, step }) => `${tag} ${step}`)).size).toBe(points.length)
      const curve = (tag: string) => points.filter((point) => point.tag === tag)
      const metrics = await metricsOf(name)
      for (const key of [
        'reward',
        'accuracy',
        'kl',
        'entropy',
        'meanTokens',
        'clipFractionHigh',
        'toolRate',
        'zeroVarianceGroups',
      ])
        expect(curve(`train/${key}`).map(({ step, value }) => [step, value])).toEqual(
          metrics.map((record) => [record.step, Math.fround(record[key] as number)]),
        )
      expect(curve('validation/accuracy').map(({ step }) => step)).toEqual([0, 3, 6])
    }
  })

  test('a held-out question that is trained on is refused', { timeout: 60_000 }, async () => {
    const same = '{ dataset: { path: datasets/straight }, every: 1 }'
    const run = await showrunner(
      folder,
      ...['train', '--config', 'straight.yaml', '--set', 'name=leaky', '--set', `training.validation=${same}`],
    )
    expect(run.code).toBe(2)
    expect(run.stderr).toContain('16 of 16 are')
  })

  test('with a learned value baseline, importance weights and ratios per sequence: what the metrics and the checkpoint then have', {
    timeout: 120_000,
  }, async () => {
    const grpo =
      '{ learningRate: 0.001, advantageBaseline: value, advantageScale: none, oldLogprobs: recomputed, importanceSamplingCap: 2, importanceSamplingLevel: sequence, lossType: grpo, epochs: 2 }'
    await writeFile(join(folder, 'valued.yaml'), configuration('valued', grpo, 2))
    const run = await showrunner(folder, 'train', '--config', 'valued.yaml')
    expect(run.stderr).not.toContain('Error')
    expect(run.code).toBe(0)
    const records = (await readFile(join(folder, 'rollouts/valued/metrics.jsonl'), 'utf8'))
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line))
    for (const record of records) {
      expect(record.valueLoss).toBeGreaterThan(0)
      // sampler and trainer agree, so there is nothing to correct
      expect(record.importanceWeightMean).toBeCloseTo(1, 4)
      expect(record.importanceTruncated).toBe(0)
      expect(record.ratioMax).toBeLessThan(1 + 1e-4)
    }
    // the head starts at 0: at first the advantage is the reward
    expect(records[0].advantageMean).toBeLessThan(-0.05)
    const newest = await latestCheckpoint(join(folder, 'checkpoints/valued'))
    const loaded = await loadCheckpoint(newest?.directory ?? '')
    if (!loaded.ok) throw new Error(loaded.failure.message)
    expect(loaded.value.training?.optimizer.get('value_head.bias')?.data[0]).not.toBe(0)
    expect(loaded.value.weights.has('value_head.bias')).toBe(false)
  })

  test('what was sampled is what is stored: masks, log-probabilities and versions line up', async () => {
    const segments = await readSegments(join(folder, 'rollouts/straight'))
    if (!segments.ok) throw new Error(segments.failure.message)
    let rows = 0
    for await (const segment of segments.value) {
      rows++
      expect(segment.actionMask).toHaveLength(segment.ids.length)
      expect(segment.logprobs).toHaveLength(segment.ids.length)
      expect(segment.actionMask.slice(0, segment.promptLength).every((mask) => mask === 0)).toBe(true)
      expect(segment.policyVersion).toMatch(/^straight@\d+$/)
      segment.logprobs.forEach((logprob, t) => {
        if (segment.actionMask[t] === 1) expect(logprob).toBeLessThan(0)
        else expect(logprob).toBe(0)
      })
    }
    expect(rows).toBeGreaterThanOrEqual(36)
  })

  test('ratios are those of the sampled tokens, and the update moved them the way of the advantages', async () => {
    const run = join(folder, 'rollouts/straight')
    const ratios = await readRatios(run, 0)
    const [rows, segments] = [await readTrajectories(run), await readSegments(run)]
    if (!ratios.ok || ratios.value === null || !rows.ok || !segments.ok) throw new Error('not stored')
    const advantages = new Map<string, number>()
    for await (const row of rows.value) if (row.step === 0) advantages.set(row.trajectoryId, row.advantage ?? 0)
    const sampled = new Map<string, number[]>()
    for await (const { trajectoryId, actionMask } of segments.value) {
      const count = actionMask.filter((bit) => bit === 1).length
      if (advantages.has(trajectoryId)) sampled.set(trajectoryId, [...(sampled.get(trajectoryId) ?? []), count])
    }
    const counted = Object.entries(ratios.value).map(([id, ofSegments]) => [id, ofSegments.map(({ length }) => length)])
    expect(Object.fromEntries(counted)).toEqual(Object.fromEntries(sampled))
    const along = Object.entries(ratios.value).reduce(
      (sum, [id, ofSegments]) =>
        sum + (advantages.get(id) ?? 0) * ofSegments.flat().reduce((logs, ratio) => logs + Math.log(ratio), 0),
      0,
    )
    expect(along).toBeGreaterThan(0)
    expect(await readRatios(run, 1)).toEqual({ ok: true, value: null })
  })

  test('engine: tfjs trains with TensorFlow.js, says so, and takes the same first step', {
    timeout: 120_000,
  }, async () => {
    const config = ['--config', 'straight.yaml', '--set', 'name=tfjs', '--set', 'training.steps=1']
    const trained = await showrunner(folder, 'train', ...config, '--set', 'engine=tfjs')
    expect(trained.stderr).toMatch(/engine: tfjs 4\.\d+\.\d+ on /)
    expect(trained.code).toBe(0)
    const engine = JSON.parse(await readFile(join(folder, 'rollouts/tfjs/engine.json'), 'utf8'))
    expect(engine.engine).toBe('tfjs')
    const loaded = await loadCheckpoint(join(folder, 'checkpoints/tfjs/step-000001'))
    if (!loaded.ok) throw new Error(loaded.failure.message)
    expect(loaded.value.training?.state).toMatchObject({ engine })
    const [first] = (await metricsOf('tfjs')) as [Record<string, number>]
    const [expected] = (await metricsOf('straight')) as [Record<string, number>]
    expect(first.ratioMax).toBeLessThan(1 + 1e-4)
    expect(first.reward).toBe(expected.reward)
    expect(first.gradNorm! / expected.gradNorm!).toBeCloseTo(1, 3)
  })

  test('evaluate prints one JSON object with the fields of the summary', { timeout: 60_000 }, async () => {
    const evaluated = await showrunner(
      folder,
      'evaluate',
      '--config',
      'straight.yaml',
      '--checkpoint',
      'checkpoints/straight/best',
      '--dataset',
      'datasets/straight',
      '--max-turns',
      '3',
      '--limit',
      '6',
      '--json',
    )
    expect(evaluated.code).toBe(0)
    const measured = JSON.parse(evaluated.stdout)
    expect(measured).toMatchObject({ n: 6 })
    for (const field of ['accuracy', 'accuracyCi95', 'groundingAccuracy', 'formatRate', 'meanTurns'])
      expect(measured).toHaveProperty(field)
  })
})

async function metricsOf(name: string): Promise<Record<string, number>[]> {
  const lines = await readFile(join(folder, 'rollouts', name, 'metrics.jsonl'), 'utf8')
  return lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}

async function validations(
  name: string,
): Promise<({ step: number; n: number; accuracy: number } & Record<string, unknown>)[]> {
  const lines = await readFile(join(folder, 'rollouts', name, 'validation.jsonl'), 'utf8')
  return lines
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
}

/** The scalars in a run's only event file. */
async function eventPoints(name: string): Promise<{ tag: string; step: number; value: number }[]> {
  const directory = join(folder, 'rollouts', name, 'tensorboard')
  const files = await readdir(directory)
  expect(files).toHaveLength(1)
  const bytes = await readFile(join(directory, files[0] as string))
  const points: { tag: string; step: number; value: number }[] = []
  for (let at = 0; at < bytes.length; ) {
    const length = Number(bytes.readBigUInt64LE(at))
    const event = new BinaryReader(bytes.subarray(at + 12, at + 12 + length))
    at += length + 16
    let step = 0
    while (event.pos < event.len) {
      const [field, type] = event.tag()
      if (field === 2) step = Number(event.int64())
      else if (field !== 5) event.skip(type)
      else {
        const summary = new BinaryReader(event.bytes())
        while (summary.pos < summary.len) {
          summary.tag()
          const scalar = new BinaryReader(summary.bytes())
          scalar.tag()
          const tag = scalar.string()
          scalar.tag()
          points.push({ tag, step, value: scalar.float() })
        }
      }
    }
  }
  return points
}

async function trajectories(name: string) {
  const rows = await readTrajectories(join(folder, 'rollouts', name))
  if (!rows.ok) throw new Error(rows.failure.message)
  const all = []
  for await (const { trajectoryId: id, turns, reward, advantage, answer, stopReason } of rows.value)
    all.push({ id, turns, reward, advantage, answer, stopReason })
  return all
}

function configuration(name: string, grpo = '{ learningRate: 0.001 }', steps = 6): string {
  return `
name: ${name}
seed: 3
dataset:
  path: datasets/straight
  miniature: { seed: 4, episodes: 2, words: training, split: train, questionsPerEpisode: 8 }
policy: { type: checkpoint, path: checkpoints/tiny }
agents: { vision: { type: embedded, framesPerClip: 1, width: 384 } }
rollout: { groupSize: 3, budget: { turns: [2, 3], tokensPerTurn: 6 } }
reward: { alpha: 0.1, aggregation: mean, turnCost: 0.1 }
system: { initialGrounding: none, forceAnswerNotice: never }
grpo: ${grpo}
training:
  steps: ${steps}
  tasksPerStep: 2
  saveEvery: 2
  keepCheckpoints: 1
  validation:
    every: 3
    dataset:
      path: datasets/heldout
      miniature: { seed: 5, episodes: 1, words: all, split: heldout, questionsPerEpisode: 6 }
`
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((wake) => setTimeout(wake, 20))
}
