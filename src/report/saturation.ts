/**
 * Where a curve over a numeric setting, such as the step budget, stops rising. Says what the data can tell and no more: that no gain was
 * found is not that there is none, so the room that the intervals leave is given too.
 */
import { type Observation, pairedDifference } from './statistics.ts'

/** Room, in accuracy, below which a curve is called flat. */
const FLAT = 0.02

export interface CurvePoint {
  value: number
  /** Right or wrong, by question. */
  outcomes: ReadonlyMap<string, Observation>
}

export interface Saturation {
  /** The smallest value that no larger one beats beyond chance; null: the largest value beats all others. */
  from: number | null
  /** The most that any larger value may still gain: the highest upper end of their 95 % intervals; 0 when there is none larger. */
  room: number
  statement: string
}

/** How `from` is found, for the reader. */
export const saturationMethod =
  'The smallest value that no larger one beats: each larger value is paired with it question by question, and none of the 95 % bootstrap intervals over episodes lies above 0. The room left is the highest upper end of these intervals; below 2 points the curve is called flat from there.'

/** `points` in rising order, at least two; null when there are fewer than two episodes. */
export function saturationOf(setting: string, points: readonly CurvePoint[]): Saturation | null {
  for (const [i, point] of points.entries()) {
    const gains = points.slice(i + 1).map((larger) => pairedDifference(point.outcomes, larger.outcomes))
    if (gains.some((gain) => gain === null)) return null
    if (gains.length === 0) break
    if (gains.some((gain) => gain !== null && gain.ci95[0] > 0)) continue
    const room = Math.max(0, ...gains.map((gain) => gain?.ci95[1] ?? 0))
    const upTo = `up to ${(room * 100).toFixed(1)} points`
    const statement =
      room < FLAT
        ? `flat from ${setting} = ${point.value}: by the 95 % intervals no larger value gains more than ${(room * 100).toFixed(1)} points`
        : `no gain beyond chance was seen above ${setting} = ${point.value}; the intervals leave room for ${upTo}`
    return { from: point.value, room, statement }
  }
  const last = points.at(-1)?.value
  return { from: null, room: 0, statement: `still rising at ${setting} = ${last}, the largest value tried` }
}
