/** How a run goes: where it is, how fast, its curves and its newest groups. Everything comes from the run's files. */
import type { TrajectoryRow } from '../trajectory/schema.ts'
import { curve } from './curves.ts'
import { type Html, html, markup, type Part } from './html.ts'
import type { Metrics, StepNumbers } from './metrics.ts'
import { pathOf } from './trajectoryPage.ts'
import { chips, count, decimal, duration, outcome, percent, words } from './words.ts'

export interface LiveContent {
  metrics: Metrics
  /** Steps that the configuration plans; null where it is not known. */
  planned: number | null
  trajectories: number
  /** Over all trajectories of the run. */
  totals: { right: number; scored: number; stops: readonly (readonly [string, number])[] }
  /** The run is closed. */
  complete: boolean
  /** When anything was last written to the run. */
  written: Date | null
  now: Date
  newest: readonly (readonly TrajectoryRow[])[]
  gold: boolean
}

/** Steps over which the present speed and level are measured. */
const RECENT = 10

/** A run that wrote nothing for this many of its own steps is taken to have stopped. */
const SILENT_STEPS = 5
const SILENT_SECONDS = 120

/** What the numbers mean, in the order in which they are drawn; others follow under their own names. */
const KNOWN: Record<string, { title: string; meaning: string; share?: true }> = {
  reward: { title: 'Reward', meaning: 'Mean reward R of the trajectories of a step.' },
  accuracy: {
    title: 'Accuracy',
    meaning: 'Share answered right, sampled at the temperature of training.',
    share: true,
  },
  heldOut: {
    title: 'Held-out accuracy',
    meaning: 'Share of the held-out questions that was answered right, at each visit.',
    share: true,
  },
  grounded: { title: 'Right clip shown', meaning: 'Share that were shown the clip with the evidence.', share: true },
  turns: { title: 'Turns', meaning: 'Mean turns per trajectory.' },
  formatRate: {
    title: 'Well-formed turns',
    meaning: 'Share of turns that are exactly one well-formed action.',
    share: true,
  },
  meanTokens: { title: 'Tokens', meaning: 'Mean tokens that the master sampled per trajectory.' },
  maxTokens: { title: 'Tokens, longest', meaning: 'Sampled tokens of the longest trajectory of a step.' },
  truncated: { title: 'Cut off', meaning: 'Share that a limit on turns or tokens ended.', share: true },
  grounds: { title: 'Groundings', meaning: 'Mean calls of the grounding agent per trajectory.' },
  looks: { title: 'Looks', meaning: 'Mean calls of the vision agent per trajectory.' },
  toolRate: { title: 'With tools', meaning: 'Share of trajectories that called any agent.', share: true },
  entropy: { title: 'Entropy', meaning: 'Mean entropy of the policy over sampled tokens, in nats.' },
  kl: { title: 'KL to the reference', meaning: 'Mean k3 estimate; 0 without a KL term.' },
  clipFractionLow: {
    title: 'Clipped below',
    meaning: 'Share of tokens whose gradient the lower bound on the ratio cut.',
  },
  clipFractionHigh: {
    title: 'Clipped above',
    meaning: 'Share of tokens whose gradient the upper bound on the ratio cut.',
  },
  clipFractionDual: { title: 'Clipped, dual', meaning: 'Share of tokens that the dual clip cut.' },
  ratioMean: { title: 'Mean ratio', meaning: 'New probability over old, over sampled tokens.' },
  ratioMax: { title: 'Largest ratio', meaning: 'Of the first pass; 1 when sampler and trainer agree.' },
  advantageMean: { title: 'Mean advantage', meaning: 'Over training rows.' },
  advantageDeviation: { title: 'Deviation of advantages', meaning: 'Standard deviation over training rows.' },
  importanceWeightMean: { title: 'Mean importance weight', meaning: 'Truncated: trainer against sampler.' },
  importanceWeightMin: { title: 'Least importance weight', meaning: 'Truncated: trainer against sampler.' },
  importanceTruncated: {
    title: 'Weights at the cap',
    meaning: 'Share of tokens whose importance weight is at its cap.',
  },
  valueLoss: { title: 'Value loss', meaning: 'Of the learned value.' },
  explainedVariance: { title: 'Explained variance', meaning: 'Of the returns, by the learned value.' },
  loss: { title: 'Loss', meaning: 'Of the policy update.' },
  gradNorm: { title: 'Gradient norm', meaning: 'Before clipping.' },
  learningRate: { title: 'Learning rate', meaning: 'Of the optimizer.' },
  zeroVarianceGroups: {
    title: 'Groups without variance',
    meaning: 'All runs of the question earned the same, so they teach nothing.',
  },
  excluded: { title: 'Excluded', meaning: 'Trajectories that failed outside the policy.' },
  sampledTokens: { title: 'Sampled tokens', meaning: 'Per step.' },
  padding: {
    title: 'Padding',
    meaning: 'Share of the positions run through the model that hold no token.',
    share: true,
  },
  shared: {
    title: 'Shared prefixes',
    meaning: 'Share of the rows’ tokens that were run with another row’s.',
    share: true,
  },
  secondsRollout: { title: 'Seconds of rollouts', meaning: 'Per step.' },
  secondsUpdate: { title: 'Seconds of update', meaning: 'Per step.' },
}

/** Also between the last step and the closing of the store: a page that stopped following then would never say that the run is complete. */
export function isRunning({
  complete,
  written,
  now,
  metrics,
}: Pick<LiveContent, 'complete' | 'written' | 'now' | 'metrics'>): boolean {
  if (complete || written === null) return false
  const silent = (now.getTime() - written.getTime()) / 1000
  return silent < Math.max(SILENT_SECONDS, SILENT_STEPS * secondsPerStep(metrics.steps))
}

export function liveBody(content: LiveContent): Html {
  const { metrics, newest, gold } = content
  return html`<h1>Live</h1>
<div data-follow id="live">
${status(content)}
${tiles(content)}
${metrics.steps.length > 1 && curves(metrics)}
${
  newest.length > 0 &&
  html`<section aria-labelledby="newest-title"><h2 id="newest-title">Newest groups</h2><ul class="groups">${newest.map((group) => groupCard(group, gold))}</ul></section>`
}
</div>`
}

function status(content: LiveContent): Html {
  const { metrics, planned, complete, written, now } = content
  const done = (metrics.steps.at(-1)?.step ?? -1) + 1
  const ago = written === null ? null : Math.max(0, (now.getTime() - written.getTime()) / 1000)
  const of = planned === null ? '' : ` of ${count(planned)}`
  const step = metrics.steps.length > 0 ? `Step ${count(done)}${of}. ` : ''
  const state = complete
    ? 'The run is complete.'
    : isRunning(content)
      ? `Running; last written ${duration(ago ?? 0)} ago.`
      : `Not running${ago === null ? '' : `; last written ${duration(ago)} ago`}. What was stored is whole; --resume goes on from the newest checkpoint.`
  return html`<p class="status ${isRunning(content) ? 'running' : complete ? 'complete' : 'stopped'}" role="status">${step}${state}</p>
${planned !== null && metrics.steps.length > 0 && html`<progress max="${planned}" value="${done}" aria-label="Steps done">${done} of ${planned}</progress>`}`
}

function tiles(content: LiveContent): Html {
  const { metrics, planned, trajectories, totals } = content
  const recent = metrics.steps.slice(-RECENT)
  const mean = (name: string): number | null => {
    const values = recent.flatMap((record) => (record[name] === undefined ? [] : [record[name]]))
    return values.length === 0 ? null : values.reduce((sum, value) => sum + value, 0) / values.length
  }
  const pace = secondsPerStep(recent)
  const perStep = metrics.steps.length > 0 ? trajectories / metrics.steps.length : 0
  const [reward, accuracy, grounded, turns, tokens] = ['reward', 'accuracy', 'grounded', 'turns', 'sampledTokens'].map(
    mean,
  )
  const done = (metrics.steps.at(-1)?.step ?? -1) + 1
  const lastVisit = metrics.heldOut.at(-1)
  const over = `mean over the last ${recent.length} steps`
  const tile = (name: string, value: Part, meaning: string) =>
    html`<div title="${meaning}"><dt>${name}</dt><dd>${value}</dd></div>`
  return html`<dl class="tiles">
${reward != null && tile('reward', decimal(reward, 3), over)}
${accuracy != null && tile('accuracy', percent(accuracy), `${over}; sampled`)}
${lastVisit?.accuracy !== undefined && tile('held out', percent(lastVisit.accuracy), `accuracy on held-out questions after ${count(lastVisit.step)} steps`)}
${accuracy == null && totals.scored > 0 && tile('accuracy', percent(totals.right / totals.scored), 'over all trajectories that did not fail outside the policy')}
${grounded != null && tile('right clip', percent(grounded), over)}
${turns != null && tile('turns', decimal(turns), over)}
${tile('trajectories', count(trajectories), 'stored so far')}
${pace > 0 && tile('runs / s', `${decimal(perStep / pace, 1)}`, 'trajectories per second, update included')}
${pace > 0 && tokens != null && tile('tokens / s', count(Math.round(tokens / pace)), 'sampled tokens per second, update included')}
${pace > 0 && tile('per step', duration(pace), over)}
${isRunning(content) && planned !== null && pace > 0 && tile('to go', duration(pace * (planned - done)), 'at the pace of the last steps')}
</dl>
<p class="hint ended">Ended: ${totals.stops.map(([stop, times], at) => html`${at > 0 && ' · '}${words(stop)} ${count(times)}`)}</p>`
}

function secondsPerStep(steps: readonly StepNumbers[]): number {
  const timed = steps.slice(-RECENT).map((record) => (record.secondsRollout ?? 0) + (record.secondsUpdate ?? 0))
  return timed.length === 0 ? 0 : timed.reduce((sum, value) => sum + value, 0) / timed.length
}

function curves({ steps, heldOut }: Metrics): Html {
  const present = [...new Set(steps.flatMap((record) => Object.keys(record)))].filter((name) => name !== 'step')
  const names = [
    ...Object.keys(KNOWN).filter((name) => present.includes(name)),
    ...present.filter((name) => !(name in KNOWN)),
  ]
  const drawn = names.map((name) => ({
    name,
    values: steps.flatMap((record): [number, number][] =>
      record[name] === undefined ? [] : [[record.step, record[name]]],
    ),
  }))
  return html`<section aria-labelledby="curves-title"><h2 id="curves-title">Training curves</h2>
<p class="hint">Thin: as measured; thick: running mean.</p>
<div class="curves">${heldOutFigure(heldOut)}${drawn
    .filter(({ values }) => values.some(([, value]) => Math.abs(value - (values[0]?.[1] ?? 0)) > ROUNDING))
    .map(({ name, values }) => figure(name, values))}</div>
${numbers(steps, names)}</section>`
}

function heldOutFigure(visits: readonly StepNumbers[]): Html | null {
  const values = visits.flatMap(({ step, accuracy }): [number, number][] =>
    accuracy === undefined ? [] : [[step, accuracy]],
  )
  return values.length < 2 ? null : figure('heldOut', values)
}

function figure(name: string, values: readonly [number, number][]): Html {
  const { title, meaning, share } = KNOWN[name] ?? { title: name, meaning: '' }
  const last = values.at(-1)?.[1] ?? 0
  return html`<figure><figcaption title="${meaning}">${title} <strong>${short(last)}</strong></figcaption>${markup(curve({ name, values, share: share === true }))}</figure>`
}

/** What varies by less than this, such as the mean of whitened advantages, is not drawn. */
const ROUNDING = 1e-12

const TABLE_ROWS = 12

function numbers(steps: readonly StepNumbers[], names: readonly string[]): Html {
  const every = Math.max(1, Math.ceil(steps.length / TABLE_ROWS))
  const shown = steps.filter((_, at) => at % every === 0 || at === steps.length - 1)
  return html`<details class="numbers" id="numbers"><summary>The numbers as a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Numbers by step"><table>
<caption class="unseen">Metrics by training step</caption>
<thead><tr><th scope="col" class="number">step</th>${names.map((name) => html`<th scope="col" class="number" title="${KNOWN[name]?.meaning ?? ''}">${KNOWN[name]?.title ?? name}</th>`)}</tr></thead>
<tbody>${shown.map((record) => html`<tr><th scope="row" class="number">${record.step}</th>${names.map((name) => html`<td class="number">${record[name] === undefined ? '–' : short(record[name])}</td>`)}</tr>`)}</tbody></table></div></details>`
}

function groupCard(group: readonly TrajectoryRow[], gold: boolean): Html | null {
  const [first] = group
  if (first === undefined) return null
  return html`<li><h3>${first.question} <span class="aside">step ${first.step}</span></h3><ul>${group.map(
    (row) =>
      html`<li><a href="${pathOf('t', row.trajectoryId)}${gold && '?gold=1'}">${chips(row.turns)} <span>${row.answer === null ? words(row.stopReason) : (row.options[row.answer] ?? '')}</span></a>${gold && html` ${outcome(row.correct, row.reward !== null)}`}</li>`,
  )}</ul></li>`
}

/** Four significant digits. */
function short(value: number): string {
  if (Number.isInteger(value)) return count(value)
  return (Math.abs(value) < 0.001 ? value.toExponential(2) : String(Number(value.toPrecision(4)))).replace(/^-/, '−')
}
