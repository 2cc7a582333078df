/**
 * The quickstart from the command line, cut down: real videos, agents, updates, endpoint and report around a random master. What is
 * tested is that every stage runs, is resumed, and leaves what the summary promises; learning is `npm run bench -- learning`.
 */
import { existsSync } from 'node:fs'
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { summary } from '../src/report/summary.ts'
import { showrunner, start } from './commandLine.ts'
import { tinyMaster } from './tinyMaster.ts'

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-quickstart-'))
  await tinyMaster(join(folder, 'checkpoints/tiny'))
  await writeFile(
    join(folder, 'small.yaml'),
    `
name: small
seed: 2
dataset: { path: datasets/train, miniature: { seed: 1, episodes: 2, words: training, split: train, questionsPerEpisode: 6 } }
policy: { type: checkpoint, path: checkpoints/tiny }
agents: { vision: { type: embedded, framesPerClip: 1, width: 384 } }
rollout: { groupSize: 3, budget: { turns: [1, 2, 3], tokensPerTurn: 6 } }
reward: { alpha: 0.1 }
system: { initialGrounding: none, forceAnswerNotice: never }
training: { steps: 3, tasksPerStep: 2, saveEvery: 1 }
evaluation:
  dataset: { path: datasets/heldout, miniature: { seed: 2, episodes: 2, words: all, split: heldout, questionsPerEpisode: 5 } }
  maxTurns: [1, 2, 3]
`,
  )
})
afterAll(() => rm(folder, { recursive: true, force: true }))

test('runs every stage, survives a kill, and a second run has nothing to do', { timeout: 240_000 }, async () => {
  const killed = start(folder, 'quickstart', '--config', 'small.yaml')
  while (!existsSync(join(folder, 'checkpoints/small/step-000001/training_state.json')))
    await new Promise((wake) => setTimeout(wake, 20))
  killed.child.kill('SIGKILL')
  await killed.ended

  const run = await showrunner(folder, 'quickstart', '--config', 'small.yaml')
  expect(run.stderr).not.toContain('Error')
  expect(run.code).toBe(0)

  const written = summary.parse(JSON.parse(await readFile(join(folder, 'rollouts/small/summary.json'), 'utf8')))
  expect(written.seed).toBe(2)
  for (const when of ['before', 'after'] as const)
    for (const mode of ['greedy', 'sampled'] as const) expect(written.heldOut?.[when][mode].n).toBe(10)
  expect(written.budgets.map((point) => point.maxTurns)).toEqual([1, 2, 3])
  // with three turns the oracle can hear or see what any question needs, unless grounding or vision errs
  expect(written.budgets[2]?.oracleAccuracy).toBeGreaterThan(0.4)
  expect(written.training).toMatchObject({ steps: 3, rollouts: 18 })
  expect(written.training?.curve.map((point) => point.step)).toEqual([0, 1, 2])
  expect(written.asked?.turns.length).toBeGreaterThan(0)
  expect(Object.keys(written.actionPatterns?.after ?? {}).length).toBeGreaterThan(0)
  const page = await readFile(join(folder, 'rollouts/small/report.html'), 'utf8')
  expect(page).toContain('<svg')
  // nothing is fetched; links lead to the viewer on this machine and nowhere else
  expect(page).not.toMatch(/<(script|link|img|iframe)\b|@import|url\((?!#)/)
  for (const [, address] of page.matchAll(/href="(http[^"]*)/g)) expect(address).toMatch(/^http:\/\/127\.0\.0\.1:/)

  const again = await showrunner(folder, 'quickstart', '--config', 'small.yaml')
  expect(again.code).toBe(0)
  expect(again.stderr).toContain('nothing to do')

  const other = await showrunner(folder, 'quickstart', '--config', 'small.yaml', '--set', 'seed=3')
  expect(other.code).toBe(2)
  expect(other.stderr).toContain('another configuration')
})
