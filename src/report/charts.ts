/**
 * The report's charts as SVG, drawn on the server by ECharts: no script and no network in the page.
 *
 * Colours are CSS variables that the page defines for light and dark. The palette is Okabe & Ito's, and every series also has its
 * own line or marker, so that no chart needs colours to be read. Each chart comes in two widths, since text in a scaled SVG shrinks.
 */

import type { CustomSeriesRenderItem, EChartsOption, SeriesOption } from 'echarts'
import { BarChart, CustomChart, LineChart } from 'echarts/charts'
import { GridComponent, LegendComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'
import type { Interval } from './statistics.ts'
import type { Patterns, Summary } from './summary.ts'

use([BarChart, CustomChart, LineChart, GridComponent, LegendComponent, SVGRenderer])

/** One chart for wide screens and paper, one for phones. */
export interface Chart {
  wide: string
  narrow: string
}

const INK = 'var(--ink)'
const FAINT = 'var(--faint)'
const SERIES = ['var(--blue)', 'var(--orange)', 'var(--green)', 'var(--purple)', 'var(--fifth)', 'var(--grey)']

type HeldOut = NonNullable<Summary['heldOut']>
type Curve = NonNullable<Summary['training']>['curve']

/** Accuracy before and after, greedy and sampled, with 95 % intervals. */
export function beforeAfterChart(heldOut: HeldOut): Chart {
  const groups = ['greedy', 'sampled'] as const
  const bars = (['before', 'after'] as const).map(
    (when, i): SeriesOption => ({
      type: 'bar',
      name: when,
      data: groups.map((mode) => heldOut[when][mode].accuracy),
      itemStyle: { color: SERIES[i] },
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
    errorBars(
      groups.map((mode, at) => [at, heldOut[when][mode].accuracyCi95] as const),
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

/** Accuracy against the step budget K, with intervals, below the oracle's. */
export function budgetChart(budgets: Summary['budgets']): Chart {
  const line = (name: string, i: number, values: (number | null)[]): SeriesOption => ({
    type: 'line',
    name,
    data: values,
    symbol: i === 0 ? 'circle' : 'diamond',
    symbolSize: 9,
    lineStyle: { color: SERIES[i], width: 2, type: i === 0 ? 'solid' : 'dashed' },
    itemStyle: { color: SERIES[i] },
  })
  const series = [
    line(
      'master',
      0,
      budgets.map((point) => point.accuracy),
    ),
    ...(budgets.some((point) => point.oracleAccuracy !== null)
      ? [
          line(
            'scripted oracle',
            1,
            budgets.map((point) => point.oracleAccuracy),
          ),
        ]
      : []),
    errorBars(
      budgets.map((point, at) => [at, point.accuracyCi95] as const),
      () => 0,
    ),
  ]
  return draw({
    name: 'budgets',
    xAxis: { type: 'category', name: 'step budget K (turns)', data: budgets.map((point) => String(point.maxTurns)) },
    yAxis: accuracyAxis,
    series,
  })
}

/** Reward and sampled accuracy of each training step: faint as measured, strong as a running mean. */
export function trainingChart(curve: Curve): Chart {
  const steps = curve.map((point) => point.step)
  const series = (['reward', 'accuracy'] as const).flatMap((key, i): SeriesOption[] => {
    const values = curve.map((point) => point[key])
    const color = SERIES[i]
    return [
      {
        type: 'line',
        name: `${key} of the step`,
        data: pairs(steps, values),
        symbol: 'none',
        lineStyle: { color, width: 1, opacity: 0.35 },
      },
      {
        type: 'line',
        name: key === 'reward' ? 'mean reward' : 'sampled accuracy',
        data: pairs(steps, runningMean(values)),
        symbol: 'none',
        lineStyle: { color, width: 2.5, type: i === 0 ? 'dashed' : 'solid' },
        itemStyle: { color },
      },
    ]
  })
  return draw({
    name: 'training',
    legend: { data: ['mean reward', 'sampled accuracy'] },
    xAxis: {
      type: 'value',
      name: 'training step',
      min: steps[0] ?? 0,
      max: steps.at(-1) ?? 1,
      splitLine: { show: false },
    },
    yAxis: { type: 'value', name: 'reward; accuracy (share of 1)' },
    series,
  })
}

/** The most frequent action patterns; the rest is "other". */
const PATTERNS_SHOWN = 5

/** Stacked shares of action patterns, a bar per question kind before and after. */
export function patternChart({ before, after }: NonNullable<Summary['actionPatterns']>): Chart {
  const rows = Object.keys(after).flatMap((kind) => [
    ...(before?.[kind] ? [{ label: `${kind}, before`, shares: before[kind] }] : []),
    { label: before ? `${kind}, after` : kind, shares: after[kind] ?? {} },
  ])
  const shown = frequentPatterns([...(before ? [before] : []), after])
  const series = [...shown, 'other'].map(
    (pattern, i): SeriesOption => ({
      type: 'bar',
      stack: 'patterns',
      name: pattern,
      barMaxWidth: 26,
      data: rows.map(({ shares }) => (pattern === 'other' ? otherShare(shares, shown) : (shares[pattern] ?? 0))),
      itemStyle: { color: SERIES[i], borderColor: 'var(--paper)', borderWidth: 1 },
      label: {
        show: true,
        color: 'var(--paper)',
        fontWeight: 'bold',
        formatter: ({ value, seriesName }) => (Number(value) >= 0.12 ? String(seriesName) : ''),
      },
    }),
  )
  return draw({
    name: 'patterns',
    legend: { data: series.map((one) => String(one.name)) },
    xAxis: { type: 'value', name: 'share of trajectories', min: 0, max: 1, axisLabel: { formatter: percent } },
    yAxis: { type: 'category', inverse: true, data: rows.map((row) => row.label) },
    series,
    height: 90 + 34 * rows.length,
  })
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

export const percent = (share: number) => `${Math.round(share * 100)}\u00a0%`

// ---------------------------------------------------------------- drawing

const accuracyAxis = { type: 'value', name: 'accuracy', min: 0, max: 1, axisLabel: { formatter: percent } } as const

interface Plan {
  /** Unique in the page. */
  name: string
  xAxis: Record<string, unknown>
  yAxis: Record<string, unknown>
  series: SeriesOption[]
  legend?: { data: string[] }
  height?: number
}

function draw(plan: Plan): Chart {
  return { wide: render(plan, 800, plan.height ?? 340), narrow: render(plan, 380, plan.height ?? 300) }
}

function render({ name, xAxis, yAxis, series, legend }: Plan, width: number, height: number): string {
  const text = { color: INK, fontFamily: 'system-ui, sans-serif', fontSize: 13 }
  const axis = {
    nameTextStyle: text,
    axisLabel: text,
    axisLine: { show: true, lineStyle: { color: FAINT } },
    axisTick: { lineStyle: { color: FAINT } },
    splitLine: { lineStyle: { color: FAINT, opacity: 0.5 } },
  }
  const option: EChartsOption = {
    animation: false,
    textStyle: text,
    grid: {
      left: 16,
      right: 16,
      top: legend && width < 600 ? 76 : 56,
      bottom: 8,
      outerBoundsMode: 'same',
      outerBoundsContain: 'all',
    },
    legend: { top: 0, left: 0, textStyle: text, itemWidth: 26, itemGap: width < 600 ? 12 : 24, ...legend },
    xAxis: merged(axis, { nameLocation: 'middle', nameGap: 28, ...xAxis }),
    // a turned axis title would cost width: it stands above the axis, from its left edge
    yAxis: merged(axis, { nameTextStyle: { align: 'left' }, ...yAxis }),
    series,
  }
  const chart = init(null, null, { renderer: 'svg', ssr: true, width, height })
  chart.setOption(option)
  const svg = chart.renderToSVGString()
  chart.dispose()
  return still(svg, `${name}-${width}-`)
}

/** Without what a script would need, and with ids of its own: ECharts counts them over the whole process. */
function still(svg: string, prefix: string): string {
  return svg
    .replace(/<style[^>]*>[\s\S]*?<\/style>/g, '')
    .replace(/ (?:class="zr[^"]*"|ecmeta_\w+="[^"]*")/g, '')
    .replace(/zr\d+-/g, prefix)
}

/** Defaults of an axis under what the chart says, one level deep. */
function merged(defaults: Record<string, object>, own: Record<string, unknown>): Record<string, unknown> {
  const result: Record<string, unknown> = { ...own }
  for (const [key, value] of Object.entries(defaults)) result[key] = { ...value, ...(own[key] as object | undefined) }
  return result
}

/** Whiskers at category `at`, moved sideways by `shift(category width)` pixels. */
function errorBars(
  points: (readonly [at: number, interval: Interval])[],
  shift: (size: number) => number,
): SeriesOption {
  const renderItem: CustomSeriesRenderItem = (_params, api) => {
    const [size = 0] = (api.size?.([1, 0]) ?? []) as number[]
    const [lowX = 0, lowY = 0] = api.coord([api.value(0), api.value(1)])
    const [, highY = 0] = api.coord([api.value(0), api.value(2)])
    const x = lowX + shift(size)
    const line = (x1: number, y1: number, x2: number, y2: number) => ({
      type: 'line' as const,
      shape: { x1, y1, x2, y2 },
      style: { stroke: INK, lineWidth: 1.5 },
    })
    return {
      type: 'group',
      children: [line(x, lowY, x, highY), line(x - 5, lowY, x + 5, lowY), line(x - 5, highY, x + 5, highY)],
    }
  }
  return { type: 'custom', renderItem, data: points.map(([at, [low, high]]) => [at, low, high]), z: 3 }
}

const pairs = (xs: readonly number[], ys: readonly number[]): [number, number][] => xs.map((x, i) => [x, ys[i] ?? 0])

/** Mean over about a tenth of the curve around each point. */
export function runningMean(values: readonly number[]): number[] {
  const reach = Math.max(1, Math.round(values.length / 20))
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - reach), i + reach + 1)
    return near.reduce((sum, value) => sum + value, 0) / near.length
  })
}
