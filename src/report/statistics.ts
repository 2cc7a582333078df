/**
 * Intervals for shares, means and their paired differences. Questions about one episode succeed and fail together, so the episode is
 * the sampling unit (the *cluster*): intervals that ignore this are too narrow. Pure functions, seeded; knows no trajectories.
 */
import jStat from 'jstat'
import seedrandom from 'seedrandom'
import { mean, quantileSorted, sum } from 'simple-statistics'

/** 97.5 % quantile of the standard normal distribution. */
export const Z95 = jStat.normal.inv(0.975, 0, 1)

/** With fewer clusters their variance cannot be estimated, and observations are taken as independent. */
const FEWEST_CLUSTERS = 10

/** One outcome, such as 1 for a right answer and 0 for a wrong one, and the episode that it belongs to. */
export interface Observation {
  cluster: string
  value: number
}

export type Interval = [low: number, high: number]

/** Wilson score interval at 95 % for `successes` of `n` (Wilson 1927); n may be fractional. [0, 1] when n is 0. */
export function wilson(successes: number, n: number): Interval {
  if (n === 0) return [0, 1]
  const share = successes / n
  const spread = Z95 ** 2 / n
  const center = (share + spread / 2) / (1 + spread)
  const half = (Z95 / (1 + spread)) * Math.sqrt((share * (1 - share)) / n + spread / (4 * n))
  return [Math.max(0, center - half), Math.min(1, center + half)]
}

/**
 * Variance of the mean of all observations when those of a cluster depend on each other:
 * C / (C - 1) * sum over clusters of (sum of their deviations from the mean)^2 / n^2 (Liang & Zeger 1986). NaN for one cluster.
 */
export function clusterVariance(observations: readonly Observation[]): number {
  const center = mean(observations.map(({ value }) => value))
  const deviations = new Map<string, number>()
  for (const { cluster, value } of observations)
    deviations.set(cluster, (deviations.get(cluster) ?? 0) + value - center)
  const clusters = deviations.size
  const squares = sum([...deviations.values()].map((deviation) => deviation ** 2))
  return ((clusters / (clusters - 1)) * squares) / observations.length ** 2
}

/**
 * 95 % interval for a share of 0/1 outcomes: Wilson's, with as many independent observations as the clusters are worth,
 * n / max(1, cluster variance / binomial variance) * (z / t)^2, t with one degree of freedom less than there are clusters
 * (Korn & Graubard 1998; Dean & Pagano 2015): close to nominal also near 0 and 1. Plain Wilson below 10 clusters.
 */
export function shareInterval(observations: readonly Observation[]): Interval {
  const n = observations.length
  const successes = sum(observations.map(({ value }) => value))
  const binomial = (successes / n) * (1 - successes / n)
  const clusters = new Set(observations.map(({ cluster }) => cluster)).size
  if (clusters < FEWEST_CLUSTERS || binomial === 0) return wilson(successes, n)
  const effect = Math.max(1, (clusterVariance(observations) * n) / binomial)
  const worth = n / (effect * (tQuantile(clusters) / Z95) ** 2)
  return wilson((successes / n) * worth, worth)
}

/** 97.5 % quantile of Student's t for so many clusters. */
function tQuantile(clusters: number): number {
  return jStat.studentt.inv(0.975, clusters - 1)
}

/** Draws of a bootstrap. */
const DRAWS = 4000

/** What a trajectory adds to a mean: the mean is sum of `value` over sum of `weight`. */
export interface Weighted extends Observation {
  weight: number
}

/**
 * 95 % bootstrap interval of sum(value) / sum(weight), whole clusters drawn with replacement (Cameron, Gelbach & Miller 2008). Seeded.
 *
 * The percentiles are moved outward for the number of clusters C, from 2.5 % to Phi(-t * sqrt(C / (C - 1))) with t the 97.5 % quantile
 * for C - 1 degrees of freedom: plain percentiles are too narrow for few clusters (Hesterberg 2015, "expanded percentile").
 * null for fewer than two clusters.
 */
export function bootstrapInterval(observations: readonly Weighted[]): Interval | null {
  const totals = new Map<string, { value: number; weight: number }>()
  for (const { cluster, value, weight } of observations) {
    const total = totals.get(cluster)
    if (total === undefined) totals.set(cluster, { value, weight })
    else {
      total.value += value
      total.weight += weight
    }
  }
  const C = totals.size
  if (C < 2) return null
  const values = Float64Array.from(totals.values(), ({ value }) => value)
  const weights = Float64Array.from(totals.values(), ({ weight }) => weight)
  const random = seedrandom.xor4096(`bootstrap/${C}`)
  const ratios = new Float64Array(DRAWS)
  let drawn = 0
  // a draw without weight says nothing: there are few of these, or too few clusters with any
  for (let draw = 0; draw < DRAWS; draw++) {
    let value = 0
    let weight = 0
    for (let i = 0; i < C; i++) {
      const at = Math.floor(random() * C)
      value += values[at] as number
      weight += weights[at] as number
    }
    if (weight > 0) ratios[drawn++] = value / weight
  }
  if (drawn < DRAWS / 2) return null
  const sorted = ratios.subarray(0, drawn).sort()
  const tail = jStat.normal.cdf(-tQuantile(C) * Math.sqrt(C / (C - 1)), 0, 1)
  const at = (p: number) => quantileSorted(sorted as unknown as number[], p)
  return [at(tail), at(1 - tail)]
}

export interface Difference {
  /** Questions that both runs answered. */
  n: number
  /** Mean of after minus before. */
  difference: number
  ci95: Interval
}

/** After minus before of each question that both have (keys). */
export function pairedDifferences(
  before: ReadonlyMap<string, Observation>,
  after: ReadonlyMap<string, Observation>,
): Observation[] {
  return [...after].flatMap(([key, { cluster, value }]) => {
    const other = before.get(key)
    return other ? [{ cluster, value: value - other.value }] : []
  })
}

/**
 * Mean difference over the questions that both have, with a 95 % bootstrap interval over episodes: pairing removes how hard the
 * questions are. null below two clusters.
 */
export function pairedDifference(
  before: ReadonlyMap<string, Observation>,
  after: ReadonlyMap<string, Observation>,
): Difference | null {
  const differences = pairedDifferences(before, after)
  const ci95 = bootstrapInterval(differences.map((one) => ({ ...one, weight: 1 })))
  if (ci95 === null) return null
  return { n: differences.length, difference: mean(differences.map(({ value }) => value)), ci95 }
}
