/** Training curves as small SVG drawings by ECharts, colours being CSS variables of the page. Chooses nothing. */
import { LineChart } from 'echarts/charts'
import { GridComponent } from 'echarts/components'
import { init, use } from 'echarts/core'
import { SVGRenderer } from 'echarts/renderers'

use([LineChart, GridComponent, SVGRenderer])

export interface Curve {
  /** Unique in the page. */
  name: string
  values: readonly (readonly [step: number, value: number])[]
  share: boolean
}

/** At most so many points are drawn: more cannot be seen at this width. */
const POINTS = 400

export function curve({ name, values, share }: Curve): string {
  const chart = init(null, null, { renderer: 'svg', ssr: true, width: 360, height: 190 })
  const text = { color: 'var(--muted)', fontFamily: 'system-ui, sans-serif', fontSize: 12 }
  const axis = {
    axisLabel: text,
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: 'var(--line)' } },
  }
  const steps = values.map(([step]) => step)
  chart.setOption({
    animation: false,
    grid: { left: 4, right: 12, top: 10, bottom: 4, outerBoundsMode: 'same', outerBoundsContain: 'all' },
    xAxis: {
      ...axis,
      type: 'value',
      min: steps[0] ?? 0,
      max: Math.max((steps[0] ?? 0) + 1, steps.at(-1) ?? 1),
      splitLine: { show: false },
      // the end of a run is no round number and would stand on the label before it
      axisLabel: { ...text, showMaxLabel: (steps.at(-1) ?? 0) < 6 },
      name: 'training step',
      nameLocation: 'middle',
      nameGap: 24,
      nameTextStyle: text,
    },
    yAxis: {
      ...axis,
      type: 'value',
      ...(share ? { min: 0, max: 1, interval: 0.25 } : { scale: true }),
      splitNumber: 4,
      axisLabel: { ...text, formatter: tick },
    },
    series: [
      {
        type: 'line',
        data: thinned(values),
        symbol: 'none',
        lineStyle: { color: 'var(--blue)', width: 1, opacity: 0.6 },
      },
      {
        type: 'line',
        data: thinned(smoothed(values)),
        symbol: 'none',
        lineStyle: { color: 'var(--blue)', width: 2.5 },
      },
    ],
  })
  const svg = chart.renderToSVGString()
  chart.dispose()
  // without what a script would need, and with ids of its own: ECharts counts them over the whole process
  return svg
    .replace(/<style[^>]*>[\s\S]*?<\/style>/g, '')
    .replace(/ (?:class="zr[^"]*"|ecmeta_\w+="[^"]*")/g, '')
    .replace(/zr\d+-/g, `${name}-`)
    .replace('<svg ', '<svg aria-hidden="true" ')
}

/** Short enough to stand beside a small drawing. */
function tick(value: number): string {
  const size = Math.abs(value)
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toExponential(0)
  return String(Number(value.toPrecision(7)))
}

/** Mean over about a tenth of the curve around each point. */
function smoothed(values: Curve['values']): [number, number][] {
  const reach = Math.max(1, Math.round(values.length / 20))
  return values.map(([step], at) => {
    const near = values.slice(Math.max(0, at - reach), at + reach + 1)
    return [step, near.reduce((sum, [, value]) => sum + value, 0) / near.length]
  })
}

function thinned(values: Curve['values']): [number, number][] {
  const every = Math.max(1, Math.ceil(values.length / POINTS))
  return values.filter((_, at) => at % every === 0 || at === values.length - 1).map(([step, value]) => [step, value])
}
