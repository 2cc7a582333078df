/** Whole rollouts: every stop reason, groups, seeds, order, cancellation, memory, and that no gold leaks. */
import { getEventListeners } from 'node:events'
import { setTimeout as setTimeoutPromise } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { expect, test } from 'vitest'
import { type RolloutRun, rollout, rolloutStream } from '../../src/rollout/index.ts'
import { rolloutOptions } from '../../src/rollout/options.ts'
import { createSystem } from '../../src/systems/index.ts'
import { systemsOptions } from '../../src/systems/options.ts'
import type { Task, Trajectory } from '../../src/types.ts'
import { answer, failure, GROUND, type Line, look, scriptedAgents, scriptedPolicy, tinyTask } from './scripted.ts'

interface Settings {
  lines?: readonly Line[]
  agents?: ReturnType<typeof scriptedAgents>
  policy?: Parameters<typeof scriptedPolicy>[1]
  options?: object
  budget?: object
  system?: object
  signal?: AbortSignal
  runSeed?: number
}

function setUp({
  lines = [GROUND, look('a mug'), answer('a1')],
  agents = scriptedAgents(),
  policy = {},
  options = {},
  budget = {},
  system = {},
  signal,
  runSeed = 7,
}: Settings = {}) {
  const scripted = scriptedPolicy(lines, policy)
  const run: RolloutRun = {
    system: createSystem(systemsOptions.parse({ initialGrounding: 'none', ...system })),
    policy: scripted.policy,
    agents: agents.agents,
    options: rolloutOptions.parse({ groupSize: 1, ...options, budget }),
    step: 3,
    runSeed,
    ...(signal === undefined ? {} : { signal }),
  }
  return { ...scripted, asked: agents.asked, run }
}

async function one(settings: Settings): Promise<Trajectory> {
  const [group] = await rollout([tinyTask()], setUp(settings).run)
  return group?.trajectories[0] as Trajectory
}

const tasks = (count: number): Task[] => Array.from({ length: count }, (_, index) => tinyTask(`q${index}`))

test('a trajectory carries everything that happened', async () => {
  const trajectory = await one({})
  expect(trajectory).toMatchObject({
    id: '3/q1/0',
    system: 'longVideoAgent',
    step: 3,
    sample: 0,
    seed: '7/3/q1/0',
    budget: { turns: 5, windowClips: 1 },
    answer: 1,
    stopReason: 'answered',
    failure: null,
    visited: ['e1_seg01_clip_00'],
    policyVersion: '0',
    usage: { master: { calls: 3 }, grounding: { calls: 1, costUsd: 0.5 }, vision: { calls: 1, frames: 3 } },
  })
  expect(trajectory.turns).toHaveLength(3)
  expect(trajectory.segments).toHaveLength(1)
  expect(trajectory.seconds).toBeGreaterThan(0)
  expect(JSON.parse(JSON.stringify(trajectory))).toEqual(trajectory)
})

const endings: [string, Settings, Partial<Trajectory>][] = [
  ['answered', {}, { stopReason: 'answered', answer: 1, failure: null }],
  ['turn_limit', { lines: [GROUND], budget: { turns: 2 } }, { stopReason: 'turn_limit', answer: null, failure: null }],
  [
    'token_limit',
    { lines: ['one two three four'], budget: { tokensPerTurn: 3 } },
    { stopReason: 'token_limit', failure: null },
  ],
  [
    'token_limit over the trajectory',
    { lines: [GROUND], budget: { tokensPerTrajectory: 12 } },
    { stopReason: 'token_limit', failure: null },
  ],
  ['context_limit', { lines: [GROUND], policy: { contextLength: 60 } }, { stopReason: 'context_limit', failure: null }],
  [
    'agent_error',
    { agents: scriptedAgents([failure('grounding')]), system: { onAgentFailure: 'stop' } },
    { stopReason: 'agent_error', failure: failure('grounding') },
  ],
  [
    'policy_error',
    { lines: [GROUND, failure('policy', 'server_error')] },
    { stopReason: 'policy_error', failure: failure('policy', 'server_error') },
  ],
]
test.each(endings)('stop reason %s', async (_, settings, expected) => {
  expect(await one(settings)).toMatchObject(expected)
})

test('deadline: a policy that never returns cannot hold the trajectory', async () => {
  const trajectory = await one({ lines: [GROUND, 'hang'], budget: { deadlineSeconds: 0.05 } })
  expect(trajectory).toMatchObject({
    stopReason: 'deadline',
    answer: null,
    failure: {
      boundary: 'policy',
      kind: 'timeout',
      message: expect.stringContaining('trajectory 3/q1/0: policy scripted had not answered at the deadline of 0.05 s'),
    },
  })
  expect(trajectory.turns).toHaveLength(1)
  expect(trajectory.seconds).toBeLessThan(2)
})

test.each(['observe', 'stop'])(
  'deadline: an agent that never returns is named on the turn (on agent failure: %s)',
  async (onAgentFailure) => {
    const trajectory = await one({
      agents: scriptedAgents(['e1_seg01_clip_00'], ['hang']),
      budget: { deadlineSeconds: 0.05 },
      system: { onAgentFailure },
    })
    expect(trajectory).toMatchObject({
      stopReason: 'deadline',
      failure: {
        boundary: 'vision',
        kind: 'timeout',
        message: expect.stringContaining('vision agent scripted-vision'),
      },
    })
    expect(trajectory.turns.map((turn) => turn.failure?.kind ?? null)).toEqual([null, 'timeout'])
  },
)

test('cancel: running trajectories end as cancelled with what they have, groups not begun are left out', async () => {
  const controller = new AbortController()
  const { run } = setUp({
    lines: [GROUND, 'hang'],
    options: { groupSize: 2, concurrency: 2 },
    signal: controller.signal,
  })
  setTimeout(() => controller.abort(), 50)
  const groups = await rollout(tasks(20), run)
  expect(groups.length).toBeGreaterThanOrEqual(1)
  expect(groups.length).toBeLessThan(20)
  expect(groups.every((group) => group.trajectories.length === 2)).toBe(true)
  expect(
    groups
      .flatMap((group) => group.trajectories.map(({ stopReason }) => stopReason))
      .every((reason) => reason === 'cancelled'),
  ).toBe(true)
  expect(groups[0]?.trajectories[0]).toMatchObject({
    failure: { kind: 'cancelled' },
    turns: [{ action: { kind: 'ground' } }],
  })
  expect(getEventListeners(controller.signal, 'abort')).toHaveLength(0)
})

test('cancelled before it began: no group', async () => {
  expect(await rollout(tasks(3), setUp({ signal: AbortSignal.abort() }).run)).toEqual([])
})

test('policies and agents are told to stop', async () => {
  let told = false
  const { run } = setUp({
    lines: [
      (request) =>
        new Promise(() => {
          request.signal?.addEventListener('abort', () => {
            told = true
          })
        }),
    ],
    budget: { deadlineSeconds: 0.05 },
  })
  await rollout([tinyTask()], run)
  expect(told).toBe(true)
})

test('an agent or a policy that throws is a failure of its own, not the end of the run', async () => {
  const observed = await one({
    agents: scriptedAgents(['throw', 'e1_seg01_clip_00']),
    lines: [GROUND, GROUND, answer('a1')],
    system: { onAgentFailure: 'observe' },
  })
  expect(observed).toMatchObject({
    stopReason: 'answered',
    turns: [
      {
        failure: {
          boundary: 'grounding',
          kind: 'server_error',
          message: expect.stringContaining('scripted agent broke'),
        },
      },
      {},
      {},
    ],
  })
  const broken = await one({
    lines: [
      () => {
        throw new Error('scripted policy broke')
      },
    ],
  })
  expect(broken).toMatchObject({
    stopReason: 'policy_error',
    failure: { message: expect.stringContaining('scripted policy broke') },
  })
})

test('one failing member does not disturb its group', async () => {
  const { run } = setUp({
    lines: [(request) => (request.session === '3/q1/1' ? Promise.reject(new Error('broke')) : answer('a1'))],
    options: { groupSize: 3 },
  })
  const [group] = await rollout([tinyTask()], run)
  expect(group?.trajectories.map(({ stopReason }) => stopReason)).toEqual(['answered', 'policy_error', 'answered'])
})

test('a defective system throws', async () => {
  const { run } = setUp()
  const system = { name: 'broken', roles: ['master'], turns: 5, run: () => Promise.reject(new Error('system broke')) }
  await expect(rollout(tasks(3), { ...run, system })).rejects.toThrow('system broke')
})

test('groups come in the order of the tasks though later ones finish first', async () => {
  const { run } = setUp({
    lines: [
      async (request) => {
        await setTimeoutPromise(request.session?.includes('/q0/') ? 60 : 1)
        return answer('a1')
      },
    ],
    options: { groupSize: 2, concurrency: 8 },
  })
  const groups = await rollout(tasks(6), run)
  expect(groups.map(({ id }) => id)).toEqual(['3/q0', '3/q1', '3/q2', '3/q3', '3/q4', '3/q5'])
  expect(groups.flatMap((group) => group.trajectories.map(({ sample }) => sample))).toEqual(
    Array(6).fill([0, 1]).flat(),
  )
})

test('in the order of completion, a group that hangs keeps none of the others back', async () => {
  let release = () => {}
  const hung = new Promise<void>((resolve) => {
    release = resolve
  })
  const { run } = setUp({
    lines: [
      async (request) => {
        if (request.session?.includes('/q0/')) await hung
        return answer('a1')
      },
    ],
    options: { groupSize: 1, concurrency: 4 },
  })
  const ids: string[] = []
  for await (const { id } of rolloutStream(tasks(30), { ...run, order: 'completion' })) {
    ids.push(id)
    if (ids.length === 29) release()
  }
  expect(ids.at(-1)).toBe('3/q0')
  expect(new Set(ids).size).toBe(30)
})

test('no more trajectories than allowed run at once, and they do run at once', async () => {
  let running = 0
  let most = 0
  const { run } = setUp({
    lines: [
      async () => {
        most = Math.max(most, ++running)
        await setTimeoutPromise(5)
        running--
        return answer('a1')
      },
    ],
    options: { groupSize: 4, concurrency: 6 },
  })
  await rollout(tasks(8), run)
  expect(most).toBe(6)
})

test('seeds come from coordinates: the same whatever runs beside it, different for every sample and run', async () => {
  const seedsOf = async (all: Task[], runSeed: number): Promise<Map<string, string>> => {
    const { run, requests } = setUp({ options: { groupSize: 3, concurrency: 5 }, runSeed })
    await rollout(all, run)
    return new Map(requests.map(({ session, messages, seed }) => [`${session} ${messages.length}`, seed]))
  }
  const alone = await seedsOf([tinyTask('q4')], 7)
  const among = await seedsOf(tasks(6), 7)
  for (const [call, seed] of alone) expect(among.get(call)).toBe(seed)
  expect(new Set(among.values()).size).toBe(6 * 3 * 3)
  const other = await seedsOf(tasks(6), 8)
  expect([...other.values()].filter((seed) => [...among.values()].includes(seed))).toEqual([])
})

test('a K drawn from a list is shared by the group, varies over tasks and does not depend on the others', async () => {
  const { run } = setUp({ options: { groupSize: 4 }, budget: { turns: [1, 2, 3, 4, 5] } })
  const groups = await rollout(tasks(40), run)
  const drawn = groups.map((group) => new Set(group.trajectories.map(({ budget }) => budget.turns)))
  expect(drawn.every((turns) => turns.size === 1)).toBe(true)
  expect(new Set(drawn.flatMap((turns) => [...turns]))).toEqual(new Set([1, 2, 3, 4, 5]))
  const [alone] = await rollout([tinyTask('q17')], run)
  expect(alone?.trajectories[0]?.budget.turns).toBe([...(drawn[17] as Set<number>)][0])
})

test('the same question twice is refused', async () => {
  await expect(rollout([tinyTask(), tinyTask()], setUp().run)).rejects.toThrow('question q1 occurs twice')
})

test("observations are cut to their budget in the policy's tokens", async () => {
  const trajectory = await one({
    agents: scriptedAgents(['e1_seg01_clip_00'], ['a b c d e f g h i j']),
    budget: { tokensPerObservation: 8 },
  })
  expect(trajectory.turns[1]?.observation).toBe('<information>a b c d e f</information>\n<turns_left_3>')
})

test('sessions are ended, once each, also after failures', async () => {
  const { run, ended } = setUp({ lines: [GROUND, failure('policy')], options: { groupSize: 2 } })
  await rollout(tasks(2), run)
  expect(ended.sort()).toEqual(['3/q0/0', '3/q0/1', '3/q1/0', '3/q1/1'])
})

test('no gold reaches a policy or an agent, whatever a task object carries', async () => {
  const gold = { answer: 'GOLD-ANSWER', clipId: 'GOLD-CLIP', span: 'GOLD-SPAN', kind: 'GOLD-KIND' }
  const { run, requests, asked } = setUp({
    lines: [GROUND, look('x'), 'hm', answer('a1')],
    system: { initialGrounding: 'agent', prompt: 'instructed' },
  })
  const task = { ...tinyTask(), gold } // an extra field next to the question, as a careless reader might leave it
  await rollout([task], run)
  expect(requests).toHaveLength(4)
  expect(asked.ground.length + asked.look.length).toBe(3)
  expect(JSON.stringify([requests, asked])).not.toContain('GOLD')
  // what they do get has exactly the public fields
  expect(Object.keys(asked.ground[0]?.question ?? {}).sort()).toEqual(['episodeId', 'options', 'qid', 'text'])
  expect(Object.keys(asked.ground[0] ?? {}).sort()).toEqual(['episode', 'question', 'visited'])
  expect(Object.keys(asked.look[0] ?? {}).sort()).toEqual(['clips', 'query'])
  expect(JSON.stringify(asked.look)).not.toContain(task.question.text)
})

test('10,000 tasks stream without growth', async () => {
  const { run, requests, asked, ended } = setUp({ options: { groupSize: 2, concurrency: 16 } })
  const many = (function* () {
    for (let index = 0; index < 10_000; index++) yield tinyTask(`q${index}`)
  })()
  let groups = 0
  let early = 0
  for await (const group of rolloutStream(many, run)) {
    if (group.trajectories.every(({ stopReason }) => stopReason === 'answered')) groups += 1
    for (const kept of [requests, asked.ground, asked.look, ended]) kept.length = 0
    if (groups === 3000) early = heapAfterCollection()
  }
  expect(groups).toBe(10_000)
  const grown = heapAfterCollection() - early
  // 7,000 tasks later: the scripted policy's map of sessions and the set of qids, and nothing like 14,000 trajectories of 5 kB
  expect(grown).toBeLessThan(5e6)
}, 30_000)

test('a caller that stops iterating cancels the rest', async () => {
  const { run, requests } = setUp({
    lines: [() => setTimeoutPromise(5, answer('a1'))],
    options: { concurrency: 2 },
  })
  for await (const group of rolloutStream(tasks(500), run)) {
    expect(group.id).toBe('3/q0')
    break
  }
  const asked = requests.length
  await setTimeoutPromise(30)
  expect(requests.length).toBe(asked)
  expect(asked).toBeLessThan(20)
})

test('our own time per turn is under a millisecond', async () => {
  const { run } = setUp({
    lines: [GROUND, look('a mug'), GROUND, look('a hat'), answer('a1')],
    options: { groupSize: 8, concurrency: 32 },
  })
  await rollout(tasks(20), { ...run, step: 0 })
  const before = process.cpuUsage()
  const groups = await rollout(tasks(100), run)
  const { user, system } = process.cpuUsage(before)
  const turns = groups.reduce(
    (sum, group) => sum + group.trajectories.reduce((own, trajectory) => own + trajectory.turns.length, 0),
    0,
  )
  expect(turns).toBe(100 * 8 * 5)
  expect((user + system) / 1000 / turns).toBeLessThan(1)
})

test('mistyped options are refused, defaults are whole', () => {
  expect(rolloutOptions.safeParse({ budget: { turnz: 3 } }).success).toBe(false)
  expect(rolloutOptions.safeParse({ budget: { turns: [] } }).success).toBe(false)
  expect(rolloutOptions.parse({}).budget.turns).toBeNull()
})

function heapAfterCollection(): number {
  setFlagsFromString('--expose-gc')
  runInNewContext('gc')()
  return process.memoryUsage().heapUsed
}
