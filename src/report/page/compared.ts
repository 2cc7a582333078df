/** The part of the page about a comparison: curves over settings, paired differences, accuracy against cost, and what failed. */

import { type Curve, settingChart } from '../charts/curves.ts'
import { costChart, forestChart } from '../charts/points.ts'
import type { Comparison, Cost, PairedComparison } from '../comparison.ts'
import { costs } from '../comparison.ts'
import { type MetricKey, metrics } from '../metrics.ts'
import { cellLabel, type Sweep } from '../sweep.ts'
import {
  amount,
  figure,
  type Html,
  htmlOf,
  metricCell,
  metricHead,
  paragraph,
  percent1,
  points,
  pValue,
  type Row,
  type Section,
  type Terms,
  table,
  whole,
} from './pieces.ts'

export interface Compared {
  sweep: Sweep
  comparison: Comparison
}

const COLUMNS = [
  'accuracy',
  'accuracyLenient',
  'groundingAnyVisited',
  'turns',
  'tokens',
  'frames',
  'seconds',
  'usd',
] as const

export function accuracySection({ sweep, comparison }: Compared, terms: Terms): Section {
  const whole = comparison.cells.filter(({ metrics }) => metrics !== null)
  const numeric = sweep.varied.filter(
    ({ values }) => values.length > 1 && values.every((value) => typeof value === 'number'),
  )
  const charts = numeric.map(({ setting }, i) =>
    figure(
      settingChart(`curve-${i}`, axisName(setting), curvesOver(setting, { sweep, comparison })),
      `Line chart of accuracy against ${setting}, with 95 % intervals`,
    ),
  )
  if (charts.length === 0)
    charts.push(
      figure(
        forestChart(
          'accuracy',
          'accuracy',
          whole.map(({ label, metrics }) => ({
            label,
            value: metrics?.accuracy?.value ?? 0,
            ci95: metrics?.accuracy?.ci95 ?? null,
            told: true,
          })),
          null,
        ),
        'Accuracy of each setting with its 95 % interval',
      ),
    )
  const strict = whole.every(({ metrics }) => metrics?.accuracyLenient?.value === metrics?.accuracy?.value)
  const shown = COLUMNS.filter(
    (key) => whole.some(({ metrics }) => (metrics?.[key]?.value ?? 0) !== 0) && !(strict && key === 'accuracyLenient'),
  )
  const rows = whole.map(({ label, metrics }) => [label, ...shown.map((key) => metricCell(key, metrics?.[key]))])
  const saturation = comparison.saturation.map(
    ({ of, statement }) => `<li>${htmlOf(of ? `${of}: ${statement}` : statement)}.</li>`,
  )
  const unfinished = comparison.cells.filter(({ missing }) => missing > 0)
  return {
    id: 'accuracy',
    title: numeric.length > 0 ? `Accuracy by ${numeric.map(({ setting }) => setting).join(' and ')}` : 'Accuracy',
    body: [
      paragraph(
        `Each point: the same ${comparison.questions} questions about ${comparison.episodes} episodes, under the same seeds. Whiskers: 95 % intervals, by episode.${ceilingNote(comparison)}`,
      ),
      ...charts,
      saturation.length > 0
        ? `<h3>${htmlOf(terms.term('saturation', 'Where the curve stops rising', comparison.methods.saturation ?? ''))}</h3><ul class="findings">${saturation.join('')}</ul>`
        : '',
      unfinished.length > 0
        ? `<p class="warning">Not finished, and left out: ${unfinished.map(({ label, missing }) => htmlOf(`${label} (${missing} questions missing)`)).join('; ')}. Run the same <code>compare</code> again to go on.</p>`
        : '',
      table(['', ...metricHead(terms, shown)], rows, 'Accuracy and cost, with 95 % intervals'),
    ].join('\n'),
  }
}

function ceilingNote({ cells }: Comparison): string {
  return cells.some(({ ceiling }) => ceiling)
    ? ' The oracle is a script that knows the answer’s clip and what to ask, and uses the same agents: what it misses, no master can get.'
    : ''
}

const axisName = (setting: string) =>
  ({ maxTurns: 'step budget K: turns at most', window: 'clips in view w' })[setting] ?? setting

function curvesOver(setting: string, { sweep, comparison }: Compared): Curve[] {
  const others = sweep.varied.filter((one) => one.setting !== setting && one.values.length > 1)
  const curves = new Map<string, Curve>()
  for (const { settings, metrics, ceiling } of comparison.cells) {
    if (!metrics?.accuracy) continue
    const label = others.length > 0 ? cellLabel(settings, { varied: others }) : String(settings.policy)
    const curve = curves.get(label) ?? { label: ceiling ? `${label} (ceiling)` : label, points: [] }
    curve.points.push({ x: Number(settings[setting]), y: metrics.accuracy.value, ci95: metrics.accuracy.ci95 })
    curves.set(label, curve)
  }
  return [...curves.values()].map((curve) => ({ ...curve, points: curve.points.toSorted((a, b) => a.x - b.x) }))
}

export function differenceSection({ comparison }: Compared, terms: Terms): Section | null {
  const { differences, methods } = comparison
  if (differences.length === 0) return null
  const chart = forestChart(
    'differences',
    'difference in accuracy, points',
    differences.map(({ cell, difference, ci95, distinguishable }) => ({
      label: cell,
      value: difference,
      ci95,
      told: distinguishable,
    })),
    0,
  )
  const term = (key: string, label: string, definition: string) => terms.term(key, label, definition)
  const head = [
    '',
    term('difference', 'difference', `Accuracy of the cell minus that of its baseline. ${methods.differences}`),
    term('gained', 'gained', 'Questions that the baseline got wrong and this cell right.'),
    term('lost', 'lost', 'Questions that the baseline got right and this cell wrong.'),
    term(
      'p',
      'p',
      'Share of the ways to exchange the two cells, episode by episode, that give a difference at least as large.',
    ),
    term(
      'pHolm',
      'p, corrected',
      'The same, corrected for all comparisons of the sweep (Holm). Below 0.05 a difference is told from none.',
    ),
    term(
      'mcnemar',
      'McNemar',
      'Exact McNemar test over gained and lost questions, as if questions about one episode were independent.',
    ),
    term(
      'detectable',
      'detectable',
      'The smallest true difference that these questions would tell from none four times of five.',
    ),
    term('needed', 'questions needed', methods.questionsNeeded ?? ''),
    'verdict',
  ]
  const several = new Set(differences.map(({ baseline }) => baseline)).size > 1
  return {
    id: 'differences',
    title: 'Differences from the baseline',
    body: [
      paragraph(
        `${several ? 'Each cell against the baseline with the same other settings' : `Baseline: ${differences[0]?.baseline}`}. The same questions, paired. Filled: told from no difference; hollow: not.`,
      ),
      figure(chart, 'Differences in accuracy from the baseline with 95 % intervals'),
      table(head, differences.map(differenceRow), 'Paired differences'),
      ...notTold(comparison),
    ].join('\n'),
  }
}

/** What cannot be told apart, and what it would take. */
function notTold({ differences }: Comparison): string[] {
  const items = differences.flatMap(({ cell, statement, distinguishable }) =>
    distinguishable ? [] : [`<li>${htmlOf(`${cell}: ${statement}`)}.</li>`],
  )
  return items.length > 0 ? [`<ul class="findings">${items.join('')}</ul>`] : []
}

const signed = (difference: number) => points(difference).replace(/\D*points$/, '')

function differenceRow(one: PairedComparison): Row {
  const [low, high] = one.ci95
  return [
    one.cell,
    { html: `${points(one.difference)}<small>${signed(low)} to ${signed(high)}</small>` },
    whole(one.flips.gained),
    whole(one.flips.lost),
    pValue(one.p),
    pValue(one.pHolm),
    pValue(one.mcnemar),
    points(one.smallestDetectable).slice(1),
    one.questionsNeeded === null ? '–' : whole(one.questionsNeeded),
    one.distinguishable ? (one.difference > 0 ? 'better' : 'worse') : 'not told apart',
  ]
}

const COST_AXIS: Record<Cost, string> = {
  tokens: 'tokens per question',
  seconds: 'seconds per question',
  usd: 'US dollars per question',
  frames: 'frames per question',
}

export function costSection({ sweep, comparison }: Compared, terms: Terms): Section | null {
  const cells = comparison.cells.filter(({ metrics, ceiling }) => metrics !== null && !ceiling)
  const spent = costs.filter((cost) => cells.some(({ metrics }) => (metrics?.[cost]?.value ?? 0) > 0))
  if (spent.length === 0 || cells.length < 2) return null
  const policies = sweep.varied.filter(({ setting, values }) => setting === 'policy' && values.length > 1)
  const rest = sweep.varied.filter(({ setting, values }) => setting !== 'policy' && values.length > 1)
  const panels = spent.map((cost) => {
    const chart = costChart(
      `cost-${cost}`,
      COST_AXIS[cost],
      cells.map(({ settings, metrics, pareto }) => ({
        label: rest.map(({ setting }) => String(settings[setting])).join('/'),
        series: policies.length > 0 ? String(settings.policy) : 'cell',
        cost: metrics?.[cost]?.value ?? 0,
        accuracy: metrics?.accuracy?.value ?? 0,
        inParetoSet: pareto.includes(cost),
      })),
    )
    return `<div><h3>Against ${htmlOf(metrics[cost].label)}</h3>${figure(chart, `Accuracy against ${metrics[cost].label}; the Pareto set is joined`)}</div>`
  })
  const rows = cells.map(({ label, metrics: measures, pareto }) => [
    label,
    metricCell('accuracy', measures?.accuracy),
    ...spent.map((cost) => markedCell(cost, measures?.[cost]?.value, pareto.includes(cost))),
  ])
  const pareto = terms.term('pareto', 'Pareto set', comparison.methods.pareto ?? '')
  return {
    id: 'cost',
    title: 'Accuracy against cost',
    body: [
      `<p>Filled and joined, and marked ★ in the table: the ${pareto.html}, settings that no other one beats in one of accuracy and cost while being as good in the other. Numbers at the points: ${htmlOf(rest.map(({ setting }) => setting).join(' / ') || 'the setting')}.</p>`,
      `<div class="panels">${panels.join('\n')}</div>`,
      table(['', ...metricHead(terms, ['accuracy', ...spent])], rows, 'Cost per question; ★: in the Pareto set'),
    ].join('\n'),
  }
}

function markedCell(cost: Cost & MetricKey, value: number | undefined, inParetoSet: boolean) {
  const { label, unit, definition } = metrics[cost]
  const text = value === undefined ? '–' : amount(value, unit)
  const content: Html = {
    html: `${htmlOf(text)} ${inParetoSet ? '<span class="mark" title="in the Pareto set">★</span>' : '<span aria-hidden="true">&nbsp;&nbsp;</span>'}`,
  }
  return { content, title: `${label}: ${definition}` }
}

/** `, base maxTurns=1`, where all have the same one. */
function baselineName({ differences }: Comparison): string {
  const names = new Set(differences.map(({ baseline }) => baseline))
  return names.size === 1 ? `, ${[...names][0]}` : ''
}

/** The comparison in a sentence or two. */
export function comparisonAnswer({ sweep, comparison }: Compared): string {
  const cells = comparison.cells.filter(({ metrics, ceiling }) => metrics?.accuracy && !ceiling)
  const best = cells.toSorted((a, b) => (b.metrics?.accuracy?.value ?? 0) - (a.metrics?.accuracy?.value ?? 0))[0]
  if (!best?.metrics?.accuracy) return 'No setting is finished yet.'
  const { value, ci95 } = best.metrics.accuracy
  const interval = ci95 === null ? '' : ` (95 % interval ${(ci95[0] * 100).toFixed(1)}–${(ci95[1] * 100).toFixed(1)} %)`
  const told = comparison.differences.filter(({ distinguishable }) => distinguishable).length
  const said = cells.length > 1 ? `Highest: ${cellLabel(best.settings, sweep)}, with ` : ''
  const against =
    comparison.differences.length === 0
      ? ''
      : ` ${told === comparison.differences.length && told > 1 ? 'All' : `${told} of the`} ${comparison.differences.length} other settings can be told from the baseline${baselineName(comparison)}.`
  return `${said}${percent1(value)} right${interval}.${against}`
}
