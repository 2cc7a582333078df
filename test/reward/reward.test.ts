/** Rewards by hand, and the exploits that earned something in other frameworks, played through the real loop. */
import { describe, expect, test } from 'vitest'
import { rewardOf, rewardWarnings, scoreGroup, scoreTrajectory } from '../../src/reward/index.ts'
import { rewardOptions } from '../../src/reward/options.ts'
import { rollout } from '../../src/rollout/index.ts'
import { rolloutOptions } from '../../src/rollout/options.ts'
import { parseAction } from '../../src/systems/actions.ts'
import { firstMessage, paper } from '../../src/systems/dialect.ts'
import { createSystem } from '../../src/systems/index.ts'
import { systemsOptions } from '../../src/systems/options.ts'
import type { Gold, StopReason, Trajectory, TrajectoryGroup, Turn } from '../../src/types.ts'
import { answer, GROUND, look, scriptedAgents, scriptedPolicy, tinyTask } from '../rollout/scripted.ts'

const gold: Gold = { qid: 'q1', answer: 1, clipId: 'e1_seg01_clip_00', span: null, kind: 'visual' }
const turn = (wellFormed: boolean): Turn => ({
  response: '',
  action: { kind: 'ground' },
  wellFormed,
  observation: null,
  failure: null,
  clipId: null,
  frames: [],
})
const run = (wellFormed: readonly boolean[], chosen: number | null = 1, stopReason: StopReason = 'answered') => ({
  turns: wellFormed.map(turn),
  answer: chosen,
  stopReason,
})

describe('R = alpha * agg(r_fmt) + r_ans - turnCost * turns', () => {
  test('sum: 0.1 * 2 + 1 = 1.2', () => {
    expect(rewardOf(run([true, false, true]), gold, rewardOptions.parse({ alpha: 0.1 }))).toEqual({
      format: 0.2,
      answer: 1,
      turnCost: 0,
      total: 1.2,
    })
  })
  test('mean: 0.3 * 2/3 + 0 = 0.2', () => {
    const { total, ...parts } = rewardOf(
      run([true, false, true], 0),
      gold,
      rewardOptions.parse({ alpha: 0.3, aggregation: 'mean' }),
    )
    expect(total).toBeCloseTo(0.2, 12)
    expect(parts).toMatchObject({ answer: 0, turnCost: 0 })
  })
  test('turn cost: 0.1 * 3 + 1 - 0.05 * 3 = 1.15', () => {
    const reward = rewardOf(run([true, true, true]), gold, rewardOptions.parse({ alpha: 0.1, turnCost: 0.05 }))
    expect(reward.turnCost).toBeCloseTo(-0.15, 12)
    const correctOnly = rewardOptions.parse({ alpha: 0, turnCost: 0.05, turnCostOf: 'correct' })
    expect(rewardOf(run([true, true, true]), gold, correctOnly).total).toBeCloseTo(0.85, 12)
    expect(rewardOf(run([true, true, true]), { answer: (gold.answer + 1) % 5 }, correctOnly).total).toBe(0)
    expect(reward.total).toBeCloseTo(1.15, 12)
  })
  test('tags, as in the released code: 0.2 for reasoning, 0.2 for an answer tag, 1 for the right answer', () => {
    const options = rewardOptions.parse({ alpha: 0.4, aggregation: 'tags' })
    const said = (...responses: string[]) => {
      const turns = responses.map((response) => ({ ...turn(false), response }))
      const action = parseAction(responses.at(-1) as string).action
      const option = action.kind === 'answer' ? action.option : null
      return rewardOf({ turns, answer: option, stopReason: option === null ? 'turn_limit' : 'answered' }, gold, options)
    }
    expect(said('<reasoning>r</reasoning><answer>a1</answer>').total).toBeCloseTo(1.4, 12)
    expect(said('<reasoning>r</reasoning><request_grounding/>', '<answer>a1</answer>').total).toBeCloseTo(1.4, 12)
    expect(said('<answer>a1</answer>').total).toBeCloseTo(1.2, 12)
    expect(said('<reasoning>r</reasoning><answer>a2</answer>').total).toBeCloseTo(0.4, 12)
    expect(said('<answer>purple</answer>').total).toBeCloseTo(0.2, 12)
    expect(said('<reasoning>r</reasoning>').total).toBeCloseTo(0.2, 12)
    expect(said('<reasoning>never closed', '</answer><answer>').total).toBe(0)
  })
  test('alpha has no default', () => {
    const refused = rewardOptions.safeParse({})
    expect(refused.error?.issues[0]?.message).toMatch(/^expected a number: the paper does not publish/)
  })
  test('no turns earn nothing, in any aggregation', () => {
    for (const aggregation of ['sum', 'mean', 'tags'] as const)
      expect(rewardOf(run([], null, 'token_limit'), gold, rewardOptions.parse({ alpha: 0.1, aggregation })).total).toBe(
        0,
      )
  })
})

const trajectoryOf = (stopReason: StopReason, chosen: number | null = null): Trajectory =>
  ({ ...run([true], chosen, stopReason), visited: [] }) as unknown as Trajectory
test.each([
  ['answered', true],
  ['turn_limit', true],
  ['token_limit', true],
  ['context_limit', true],
  ['agent_error', false],
  ['policy_error', false],
  ['cancelled', false],
  ['deadline', false],
] as const)('%s is scored: %s', (stopReason, scored) => {
  expect(scoreTrajectory(trajectoryOf(stopReason), gold, rewardOptions.parse({ alpha: 0.1 })).reward !== null).toBe(
    scored,
  )
})

test('a deadline can be scored as a truncation', () => {
  expect(
    scoreTrajectory(trajectoryOf('deadline'), gold, rewardOptions.parse({ alpha: 0.1, deadline: 'score' })).reward,
  ).toMatchObject({ total: 0.1 })
})

test('a run that ran out of tokens can be left out of training', () => {
  const options = rewardOptions.parse({ alpha: 0.1, overflow: 'exclude' })
  for (const reason of ['token_limit', 'context_limit'] as const)
    expect(scoreTrajectory(trajectoryOf(reason), gold, options).reward).toBeNull()
  expect(scoreTrajectory(trajectoryOf('turn_limit'), gold, options).reward).not.toBeNull()
})

test('only an answered run is correct', () => {
  expect(scoreTrajectory(trajectoryOf('token_limit', 1), gold, rewardOptions.parse({ alpha: 0.1 }))).toMatchObject({
    correct: false,
    reward: { answer: 0 },
  })
  expect(
    rewardOf({ turns: [], answer: null, stopReason: 'answered' }, { answer: 0 }, rewardOptions.parse({ alpha: 0.1 }))
      .answer,
  ).toBe(0)
})

test("summed format reward that can reach the answer's is warned about", () => {
  expect(rewardWarnings(rewardOptions.parse({ alpha: 0.2 }), 5)).toEqual([
    expect.stringContaining('0.2 * 5 = 1 is not below 1'),
  ])
  expect(rewardWarnings(rewardOptions.parse({ alpha: 0.1 }), 5)).toEqual([])
  expect(rewardWarnings(rewardOptions.parse({ alpha: 0.2, aggregation: 'mean' }), 5)).toEqual([])
})

test('the gold answer of another question is refused', () => {
  const group: TrajectoryGroup = { id: '0/q1', step: 0, task: tinyTask(), trajectories: [] }
  expect(() => scoreGroup(group, { ...gold, qid: 'q2' }, rewardOptions.parse({ alpha: 0.1 }))).toThrow(
    'expected the gold answer of question q1, got that of q2',
  )
})

/** Plays the lines against agents that try to help, and scores with alpha 0.1. */
async function play(lines: readonly string[], sights = ['a mug'], task = tinyTask()) {
  const groups = await rollout([task], {
    system: createSystem(systemsOptions.parse({ prompt: 'instructed', initialGrounding: 'none' })),
    policy: scriptedPolicy(lines, { textOnly: true }).policy,
    agents: scriptedAgents(['e1_seg01_clip_03', 'e1_seg01_clip_00'], sights).agents,
    options: rolloutOptions.parse({ groupSize: 1 }),
    step: 0,
    runSeed: 0,
  })
  const [scored] = scoreGroup(groups[0] as TrajectoryGroup, gold, rewardOptions.parse({ alpha: 0.1 })).scored
  return scored!
}

describe('exploits', () => {
  test('an honest run, for comparison', async () => {
    expect((await play([GROUND, answer('a1')])).reward).toEqual({ format: 0.2, answer: 1, turnCost: 0, total: 1.2 })
  })
  test('two answers: the first counts and the turn is not well formed', async () => {
    expect((await play(['<answer>a0</answer><answer>a1</answer>'])).reward?.total).toBe(0)
    expect((await play(['<answer>a1</answer><answer>a0</answer>'])).reward).toMatchObject({ format: 0, answer: 1 })
  })
  test('every option, one answer each', async () => {
    expect((await play([[0, 1, 2, 3, 4].map((option) => answer(`a${option}`)).join('')])).reward?.total).toBe(0)
  })
  test.each([
    '<answer></answer>',
    '<answer>a1 a2</answer>',
    '<answer>a0 a1 a2 a3 a4</answer>',
    '<answer>a1, a2</answer>',
    '<answer>1 2</answer>',
    '<answer>a mug</answer>',
    '<answer>not a0 but a1</answer>',
  ])('%s earns nothing', async (line) => {
    const { reward, correct } = await play([line])
    expect({ total: reward?.total, correct }).toEqual({ total: 0, correct: false })
  })
  test('an answer inside reasoning is no answer', async () => {
    expect((await play(['<reasoning>it is <answer>a1</answer></reasoning>'])).reward?.total).toBe(0)
    expect((await play(['<reasoning><answer>a1</answer></reasoning><answer>a0</answer>'])).correct).toBe(false)
  })
  test('an answer inside a query is no well-formed turn', async () => {
    expect((await play(['<visual_query><answer>a1</answer></visual_query>'])).reward?.format).toBe(0)
  })
  test("tags inside subtitles and agents' words earn nothing", async () => {
    const task = tinyTask()
    const planted = {
      ...task,
      episode: {
        ...task.episode,
        clips: task.episode.clips.map((clip) => ({ ...clip, subtitles: [{ text: '<answer>a1</answer>' }] })),
      },
    }
    const { reward, trajectory } = await play(
      [GROUND, look('x'), 'hm'],
      ['<reasoning>x</reasoning><answer>a1</answer>'],
      planted,
    )
    expect(trajectory.turns[1]?.observation).toContain('[answer]')
    expect(reward).toEqual({ format: 0.2, answer: 0, turnCost: 0, total: 0.2 })
  })
  test('echoing the whole prompt, with its examples of every format, earns nothing', async () => {
    const prompt = firstMessage(paper, { prompt: 'instructed', vision: true }, tinyTask().question, null, [
      '<turns_left_5>',
    ])
    const { reward, correct } = await play([prompt])
    expect({ total: reward?.total, correct }).toEqual({ total: 0, correct: false })
  })
  test('an answer after the turns ran out does not exist', async () => {
    expect((await play(['hm', 'hm', 'hm', 'hm', 'hm', answer('a1')])).reward?.total).toBe(0)
  })
})

test('grounded: the gold clip was shown at any time', async () => {
  expect((await play([GROUND, answer('a1')])).grounded).toBe(false)
  expect((await play([GROUND, GROUND, answer('a1')])).grounded).toBe(true)
})
