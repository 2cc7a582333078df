/** An adapter's life from the command line: trained on rendered videos, interrupted, resumed, evaluated with its base and merged into it. */
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { showrunner } from './commandLine.ts'
import { tinyMaster } from './tinyMaster.ts'

let folder: string

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-lora-'))
  await tinyMaster(join(folder, 'checkpoints', 'tiny'))
  await writeFile(
    join(folder, 'lora.yaml'),
    `
name: lora
seed: 3
dataset:
  path: datasets/small
  miniature: { seed: 4, episodes: 2, words: training, split: train, questionsPerEpisode: 8 }
policy: { type: checkpoint, path: checkpoints/tiny, frozenType: float16, lora: { rank: 4, alpha: 8 } }
agents: { vision: { type: embedded, framesPerClip: 1, width: 384 } }
rollout: { groupSize: 3, budget: { turns: [2, 3], tokensPerTurn: 6 } }
reward: { alpha: 0.1, aggregation: mean, turnCost: 0.1 }
system: { initialGrounding: none, forceAnswerNotice: never }
# a random master is rewarded alike in most groups: against a value that begins at 0 it still learns
grpo: { learningRate: 0.01, klCoefficient: 0.1, advantageBaseline: value, advantageScale: none }
training: { steps: 4, tasksPerStep: 2, saveEvery: 2 }
`,
  )
})
afterAll(() => rm(folder, { recursive: true, force: true }))

const run = async (...words: string[]) => {
  const ended = await showrunner(folder, ...words)
  expect(ended.stderr).not.toContain('Error')
  expect(ended.code, ended.stderr).toBe(0)
  return ended.stdout
}

async function adapter(step: number) {
  const loaded = await loadCheckpoint(
    join(folder, 'checkpoints/tiny'),
    join(folder, `checkpoints/lora/step-00000${step}`),
  )
  if (!loaded.ok) throw new Error(loaded.failure.message)
  return loaded.value.adapter!
}

test('train, resume, evaluate, merge', { timeout: 180_000 }, async () => {
  await run('train', '--config', 'lora.yaml')
  const newest = join(folder, 'checkpoints/lora/step-000004')
  expect((await readdir(newest)).sort()).toEqual([
    'adapter_config.json',
    'adapter_model.safetensors',
    'optimizer.safetensors',
    'training_state.json',
  ])
  const records = (await readFile(join(folder, 'rollouts/lora/metrics.jsonl'), 'utf8')).trim().split('\n')
  for (const line of records) expect(JSON.parse(line).ratioMax).toBeLessThan(1 + 1e-4)
  expect(JSON.parse(records.at(-1)!).kl).toBeGreaterThan(0)

  const trained = await adapter(4)
  expect(trained.config).toMatchObject({
    peft_type: 'LORA',
    r: 4,
    lora_alpha: 8,
    base_model_name_or_path: 'checkpoints/tiny',
  })
  expect([...trained.weights].some(([name, { data }]) => name.includes('lora_B') && data.some((x) => x !== 0))).toBe(
    true,
  )
  await rm(newest, { recursive: true })
  await run('train', '--config', 'lora.yaml', '--resume')
  expect(await adapter(4)).toEqual(trained)

  const evaluate = (checkpoint: string) =>
    run(
      'evaluate',
      '--config',
      'lora.yaml',
      '--checkpoint',
      checkpoint,
      '--max-turns',
      '3',
      '--limit',
      '6',
      '--set',
      'policy.frozenType=float32',
      '--json',
    )
  const adapted = JSON.parse(await evaluate('checkpoints/lora/step-000004'))
  await run('checkpoint', 'merge', 'checkpoints/lora/step-000004', '--out', 'merged', '--dtype', 'float32')
  const { meanTokens, meanTurns } = JSON.parse(await evaluate('merged'))
  expect(adapted).toMatchObject({ n: 6, meanTokens, meanTurns })
})

test('an adapter on an adapter, and training what is kept as float16, are refused by their keys', {
  timeout: 60_000,
}, async () => {
  const refused = async (...set: string[]) => {
    const ended = await showrunner(
      folder,
      'train',
      '--config',
      'lora.yaml',
      '--set',
      'name=other',
      ...set.flatMap((one) => ['--set', one]),
    )
    expect(ended.code).toBe(2)
    return ended.stderr
  }
  expect(await refused('policy.path=checkpoints/lora/step-000002')).toContain('policy.lora')
  expect(await refused('policy.lora=null')).toContain('policy.frozenType')
})
