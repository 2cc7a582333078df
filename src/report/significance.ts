/**
 * Whether a paired difference can be told from none, and how many questions would tell. Pure functions, seeded; the episode is the
 * sampling unit, as in `statistics.ts`.
 */
import jStat from 'jstat'
import seedrandom from 'seedrandom'
import { mean } from 'simple-statistics'
import { clusterVariance, type Observation, Z95 } from './statistics.ts'

/** Questions whose outcome changed. */
export interface Flips {
  /** Wrong before, right after. */
  gained: number
  /** Right before, wrong after. */
  lost: number
}

/** `differences`: 1 gained, -1 lost, 0 unchanged, one per question. */
export function flipsOf(differences: readonly Observation[]): Flips {
  return {
    gained: differences.filter(({ value }) => value > 0).length,
    lost: differences.filter(({ value }) => value < 0).length,
  }
}

/** Exact McNemar test, two-sided: as many flips one way by chance, were each as likely either way (McNemar 1947). 1 without flips. */
export function mcnemar({ gained, lost }: Flips): number {
  const n = gained + lost
  return n === 0 ? 1 : Math.min(1, 2 * jStat.binomial.cdf(Math.min(gained, lost), n, 0.5))
}

/** Up to so many episodes that changed, all ways of exchanging are counted; above it, as many are drawn. */
const MOST_EXACT = 14
const DRAWS = 20_000

/**
 * McNemar's test with the episode as the unit, two-sided: the share of ways to exchange before and after, episode by episode, that
 * give a difference at least as large. Exact up to 14 episodes that changed, else 20,000 seeded draws, and then never 0
 * (Phipson & Smyth 2010). With one question per episode it is McNemar's exact test.
 */
export function exchangeTest(differences: readonly Observation[]): number {
  const totals = new Map<string, number>()
  for (const { cluster, value } of differences) totals.set(cluster, (totals.get(cluster) ?? 0) + value)
  const changed = [...totals.values()].filter((total) => total !== 0)
  const observed = Math.abs(changed.reduce((sum, total) => sum + total, 0))
  // differences may be means over samples: sums of the same numbers in another order differ by rounding
  const atLeast = (total: number) => Math.abs(total) >= observed - 1e-9
  if (changed.length <= MOST_EXACT) {
    let extreme = 0
    const ways = 2 ** changed.length
    for (let way = 0; way < ways; way++) {
      const total = changed.reduce((sum, value, i) => sum + ((way >> i) & 1 ? value : -value), 0)
      if (atLeast(total)) extreme++
    }
    return extreme / ways
  }
  const random = seedrandom.xor4096(`exchange/${changed.length}`)
  let extreme = 0
  for (let draw = 0; draw < DRAWS; draw++) {
    let total = 0
    for (const value of changed) total += random() < 0.5 ? value : -value
    if (atLeast(total)) extreme++
  }
  return (extreme + 1) / (DRAWS + 1)
}

/** Holm's (1979) correction for several comparisons: p-values that hold together, in the order given. */
export function holm(pValues: readonly number[]): number[] {
  const order = pValues.map((p, i) => ({ p, i })).sort((a, b) => a.p - b.p)
  const adjusted = new Array<number>(pValues.length)
  let least = 0
  for (const [rank, { p, i }] of order.entries()) {
    least = Math.max(least, Math.min(1, p * (pValues.length - rank)))
    adjusted[i] = least
  }
  return adjusted
}

/** z(97.5 %) + z(80 %): what a difference must be in standard errors to be found four times of five at the 5 % level. */
const POWER80 = Z95 + jStat.normal.inv(0.8, 0, 1)

export interface Power {
  /** The smallest true difference that so many questions tell from none four times of five. */
  smallestDetectable: number
  /**
   * Questions, over proportionally more episodes, that would tell the observed difference from none four times of five, were it the
   * true one. null when it is 0, or nothing varies.
   */
  questionsNeeded: number | null
}

/**
 * Normal approximation for paired differences at 5 %, two-sided, power 80 %: n >= (z(.975) + z(.8))^2 * D * s^2 / d^2, where D * s^2 is
 * n times the cluster variance, so that the design effect D of asking several questions per episode is in it (Miller 2024,
 * "Adding Error Bars to Evals"). null below two clusters.
 */
export function powerOf(differences: readonly Observation[]): Power | null {
  const variance = clusterVariance(differences)
  if (!Number.isFinite(variance)) return null
  const difference = mean(differences.map(({ value }) => value))
  const needed = (POWER80 ** 2 * variance * differences.length) / difference ** 2
  return {
    smallestDetectable: POWER80 * Math.sqrt(variance),
    questionsNeeded: Number.isFinite(needed) && needed > 0 ? Math.ceil(needed) : null,
  }
}
