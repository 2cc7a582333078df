/** Scored groups for tests of the store: made up, but with every field used and odd values in them. */
import type { ScoredGroup, ScoredTrajectory, Segment, Turn } from '../../src/types.ts'
import { tinyTask, usageOf } from '../rollout/scripted.ts'

/** Group `{step}/q{index}` of `size` runs; sequence lengths vary with the index. */
export function madeGroup(step: number, index: number, size = 3): ScoredGroup {
  const task = tinyTask(`q${index}`)
  const id = `${step}/q${index}`
  const scored = Array.from({ length: size }, (_, sample): ScoredTrajectory => {
    const failed = sample === 2
    return {
      trajectory: {
        id: `${id}/${sample}`,
        system: 'longVideoAgent',
        step,
        sample,
        seed: `7/${id}/${sample}`,
        task,
        budget: {
          turns: 5,
          windowClips: 1,
          tokensPerTurn: 256,
          tokensPerObservation: null,
          tokensPerTrajectory: sample === 0 ? 900 : null,
          deadlineSeconds: 1.5,
        },
        turns: failed ? [] : turns(index),
        segments: failed
          ? []
          : Array.from({ length: 1 + (index % 2) }, (_, segment) => madeSegment(20 + index * 3 + segment)),
        answer: failed ? null : index % 5,
        stopReason: failed ? 'policy_error' : 'answered',
        failure: failed
          ? { boundary: 'policy', kind: 'server_error', message: 'https://example.test answered 500' }
          : null,
        visited: failed ? [] : ['e1_seg01_clip_02', 'e1_seg01_clip_00'],
        policyVersion: `v${step}`,
        usage: {
          master: usageOf({ promptTokens: 12, completionTokens: 3, seconds: 0.25 }),
          grounding: usageOf({ cached: 1 }),
          vision: usageOf({ frames: 12, costUsd: 0.01 }),
        },
        seconds: 0.5 + sample,
      },
      reward: failed ? null : { total: 1.2, format: 0.2, answer: 1, turnCost: 0 },
      correct: !failed,
      grounded: sample === 0,
      kind: sample === 0 ? 'visual' : null,
    }
  })
  return { group: { id, step, task, trajectories: scored.map(({ trajectory }) => trajectory) }, scored }
}

function turns(index: number): Turn[] {
  const rest = { failure: null, clipId: null, frames: [] }
  return [
    {
      response: 'hm — “ünïcode” 🎬',
      action: { kind: 'invalid', problem: 'there is no action tag' },
      wellFormed: false,
      observation: 'no',
      ...rest,
    },
    {
      response: '<request_grounding/>',
      action: { kind: 'ground' },
      wellFormed: true,
      observation: '<error>x</error>',
      ...rest,
      failure: { boundary: 'grounding', kind: 'timeout', message: 'late' },
    },
    {
      response: '<visual_query>x</visual_query>',
      action: { kind: 'look', query: 'x' },
      wellFormed: true,
      observation: '',
      ...rest,
      clipId: 'e1_seg01_clip_00',
      frames: [
        { clipId: 'e1_seg01_clip_00', time: 0.5 },
        {
          clipId: 'e1_seg01_clip_01',
          time: 1,
          picture: { path: '/videos/e1.mp4', at: 61.5, width: 384, hash: 'f00d' },
        },
      ],
    },
    {
      response: `<answer>a${index % 5}</answer>`,
      action: { kind: 'answer', option: index % 5 },
      wellFormed: true,
      observation: null,
      ...rest,
    },
  ]
}

function madeSegment(length: number): Segment {
  const actionMask = Array.from({ length }, (_, t): 0 | 1 => (t >= 5 && t % 3 === 0 ? 1 : 0))
  return {
    ids: Array.from({ length }, (_, t) => 100_000 + t),
    actionMask,
    logprobs: actionMask.map((bit, t) => (bit === 1 ? -t / 64 : 0)), // exact in float32
    promptLength: 5,
    policyVersion: 'v0',
  }
}
