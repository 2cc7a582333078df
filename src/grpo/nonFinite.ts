/** NaN and infinity in an update: the error that stops it before weights change, and the search for the rows that cause it. Writes no files. */

import type { WeightSet } from '../policy/weights.ts'
import type { PolicyObjective } from './loss.ts'
import type { GrpoOptions } from './options.ts'
import type { PolicyTrainingRow, ScoreRow, Trainer } from './trainer.ts'

/** Rows whose replay meets the value again, and what was asked of them; `indices` are their places in the batch. */
export type Evidence = { temperature: number; indices: readonly number[] } & (
  | { phase: 'score'; weights: WeightSet; rows: readonly ScoreRow[] }
  | { phase: 'update'; objective: UpdateObjective; rows: readonly PolicyTrainingRow[] }
)

export type UpdateObjective = PolicyObjective & Pick<GrpoOptions, 'valueCoefficient'>

/** Something is NaN or infinite. The weights were not changed. */
export class NonFiniteError extends Error {
  override name = 'NonFiniteError'
  constructor(
    /** What is not finite: `loss`, `logprobs`, `gradient of <weight>`, ... */
    readonly tensor: string,
    where: string,
    /** Null until the rows are known. */
    readonly evidence: Evidence | null = null,
  ) {
    super(`${tensor} is not finite ${where}; the weights were not changed`)
  }
}

export type Explained = NonFiniteError & { evidence: Evidence }

export function isExplained(error: NonFiniteError): error is Explained {
  return error.evidence !== null
}

/** The error for sequences after which the sampler's distribution was not finite. A replay scores any token behind each. */
export function samplerNonFinite(sequences: readonly (readonly number[])[], temperature: number): Explained {
  const evidence: Evidence = {
    phase: 'score',
    weights: 'policy',
    temperature,
    indices: [...sequences.keys()],
    rows: sequences.map((ids) => ({ ids: [...ids, 0], positions: [ids.length] })),
  }
  return new NonFiniteError('distribution', 'in sampling', evidence) as Explained
}

/**
 * The rows that are bad on their own, in order, by halving: a part that is not bad holds none. When a part is bad although neither half
 * is (a sum that overflows), all of it is returned.
 */
export async function culprits(
  indices: readonly number[],
  isBad: (indices: readonly number[]) => Promise<boolean>,
): Promise<number[]> {
  if (!(await isBad(indices))) return []
  if (indices.length === 1) return [...indices]
  const middle = indices.length >> 1
  const found = [
    ...(await culprits(indices.slice(0, middle), isBad)),
    ...(await culprits(indices.slice(middle), isBad)),
  ]
  return found.length > 0 ? found : [...indices]
}

/**
 * The first tensor that is not finite when these rows are run, forward and, in an update, backward; null when all are finite. Leaves no
 * gradients behind. What is given with the rows comes first, then what is computed from it.
 */
export async function firstNonFinite(
  trainer: Trainer,
  evidence: Evidence,
  microBatchTokens: number,
): Promise<string | null> {
  const { temperature } = evidence
  try {
    if (evidence.phase === 'score') {
      await trainer.score(evidence.rows, { microBatchTokens, temperature, weights: evidence.weights })
      return null
    }
    for (const row of evidence.rows) {
      const given = {
        advantage: [row.advantage],
        oldLogprobs: row.oldLogprobs,
        referenceLogprobs: row.referenceLogprobs ?? [],
        importanceWeights: row.importanceWeights ?? [],
        return: row.value === null ? [] : [row.value.return],
      }
      for (const [name, values] of Object.entries(given)) if (!allFinite(values)) return name
    }
    await trainer.forwardBackward(evidence.rows, evidence.objective, { microBatchTokens, temperature })
    return await trainer.nonFiniteGradient()
  } catch (error) {
    if (error instanceof NonFiniteError) return error.tensor
    throw error
  } finally {
    await trainer.discardGradients()
  }
}

export function allFinite(values: ArrayLike<number>): boolean {
  return Array.prototype.every.call(values, Number.isFinite)
}

/** Does a step, and where it meets a value that is not finite, names the rows that cause it. */
export async function explained<T>(
  trainer: Trainer,
  step: () => Promise<T>,
  of: Evidence,
  microBatchTokens: number,
): Promise<T> {
  try {
    return await step()
  } catch (error) {
    if (!(error instanceof NonFiniteError)) throw error
    // Written twice, since each kind of evidence has its own kind of rows.
    const some = (indices: readonly number[]): Evidence =>
      of.phase === 'score'
        ? { ...of, indices: indices.map((at) => of.indices[at]!), rows: indices.map((at) => of.rows[at]!) }
        : { ...of, indices: indices.map((at) => of.indices[at]!), rows: indices.map((at) => of.rows[at]!) }
    const found = await culprits([...of.rows.keys()], async (indices) => {
      return (await firstNonFinite(trainer, some(indices), microBatchTokens)) !== null
    })
    // What happens only once leaves no rows to blame; then all of them are kept.
    const evidence = some(found.length > 0 ? found : [...of.rows.keys()])
    const rows = evidence.indices.length === 1 ? 'row' : 'rows'
    throw new NonFiniteError(
      error.tensor,
      `at optimizer step ${trainer.step}, ${rows} ${evidence.indices.join(', ')} of the batch`,
      evidence,
    )
  }
}
