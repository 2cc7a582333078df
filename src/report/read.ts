/** Outcomes of a stored run, with its answer key. Measures nothing. */
import { readAnswerKey } from '../trajectory/answerKey.ts'
import { readTrajectories } from '../trajectory/read.ts'
import type { Result } from '../types.ts'
import { type Outcome, outcomeOf } from './outcome.ts'

/** In the order they were stored. Memory grows with the number of trajectories, not with their texts. */
export async function readOutcomes(directory: string): Promise<Result<Outcome[]>> {
  const rows = await readTrajectories(directory)
  if (!rows.ok) return rows
  const key = await readAnswerKey(directory)
  if (!key.ok) return key
  const outcomes: Outcome[] = []
  for await (const row of rows.value) outcomes.push(outcomeOf(row, key.value))
  return { ok: true, value: outcomes }
}
