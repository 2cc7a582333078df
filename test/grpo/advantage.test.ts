import { describe, expect, test } from 'vitest'
import { groupAdvantages, scoredGroupAdvantages } from '../../src/grpo/advantage.ts'
import { policyRows } from '../../src/grpo/rows.ts'
import type { Reward, ScoredGroup, Segment, StopReason } from '../../src/types.ts'

describe('groupAdvantages', () => {
  test('one right of four: deviation over n - 1 is 0.5', () => {
    const { advantages, zeroVariance } = groupAdvantages([1, 0, 0, 0], 'group')
    expect(advantages[0]).toBeCloseTo(0.75 / 0.5001, 12)
    expect(advantages[1]).toBeCloseTo(-0.25 / 0.5001, 12)
    expect(zeroVariance).toBe(false)
  })

  test('scale none only subtracts the mean', () => {
    expect(groupAdvantages([1, 0, 0, 0], 'none').advantages).toEqual([0.75, -0.25, -0.25, -0.25])
  })

  test('a null reward takes no part in mean and deviation', () => {
    const { advantages } = groupAdvantages([2, null, 0], 'group')
    expect(advantages[0]).toBeCloseTo(1 / (Math.SQRT2 + 1e-4), 12)
    expect(advantages[1]).toBeNull()
    expect(advantages[2]).toBeCloseTo(-1 / (Math.SQRT2 + 1e-4), 12)
  })

  test('equal rewards: advantage 0, counted as without variance', () => {
    expect(groupAdvantages([0.1, 0.1, 0.1], 'group')).toEqual({
      advantages: [0, 0, 0].map((x) => expect.closeTo(x, 12)),
      zeroVariance: true,
    })
  })

  test('a single reward, or none, compares to nothing', () => {
    expect(groupAdvantages([null, 1], 'group')).toEqual({ advantages: [null, 0], zeroVariance: true })
    expect(groupAdvantages([null, null], 'group')).toEqual({ advantages: [null, null], zeroVariance: true })
  })
})

describe('policyRows', () => {
  const segment = (id: number, sampled: 0 | 1): Segment => ({
    ids: [id, 7],
    actionMask: [0, sampled],
    logprobs: [0, -sampled],
    promptLength: 1,
    policyVersion: '0',
  })
  const group = (id: string, runs: { reward: number | null; segments: Segment[] }[]): ScoredGroup => {
    const task = {
      episode: { id: 'e', show: '', clips: [] },
      question: { qid: id, episodeId: 'e', text: '', options: [] },
    }
    const usage = { calls: 0, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0 }
    const trajectories = runs.map(({ segments }, sample) => ({
      id: `0/${id}/${sample}`,
      system: 's',
      step: 0,
      sample,
      seed: '',
      task,
      budget: {
        turns: 1,
        windowClips: 1,
        tokensPerTurn: 1,
        tokensPerObservation: null,
        tokensPerTrajectory: null,
        deadlineSeconds: null,
      },
      turns: [],
      segments,
      answer: null,
      stopReason: 'turn_limit' as StopReason,
      failure: null,
      visited: [],
      policyVersion: '0',
      usage: { master: usage, grounding: usage, vision: usage },
      seconds: 0,
    }))
    const reward = (total: number | null): Reward | null =>
      total === null ? null : { total, format: 0, answer: total, turnCost: 0 }
    const scored = trajectories.map((trajectory, sample) => ({
      trajectory,
      reward: reward(runs[sample]!.reward),
      correct: false,
      grounded: false,
      kind: null,
    }))
    return { group: { id, step: 0, task, trajectories }, scored }
  }
  const groups = [
    group('varied', [
      { reward: 1, segments: [segment(1, 1), segment(2, 1)] },
      { reward: 0, segments: [segment(3, 1), segment(4, 0)] },
      { reward: null, segments: [segment(5, 1)] },
    ]),
    group('equal', [
      { reward: 1, segments: [segment(6, 1)] },
      { reward: 1, segments: [segment(7, 1)] },
    ]),
  ]
  const advantages = scoredGroupAdvantages(groups, { advantageScale: 'none' })

  test('every segment with a sampled token carries the advantage of its trajectory', () => {
    const rows = policyRows(groups, advantages, { zeroVariance: 'keep' })
    expect(rows.map(({ ids, advantage }) => [ids[0], advantage])).toEqual([
      [1, 0.5],
      [2, 0.5],
      [3, -0.5],
      [6, 0],
      [7, 0],
    ])
  })

  test('drop leaves out groups without variance', () => {
    expect(policyRows(groups, advantages, { zeroVariance: 'drop' }).map(({ ids }) => ids[0])).toEqual([1, 2, 3])
  })
})
