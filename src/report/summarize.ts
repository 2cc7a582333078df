/**
 * Measures trajectories: accuracies with intervals, what the master did by kind of question, and what it did after a wrong clip.
 * Works from stored rows (`readTrajectories`) or from trajectories just scored (`runOf`). Pure; opens no files.
 */
import { mean } from 'simple-statistics'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import type { ScoredTrajectory, Turn } from '../types.ts'
import { accuracyInterval, type Difference, type Observation, pairedDifference } from './statistics.ts'
import type { Measurement, Patterns, Regrounding, Summary } from './summary.ts'

/** What is needed of a trajectory; a stored row has all of it. */
export type Run = Pick<
  TrajectoryRow,
  'step' | 'qid' | 'episodeId' | 'kind' | 'correct' | 'grounded' | 'visited' | 'reward' | 'sampledTokens' | 'seconds'
> & { turns: readonly Pick<Turn, 'action' | 'wellFormed'>[] }

export function runOf({ trajectory, reward, correct, grounded, kind }: ScoredTrajectory): Run {
  const { step, task, turns, visited, seconds, usage } = trajectory
  return {
    step,
    qid: task.question.qid,
    episodeId: task.episode.id,
    kind,
    correct,
    grounded,
    visited: [...visited],
    turns,
    reward,
    sampledTokens: usage.master.completionTokens,
    seconds,
  }
}

/** Throws for no trajectories: there is nothing to say about them. */
export function measure(runs: readonly Run[]): Measurement {
  if (runs.length === 0) throw new Error('measure: expected at least one trajectory')
  const turns = runs.flatMap((run) => run.turns)
  return {
    n: runs.length,
    accuracy: shareOf(runs, (run) => run.correct),
    accuracyCi95: accuracyInterval(runs.map(observation)),
    groundingAccuracy: shareOf(runs, (run) => run.grounded),
    formatRate: shareOf(turns, (turn) => turn.wellFormed),
    meanTurns: mean(runs.map((run) => run.turns.length)),
    meanTokens: mean(runs.map((run) => run.sampledTokens)),
    secondsPerQuestion: mean(runs.map((run) => run.seconds)),
    failures: runs.filter((run) => run.reward === null).length,
  }
}

/** After minus before in accuracy on the questions that both answered; null for fewer than two episodes. One run per question. */
export function accuracyGain(before: readonly Run[], after: readonly Run[]): Difference | null {
  const byQuestion = (runs: readonly Run[]) => new Map(runs.map((run) => [run.qid, observation(run)]))
  return pairedDifference(byQuestion(before), byQuestion(after))
}

/** `{ dialogue: { ga: 0.9, gga: 0.1 } }`, likeliest first; kind `all` where the data set has no kinds. */
export function actionPatterns(runs: readonly Run[]): Patterns {
  const kinds = grouped(runs, (run) => run.kind ?? 'all')
  return Object.fromEntries(
    [...kinds].sort().map(([kind, members]) => {
      const counts = [...grouped(members, patternOf)].map(
        ([pattern, same]) => [pattern, same.length / members.length] as const,
      )
      return [kind, Object.fromEntries(counts.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)))]
    }),
  )
}

const LETTERS = { ground: 'g', look: 'v', answer: 'a', invalid: 'x' } as const

/** One letter per turn: g grounds, v looks, a answers, x is malformed. */
export function patternOf(run: Run): string {
  return run.turns.map((turn) => LETTERS[turn.action.kind]).join('')
}

/**
 * What the master did when its first clip was not the one with the evidence. null when that never happened.
 * `goldClips`: clip by qid, from the data set. For runs whose first clip came from the first `ground` (no initial grounding).
 */
export function regrounding(runs: readonly Run[], goldClips: ReadonlyMap<string, string>): Regrounding | null {
  const wrong = runs.filter(
    (run) => run.visited[0] !== undefined && goldClips.has(run.qid) && run.visited[0] !== goldClips.get(run.qid),
  )
  if (wrong.length === 0) return null
  return {
    wrongFirstClip: wrong.length,
    groundedAgain: shareOf(wrong, (run) => run.turns.filter((turn) => turn.action.kind === 'ground').length > 1),
    found: shareOf(wrong, (run) => run.grounded),
    accuracy: shareOf(wrong, (run) => run.correct),
  }
}

/** Reward and accuracy of each step. Trajectories that failed outside the policy have no reward and are left out of both. */
export function trainingCurve(runs: readonly Run[]): NonNullable<Summary['training']>['curve'] {
  const scored = runs.flatMap((run) => (run.reward === null ? [] : [{ ...run, reward: run.reward }]))
  return [...grouped(scored, (run) => run.step)]
    .sort(([a], [b]) => a - b)
    .map(([step, members]) => ({
      step,
      reward: mean(members.map((run) => run.reward.total)),
      accuracy: shareOf(members, (run) => run.correct),
    }))
}

function observation(run: Run): Observation {
  return { cluster: run.episodeId, value: run.correct ? 1 : 0 }
}

/** In order of first appearance. (`Map.groupBy` needs Node 21.) */
function grouped<Item, Key>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
  const groups = new Map<Key, Item[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group) group.push(item)
    else groups.set(keyOf(item), [item])
  }
  return groups
}

/** 0 of none. */
function shareOf<Item>(items: readonly Item[], holds: (item: Item) => boolean): number {
  return items.length === 0 ? 0 : items.filter(holds).length / items.length
}
