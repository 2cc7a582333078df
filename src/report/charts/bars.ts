/** Charts whose parts make up a whole, or that compare two measurements. How they look is drawing.ts. */
import type { SeriesOption } from 'echarts'
import type { Patterns, Summary } from '../summary.ts'
import { accuracyAxis, type Chart, draw, look, namesAxis, percent, REST, verticalIntervals } from './drawing.ts'

type HeldOut = NonNullable<Summary['heldOut']>

/** Accuracy before and after, greedy and sampled, with 95 % intervals. */
export function beforeAfterChart(heldOut: HeldOut): Chart {
  const groups = ['greedy', 'sampled'] as const
  const bars = (['before', 'after'] as const).map(
    (when, i): SeriesOption => ({
      type: 'bar',
      name: when,
      data: groups.map((mode) => heldOut[when][mode].accuracy),
      itemStyle: { color: look(i).color },
      barGap: '15%',
      barMaxWidth: 64,
      label: {
        show: true,
        position: 'insideBottom',
        color: 'var(--paper)',
        fontWeight: 'bold',
        formatter: ({ value }) => percent(Number(value)),
      },
    }),
  )
  // ECharts puts bars of one category side by side; the whiskers need their places: half a bar and half a gap off the middle
  const whiskers = (['before', 'after'] as const).map((when, i) =>
    verticalIntervals(
      groups.map((mode, at) => [at, heldOut[when][mode].accuracyCi95] as const),
      undefined,
      (size) => (i - 0.5) * Math.min(64, size * 0.37) * 1.15,
    ),
  )
  return draw({
    name: 'before-after',
    xAxis: { type: 'category', data: ['greedy', 'sampled'] },
    yAxis: accuracyAxis,
    series: [...bars, ...whiskers],
  })
}

/** The part for all that is not named. */
export const OTHER = 'other'

/** A whole that is cut into shares. */
export interface Divided {
  label: string
  shares: Record<string, number>
}

/** A bar per row, cut into the shares of `parts`, which add up to 1 or less. */
export function sharesChart(name: string, axis: string, rows: readonly Divided[], parts: readonly string[]): Chart {
  // shares are written where there is room
  const [chart, phone] = [0.1, 0.2].map((least) => shares({ name, axis, rows, parts, least })) as [Chart, Chart]
  return { ...chart, narrow: phone.narrow }
}

interface Shares {
  name: string
  axis: string
  rows: readonly Divided[]
  parts: readonly string[]
  /** The smallest share that is written in its bar. */
  least: number
}

function shares({ name, axis, rows, parts, least }: Shares): Chart {
  const series = parts.map(
    (part, i): SeriesOption => ({
      type: 'bar',
      stack: name,
      name: part,
      barMaxWidth: 26,
      data: rows.map(({ shares }) => shares[part] ?? 0),
      itemStyle: { color: part === OTHER ? REST : look(i).color, borderColor: 'var(--paper)', borderWidth: 1 },
      label: {
        show: true,
        color: 'var(--paper)',
        fontWeight: 'bold',
        formatter: ({ value }) => (Number(value) >= least ? percent(Number(value)) : ''),
      },
    }),
  )
  return draw({
    name,
    xAxis: { type: 'value', name: axis, min: 0, max: 1, axisLabel: { formatter: percent } },
    yAxis: namesAxis(rows.map((row) => row.label)),
    series,
    height: 70 + 36 * rows.length,
  })
}

/** The most frequent action patterns; the rest is "other". */
const PATTERNS_SHOWN = 5

/** A bar per question kind before and after, cut into action patterns. */
export function patternChart({ before, after }: NonNullable<Summary['actionPatterns']>): Chart {
  const rows = Object.keys(after).flatMap((kind) => [
    ...(before?.[kind] ? [{ label: `${kind}, before`, shares: before[kind] }] : []),
    { label: before ? `${kind}, after` : kind, shares: after[kind] ?? {} },
  ])
  const shown = frequentPatterns([...(before ? [before] : []), after])
  const divided = rows.map(({ label, shares }) => ({
    label,
    shares: { ...shares, [OTHER]: otherShare(shares, shown) },
  }))
  return sharesChart('patterns', 'share of trajectories', divided, [...shown, OTHER])
}

/** Patterns with the largest shares over all kinds, at most five. */
export function frequentPatterns(all: readonly Patterns[]): string[] {
  const totals = new Map<string, number>()
  for (const patterns of all) {
    for (const shares of Object.values(patterns)) {
      for (const [pattern, share] of Object.entries(shares)) totals.set(pattern, (totals.get(pattern) ?? 0) + share)
    }
  }
  return [...totals]
    .sort((a, b) => b[1] - a[1])
    .slice(0, PATTERNS_SHOWN)
    .map(([pattern]) => pattern)
}

export function otherShare(shares: Record<string, number>, shown: readonly string[]): number {
  const rest = Object.entries(shares).filter(([pattern]) => !shown.includes(pattern))
  return rest.reduce((sum, [, share]) => sum + share, 0)
}
