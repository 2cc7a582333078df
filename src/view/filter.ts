/**
 * What a list is asked for: the words of an address -> a filter -> the positions that match it. Texts are not searched here
 * (search.ts).
 *
 * Some filters tell what only gold tells (right or wrong, reward, kind): asking for one is asking for gold.
 */
import { z } from 'zod'
import { type Label, labelKinds } from '../trajectory/labels.ts'
import type { Columns } from './runIndex.ts'

const blankIsAbsent = <Value extends z.ZodType>(value: Value) =>
  z.preprocess((given) => (given === '' ? undefined : given), value.optional())
const whole = blankIsAbsent(z.coerce.number().int().min(0))
const number = blankIsAbsent(z.coerce.number())
const text = blankIsAbsent(z.string().max(400))

export const outcomes = ['right', 'wrong', 'failed'] as const
export const labelled = ['any', 'none', ...labelKinds] as const

/** As it stands in addresses; what is absent does not filter. Unknown words are left alone. */
export const listQuery = z.object({
  q: text.describe('Words that question, answer or reasoning have, or an id.'),
  outcome: blankIsAbsent(z.enum(outcomes)),
  stop: text,
  kind: text,
  turns: whole,
  least: number.describe('Least reward.'),
  most: number.describe('Largest reward.'),
  from: whole.describe('First step.'),
  to: whole.describe('Last step.'),
  system: text,
  version: text,
  label: blankIsAbsent(z.enum(labelled)),
  order: blankIsAbsent(z.literal('newest')).describe('As stored when absent.'),
  page: blankIsAbsent(z.coerce.number().int().min(1)),
  gold: blankIsAbsent(z.literal('1')),
})

export type ListQuery = z.output<typeof listQuery>

/** Whether the answer may show gold: because that was asked for, or because the filter tells it anyway. */
export function asksForGold({ gold, outcome, kind, least, most }: ListQuery): boolean {
  return gold === '1' || [outcome, kind, least, most].some((value) => value !== undefined)
}

/** The same list as an address; `changes` set to undefined drop a word. */
export function addressOf(path: string, query: ListQuery, changes: Partial<ListQuery> = {}): string {
  const words = new URLSearchParams()
  for (const [key, value] of Object.entries({ ...query, ...changes })) {
    if (value !== undefined) words.set(key, String(value))
  }
  const search = words.toString()
  return search === '' ? path : `${path}?${search}`
}

/** Whether anything is filtered, texts aside. */
export function narrows(query: ListQuery): boolean {
  const { q: _q, page: _page, gold: _gold, order: _order, ...filters } = query
  return Object.values(filters).some((value) => value !== undefined)
}

/** Positions that match, in the order of the store. `labels` by position. */
export function matching(
  columns: Columns,
  query: ListQuery,
  labels: ReadonlyMap<number, Label>,
  from = 0,
): Uint32Array {
  const matches = matcher(columns, query, labels)
  const found = new Uint32Array(columns.length - from)
  let count = 0
  for (let position = from; position < columns.length; position++) if (matches(position)) found[count++] = position
  return found.subarray(0, count)
}

function matcher(
  columns: Columns,
  query: ListQuery,
  labels: ReadonlyMap<number, Label>,
): (position: number) => boolean {
  const tests: ((position: number) => boolean)[] = []
  const { outcome, stop, kind, turns, least, most, from, to, system, version, label } = query
  if (outcome === 'right') tests.push((at) => columns.correct(at))
  if (outcome === 'wrong') tests.push((at) => columns.scored(at) && !columns.correct(at))
  if (outcome === 'failed') tests.push((at) => !columns.scored(at))
  for (const [column, name] of [
    [columns.stop, stop],
    [columns.kind, kind],
    [columns.system, system],
    [columns.version, version],
  ] as const) {
    if (name === undefined) continue
    const code = column.codeOf(name)
    tests.push((at) => column.codeAt(at) === code)
  }
  if (turns !== undefined) tests.push((at) => columns.turns.at(at) === turns)
  // without a reward no bound holds: NaN compares to nothing
  if (least !== undefined) tests.push((at) => columns.reward.at(at) >= least)
  if (most !== undefined) tests.push((at) => columns.reward.at(at) <= most)
  if (from !== undefined) tests.push((at) => columns.step.at(at) >= from)
  if (to !== undefined) tests.push((at) => columns.step.at(at) <= to)
  if (label === 'any') tests.push((at) => labels.has(at))
  else if (label === 'none') tests.push((at) => !labels.has(at))
  else if (label !== undefined) tests.push((at) => labels.get(at)?.kinds.includes(label) === true)
  return (position) => tests.every((test) => test(position))
}
