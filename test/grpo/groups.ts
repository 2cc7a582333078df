/** Scored groups, with as little in them as advantages and rows read. */

import type { Reward, ScoredGroup, Segment, StopReason } from '../../src/types.ts'

/** A prompt of one token, and one that was sampled or was not. */
export const segment = (id: number, sampled: 0 | 1): Segment => ({
  ids: [id, 7],
  actionMask: [0, sampled],
  logprobs: [0, -sampled],
  promptLength: 1,
  policyVersion: '0',
})
/** One trajectory per run, with its segments and total reward. */
export const group = (id: string, runs: { reward: number | null; segments: Segment[] }[]): ScoredGroup => {
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
