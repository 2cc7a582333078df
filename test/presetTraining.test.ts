/** A step of training with each preset: rendered videos, a tiny random master, the preset's agents at a scripted endpoint. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadConfig } from '../src/config.ts'
import { presetNames } from '../src/configFile.ts'
import { groundQuestions } from '../src/ground.ts'
import { silentProgress } from '../src/progress.ts'
import { train } from '../src/train.ts'
import { readTrajectories } from '../src/trajectory/read.ts'
import { type ChatServer, type ReceivedBody, says, startChatServer } from './agents/server.ts'
import { value } from './dataset/folder.ts'
import { tinyMaster } from './tinyMaster.ts'

const root = process.cwd()
let server: ChatServer
beforeAll(async () => {
  server = await startChatServer()
  server.script((response, body, request) => says(replyOf(body))(response, body, request))
  process.chdir(mkdtempSync(join(tmpdir(), 'showrunner-presets-')))
  await tinyMaster('checkpoints/tiny')
})
afterAll(async () => {
  const folder = process.cwd()
  process.chdir(root)
  rmSync(folder, { recursive: true })
  await server.close()
})

function replyOf({ messages }: ReceivedBody): string {
  const asked = messages.at(-1)?.content
  return typeof asked === 'string' ? `<clip>${/Clips:\n<([^>]+)>/.exec(asked)?.[1]}</clip>` : 'a kettle'
}

test.each(await presetNames())('%s', { timeout: 60_000 }, async (name) => {
  const plain = value(await loadConfig(name, ['dataset.path=d', 'policy.path=c', 'reward.alpha=0.1']))
  const atServer = (['grounding', 'vision'] as const).flatMap((agent) =>
    plain.agents[agent].type === 'endpoint'
      ? [`agents.${agent}.baseUrl=${server.baseUrl}`, `agents.${agent}.apiKeyEnv=null`]
      : [],
  )
  const config = value(
    await loadConfig(name, [
      ...atServer,
      'dataset={path: miniature, miniature: {seed: 5, episodes: 1, questionsPerEpisode: 8}}',
      'policy.path=checkpoints/tiny',
      ...(plain.policy.type === 'checkpoint' && plain.policy.lora !== null ? ['policy.lora.rank=2'] : []),
      'agents.cacheDirectory=null',
      'agents.groundingCache=grounding.jsonl',
      // the tiny master reads 512 tokens
      'system.prompt=brief',
      'rollout.budget.tokensPerTurn=4',
      'rollout.groupSize=2',
      ...(plain.reward.alpha === 0.1 ? ['reward.alpha=0.1'] : []),
      'training.steps=1',
      'training.tasksPerStep=2',
    ]),
  )
  const signal = new AbortController().signal
  expect(value(await groundQuestions(config, silentProgress, signal))).toEqual({ ok: 8, empty: 0, error: 0 })
  const trained = value(await train(config, silentProgress, signal, { resume: false }))
  expect(trained.steps).toBe(1)
  expect(trained.rollouts).toBeGreaterThanOrEqual(4)
  expect(trained.metrics.every(({ loss, excluded }) => Number.isFinite(loss) && excluded === 0)).toBe(true)
  const initial = new Set<string | undefined>()
  for await (const row of value(await readTrajectories(join('rollouts', name)))) {
    initial.add(row.initial?.from)
    expect(row.turns.length).toBeGreaterThan(0)
  }
  const { initialGrounding } = config.system as { initialGrounding: string }
  expect([...initial]).toEqual([initialGrounding === 'none' ? undefined : initialGrounding])
})
