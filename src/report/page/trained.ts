/** The part of the page about training: before and after, curves, action patterns, and one question asked over the endpoint. */
import { beforeAfterChart, frequentPatterns, otherShare, patternChart } from '../charts/bars.ts'
import { trainingChart } from '../charts/curves.ts'
import type { StepNumbers } from '../gather.ts'
import type { Measures, MetricKey } from '../metrics.ts'
import type { Summary } from '../summary.ts'
import {
  figure,
  htmlOf,
  metricCell,
  metricHead,
  paragraph,
  percent1,
  type Section,
  type Terms,
  table,
  whole,
} from './pieces.ts'

type HeldOut = NonNullable<Summary['heldOut']>

const HELD_OUT: readonly MetricKey[] = [
  'accuracy',
  'accuracyLenient',
  'groundingAnyVisited',
  'formatRate',
  'turns',
  'sampledTokens',
  'failed',
]

export function heldOutSection(heldOut: HeldOut, terms: Terms): Section {
  const all = (['greedy', 'sampled'] as const).flatMap((mode) =>
    (['before', 'after'] as const).map((when) => ({ label: `${mode}, ${when}`, one: heldOut[when][mode] })),
  )
  // summaries of earlier versions have no metrics
  const measured = all.map(({ label, one }) => {
    const plain = { accuracy: { value: one.accuracy, ci95: one.accuracyCi95, n: one.n } }
    return { label, n: one.n, metrics: { ...plain, ...one.metrics } as Measures }
  })
  const shown = HELD_OUT.filter((key) => measured.some(({ metrics }) => metrics[key]))
  const rows = measured.map(({ label, n, metrics }) => [
    label,
    whole(n),
    ...shown.map((key) => metricCell(key, metrics[key])),
  ])
  return {
    id: 'before-after',
    title: 'Before and after training',
    body: [
      paragraph('Accuracy on questions of episodes that were never trained on. Whiskers: 95 % intervals, by episode.'),
      figure(beforeAfterChart(heldOut), 'Bar chart of held-out accuracy before and after training'),
      table(['', 'questions', ...metricHead(terms, shown)], rows, 'Held-out measurements'),
    ].join('\n'),
  }
}

/** What is drawn of a training step, where it was measured. */
const CURVES: Record<string, { label: string; unit: string; definition: string }> = {
  reward: { label: 'mean reward', unit: 'R', definition: 'Mean R of the trajectories sampled in the step.' },
  accuracy: {
    label: 'sampled accuracy',
    unit: 'share of runs',
    definition: 'Share of the step’s trajectories that were answered right, sampled at the temperature of training.',
  },
  grounded: {
    label: 'right clip shown',
    unit: 'share of runs',
    definition: 'Share of the step’s trajectories that were shown the clip with the evidence.',
  },
  formatRate: {
    label: 'format',
    unit: 'share of turns',
    definition: 'Share of the step’s turns that are well formed.',
  },
  turns: { label: 'turns', unit: 'turns per run', definition: 'Turns per trajectory.' },
  toolRate: {
    label: 'runs with a tool',
    unit: 'share of runs',
    definition: 'Share of the step’s trajectories that asked any agent.',
  },
  meanTokens: {
    label: 'tokens written',
    unit: 'tokens per run',
    definition: 'Tokens that the master sampled, per trajectory.',
  },
  truncated: {
    label: 'cut off',
    unit: 'share of runs',
    definition: 'Share of the step’s trajectories that a limit on turns or tokens ended.',
  },
  loss: { label: 'loss', unit: 'loss', definition: 'The policy loss, over the step’s minibatches.' },
  gradNorm: { label: 'gradient norm', unit: 'L2 norm', definition: 'Global norm of the gradient before clipping.' },
  entropy: {
    label: 'entropy',
    unit: 'nats',
    definition: 'Mean entropy of the policy’s distribution at the sampled tokens.',
  },
  kl: {
    label: 'KL',
    unit: 'nats',
    definition: 'Mean KL to the reference policy, before its coefficient; 0 without a KL term.',
  },
  clipFractionLow: {
    label: 'clip fraction, low',
    unit: 'share of tokens',
    definition: 'Share of tokens whose gradient the lower clip took away.',
  },
  clipFractionHigh: {
    label: 'clip fraction, high',
    unit: 'share of tokens',
    definition: 'Share of tokens whose gradient the upper clip took away.',
  },
  zeroVarianceGroups: {
    label: 'groups without variance',
    unit: 'groups per step',
    definition: 'Groups whose rewards are all the same, from which nothing is learnt.',
  },
  learningRate: { label: 'learning rate', unit: 'learning rate', definition: 'Learning rate of the step.' },
}

const CURVE_ROWS = 12

export function trainingSection(steps: readonly StepNumbers[], terms: Terms): Section | null {
  const drawn = Object.entries(CURVES).filter(([key]) => steps.some((step) => (step[key] ?? 0) !== 0))
  if (steps.length < 2 || drawn.length === 0) return null
  const panels = drawn.map(([key, { label, unit, definition }]) => {
    const known = steps.filter((step) => step[key] !== undefined)
    const chart = trainingChart(
      `training-${key}`,
      unit,
      known.map(({ step }) => step),
      known.map((step) => step[key] as number),
    )
    return `<div><h3>${terms.term(`training-${key}`, label, definition).html}</h3>${figure(chart, `Line chart of ${label} by training step`)}</div>`
  })
  const every = Math.max(1, Math.ceil(steps.length / CURVE_ROWS))
  const shown = steps.filter((_, i) => i % every === 0 || i === steps.length - 1)
  const rows = shown.map((step) => [
    whole(step.step),
    ...drawn.map(([key, { definition }]) => ({ content: decimal(step[key]), title: definition })),
  ])
  return {
    id: 'training',
    title: 'Training',
    body: [
      paragraph('Thin lines: as measured in each step. Thick lines: running means over a tenth of the steps.'),
      `<div class="panels">${panels.join('\n')}</div>`,
      table(
        ['step', ...drawn.map(([, { label }]) => label)],
        rows,
        every === 1 ? 'Every step' : `Every ${every} steps, and the last`,
      ),
    ].join('\n'),
  }
}

/** Four digits that tell something. */
function decimal(value: number | undefined): string {
  if (value === undefined) return '–'
  const text =
    value !== 0 && Math.abs(value) < 0.001
      ? value.toExponential(1)
      : Number.isInteger(value)
        ? whole(value)
        : value.toFixed(3)
  return text.replaceAll('-', '−')
}

export function patternSection(actionPatterns: NonNullable<Summary['actionPatterns']>): Section {
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
  return {
    id: 'patterns',
    title: 'What the master does, by kind of question',
    body: [
      paragraph(
        'One letter per turn: g grounds (asks where to look), v looks (asks what is there), a answers, x is malformed. Greedy, held-out questions.',
      ),
      figure(patternChart(actionPatterns), 'Stacked bars of action patterns by kind of question'),
      table(['', ...shown, 'other'], rows, 'Share of trajectories by action pattern'),
    ].join('\n'),
  }
}

export function regroundingSection({ before, after }: NonNullable<Summary['regrounding']>): Section | null {
  const rows = [...(before ? [['before', before] as const] : []), ...(after ? [['after', after] as const] : [])].map(
    ([when, one]) => [
      when,
      whole(one.wrongFirstClip),
      percent1(one.groundedAgain),
      percent1(one.found),
      percent1(one.accuracy),
    ],
  )
  if (rows.length === 0) return null
  return {
    id: 'regrounding',
    title: 'After a wrong clip',
    body: [
      paragraph(
        'Of the trajectories whose first clip was not the one with the evidence: how many grounded again, were shown the right clip in the end, and answered right.',
      ),
      table(
        ['', 'runs', 'grounded again', 'right clip shown', 'answered right'],
        rows,
        'What followed a wrong first clip',
      ),
    ].join('\n'),
  }
}

export function askedSection({ url, question, turns, answer, correct }: NonNullable<Summary['asked']>): Section {
  const rows: [string, string][] = [
    ['question', question],
    ...turns.map((turn, i): [string, string] => [`turn ${i + 1}`, turn]),
    ['answer', answer === null ? 'none' : `${answer} (${correct ? 'right' : 'wrong'})`],
  ]
  return {
    id: 'asked',
    title: 'Asked over the endpoint',
    body: `<p>The trained master was served at <code>${htmlOf(url)}</code> and asked one held-out question.</p>${table([], rows, 'What it wrote')}`,
  }
}

/** Before and after, in words. */
export function heldOutAnswer({ before, after, difference }: HeldOut): string {
  const [low, high] = after.greedy.accuracyCi95
  const gain = difference?.sampled
    ? ` Sampled at temperature 1 it gained ${(difference.sampled.difference * 100).toFixed(1)} points (95 % interval ${difference.sampled.ci95.map((one) => (one * 100).toFixed(1)).join(' to ')}).`
    : ''
  return `On ${after.greedy.n} held-out questions the master answered ${percent1(after.greedy.accuracy)} right after training (greedy, 95 % interval ${(low * 100).toFixed(1)}–${(high * 100).toFixed(1)} %), and ${percent1(before.greedy.accuracy)} before.${gain}`
}
