/** Outcomes and traces for tests of the report: made up, every field there. */
import { type Outcome, outcomeOf, type Trace } from '../../src/report/outcome.ts'
import type { AnswerKey } from '../../src/trajectory/answerKey.ts'
import type { Action, Turn } from '../../src/types.ts'
import { usageOf } from '../rollout/scripted.ts'

const actions: Record<string, Action> = {
  g: { kind: 'ground' },
  v: { kind: 'look', query: 'sign' },
  a: { kind: 'answer', option: 0 },
  x: { kind: 'invalid', problem: 'two actions' },
}

/** Four clips of 60 seconds; the evidence of every question lies from 10 to 40 seconds in the second. */
export const key = (...qids: string[]): AnswerKey => ({
  questions: Object.fromEntries(
    qids.map((qid) => [qid, { answer: 0, clipId: 'c2', span: [10, 40] as [number, number] }]),
  ),
  episodes: { e1: ['c1', 'c2', 'c3', 'c4'].map((id, i) => ({ id, start: 60 * i, end: 60 * (i + 1) })) },
})

/** `pattern` has a letter per turn, malformed turns are x; `clips` what is in view after each. */
export function trace(pattern: string, clips: readonly (string | null)[] = [], rest: Partial<Trace> = {}): Trace {
  const turns = [...pattern].map((letter, i): Turn => {
    const action = actions[letter] as Action
    return {
      response: action.kind === 'answer' ? '<answer>a0</answer>' : '<request_grounding/>',
      action,
      wellFormed: letter !== 'x',
      observation: i === pattern.length - 1 ? null : 'seen',
      failure: null,
      clipId: clips[i] ?? clips.at(-1) ?? null,
      frames: [],
    }
  })
  const visited = [...new Set(clips.filter((clip) => clip !== null))]
  return {
    trajectoryId: '0/q1/0',
    step: 0,
    seed: '1/0/q1/0',
    system: 'longVideoAgent',
    policyVersion: 'v1',
    qid: 'q1',
    question: 'who is it?',
    episodeId: 'e1',
    options: ['red', 'green', 'blue', 'a red car', 'none'],
    kind: 'dialogue',
    budget: {
      turns: 5,
      windowClips: 1,
      tokensPerTurn: 10,
      tokensPerObservation: null,
      tokensPerTrajectory: null,
      deadlineSeconds: null,
    },
    turns,
    answer: 0,
    correct: true,
    grounded: visited.includes('c2'),
    visited,
    stopReason: pattern.endsWith('a') ? 'answered' : 'turn_limit',
    failure: null,
    reward: { total: 1, format: 0, answer: 1, turnCost: 0 },
    sampledTokens: 10,
    usage: {
      master: usageOf({ promptTokens: 100, completionTokens: 10 }),
      grounding: usageOf({ promptTokens: 200, completionTokens: 5, costUsd: 0.02 }),
      vision: usageOf({ frames: 12, costUsd: 0.1 }),
    },
    seconds: 2,
    ...rest,
  }
}

export function outcome(pattern: string, rest: Partial<Outcome> = {}): Outcome {
  return { ...outcomeOf(trace(pattern, ['c2']), key('q1')), ...rest }
}
