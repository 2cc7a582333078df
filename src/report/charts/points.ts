/** Charts of points: differences with intervals, and accuracy against cost. How they look is drawing.ts. */
import type { SeriesOption } from 'echarts'
import type { Interval } from '../statistics.ts'
import { accuracyAxis, type Chart, draw, horizontalIntervals, INK, look, namesAxis, percent } from './drawing.ts'

export interface Estimate {
  label: string
  value: number
  ci95: Interval | null
  /** Filled; hollow where it cannot be told from none. */
  told: boolean
}

/** A row per estimate, with its interval, beside a line at `zero` where there is one. */
export function forestChart(name: string, axis: string, estimates: readonly Estimate[], zero: number | null): Chart {
  const { color } = look(0)
  const rows = estimates.length
  const line: SeriesOption[] =
    zero === null
      ? []
      : [
          {
            type: 'line',
            data: [
              [zero, 0],
              [zero, rows - 1],
            ],
            symbol: 'none',
            lineStyle: { color: INK, type: 'dashed', width: 1 },
          },
        ]
  const signed = (value: number) => `${value > 0 ? '+' : value < 0 ? '−' : ''}${Math.abs(Math.round(value * 100))}`
  return draw({
    name,
    xAxis: {
      type: 'value',
      name: axis,
      scale: true,
      splitNumber: 4,
      axisLabel: { formatter: zero === null ? percent : signed },
    },
    yAxis: namesAxis(estimates.map(({ label }) => label)),
    series: [
      ...line,
      horizontalIntervals(estimates.flatMap(({ ci95 }, at) => (ci95 === null ? [] : [[at, ci95] as const]))),
      {
        type: 'scatter',
        data: estimates.map(({ value, told }, at) => ({
          value: [value, at],
          itemStyle: { color: told ? color : 'var(--paper)', borderColor: color, borderWidth: 2, opacity: 1 },
        })),
        symbolSize: 11,
        z: 4,
      },
    ],
    height: 70 + 36 * rows,
  })
}

export interface PricedPoint {
  /** Stands beside the point. */
  label: string
  series: string
  cost: number
  accuracy: number
  inParetoSet: boolean
}

/** Accuracy against a cost; the Pareto set is filled and joined. */
export function costChart(name: string, axis: string, points: readonly PricedPoint[]): Chart {
  const names = [...new Set(points.map(({ series }) => series))]
  const front = points.filter(({ inParetoSet }) => inParetoSet).sort((a, b) => a.cost - b.cost)
  const series: SeriesOption[] = [
    {
      type: 'line',
      data: front.map(({ cost, accuracy }) => [cost, accuracy]),
      step: 'end',
      symbol: 'none',
      lineStyle: { color: INK, width: 1, type: 'dashed' },
    },
    ...names.map((one, i): SeriesOption => {
      const { color, symbol } = look(i)
      return {
        type: 'scatter',
        name: one,
        symbol,
        symbolSize: 11,
        color,
        data: points
          .filter((point) => point.series === one)
          .map(({ cost, accuracy, inParetoSet, label }) => ({
            value: [cost, accuracy],
            name: label,
            itemStyle: { color: inParetoSet ? color : 'var(--paper)', borderColor: color, borderWidth: 2, opacity: 1 },
          })),
        label: { show: true, position: 'top', color: INK, formatter: ({ name: label }) => label },
        labelLayout: { hideOverlap: true },
        z: 3,
      }
    }),
  ]
  return draw({
    name,
    small: true,
    legend: names.map((name, i) => ({ name, color: look(i).color, symbol: look(i).symbol, dash: null })),
    height: 250,
    xAxis: { type: 'value', name: axis, min: 0, splitNumber: 4 },
    yAxis: accuracyAxis,
    series,
  })
}
