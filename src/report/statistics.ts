/**
 * Intervals for accuracies and their differences. Questions about one episode succeed and fail together, so the episode is the
 * sampling unit: intervals that ignore this are too narrow. Pure functions; knows no trajectories.
 */
import { mean, sum } from 'simple-statistics'

/** 97.5 % quantile of the standard normal distribution. */
const Z95 = 1.959964

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
 * n / max(1, cluster variance / binomial variance), which is close to nominal also near 0 and 1 (Dean & Pagano 2015).
 * Plain Wilson below 10 clusters.
 */
export function accuracyInterval(observations: readonly Observation[]): Interval {
  const n = observations.length
  const successes = sum(observations.map(({ value }) => value))
  const binomial = (successes / n) * (1 - successes / n)
  const clusters = new Set(observations.map(({ cluster }) => cluster)).size
  if (clusters < FEWEST_CLUSTERS || binomial === 0) return wilson(successes, n)
  const effect = Math.max(1, (clusterVariance(observations) * n) / binomial)
  return wilson(successes / effect, n / effect)
}

export interface Difference {
  /** Questions that both runs answered. */
  n: number
  /** Mean of after minus before. */
  difference: number
  ci95: Interval
}

/**
 * Mean difference over the questions that both have (keys), with a normal 95 % interval from the cluster variance of the
 * differences: pairing removes how hard the questions are. null below two clusters.
 */
export function pairedDifference(
  before: ReadonlyMap<string, Observation>,
  after: ReadonlyMap<string, Observation>,
): Difference | null {
  const differences = [...after].flatMap(([key, { cluster, value }]) => {
    const other = before.get(key)
    return other ? [{ cluster, value: value - other.value }] : []
  })
  if (new Set(differences.map(({ cluster }) => cluster)).size < 2) return null
  const difference = mean(differences.map(({ value }) => value))
  const half = Z95 * Math.sqrt(clusterVariance(differences))
  return { n: differences.length, difference, ci95: [Math.max(-1, difference - half), Math.min(1, difference + half)] }
}
