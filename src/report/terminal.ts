/** Measurements and comparisons as text for a terminal. Measures nothing. */
import Table from 'cli-table3'
import type { CellResult, Comparison, Cost } from './comparison.ts'
import { costs } from './comparison.ts'
import { type MetricKey, metricKeys, metrics } from './metrics.ts'
import { amount, pValue, range } from './page/pieces.ts'
import type { Interval } from './statistics.ts'
import type { Measurement } from './summary.ts'

/** Every metric that applies, a row each. */
export function measurementText({ metrics: measures, n, failed = [], oracle }: Measurement): string {
  const rows = metricKeys.flatMap((key) => {
    const one = measures[key]
    if (one === undefined) return []
    const { label, unit } = metrics[key]
    return [[label, amount(one.value, unit), one.ci95 === null ? '' : range(one.ci95, unit), String(one.n)]]
  })
  const notes = [
    `${n} trajectories`,
    ...(oracle === undefined ? [] : [oracle]),
    ...(failed.length > 0 ? ['failed outside the master and counted as wrong:'] : []),
    ...failed.map(({ qid, message }) => `  ${qid}: ${message}`),
  ]
  return plain([tableText(['', 'mean', '95 % interval', 'of'], rows), ...notes].join('\n'))
}

const SPENT: readonly MetricKey[] = ['turns', 'calls', 'tokens', 'frames', 'seconds', 'usd']

/** Two tables and what can be said of them, in lines of at most `width` letters where labels are not longer. */
export function comparisonText(comparison: Comparison, width: number): string {
  const { cells, questions, episodes, methods } = comparison
  const sentences = [
    ...(methods.oracle === undefined ? [] : [methods.oracle]),
    `${questions} questions about ${episodes} episodes, the same in every row. [95 % intervals] over episodes. * told from no difference. +/−: questions gained and lost. p: corrected for all rows.`,
    ...(cells.some(({ pareto }) => pareto.length > 0)
      ? ['★ in the Pareto set: no other row is as accurate for less of this cost.']
      : []),
  ]
  return plain(
    [
      accuracyTable(comparison, width),
      costTable(cells, width),
      ...sentences.map((one) => wrapped(one, width)),
      ...findings(comparison).map((one) => wrapped(`- ${one}`, width, '  ')),
    ].join('\n'),
  )
}

function accuracyTable({ cells, differences }: Comparison, width: number): string {
  const head = ['', 'accuracy %', 'difference, points', '+/−', 'p']
  const rows = cells.map(({ label, ceiling, metrics: measures, missing }) => {
    const accuracy = measures?.accuracy
    const pair = differences.find(({ cell }) => cell === label)
    return [
      ceiling ? `${label} (ceiling)` : label,
      accuracy ? `${hundredths(accuracy.value)} ${bracket(accuracy.ci95)}` : `${missing} questions missing`,
      pair
        ? `${signed(pair.difference)} ${bracket(pair.ci95)} ${pair.distinguishable ? '*' : ' '}`
        : differences.some(({ baseline }) => baseline === label)
          ? 'baseline  '
          : '',
      pair ? `${pair.flips.gained}/${pair.flips.lost}` : '',
      pair ? pValue(pair.pHolm) : '',
    ]
  })
  return tableText(head, rows, width)
}

/** Costs that are 0 everywhere are left out. */
function costTable(cells: readonly CellResult[], width: number): string {
  const shown = SPENT.filter((key) => cells.some((cell) => (cell.metrics?.[key]?.value ?? 0) > 0))
  const isCost = (key: MetricKey): key is Cost => costs.some((cost) => cost === key)
  const rows = cells.flatMap(({ label, ceiling, metrics: measures, pareto }) =>
    measures === null
      ? []
      : [
          [
            ceiling ? `${label} (ceiling)` : label,
            ...shown.map((key) => {
              const one = measures[key]
              const mark = isCost(key) ? (pareto.includes(key) ? ' ★' : '  ') : ''
              return one === undefined ? '' : amount(one.value, metrics[key].unit) + mark
            }),
          ],
        ],
  )
  const heads = shown.map((key) => metrics[key].label + (isCost(key) ? '  ' : ''))
  return shown.length === 0 ? '' : tableText(['per question', ...heads], rows, width)
}

function findings({ cells, differences, saturation }: Comparison): string[] {
  const failed = cells.flatMap((cell) => (cell.failed.length > 0 ? [`${cell.label}: ${cell.failed.length}`] : []))
  return [
    ...differences.flatMap(({ cell, distinguishable, statement }) =>
      distinguishable ? [] : [`${cell}: ${statement}`],
    ),
    ...saturation.map(({ of, statement }) => (of ? `${of}: ${statement}` : statement)),
    ...(failed.length > 0 ? [`failed outside the master and counted as wrong: ${failed.join('; ')}`] : []),
  ]
}

const NO_LINES = Object.fromEntries(
  ['top', 'bottom', 'mid', 'left', 'right']
    .flatMap((side) => [side, `${side}-left`, `${side}-mid`, `${side}-right`])
    .concat('mid-mid')
    .map((name) => [name, '']),
)

/** Columns without lines, numbers to the right; the first column is broken where the table would be wider than `width`. */
function tableText(head: readonly string[], rows: readonly (readonly string[])[], width = Number.POSITIVE_INFINITY) {
  const widths = head.map((name, column) => Math.max(name.length, ...rows.map((row) => row[column]?.length ?? 0)))
  const rest = widths.slice(1).reduce((sum, one) => sum + one + 2, 0)
  const first = Math.max(NARROWEST, Math.min(widths[0] ?? 0, width - rest))
  const table = new Table({
    head: [...head],
    chars: { ...NO_LINES, middle: '  ' },
    colAligns: head.map((_, column) => (column === 0 ? 'left' : 'right')),
    style: { head: [], border: [], 'padding-left': 0, 'padding-right': 0 },
  })
  for (const [label = '', ...cells] of rows) table.push([broken(label, first), ...cells])
  return `${table.toString()}\n`
}

const NARROWEST = 16

/** Broken at spaces, and within words that are longer than a line. */
function broken(text: string, width: number): string {
  const pieces = text.split(' ').flatMap((word) => word.match(new RegExp(`.{1,${width}}`, 'gu')) ?? [])
  return linesOf(pieces, width).join('\n')
}

function wrapped(text: string, width: number, indent = ''): string {
  return linesOf(text.split(' '), width - indent.length).join(`\n${indent}`)
}

function linesOf(words: readonly string[], width: number): string[] {
  const lines: string[] = []
  for (const word of words) {
    const last = lines.at(-1)
    if (last === undefined || last.length + 1 + word.length > width) lines.push(word)
    else lines[lines.length - 1] = `${last} ${word}`
  }
  return lines
}

const plain = (text: string) => text.replaceAll('\u00a0', ' ').replace(/ +$/gm, '')

const hundredths = (share: number) => (share * 100).toFixed(1).replace('-', '−')
const signed = (share: number) => `${share > 0 ? '+' : ''}${hundredths(share)}`

function bracket(interval: Interval | null): string {
  if (interval === null) return ''
  const [low, high] = interval.map(hundredths)
  return `[${low}, ${high}]`
}
