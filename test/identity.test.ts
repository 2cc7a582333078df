import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { type RunConfig, runConfig } from '../src/config.ts'
import { openDataset } from '../src/dataset/index.ts'
import { engineOptions } from '../src/engine/options.ts'
import { policyContent, questionsContent, samplingHash } from '../src/identity.ts'
import { policyOptions } from '../src/policy/options.ts'
import { row } from './dataset/folder.ts'

let folder: string
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'showrunner-identity-'))
})
afterEach(() => rmSync(folder, { recursive: true }))

const endpoint = { type: 'endpoint', baseUrl: 'http://127.0.0.1:9/v1', model: 'm' }
const base = runConfig.parse({
  name: 'run',
  dataset: { path: 'data' },
  policy: endpoint,
  agents: { vision: endpoint },
  reward: { alpha: 0.1 },
})
const contents = { policy: 'p', questions: 'q' }

test('other trajectories have another name; those of a run with more patience or other prices have the same', () => {
  const changed = (changes: Partial<RunConfig>) => samplingHash({ ...base, ...changes }, contents)
  const { agents, rollout } = base
  const names = [
    samplingHash(base, contents),
    samplingHash(base, { ...contents, policy: 'other' }),
    samplingHash(base, { ...contents, questions: 'other' }),
    changed({ seed: 5 }),
    changed({ agents: { ...agents, vision: { ...agents.vision, framesPerLook: 3 } as typeof agents.vision } }),
    changed({ agents: { ...agents, vision: { ...agents.vision, model: 'n' } as typeof agents.vision } }),
    changed({ reward: { ...base.reward, turnCost: 0.1 } }),
    changed({ system: { ...base.system, forceAnswerNotice: 'always' } as typeof base.system }),
    changed({ rollout: { ...rollout, temperature: 0 } }),
    changed({ rollout: { ...rollout, budget: { ...rollout.budget, windowClips: 2 } } }),
  ]
  expect(new Set(names).size).toBe(names.length)
  const patient = { ...agents.vision, baseUrl: 'http://127.0.0.1:8/v1', retries: 9, promptUsdPerMillion: 3 }
  expect(
    changed({
      name: 'x',
      agents: { ...agents, threads: 3, vision: patient as typeof agents.vision },
      rollout: { ...rollout, concurrency: 1, budget: { ...rollout.budget, deadlineSeconds: 1 } },
      engine: engineOptions.parse({ threads: 7 }),
    }),
  ).toBe(names[0])
})

test('a checkpoint is what its files hold, wherever it lies; training state does not count', async () => {
  const checkpoint = 'test/golden/trl-grpo/tiny-qwen2'
  const content = async (path: string) => {
    const found = await policyContent({ policy: policyOptions.parse({ type: 'checkpoint', path }), roles: {} })
    if (!found.ok) throw new Error(found.failure.message)
    return found.value
  }
  const copy = join(folder, 'copy')
  cpSync(checkpoint, copy, { recursive: true })
  const first = await content(checkpoint)
  expect(await content(copy)).toBe(first)
  writeFileSync(join(copy, 'training_state.json'), '{}')
  expect(await content(copy)).toBe(first)
  writeFileSync(join(copy, 'chat_template.jinja'), 'other')
  expect(await content(copy)).not.toBe(first)
  // an adapter is what it and its base are
  const adapter = join(folder, 'adapter')
  mkdirSync(adapter)
  writeFileSync(join(adapter, 'adapter_config.json'), JSON.stringify({ base_model_name_or_path: copy }))
  const adapted = await content(adapter)
  writeFileSync(join(copy, 'chat_template.jinja'), 'again another')
  expect(await content(adapter)).not.toBe(adapted)
  await expect(content(join(folder, 'nowhere'))).rejects.toThrow(/nowhere cannot be read: .*check the path/)
})

test('a data set is what its questions and answers say', async () => {
  const content = async (rows: unknown[]) => {
    writeFileSync(join(folder, 'x_val.json'), JSON.stringify(rows))
    const opened = await openDataset(folder)
    if (!opened.ok) throw new Error(opened.failure.message)
    return questionsContent(opened.value)
  }
  const first = await content([row(1), row(2)])
  expect(await content([row(1), row(2)])).toBe(first)
  expect(await content([row(1), { ...row(2), q: 'Who else ?' }])).not.toBe(first)
  expect(await content([row(1), { ...row(2), answer: 'a4' }])).not.toBe(first)
  expect(await content([row(1)])).not.toBe(first)
})
