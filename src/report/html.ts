/**
 * One self-contained page from a `Summary`: charts, and under each the same numbers as a table. Needs no network and no script; reads
 * in light and dark, on a phone and on paper. Measures nothing.
 */
import {
  beforeAfterChart,
  budgetChart,
  type Chart,
  frequentPatterns,
  otherShare,
  patternChart,
  percent,
  trainingChart,
} from './charts.ts'
import type { Interval } from './statistics.ts'
import type { Measurement, Summary } from './summary.ts'

export function reportPage(summary: Summary): string {
  const { heldOut, budgets, training, actionPatterns, regrounding, asked } = summary
  const sections = [
    settingSection(summary),
    heldOut && beforeAfterSection(heldOut),
    budgets.length > 0 && budgetSection(budgets),
    training && training.curve.length > 1 && trainingSection(training.curve),
    actionPatterns && patternSection(actionPatterns),
    regrounding && regroundingSection(regrounding),
    asked && askedSection(asked),
  ].filter((section) => typeof section === 'string')
  const title = `Showrunner: ${escaped(summary.name)}`
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${title}</title>
<style>${STYLE}</style>
</head>
<body>
<main>
<h1>${title}</h1>
${headline(summary)}
${sections.join('\n')}
</main>
</body>
</html>
`
}

/** The one result that matters, in words. */
function headline({ heldOut }: Summary): string {
  if (!heldOut) return ''
  const { before, after, difference } = heldOut
  const gain = difference?.sampled
    ? ` Sampled at temperature 1 it gained ${points(difference.sampled.difference)} (95\u00a0% interval ${points(difference.sampled.ci95[0])} to ${points(difference.sampled.ci95[1])}).`
    : ''
  return `<p class="headline">On ${after.greedy.n} held-out questions the master answered <strong>${percent(after.greedy.accuracy)}</strong> right after training (greedy, 95\u00a0% interval ${range(after.greedy.accuracyCi95)}), and ${percent(before.greedy.accuracy)} before.${gain}</p>`
}

function settingSection({ setting, seed, training }: Summary): string {
  const rows: [string, string][] = [
    ...Object.entries(setting).map(([key, value]): [string, string] => [key, String(value)]),
    ['seed', String(seed)],
    ...(training
      ? ([
          ['training steps', whole(training.steps)],
          ['training rollouts', whole(training.rollouts)],
          ['sampled tokens', whole(training.sampledTokens)],
          ...(training.seconds === null ? [] : [['training time', `${whole(training.seconds)} s`]]),
        ] as [string, string][])
      : []),
  ]
  return section('Setting', '', null, table([], rows, 'Setting of the run'))
}

function beforeAfterSection(heldOut: NonNullable<Summary['heldOut']>): string {
  const rows = (['greedy', 'sampled'] as const).flatMap((mode) =>
    (['before', 'after'] as const).map((when) => [`${mode}, ${when}`, ...measured(heldOut[when][mode])]),
  )
  const head = ['', 'n', 'accuracy', '95 % interval', 'right clip', 'format', 'turns', 'tokens', 'failed']
  return section(
    'Before and after training',
    'Accuracy on questions of episodes that were never trained on. Whiskers: 95 % intervals; questions about one episode depend on each other. Right clip: trajectories that were shown the clip with the evidence. Format: well-formed turns. Trajectories that failed outside the policy count as wrong.',
    { chart: beforeAfterChart(heldOut), label: 'Bar chart of held-out accuracy before and after training' },
    table(head, rows, 'Held-out measurements'),
  )
}

function measured(one: Measurement): string[] {
  return [
    whole(one.n),
    percent1(one.accuracy),
    range(one.accuracyCi95),
    percent1(one.groundingAccuracy),
    percent1(one.formatRate),
    one.meanTurns.toFixed(2),
    one.meanTokens.toFixed(1),
    whole(one.failures),
  ]
}

function budgetSection(budgets: Summary['budgets']): string {
  const rows = budgets.map((point) => [
    whole(point.maxTurns),
    whole(point.n),
    percent1(point.accuracy),
    range(point.accuracyCi95),
    point.oracleAccuracy === null ? '–' : percent1(point.oracleAccuracy),
    point.meanTurns.toFixed(2),
    point.meanTokens.toFixed(1),
    point.secondsPerQuestion.toFixed(2),
  ])
  const head = ['K', 'n', 'accuracy', '95 % interval', 'oracle', 'turns', 'tokens', 'seconds']
  return section(
    'Step budgets',
    'Greedy accuracy when the master may write at most K times, with 95 % intervals. The oracle knows the answer’s clip and what to ask, and uses the same agents: what it misses, no master can get. Seconds are from start to end of one trajectory, of which many run at once.',
    {
      chart: budgetChart(budgets),
      label: 'Line chart of accuracy against the step budget, for the master and the oracle',
    },
    table(head, rows, 'Accuracy and cost by step budget'),
  )
}

const CURVE_ROWS = 12

function trainingSection(curve: NonNullable<Summary['training']>['curve']): string {
  const every = Math.max(1, Math.ceil(curve.length / CURVE_ROWS))
  const shown = curve.filter((_, i) => i % every === 0 || i === curve.length - 1)
  const rows = shown.map((point) => [whole(point.step), point.reward.toFixed(3), percent1(point.accuracy)])
  return section(
    'Training',
    'Mean reward and accuracy of the trajectories sampled in each step; thin lines as measured, thick lines as running means.',
    { chart: trainingChart(curve), label: 'Line chart of reward and sampled accuracy by training step' },
    table(
      ['step', 'mean reward', 'sampled accuracy'],
      rows,
      every === 1 ? 'Every step' : `Every ${every} steps, and the last`,
    ),
  )
}

function patternSection(actionPatterns: NonNullable<Summary['actionPatterns']>): string {
  const { before, after } = actionPatterns
  const shown = frequentPatterns([...(before ? [before] : []), after])
  const rows = Object.entries(after).flatMap(([kind, shares]) =>
    [
      ...(before?.[kind] ? [[`${kind}, before`, before[kind]] as const] : []),
      [before ? `${kind}, after` : kind, shares] as const,
    ].map(([label, of]) => [
      label,
      ...shown.map((pattern) => percent1(of[pattern] ?? 0)),
      percent1(otherShare(of, shown)),
    ]),
  )
  return section(
    'What the master does, by kind of question',
    'One letter per turn: g grounds (asks where to look), v looks (asks what is there), a answers, x is malformed. Greedy, held-out questions.',
    { chart: patternChart(actionPatterns), label: 'Stacked bars of action patterns by kind of question' },
    table(['', ...shown, 'other'], rows, 'Share of trajectories by action pattern'),
  )
}

function regroundingSection({ before, after }: NonNullable<Summary['regrounding']>): string {
  const rows = [...(before ? [['before', before] as const] : []), ...(after ? [['after', after] as const] : [])].map(
    ([when, one]) => [
      when,
      whole(one.wrongFirstClip),
      percent1(one.groundedAgain),
      percent1(one.found),
      percent1(one.accuracy),
    ],
  )
  if (rows.length === 0) return ''
  return section(
    'After a wrong clip',
    'Of the trajectories whose first clip was not the one with the evidence: how many grounded again, were shown the right clip in the end, and answered right.',
    null,
    table(['', 'n', 'grounded again', 'right clip shown', 'answered right'], rows, 'What followed a wrong first clip'),
  )
}

function askedSection({ url, question, turns, answer, correct }: NonNullable<Summary['asked']>): string {
  const rows: [string, string][] = [
    ['question', question],
    ...turns.map((turn, i): [string, string] => [`turn ${i + 1}`, turn]),
    ['answer', answer === null ? 'none' : `${answer} (${correct ? 'right' : 'wrong'})`],
  ]
  const text = `The trained master was served at ${url} and asked one held-out question.`
  return section('Asked over the endpoint', text, null, table([], rows, 'What it wrote'))
}

// ---------------------------------------------------------------- pieces

function section(title: string, text: string, figure: { chart: Chart; label: string } | null, below: string): string {
  const drawing = figure
    ? `<figure role="img" aria-label="${escaped(figure.label)}"><div class="wide">${figure.chart.wide}</div><div class="narrow">${figure.chart.narrow}</div></figure>`
    : ''
  return `<section>\n<h2>${escaped(title)}</h2>\n${text ? `<p>${escaped(text)}</p>` : ''}\n${drawing}\n${below}\n</section>`
}

/** The first cell of each row is its heading; without column heads the table is a list of properties. */
function table(head: readonly string[], rows: readonly (readonly string[])[], caption: string): string {
  const headRow =
    head.length > 0
      ? `<thead><tr>${head.map((cell) => `<th scope="col">${escaped(cell)}</th>`).join('')}</tr></thead>`
      : ''
  const body = rows
    .map(
      ([first = '', ...cells]) =>
        `<tr><th scope="row">${escaped(first)}</th>${cells.map((cell) => `<td>${escaped(cell)}</td>`).join('')}</tr>`,
    )
    .join('\n')
  return `<div class="scroll"><table${head.length > 0 ? '' : ' class="properties"'}><caption>${escaped(caption)}</caption>${headRow}<tbody>\n${body}\n</tbody></table></div>`
}

const ENTITIES: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' }
const escaped = (text: string) => text.replace(/[&<>"']/g, (letter) => ENTITIES[letter] ?? letter)

const percent1 = (share: number) => `${(share * 100).toFixed(1)}\u00a0%`
const range = ([low, high]: Interval) => `${(low * 100).toFixed(1)}–${(high * 100).toFixed(1)}\u00a0%`
const points = (difference: number) => `${difference < 0 ? '−' : '+'}${Math.abs(difference * 100).toFixed(1)} points`
const whole = (value: number) => Math.round(value).toLocaleString('en-US')

/** Okabe & Ito's palette, lighter on dark paper. */
const STYLE = `
:root { --paper: #ffffff; --ink: #1c1f23; --faint: #c4c9cf; --blue: #0072b2; --orange: #b85000; --green: #007a57; --purple: #a8467a; --fifth: #3a3f46; --grey: #6b7178; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #16181b; --ink: #e6e8eb; --faint: #4a4f56; --blue: #56b4e9; --orange: #f0a04b; --green: #3cc79b; --purple: #e09ac0; --fifth: #f0e442; --grey: #a4abb3; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 860px; margin: 0 auto; padding: 24px 16px 48px; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 12px; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 40px 0 4px; }
p { margin: 4px 0 12px; max-width: 44em; }
.headline { font-size: 1.1rem; }
figure { margin: 0; }
svg { display: block; width: 100%; height: auto; }
.narrow { display: none; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums; margin-top: 8px; }
caption { text-align: left; font-weight: 600; padding: 4px 0; white-space: nowrap; }
th, td { padding: 4px 12px 4px 0; text-align: right; border-bottom: 1px solid var(--faint); white-space: nowrap; }
th { font-weight: 600; }
th:first-child { text-align: left; }
.properties td { text-align: left; white-space: normal; overflow-wrap: anywhere; }
@media screen and (max-width: 620px) { .wide { display: none; } .narrow { display: block; } }
@media print {
  :root { --paper: #ffffff; --ink: #000000; --faint: #bbbbbb; --blue: #0072b2; --orange: #b85000; --green: #007a57; --purple: #a8467a; --fifth: #3a3f46; --grey: #6b7178; }
  body { font-size: 11pt; }
  main { max-width: none; padding: 0; }
  figure, table, h2 { break-inside: avoid; }
  h2, p { break-after: avoid; }
  .scroll { overflow: visible; }
}
`
