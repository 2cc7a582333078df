/**
 * A sweep's stored trajectories -> what it found: every cell's numbers, paired differences against the baseline, what cannot be told
 * apart, where curves stop rising, and which cells are worth their cost. Pure: the same trajectories give the same comparison.
 */
import { failureKindOf, failureKinds } from './failureKinds.ts'
import { type Measures, type MetricKey, measureAll } from './metrics.ts'
import type { Outcome } from './outcome.ts'
import { paretoSet } from './pareto.ts'
import { type Saturation, saturationMethod, saturationOf } from './saturation.ts'
import { exchangeTest, type Flips, flipsOf, holm, mcnemar, powerOf } from './significance.ts'
import { type Interval, pairedDifference, pairedDifferences } from './statistics.ts'
import { byQuestion, grouped } from './summarize.ts'
import { ORACLE_NOTICE } from './summary.ts'
import { type Cell, cellLabel, type Settings, type Sweep } from './sweep.ts'

/** What accuracy is held against. */
export const costs = ['tokens', 'seconds', 'usd', 'frames'] as const satisfies readonly MetricKey[]
export type Cost = (typeof costs)[number]

/** A trajectory to look at, and what it was asked. */
export interface Example {
  trajectoryId: string
  question: string
}

export interface CellResult {
  label: string
  settings: Settings
  directory: string
  ceiling: boolean
  /** Questions asked for that no trajectory is stored of; a cell with any is not compared. */
  missing: number
  /** null while questions are missing. */
  metrics: Measures | null
  /** Costs for which the cell is in the Pareto set. */
  pareto: Cost[]
  stopReasons: Record<string, number>
  /** How many runs took these turns: g grounds, v looks, a answers, x is malformed. */
  patterns: Record<string, number>
  failureKinds: Record<string, { n: number; examples: Example[] }>
  /** Trajectories that failed outside the master; they count as wrong. */
  failed: { trajectoryId: string; qid: string; message: string }[]
}

export interface PairedComparison {
  cell: string
  baseline: string
  /** Questions. */
  n: number
  /** Accuracy of the cell minus that of the baseline. */
  difference: number
  ci95: Interval
  flips: Flips
  /** Exact McNemar over questions, as if they were independent. */
  mcnemar: number
  /** The same with the episode as the unit. */
  p: number
  /** `p` corrected for all comparisons of the sweep (Holm). */
  pHolm: number
  distinguishable: boolean
  smallestDetectable: number
  questionsNeeded: number | null
  statement: string
}

export interface Comparison {
  name: string
  questions: number
  episodes: number
  baseline: Settings
  cells: CellResult[]
  differences: PairedComparison[]
  saturation: (Saturation & { setting: string; of: string })[]
  methods: Record<string, string>
}

/** How the numbers of a comparison come about, for the reader. */
const methods = {
  intervals:
    '95 %, with the episode as the sampling unit: Wilson intervals with the design effect for shares, bootstrap over whole episodes (4,000 draws, percentiles widened for few episodes) for everything else.',
  differences:
    'Paired: the same questions under the same seeds. Bootstrap over whole episodes. Told from none when the interval excludes 0 and p, corrected for all comparisons of the sweep by Holm’s method, is below 0.05. p: share of the ways to exchange the two cells, episode by episode, that give a difference at least as large.',
  questionsNeeded:
    'Questions that would tell a true difference of the observed size from none four times of five at the 5 % level, with the questions per episode and the likeness within episodes that were seen: (1.96 + 0.84)² times n times the cluster variance, over the difference squared.',
  saturation: saturationMethod,
  pareto:
    'A cell is in the Pareto set when no other is as good in accuracy and cost and better in one. By point estimates.',
  failures: 'Every question counts in every cell. What failed outside the master counts as wrong and is listed.',
}

const EXAMPLES = 4

/** `outcomes`: of each cell, in the order of `sweep.cells`. */
export function compareCells(sweep: Sweep, outcomes: readonly (readonly Outcome[])[]): Comparison {
  const asked = new Set(sweep.questions.qids)
  const cells = sweep.cells.map((cell, i) => {
    const own = (outcomes[i] ?? []).filter(({ qid }) => asked.has(qid))
    return { cell, label: cellLabel(cell.settings, sweep), outcomes: own, missing: asked.size - own.length }
  })
  const whole = cells.filter(({ missing }) => missing === 0)
  const measures = new Map(whole.map(({ cell, outcomes }) => [cell, measureAll(outcomes, sweep.prices)]))
  const differences = pairedComparisons(sweep, whole)
  return {
    name: sweep.name,
    questions: asked.size,
    episodes: new Set(cells.flatMap(({ outcomes }) => outcomes.map(({ episodeId }) => episodeId))).size,
    baseline: sweep.baseline,
    cells: cells.map(({ cell, label, outcomes, missing }) => ({
      label,
      settings: cell.settings,
      directory: cell.directory,
      ceiling: cell.ceiling,
      missing,
      metrics: measures.get(cell) ?? null,
      pareto: costs.filter((cost) => inParetoSet(cell, cost, measures)),
      stopReasons: countsOf(outcomes, (one) => one.stopReason),
      patterns: countsOf(outcomes, (one) => one.pattern),
      failureKinds: failureTable(outcomes),
      failed: outcomes.flatMap(({ failedOutside, id, qid, failure, stopReason }) =>
        failedOutside ? [{ trajectoryId: id, qid, message: failure ?? stopReason }] : [],
      ),
    })),
    differences,
    saturation: saturations(sweep, whole),
    methods: { ...methods, ...(sweep.setting['oracle boxes'] === undefined ? {} : { oracle: ORACLE_NOTICE }) },
  }
}

/** How many are alike in something. */
export function countsOf(outcomes: readonly Outcome[], by: (outcome: Outcome) => string): Record<string, number> {
  return Object.fromEntries([...grouped(outcomes, by)].map(([key, same]) => [key, same.length]))
}

/** How many wrong trajectories are of each kind, and the first few of them. */
export function failureTable(outcomes: readonly Outcome[]): CellResult['failureKinds'] {
  const kinds = grouped(outcomes, (one) => failureKindOf(one)?.key ?? null)
  return Object.fromEntries(
    failureKinds.flatMap(({ key }) => {
      const same = kinds.get(key)
      const examples = same?.slice(0, EXAMPLES).map(({ id, question }) => ({ trajectoryId: id, question }))
      return same && examples ? [[key, { n: same.length, examples }]] : []
    }),
  )
}

interface Whole {
  cell: Cell
  label: string
  outcomes: readonly Outcome[]
}

function pairedComparisons(sweep: Sweep, whole: readonly Whole[]): PairedComparison[] {
  const pairs = whole.flatMap((one) => {
    const baseline = whole.find(({ cell }) => isBaselineOf(cell, one.cell, sweep.baseline))
    if (baseline === undefined || baseline === one || one.cell.ceiling) return []
    const [before, after] = [byQuestion(baseline.outcomes), byQuestion(one.outcomes)]
    const found = pairedDifference(before, after)
    const values = pairedDifferences(before, after)
    const power = powerOf(values)
    return found === null || power === null
      ? []
      : [{ cell: one.label, baseline: baseline.label, values, ...found, ...power }]
  })
  const pValues = pairs.map(({ values }) => exchangeTest(values))
  const corrected = holm(pValues)
  return pairs.map(({ values, ...pair }, i) => {
    const pHolm = corrected[i] as number
    const distinguishable = pHolm < 0.05 && (pair.ci95[0] > 0 || pair.ci95[1] < 0)
    const flips = flipsOf(values)
    const compared = { ...pair, flips, mcnemar: mcnemar(flips), p: pValues[i] as number, pHolm, distinguishable }
    return { ...compared, statement: verdict(compared) }
  })
}

/** The cell that has the baseline's settings, and the other's where the baseline names none. */
function isBaselineOf(candidate: Cell, cell: Cell, baseline: Settings): boolean {
  return Object.entries(cell.settings).every(
    ([setting, value]) => candidate.settings[setting] === (setting in baseline ? baseline[setting] : value),
  )
}

function verdict(pair: Omit<PairedComparison, 'statement'>): string {
  const { difference, questionsNeeded, n } = pair
  if (pair.distinguishable) return difference > 0 ? `better than ${pair.baseline}` : `worse than ${pair.baseline}`
  if (questionsNeeded === null) return `no difference from ${pair.baseline} was seen`
  if (questionsNeeded <= n) return `not distinguishable from ${pair.baseline} after correction for several comparisons`
  return `not distinguishable from ${pair.baseline}; a true difference of this size would take about ${questionsNeeded.toLocaleString('en-US')} questions`
}

/** A curve for each numeric setting with at least three values, for each combination of the other settings. */
function saturations(sweep: Sweep, whole: readonly Whole[]): Comparison['saturation'] {
  return sweep.varied
    .filter(({ values }) => values.length >= 3 && values.every((value) => typeof value === 'number'))
    .flatMap(({ setting }) => {
      const others = ({ cell }: Whole) =>
        JSON.stringify(Object.entries(cell.settings).filter(([key]) => key !== setting))
      const competitors = whole.filter(({ cell }) => !cell.ceiling)
      return [...grouped(competitors, others).values()].flatMap((members) => {
        const points = members
          .map(({ cell, outcomes }) => ({ value: Number(cell.settings[setting]), outcomes: byQuestion(outcomes) }))
          .sort((a, b) => a.value - b.value)
        const found = points.length >= 3 ? saturationOf(setting, points) : null
        return found === null ? [] : [{ setting, of: seriesLabel(members[0] as Whole, setting, sweep), ...found }]
      })
    })
}

/** What names a curve over `setting`: the other settings; empty when there is only one curve. */
function seriesLabel({ cell }: Whole, setting: string, { varied }: Sweep): string {
  const others = varied.filter((one) => one.setting !== setting && one.values.length > 1)
  return others.length > 0 ? cellLabel(cell.settings, { varied: others }) : ''
}

function inParetoSet(cell: Cell, cost: Cost, measures: ReadonlyMap<Cell, Measures>): boolean {
  const points = [...measures].flatMap(([one, { accuracy, [cost]: spent }]) =>
    one.ceiling || !accuracy || !spent ? [] : [{ cell: one, accuracy: accuracy.value, cost: spent.value }],
  )
  // where nothing costs anything there is no trade
  if (points.every((point) => point.cost === 0)) return false
  return paretoSet(points).some((point) => point.cell === cell)
}
