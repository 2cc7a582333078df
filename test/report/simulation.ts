/** Simulated evaluations with a known truth, for the coverage of intervals. */
import jStat from 'jstat'
import seedrandom from 'seedrandom'
import { bootstrapInterval, type Interval, pairedDifference, shareInterval } from '../../src/report/statistics.ts'

export interface Scenario {
  kind: 'accuracy' | 'high accuracy' | 'difference' | 'no difference' | 'tokens'
  episodes: number
  /** Per episode. */
  questions: number
}

export const scenarios: Scenario[] = (
  ['accuracy', 'high accuracy', 'difference', 'no difference', 'tokens'] as const
).flatMap((kind) => [
  { kind, episodes: 24, questions: 10 },
  { kind, episodes: 100, questions: 3 },
])

/** Share of simulated data sets whose interval holds the truth, and the mean width of the interval. */
export function coverage(scenario: Scenario, draws: number): { covered: number; width: number } {
  const random = seedrandom(`coverage/${scenario.kind}/${scenario.episodes}`)
  let covered = 0
  let width = 0
  for (let draw = 0; draw < draws; draw++) {
    const { interval, truth } = simulate(scenario, random)
    if (interval[0] <= truth && truth <= interval[1]) covered++
    width += (interval[1] - interval[0]) / draws
  }
  return { covered: covered / draws, width }
}

function simulate(
  { kind, episodes, questions }: Scenario,
  random: () => number,
): { interval: Interval; truth: number } {
  const normal = () => jStat.normal.inv(Math.max(1e-12, random()), 0, 1)
  const each = <T>(make: (cluster: string, ease: number) => T) =>
    Array.from({ length: episodes }, (_, episode) => {
      const ease = normal()
      return Array.from({ length: questions }, () => make(String(episode), ease))
    }).flat()
  const drawn = new Map<string, number>()
  /** 0 or 1, as likely, for each episode. */
  const gains = (cluster: string) => drawn.get(cluster) ?? (drawn.set(cluster, bit(0.5)).get(cluster) as number)
  const bit = (p: number) => (random() < p ? 1 : 0)
  switch (kind) {
    case 'accuracy':
    case 'high accuracy': {
      // probit: an answer is right when location + 0.6 * episode + noise > 0, so the mean is Phi(location / sqrt(1 + 0.36))
      const location = kind === 'accuracy' ? 0.6 : 2
      const observations = each((cluster, ease) => ({ cluster, value: location + 0.6 * ease + normal() > 0 ? 1 : 0 }))
      return { interval: shareInterval(observations), truth: jStat.normal.cdf(location / Math.sqrt(1.36), 0, 1) }
    }
    case 'difference':
    case 'no difference': {
      // both masters share what is hard about an episode and a question; the second gains in every other episode
      const gain = kind === 'difference' ? 1 : 0
      const pairs = each((cluster, ease) => {
        const question = normal()
        const at = (location: number) => ({
          cluster,
          value: bit(jStat.normal.cdf(location + 0.6 * ease + question, 0, 1)),
        })
        return [at(0.4), at(0.4 + gain * gains(cluster))] as const
      })
      const keyed = (i: 0 | 1) => new Map(pairs.map((pair, at) => [String(at), pair[i]]))
      const found = pairedDifference(keyed(0), keyed(1))
      const mean = (location: number) => jStat.normal.cdf(location / Math.sqrt(1 + 0.36 + 1), 0, 1)
      return { interval: found?.ci95 ?? [0, 0], truth: (mean(0.4 + gain) - mean(0.4)) / 2 }
    }
    case 'tokens': {
      // log-normal: mean exp(4 + (0.3^2 + 0.4^2) / 2)
      const tokens = each((cluster, ease) => ({ cluster, value: Math.exp(4 + 0.3 * ease + 0.4 * normal()), weight: 1 }))
      return { interval: bootstrapInterval(tokens) ?? [0, 0], truth: Math.exp(4.125) }
    }
  }
}
