/**
 * Measures trajectories: accuracies with intervals, what the master did by kind of question, and what it did after a wrong clip.
 * Pure; opens no files.
 */
import { mean } from 'simple-statistics'
import { measureAll } from './metrics.ts'
import type { Prices } from './options.ts'
import type { Outcome } from './outcome.ts'
import { type Difference, type Observation, pairedDifference, shareInterval } from './statistics.ts'
import { type Measurement, ORACLE_NOTICE, type Patterns, type Regrounding, type Summary } from './summary.ts'

/** Throws for no trajectories: there is nothing to say about them. */
export function measure(
  outcomes: readonly Outcome[],
  prices: Prices,
  { oracleBoxes }: { oracleBoxes: boolean } = { oracleBoxes: false },
): Measurement {
  if (outcomes.length === 0) throw new Error('measure: expected at least one trajectory')
  const turns = outcomes.reduce((sum, one) => sum + one.turns, 0)
  const failed = outcomes.flatMap(({ failedOutside, qid, failure, stopReason }) =>
    failedOutside ? [{ qid, message: failure ?? stopReason }] : [],
  )
  return {
    n: outcomes.length,
    accuracy: shareOf(outcomes, (one) => one.correct),
    accuracyCi95: shareInterval(outcomes.map(observation)),
    groundingAccuracy: shareOf(outcomes, (one) => one.groundedAny === true),
    formatRate: turns === 0 ? 0 : outcomes.reduce((sum, one) => sum + one.wellFormed, 0) / turns,
    meanTurns: mean(outcomes.map((one) => one.turns)),
    meanTokens: mean(outcomes.map((one) => one.sampledTokens)),
    secondsPerQuestion: mean(outcomes.map((one) => one.seconds)),
    failures: failed.length,
    ...(failed.length > 0 ? { failed } : {}),
    metrics: measureAll(outcomes, prices),
    ...(oracleBoxes ? { oracle: ORACLE_NOTICE } : {}),
  }
}

/** After minus before in accuracy on the questions that both answered; null for fewer than two episodes. One run per question. */
export function accuracyGain(before: readonly Outcome[], after: readonly Outcome[]): Difference | null {
  return pairedDifference(byQuestion(before), byQuestion(after))
}

/** Right or wrong, by question. */
export function byQuestion(outcomes: readonly Outcome[]): Map<string, Observation> {
  return new Map(outcomes.map((one) => [one.qid, observation(one)]))
}

/** `{ dialogue: { ga: 0.9, gga: 0.1 } }`, likeliest first; kind `all` where the data set has no kinds. */
export function actionPatterns(outcomes: readonly Outcome[]): Patterns {
  const kinds = grouped(outcomes, (one) => one.kind ?? 'all')
  return Object.fromEntries(
    [...kinds].sort().map(([kind, members]) => {
      const counts = [...grouped(members, (one) => one.pattern)].map(
        ([pattern, same]) => [pattern, same.length / members.length] as const,
      )
      return [kind, Object.fromEntries(counts.sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)))]
    }),
  )
}

/**
 * What the master did when its first clip was not the one with the evidence. null when that never happened, or no answer key tells.
 * For runs whose first clip came from the first `ground` (no initial grounding).
 */
export function regrounding(outcomes: readonly Outcome[]): Regrounding | null {
  const wrong = outcomes.filter(
    ({ firstClip, goldClip }) => firstClip !== null && goldClip !== null && firstClip !== goldClip,
  )
  if (wrong.length === 0) return null
  return {
    wrongFirstClip: wrong.length,
    groundedAgain: shareOf(wrong, (one) => one.grounds > 1),
    found: shareOf(wrong, (one) => one.groundedAny === true),
    accuracy: shareOf(wrong, (one) => one.correct),
  }
}

/** Reward and accuracy of each step. Trajectories that failed outside the policy have no reward and are left out of both. */
export function trainingCurve(outcomes: readonly Outcome[]): NonNullable<Summary['training']>['curve'] {
  const scored = outcomes.flatMap((one) => (one.reward === null ? [] : [{ ...one, reward: one.reward }]))
  return [...grouped(scored, (one) => one.step)]
    .sort(([a], [b]) => a - b)
    .map(([step, members]) => ({
      step,
      reward: mean(members.map((one) => one.reward.total)),
      accuracy: shareOf(members, (one) => one.correct),
    }))
}

function observation(one: Outcome): Observation {
  return { cluster: one.episodeId, value: one.correct ? 1 : 0 }
}

/** In order of first appearance. (`Map.groupBy` needs Node 21.) */
export function grouped<Item, Key>(items: readonly Item[], keyOf: (item: Item) => Key): Map<Key, Item[]> {
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
