/** The baselines without tools, with a scripted master and vision agent. */
import { expect, test } from 'vitest'
import { rollout } from '../../src/rollout/index.ts'
import { rolloutOptions } from '../../src/rollout/options.ts'
import { createSystem } from '../../src/systems/index.ts'
import { systemsOptions } from '../../src/systems/options.ts'
import { spacedClips } from '../../src/systems/window.ts'
import { answer, failure, scriptedAgents, scriptedPolicy, tinyTask } from '../rollout/scripted.ts'

async function play(line: string, clipsSeen: number, agents = scriptedAgents(), clips = 4) {
  const { policy, requests } = scriptedPolicy([line], { textOnly: true })
  const [group] = await rollout([tinyTask('q1', clips)], {
    system: createSystem(systemsOptions.parse({ name: 'wholeEpisode', clipsSeen })),
    policy,
    agents: agents.agents,
    options: rolloutOptions.parse({ groupSize: 1 }),
    step: 0,
    runSeed: 0,
  })
  return { trajectory: group!.trajectories[0]!, requests, asked: agents.asked }
}

test('subtitles only: one call with every line of the episode, nobody else is asked', async () => {
  const { trajectory, requests, asked } = await play(answer('a1'), 0)
  expect(trajectory).toMatchObject({ system: 'wholeEpisode', answer: 1, stopReason: 'answered', visited: [] })
  expect(trajectory.turns).toEqual([
    {
      response: answer('a1'),
      action: { kind: 'answer', option: 1 },
      wellFormed: true,
      observation: null,
      failure: null,
      clipId: null,
      frames: [],
    },
  ])
  expect(requests).toHaveLength(1)
  const prompt = requests[0]?.messages[0]?.content as string
  for (const line of ['line 0', 'line 1', 'line 2', 'line 3', 'what does Ann hold ?', 'a4 : a map'])
    expect(prompt).toContain(line)
  expect(asked.ground.length + asked.look.length).toBe(0)
})

test('with pictures: evenly spaced clips are looked at once, for the same call', async () => {
  const { trajectory, requests, asked } = await play(answer('a2'), 3, scriptedAgents(), 9)
  expect(asked.look.map(({ clips }) => clips.map(({ index }) => index))).toEqual([[1, 4, 7]])
  expect(requests[0]?.messages[0]?.content).toContain('<information>a red mug</information>')
  expect(trajectory.turns[0]?.frames).toHaveLength(1)
  expect(trajectory.usage.vision.frames).toBe(3)
  expect(spacedClips(tinyTask('q', 4).episode, 16).map(({ index }) => index)).toEqual([0, 1, 2, 3])
})

test('no answer, and a vision agent that fails', async () => {
  expect((await play('a1', 0)).trajectory).toMatchObject({ answer: null, stopReason: 'invalid_action' })
  const failed = await play(answer('a1'), 2, scriptedAgents(undefined, [failure('vision')]))
  expect(failed.trajectory).toMatchObject({ turns: [], stopReason: 'agent_error', failure: failure('vision') })
  expect(failed.requests).toHaveLength(0)
})
