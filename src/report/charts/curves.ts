/** Charts over a number: accuracy over a setting, and what training did step by step. How they look is drawing.ts. */
import type { SeriesOption } from 'echarts'
import type { Interval } from '../statistics.ts'
import { accuracyAxis, type Chart, draw, look, verticalIntervals } from './drawing.ts'

export interface Curve {
  label: string
  /** In rising order of x. */
  points: { x: number; y: number; ci95: Interval | null }[]
}

/** Up to so many values each have a tick of their own. */
const MOST_TICKS = 12

/** Accuracy over the values of a setting, with intervals; a curve per combination of the other settings. */
export function settingChart(name: string, setting: string, curves: readonly Curve[]): Chart {
  const values = [...new Set(curves.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b)
  const [least = 0, most = 1] = [values[0], values.at(-1)]
  const wide = least > 0 && most / least > 20
  // curves lie a little beside each other, so that their intervals do not cover one another
  const beside = (x: number, i: number) => {
    const step = i - (curves.length - 1) / 2
    return wide ? x * 1.03 ** step : x + step * 0.012 * (most - least || 1)
  }
  const series = curves.flatMap(({ label, points }, i): SeriesOption[] => {
    const { color, symbol, dash } = look(i)
    return [
      {
        type: 'line',
        name: label,
        data: points.map(({ x, y }) => [beside(x, i), y]),
        symbol,
        symbolSize: 9,
        lineStyle: { color, width: 2, type: dash },
        itemStyle: { color },
      },
      verticalIntervals(
        points.flatMap(({ x, ci95 }) => (ci95 === null ? [] : [[beside(x, i), ci95] as const])),
        color,
      ),
    ]
  })
  const margin = (most - least || 1) * 0.06
  return draw({
    name,
    xAxis: wide
      ? { type: 'log', name: setting, min: least / 1.2, max: most * 1.2 }
      : {
          type: 'value',
          name: setting,
          min: least - margin,
          max: most + margin,
          splitLine: { show: false },
          ...(values.length > MOST_TICKS
            ? {}
            : { axisLabel: { customValues: values }, axisTick: { customValues: values } }),
        },
    yAxis: accuracyAxis,
    series,
  })
}

/** Longer curves are thinned out: a pixel shows no more. */
const MOST_POINTS = 300

/** A number over the training steps: faint as measured, strong as a running mean. */
export function trainingChart(name: string, axis: string, steps: readonly number[], values: readonly number[]): Chart {
  const { color } = look(0)
  const pairs = (ys: readonly number[]) => thinned(steps.map((x, i): [number, number] => [x, ys[i] as number]))
  const faint: SeriesOption = {
    type: 'line',
    data: pairs(values),
    symbol: 'none',
    lineStyle: { color, width: 1, opacity: 0.35 },
  }
  const strong: SeriesOption = {
    type: 'line',
    data: pairs(runningMean(values)),
    symbol: 'none',
    lineStyle: { color, width: 2.5 },
  }
  return draw({
    name,
    small: true,
    xAxis: {
      type: 'value',
      name: 'training step',
      min: steps[0] ?? 0,
      max: steps.at(-1) ?? 1,
      splitNumber: 4,
      splitLine: { show: false },
    },
    yAxis: { type: 'value', name: axis, scale: true },
    series: [faint, strong],
  })
}

/** Mean over about a tenth of the curve around each point. */
export function runningMean(values: readonly number[]): number[] {
  const reach = Math.max(1, Math.round(values.length / 20))
  return values.map((_, i) => {
    const near = values.slice(Math.max(0, i - reach), i + reach + 1)
    return near.reduce((sum, value) => sum + value, 0) / near.length
  })
}

function thinned<Point>(points: readonly Point[]): Point[] {
  const every = Math.ceil(points.length / MOST_POINTS)
  return points.filter((_, i) => i % every === 0 || i === points.length - 1)
}
