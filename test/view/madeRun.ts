/** Runs for tests and benchmarks of the viewer: made up, of any size, written through the real store. */
import { openStore } from '../../src/trajectory/store.ts'
import type { ScoredGroup, ScoredTrajectory, StopReason, Turn } from '../../src/types.ts'
import { tinyTask, usageOf } from '../rollout/scripted.ts'

export interface MadeRun {
  trajectories: number
  groupSize: number
  groupsPerStep: number
  /** Words of reasoning in each turn. */
  reasoningWords: number
}

const WORDS =
  'the clip shows nobody near a door so whoever spoke of it must be elsewhere and another scene is needed first'.split(
    ' ',
  )
const STOPS: readonly StopReason[] = ['answered', 'answered', 'answered', 'answered', 'turn_limit', 'agent_error']

/** Trajectory n of a made run follows from n alone. */
export function madeGroup(group: number, { groupSize, groupsPerStep, reasoningWords }: MadeRun): ScoredGroup {
  const step = Math.floor(group / groupsPerStep)
  const base = tinyTask(`q${group % groupsPerStep}`)
  const task = {
    ...base,
    question: { ...base.question, text: `What colour is the kite number ${group % groupsPerStep} over the harbour?` },
  }
  const id = `${step}/${task.question.qid}`
  const scored = Array.from({ length: groupSize }, (_, sample): ScoredTrajectory => {
    const n = group * groupSize + sample
    const stopReason = STOPS[n % STOPS.length] as StopReason
    const failed = stopReason === 'agent_error'
    const count = 1 + (n % 5)
    const answer = stopReason === 'answered' ? n % 5 : null
    const correct = answer === 2
    return {
      trajectory: {
        id: `${id}/${sample}`,
        system: n % 7 === 0 ? 'direct' : 'longVideoAgent',
        step,
        sample,
        seed: `1/${id}/${sample}`,
        task,
        budget: {
          turns: 5,
          windowClips: 1,
          tokensPerTurn: 256,
          tokensPerObservation: null,
          tokensPerTrajectory: null,
          deadlineSeconds: null,
        },
        turns: Array.from({ length: count }, (_, turn) =>
          madeTurn(n, turn, turn === count - 1 ? answer : null, reasoningWords),
        ),
        segments: [madeSegment(count * reasoningWords)],
        answer,
        stopReason,
        failure: failed ? { boundary: 'vision', kind: 'timeout', message: 'no answer in 60 s' } : null,
        visited: ['e1_seg01_clip_00'],
        policyVersion: `made@${step}`,
        usage: {
          master: usageOf({ completionTokens: count * reasoningWords }),
          grounding: usageOf({}),
          vision: usageOf({}),
        },
        seconds: 1,
      },
      reward: failed ? null : { total: 0.1 + Number(correct), format: 0.1, answer: Number(correct), turnCost: 0 },
      correct,
      grounded: n % 2 === 0,
      kind: (['dialogue', 'visual', 'both'] as const)[group % 3] ?? null,
    }
  })
  return { group: { id, step, task, trajectories: scored.map(({ trajectory }) => trajectory) }, scored }
}

function madeTurn(n: number, turn: number, answer: number | null, words: number): Turn {
  const reasoning = Array.from({ length: words }, (_, word) => WORDS[(n * 7 + turn * 5 + word * 3) % WORDS.length])
  // every thousandth trajectory says something that no other says
  if (n % 1000 === 0) reasoning.push('Zanzibar', 'Übermut')
  const said = `<reasoning>${reasoning.join(' ')}</reasoning>`
  const rest = { failure: null, clipId: 'e1_seg01_clip_00', frames: [], wellFormed: true }
  if (answer !== null)
    return {
      response: `${said}<answer>a${answer}</answer>`,
      action: { kind: 'answer', option: answer },
      observation: null,
      ...rest,
    }
  return {
    response: `${said}<request_grounding/>`,
    action: { kind: 'ground' },
    observation: `clip ${n % 24}: ${WORDS.join(' ')}`,
    ...rest,
  }
}

function madeSegment(length: number) {
  const promptLength = 40
  const actionMask = Array.from({ length: promptLength + length }, (_, t): 0 | 1 => (t >= promptLength ? 1 : 0))
  return {
    ids: actionMask.map((_, t) => 100 + t),
    actionMask,
    logprobs: actionMask.map((bit, t) => (bit === 1 ? -(t % 8) / 8 : 0)),
    promptLength,
    policyVersion: 'made@0',
  }
}

/** `close: false` leaves the run as one that is being written. */
export async function writeMadeRun(
  directory: string,
  run: MadeRun,
  { from = 0, close = true, onGroup }: { from?: number; close?: boolean; onGroup?: (done: number) => void } = {},
): Promise<void> {
  const store = await openStore(directory, { resume: from > 0 })
  if (!store.ok) throw new Error(store.failure.message)
  for (let group = from; group * run.groupSize < run.trajectories; group++) {
    const stored = await store.value.append([madeGroup(group, run)])
    if (!stored.ok) throw new Error(stored.failure.message)
    onGroup?.(group)
  }
  if (close) await store.value.close()
  else await store.value.release()
}
