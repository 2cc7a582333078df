/** Building blocks of the page: text made safe, tables, figures, and terms that explain themselves. Knows no results. */
import type { Chart, LegendEntry } from '../charts/drawing.ts'
import { type Measured, type MetricKey, metrics, type Unit } from '../metrics.ts'
import type { Interval } from '../statistics.ts'

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }
export const escaped = (text: string) => text.replace(/[&<>"']/g, (letter) => ENTITIES[letter] ?? letter)

/** HTML that is safe as it stands, as against text. */
export interface Html {
  html: string
}

export type Content = string | Html

export const htmlOf = (content: Content) => (typeof content === 'string' ? escaped(content) : content.html)

/**
 * Words with a definition: on hover as a title, and for keyboard and touch in a popover that the browser opens without a script.
 * What was used is listed at the end of the page, for paper.
 */
export class Terms {
  private readonly used = new Map<string, { label: string; definition: string }>()

  /** The word, ready to be pressed. `key` is unique in the page. */
  term(key: string, label: string, definition: string): Html {
    this.used.set(key, { label, definition })
    return {
      html: `<button type="button" class="term" popovertarget="term-${escaped(key)}" title="${escaped(definition)}">${escaped(label)}</button>`,
    }
  }

  metric(key: MetricKey): Html {
    return this.term(key, metrics[key].label, metrics[key].definition)
  }

  /** The popovers, and the list of all terms. */
  glossary(): string {
    const all = [...this.used]
    const popovers = all.map(
      ([key, { label, definition }]) =>
        `<div popover id="term-${escaped(key)}"><strong>${escaped(label)}</strong>: ${escaped(definition)}</div>`,
    )
    const entries = all.map(([, { label, definition }]) => `<dt>${escaped(label)}</dt><dd>${escaped(definition)}</dd>`)
    return `${popovers.join('\n')}\n<dl class="terms">\n${entries.join('\n')}\n</dl>`
  }
}

export interface Section {
  id: string
  title: string
  body: string
}

export const paragraph = (text: Content) => `<p>${htmlOf(text)}</p>`

/** `label` says in words what the drawing shows. */
export function figure(chart: Chart, label: string): string {
  const legend = chart.legend.length > 0 ? `<ul class="legend">${chart.legend.map(legendEntry).join('')}</ul>` : ''
  return `<figure>${legend}<div role="img" aria-label="${escaped(label)}"><div class="wide">${chart.wide}</div><div class="narrow">${chart.narrow}</div></div></figure>`
}

const SHAPES: Record<string, string> = {
  bar: '<rect x="2" y="1" width="24" height="10" rx="2"/>',
  circle: '<circle cx="14" cy="6" r="4.5"/>',
  diamond: '<path d="M14 .5 19 6 14 11.5 9 6Z"/>',
  rect: '<rect x="9.5" y="1.5" width="9" height="9"/>',
  triangle: '<path d="M14 1 19 10.5H9Z"/>',
}
const DASHES = { solid: '', dashed: ' stroke-dasharray="6 3"', dotted: ' stroke-dasharray="2 2"' }

function legendEntry({ name, color, symbol, dash }: LegendEntry): string {
  const line = dash === null ? '' : `<path d="M0 6H28" stroke="${color}" stroke-width="2"${DASHES[dash]}/>`
  return `<li><svg viewBox="0 0 28 12" aria-hidden="true" fill="${color}">${line}${SHAPES[symbol] ?? ''}</svg>${escaped(name)}</li>`
}

export interface Cell {
  content: Content
  /** What the number means, on hover. */
  title?: string
  /** Text that wraps, aligned left. */
  words?: boolean
}

export type Row = readonly (Content | Cell)[]

/** The first cell of each row is its heading; without column heads the table is a list of properties. */
export function table(head: readonly Content[], rows: readonly Row[], caption: string): string {
  const headRow =
    head.length > 0
      ? `<thead><tr>${head.map((cell) => `<th scope="col">${htmlOf(cell)}</th>`).join('')}</tr></thead>`
      : ''
  const body = rows.map(([first = '', ...cells]) => {
    const heading = typeof first === 'object' && 'content' in first ? first.content : first
    return `<tr><th scope="row">${htmlOf(heading)}</th>${cells.map(cellHtml).join('')}</tr>`
  })
  return `<div class="scroll" tabindex="0" role="region" aria-label="${escaped(caption)}"><table${head.length > 0 ? '' : ' class="properties"'}><caption>${escaped(caption)}</caption>${headRow}<tbody>\n${body.join('\n')}\n</tbody></table></div>`
}

function cellHtml(cell: Content | Cell): string {
  const { content, title, words }: Cell = typeof cell === 'object' && 'content' in cell ? cell : { content: cell }
  return `<td${words ? ' class="words"' : ''}${title === undefined ? '' : ` title="${escaped(title)}"`}>${htmlOf(content)}</td>`
}

/** A metric's value with its interval below, and its definition on hover; a dash where it does not apply. */
export function metricCell(key: MetricKey, one: Measured | undefined): Cell {
  const { label, unit, definition } = metrics[key]
  if (one === undefined) return { content: '–', title: `${label}: does not apply here. ${definition}` }
  const ci95 = one.ci95 === null ? '' : `<small>${escaped(range(one.ci95, unit))}</small>`
  return {
    content: { html: `${escaped(amount(one.value, unit))}${ci95}` },
    title: `${label}: ${definition} Below it the 95 % interval; of ${whole(one.n)} trajectories.`,
  }
}

export function metricHead(terms: Terms, keys: readonly MetricKey[]): Html[] {
  return keys.map((key) => terms.metric(key))
}

/** A number in its unit. */
export function amount(value: number, unit: Unit): string {
  switch (unit) {
    case 'share':
      return percent1(value)
    case 'iou':
      return value.toFixed(3)
    case 'usd':
      return value === 0 ? '$0' : `$${value < 0.01 ? value.toPrecision(2) : value.toFixed(3)}`
    case 'number':
    case 'frames':
      return value.toFixed(2)
    case 'seconds':
      return value < 1 ? value.toPrecision(2) : value.toFixed(2)
    case 'tokens':
      return value < 100 ? value.toFixed(1) : whole(value)
  }
}

export function range([low, high]: Interval, unit: Unit): string {
  if (unit === 'share') return `${(low * 100).toFixed(1)}–${(high * 100).toFixed(1)}`
  return `${amount(low, unit)}–${amount(high, unit)}`
}

export const percent1 = (share: number) => `${(share * 100).toFixed(1)}\u00a0%`
export const points = (difference: number) =>
  `${difference < 0 ? '−' : '+'}${Math.abs(difference * 100).toFixed(1)}\u00a0points`
export const whole = (value: number) => Math.round(value).toLocaleString('en-US')
export const pValue = (p: number) => (p < 0.001 ? '<\u00a00.001' : p.toFixed(3))
