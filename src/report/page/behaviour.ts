/** The part of the page about what the trajectories did: accuracy and cost, tools, grounding, how they ended, where wrong ones went wrong, what people said. */
import { relative } from 'node:path'
import { idInAddress, storeRoot, VIEWER_PORT } from '../../trajectory/stores.ts'
import { frequentPatterns, OTHER, otherShare, sharesChart } from '../charts/bars.ts'
import { failureKinds } from '../failureKinds.ts'
import type { GivenLabel, Group } from '../gather.ts'
import type { MetricKey } from '../metrics.ts'
import { escaped, figure, metricCell, metricHead, paragraph, type Section, type Terms, table, whole } from './pieces.ts'

const ACCURACY = [
  'accuracy',
  'accuracyLenient',
  'turns',
  'tokens',
  'usdMaster',
  'usdGrounding',
  'usdVision',
  'usd',
  'seconds',
  'failed',
] as const

/** For trajectories that belong to no comparison. What is 0 in all groups is left out, accuracy aside. */
export function accuracyByGroup(groups: readonly Group[], terms: Terms): Section {
  const told = ACCURACY.filter((key) => key === 'accuracy' || groups.some(({ metrics }) => metrics[key]?.value))
  const strict = groups.every(({ metrics }) => metrics.accuracyLenient?.value === metrics.accuracy?.value)
  const shown = told.filter((key) => !(strict && key === 'accuracyLenient'))
  return {
    id: 'accuracy',
    title: 'Accuracy and cost',
    body: metricTable(groups, shown, terms, 'Accuracy and cost per question, with 95 % intervals'),
  }
}

const TOOLS = ['groundRate', 'regroundRate', 'lookRate', 'answered', 'formatRate', 'turns', 'calls', 'frames'] as const

export function toolSection(groups: readonly Group[], terms: Terms): Section {
  return {
    id: 'tools',
    title: 'Tool use',
    body: [
      paragraph(
        'What the runs did, turn by turn, and how often the master used its agents. One letter per turn: g grounds (asks where to look), v looks (asks what is there), a answers, x is malformed.',
      ),
      figure(toolChart(groups), 'Stacked bars: share of runs by action pattern'),
      metricTable(groups, TOOLS, terms, 'Tool use and format'),
    ].join('\n'),
  }
}

/** The most frequent patterns over all groups, and the rest. */
function toolChart(groups: readonly Group[]) {
  const rows = groups.map(({ label, n, patterns }) => ({
    label,
    shares: Object.fromEntries(Object.entries(patterns).map(([pattern, count]) => [pattern || 'no turn', count / n])),
  }))
  const shown = frequentPatterns([Object.fromEntries(rows.map(({ label, shares }) => [label, shares]))])
  const divided = rows.map(({ label, shares }) => ({
    label,
    shares: { ...shares, [OTHER]: otherShare(shares, shown) },
  }))
  return sharesChart('tools', 'share of runs', divided, [...shown, OTHER])
}

const GROUNDING = [
  'groundingInitial',
  'groundingFinal',
  'groundingAnyVisited',
  'windowHits',
  'meanIou',
  'recallIou10',
  'recallIou30',
  'recallIou50',
] as const

export function groundingSection(groups: readonly Group[], terms: Terms): Section | null {
  if (!groups.some(({ metrics }) => metrics.groundingInitial)) return null
  return {
    id: 'grounding',
    title: 'Finding the evidence',
    body: [
      paragraph(
        'Whether the clip with the evidence was shown, when, and how well the window in view at the end covers it in time.',
      ),
      metricTable(groups, GROUNDING, terms, 'Grounding, with 95 % intervals'),
    ].join('\n'),
  }
}

function metricTable(groups: readonly Group[], keys: readonly MetricKey[], terms: Terms, caption: string): string {
  const shown = keys.filter((key) => groups.some(({ metrics }) => metrics[key]))
  const rows = groups.map(({ label, metrics }) => [label, ...shown.map((key) => metricCell(key, metrics[key]))])
  return table(['', ...metricHead(terms, shown)], rows, caption)
}

const REASONS: Record<string, string> = {
  answered: 'The master gave a valid answer.',
  invalid_action: 'The master wrote no action, in a system that ends then.',
  turn_limit: 'K turns were used up without an answer.',
  token_limit: 'The bound on tokens was reached.',
  context_limit: 'The prompt no longer fitted into the master’s context.',
  deadline: 'The wall-clock bound was reached.',
  agent_error: 'A grounding or vision agent could not be reached.',
  policy_error: 'The master could not be reached or answered nonsense.',
  cancelled: 'Somebody stopped the run.',
}

export function stopSection(groups: readonly Group[], terms: Terms): Section {
  const reasons = Object.keys(REASONS).filter((reason) => groups.some(({ stopReasons }) => stopReasons[reason]))
  const rows = groups.map(({ label, n, stopReasons }) => ({
    label,
    shares: Object.fromEntries(reasons.map((reason) => [words(reason), (stopReasons[reason] ?? 0) / n])),
  }))
  const [only, ...others] = reasons
  if (only !== undefined && others.length === 0)
    return { id: 'stops', title: 'Why runs ended', body: paragraph(`All runs: ${words(only)}. ${REASONS[only]}`) }
  return {
    id: 'stops',
    title: 'Why runs ended',
    body: [
      figure(sharesChart('stops', 'share of runs', rows, reasons.map(words)), 'Stacked bars of stop reasons'),
      table(
        [
          '',
          'runs',
          ...reasons.map((reason) => terms.term(`stop-${reason}`, words(reason), REASONS[reason] as string)),
        ],
        groups.map(({ label, n, stopReasons }) => [
          label,
          whole(n),
          ...reasons.map((reason) => ({ content: whole(stopReasons[reason] ?? 0), title: REASONS[reason] as string })),
        ]),
        'Runs by stop reason',
      ),
    ].join('\n'),
  }
}

const words = (reason: string) => reason.replaceAll('_', ' ')

export function failureSection(groups: readonly Group[], directory: string, terms: Terms): Section {
  const kinds = failureKinds.filter(({ key }) => groups.some((group) => group.failureKinds[key]))
  if (kinds.length === 0)
    return { id: 'failures', title: 'Where wrong answers come from', body: paragraph('No run was wrong.') }
  const rows = groups.map((group) => ({
    label: group.label,
    shares: Object.fromEntries(kinds.map(({ key, label }) => [label, (group.failureKinds[key]?.n ?? 0) / group.n])),
  }))
  return {
    id: 'failures',
    title: 'Where wrong answers come from',
    body: [
      paragraph(
        'What happened in the wrong runs, by the first of these kinds that holds. It says what happened, not why; the viewer shows single runs.',
      ),
      figure(
        sharesChart(
          'failures',
          'share of all runs',
          rows,
          kinds.map(({ label }) => label),
        ),
        'Stacked bars of failure kinds',
      ),
      table(
        ['', 'wrong', ...kinds.map(({ key, label, definition }) => terms.term(`failure-${key}`, label, definition))],
        groups.map((group) => [
          group.label,
          whole(Object.values(group.failureKinds).reduce((sum, { n }) => sum + n, 0)),
          ...kinds.map(({ key, definition }) => ({
            content: whole(group.failureKinds[key]?.n ?? 0),
            title: definition,
          })),
        ]),
        'Wrong runs by kind',
      ),
      `<h3>Examples</h3><p class="screen">The links work while the viewer runs:</p><pre class="screen">npm run showrunner -- view ${escaped(directory)}</pre>`,
      ...groups.map((group) => examples(group, directory)),
      failedList(groups),
    ].join('\n'),
  }
}

function examples({ label, directory: store, failureKinds: found }: Group, directory: string): string {
  const items = failureKinds.flatMap(({ key, label: kind }) => {
    const links = found[key]?.examples.map(
      ({ trajectoryId, question }) =>
        `<li>${trajectoryLink(trajectoryId, relative(directory, store))} ${escaped(question)}</li>`,
    )
    return links ? [`<li>${escaped(kind)}<ul>${links.join('')}</ul></li>`] : []
  })
  return items.length === 0 ? '' : `<details><summary>${escaped(label)}</summary><ul>${items.join('')}</ul></details>`
}

/** `store`: its path from the folder that the viewer is opened on. */
function trajectoryLink(id: string, store: string): string {
  return `<a href="http://127.0.0.1:${VIEWER_PORT}${escaped(`${storeRoot(store)}t/${idInAddress(id)}`)}">${escaped(id)}</a>`
}

const MOST_FAILED = 50

function failedList(groups: readonly Group[]): string {
  const failed = groups.flatMap(({ label, failed }) => failed.map((one) => ({ label, ...one })))
  if (failed.length === 0) return paragraph('No run failed outside the master.')
  const rows = failed
    .slice(0, MOST_FAILED)
    .map(({ label, trajectoryId, message }) => [`${label}, ${trajectoryId}`, { content: message, words: true }])
  const more = failed.length > MOST_FAILED ? `; the first ${MOST_FAILED}` : ''
  return table(['', 'what failed'], rows, `${failed.length} runs failed outside the master and count as wrong${more}`)
}

const LABELS: Record<GivenLabel['kinds'][number], string> = {
  grounding_wrong: 'grounding wrong',
  vision_wrong: 'vision wrong',
  reasoning_wrong: 'reasoning wrong',
  question_ambiguous: 'question ambiguous',
  other: 'other',
}

export function labelSection(labels: readonly GivenLabel[], directory: string): Section | null {
  if (labels.length === 0) return null
  const counts = Object.entries(LABELS).map(
    ([kind, name]) => [name, whole(labels.filter(({ kinds }) => kinds.some((one) => one === kind)).length)] as const,
  )
  const rows = labels.map(({ trajectoryId, kinds, note, by, goldShown, directory: store }) => [
    { html: trajectoryLink(trajectoryId, relative(directory, store)) },
    { content: kinds.map((kind) => LABELS[kind]).join(', ') || '–', words: true },
    { content: note, words: true },
    by,
    goldShown ? 'yes' : 'no',
    { content: relative(directory, store) || '–', words: true },
  ])
  return {
    id: 'labels',
    title: 'What people said',
    body: [
      paragraph(
        `${labels.length} ${labels.length === 1 ? 'trajectory was' : 'trajectories were'} labelled by hand in the viewer.`,
      ),
      table(['', 'labels'], counts, 'Labels by kind'),
      table(['trajectory', 'label', 'note', 'by', 'gold shown', 'store'], rows, 'Labels'),
    ].join('\n'),
  }
}
