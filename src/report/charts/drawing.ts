/**
 * Charts as SVG, drawn on the server by ECharts: no script and no network in the page. What a chart shows is said by its neighbours in
 * this folder; here is how all of them look.
 *
 * Colours are CSS variables that the page defines for light and dark. The palette is Okabe & Ito's, and every series also has its own
 * line, marker or place, so that no chart needs colours to be read. Each chart comes in two widths, since text in a scaled SVG shrinks.
 */
import type { CustomSeriesRenderItem, EChartsOption, SeriesOption } from 'echarts'
import { BarChart, CustomChart, LineChart, ScatterChart } from 'echarts/charts'
import { GridComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { LabelLayout } from 'echarts/features'
import { SVGRenderer } from 'echarts/renderers'
import type { Interval } from '../statistics.ts'

use([BarChart, CustomChart, LineChart, ScatterChart, GridComponent, LabelLayout, SVGRenderer])

/** One chart for wide screens and paper, one for phones. */
export interface Chart {
  wide: string
  narrow: string
  /** Of several series; the page writes it as text, which wraps. */
  legend: LegendEntry[]
}

/** A series and how it is drawn. */
export interface LegendEntry {
  name: string
  color: string
  /** `bar` for bars. */
  symbol: string
  /** null: no line. */
  dash: 'solid' | 'dashed' | 'dotted' | null
}

export const INK = 'var(--ink)'
const FAINT = 'var(--faint)'
/** For what is left over. */
export const REST = 'var(--grey)'
const SERIES = ['var(--blue)', 'var(--orange)', 'var(--green)', 'var(--purple)', 'var(--fifth)', 'var(--sixth)', REST]
const SYMBOLS = ['circle', 'diamond', 'rect', 'triangle']
const DASHES: ('solid' | 'dashed' | 'dotted')[] = ['solid', 'dashed', 'dotted']

/** How the i-th series looks; beyond seven they repeat. */
export function look(i: number) {
  return {
    color: SERIES[i % SERIES.length] as string,
    symbol: SYMBOLS[i % SYMBOLS.length] as string,
    dash: DASHES[i % DASHES.length] as 'solid' | 'dashed' | 'dotted',
  }
}

export const percent = (share: number) => `${Math.round(share * 100)}\u00a0%`

export const accuracyAxis = {
  type: 'value',
  name: 'accuracy',
  min: 0,
  max: 1,
  interval: 0.25,
  axisLabel: { formatter: percent },
} as const

export interface Plan {
  /** Unique in the page. */
  name: string
  xAxis: Record<string, unknown>
  yAxis: Record<string, unknown>
  series: SeriesOption[]
  /** Absent: one color and symbol for each named series. */
  legend?: LegendEntry[]
  height?: number
  /** Several of these stand side by side on wide screens. */
  small?: boolean
}

export function draw(plan: Plan): Chart {
  const { small = false, height, legend = legendOf(plan.series) } = plan
  return {
    wide: render(plan, small ? 400 : 800, height ?? (small ? 220 : 320)),
    narrow: render(plan, PHONE, height ?? (small ? 220 : 280)),
    legend: legend.length > 1 ? legend : [],
  }
}

/** Of the series that have names. */
function legendOf(series: readonly SeriesOption[]): LegendEntry[] {
  return series.flatMap((one) => {
    const { name, type, symbol = 'circle', lineStyle, itemStyle } = one as NamedSeries
    if (name === undefined) return []
    const color = itemStyle?.color ?? INK
    return [
      {
        name,
        color,
        symbol: type === 'bar' ? 'bar' : symbol,
        dash: type === 'line' ? (lineStyle?.type ?? 'solid') : null,
      },
    ]
  })
}

/** What charts of this folder say of a series that has a name. */
interface NamedSeries {
  name?: string
  type: string
  symbol?: string
  lineStyle?: { type?: 'solid' | 'dashed' | 'dotted' }
  itemStyle?: { color?: string }
}

/** Width of a drawing for phones. */
const PHONE = 380

function render({ name, xAxis, yAxis, series, small = false }: Plan, width: number, height: number): string {
  const text = { color: INK, fontFamily: 'system-ui, sans-serif', fontSize: 13 }
  const axis = {
    nameTextStyle: text,
    axisLabel: { ...text, hideOverlap: true },
    axisLine: { show: true, lineStyle: { color: FAINT } },
    axisTick: { lineStyle: { color: FAINT } },
    splitLine: { lineStyle: { color: FAINT, opacity: 0.5 } },
  }
  const option: EChartsOption = {
    animation: false,
    textStyle: text,
    grid: {
      left: 16,
      right: 20,
      top: 8,
      bottom: 8,
      outerBoundsMode: 'same',
      outerBoundsContain: 'all',
    },
    xAxis: merged(axis, { nameLocation: 'middle', nameGap: 28, ...xAxis }),
    // a turned axis title would cost width: it stands above the axis, from its left edge
    yAxis: merged(axis, {
      nameTextStyle: { align: 'left' },
      ...(small ? { splitNumber: 4 } : {}),
      ...yAxis,
      ...(width === PHONE && yAxis.type === 'category'
        ? { axisLabel: { ...(yAxis.axisLabel as object), ...NARROW_NAMES } }
        : {}),
    }),
    series,
  }
  const chart = init(null, null, { renderer: 'svg', ssr: true, width, height })
  chart.setOption(option)
  const svg = chart.renderToSVGString()
  chart.dispose()
  return still(svg, `${name}-${width}-`)
}

/** Longer names take two lines. */
const MOST_LETTERS = 18

const NARROW_NAMES = { width: 110, fontSize: 11 }

/** An axis of names, from top to bottom; long ones are broken into two lines. */
export function namesAxis(names: readonly string[]) {
  return {
    type: 'category',
    inverse: true,
    data: names.map((name) => (name.length > MOST_LETTERS ? inTwoLines(name) : name)),
    axisTick: { show: false },
    axisLabel: { width: 160, overflow: 'truncate', lineHeight: 14, hideOverlap: false },
  } as const
}

/** Broken at the space nearest to the middle. */
function inTwoLines(name: string): string {
  const spaces = [...name].flatMap((letter, i) => (letter === ' ' ? [i] : []))
  const middle = spaces.toSorted((a, b) => Math.abs(a - name.length / 2) - Math.abs(b - name.length / 2))[0]
  return middle === undefined ? name : `${name.slice(0, middle)}\n${name.slice(middle + 1)}`
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

/** A vertical interval at `x`, in data coordinates, moved sideways by `shift(category width)` pixels. */
export function verticalIntervals(
  intervals: readonly (readonly [x: number, interval: Interval])[],
  color = INK,
  shift: (size: number) => number = () => 0,
): SeriesOption {
  const renderItem: CustomSeriesRenderItem = (_params, api) => {
    const [size = 0] = (api.size?.([1, 0]) ?? []) as number[]
    const [lowX = 0, lowY = 0] = api.coord([api.value(0), api.value(1)])
    const [, highY = 0] = api.coord([api.value(0), api.value(2)])
    const x = lowX + shift(size)
    return whisker([x, lowY], [x, highY], [5, 0], color)
  }
  return { type: 'custom', renderItem, data: intervals.map(([x, [low, high]]) => [x, low, high]), z: 3 }
}

/** A horizontal interval in row `y`. */
export function horizontalIntervals(intervals: readonly (readonly [y: number, interval: Interval])[]): SeriesOption {
  const renderItem: CustomSeriesRenderItem = (_params, api) => {
    const [lowX = 0, y = 0] = api.coord([api.value(1), api.value(0)])
    const [highX = 0] = api.coord([api.value(2), api.value(0)])
    return whisker([lowX, y], [highX, y], [0, 5], INK)
  }
  return {
    type: 'custom',
    renderItem,
    encode: { x: [1, 2], y: 0 },
    data: intervals.map(([y, [low, high]]) => [y, low, high]),
    z: 3,
  }
}

type Place = readonly [x: number, y: number]

/** A line with a bar of half size `cap` at both ends. */
function whisker(from: Place, to: Place, cap: Place, color: string) {
  const line = ([x1, y1]: Place, [x2, y2]: Place) => ({
    type: 'line' as const,
    shape: { x1, y1, x2, y2 },
    style: { stroke: color, lineWidth: 1.5 },
  })
  const bar = ([x, y]: Place) => line([x - cap[0], y - cap[1]], [x + cap[0], y + cap[1]])
  return { type: 'group' as const, children: [line(from, to), bar(from), bar(to)] }
}
