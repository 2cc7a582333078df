/** Measurements and comparisons as text for a terminal. Measures nothing. */
import Table from 'cli-table3'
import type { Comparison } from './comparison.ts'
import { type MetricKey, metricKeys, metrics } from './metrics.ts'
import { amount, pValue, range } from './page/pieces.ts'
import type { Interval } from './statistics.ts'
import type { Measurement } from './summary.ts'

/** Every metric that applies, a row each. */
export function measurementText({ metrics: measures, n }: Measurement): string {
  const table = new Table({ head: ['', 'mean', '95 % interval', 'of'], style: { head: [], border: [], compact: true } })
  for (const key of metricKeys) {
    const one = measures[key]
    if (one === undefined) continue
    const { label, unit } = metrics[key]
    table.push([label, amount(one.value, unit), one.ci95 === null ? '' : range(one.ci95, unit), String(one.n)])
  }
  return `${table.toString()}\n${n} trajectories`.replaceAll('\u00a0', ' ')
}

const COSTS: readonly MetricKey[] = ['turns', 'calls', 'tokens', 'frames', 'seconds', 'usd']

/** Costs that are 0 everywhere are left out. */
export function comparisonText({ cells, differences, saturation, questions, episodes }: Comparison): string {
  const costs = COSTS.filter((key) => cells.some((cell) => (cell.metrics?.[key]?.value ?? 0) > 0))
  const table = new Table({
    head: ['', 'accuracy %', 'difference, points', '+/−', 'p', ...costs.map((key) => metrics[key].label), 'Pareto'],
    style: { head: [], border: [], compact: true },
  })
  for (const { label, metrics: measures, missing, pareto } of cells) {
    const accuracy = measures?.accuracy
    const pair = differences.find(({ cell }) => cell === label)
    table.push([
      label,
      accuracy ? `${hundredths(accuracy.value)} ${bracket(accuracy.ci95)}` : `${missing} questions missing`,
      pair
        ? `${pair.difference > 0 ? '+' : ''}${hundredths(pair.difference)} ${bracket(pair.ci95)}${pair.distinguishable ? ' *' : ''}`
        : '',
      pair ? `${pair.flips.gained}/${pair.flips.lost}` : '',
      pair ? pValue(pair.pHolm) : '',
      ...costs.map((key) => (measures?.[key] ? amount(measures[key].value, metrics[key].unit) : '')),
      pareto.join(', '),
    ])
  }
  const failed = cells.flatMap((cell) => (cell.failed.length > 0 ? [`${cell.label}: ${cell.failed.length}`] : []))
  const lines = [
    table.toString(),
    `${questions} questions about ${episodes} episodes, the same in every row; in brackets 95 % intervals. * told from no difference; p corrected for all comparisons; +/− questions gained and lost.`,
    ...differences.flatMap(({ cell, distinguishable, statement }) =>
      distinguishable ? [] : [`${cell}: ${statement}`],
    ),
    ...saturation.map(({ of, statement }) => (of ? `${of}: ${statement}` : statement)),
    ...(failed.length > 0 ? [`failed outside the master and counted as wrong: ${failed.join('; ')}`] : []),
  ]
  return lines.join('\n').replaceAll('\u00a0', ' ')
}

const hundredths = (share: number) => (share * 100).toFixed(1).replace('-', '−')

function bracket(interval: Interval | null): string {
  if (interval === null) return ''
  const [low, high] = interval.map(hundredths)
  return `[${low}, ${high}]`
}
