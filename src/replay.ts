/**
 * `showrunner replay`: runs the rows at which a training run stopped again, with the weights that it stopped with, and says of each what
 * is not finite first. Changes no weights and trains nothing.
 */

import { type Checkpoint, loadCheckpoint } from './checkpoint/checkpoint.ts'
import { openTrainer } from './grpo/deviceTrainer.ts'
import type { Evidence } from './grpo/nonFinite.ts'
import { firstNonFinite } from './grpo/nonFinite.ts'
import type { Trainer } from './grpo/trainer.ts'
import { type NonFiniteRecord, readNonFinite } from './nonFinite.ts'
import { openMaster } from './open.ts'
import { trainedOf } from './policy/adapter.ts'
import type { Result } from './types.ts'

export interface Replayed {
  step: number
  /** What the run stopped at. */
  tensor: string
  /** Of each row, its place in the batch and what is not finite first; null where all of it is finite. */
  rows: { row: number; tokens: number; tensor: string | null }[]
  /** The same of all rows together: a sum may overflow where no row does. */
  together: string | null
}

/** `folder` is one that training left, `checkpoints/<run>/non-finite-step-...`. */
export async function replayNonFinite(folder: string): Promise<Result<Replayed>> {
  const read = await readNonFinite(folder)
  if (!read.ok) return read
  const { config } = read.value
  if (config.policy.type === 'endpoint') throw new Error('A run that trains has a policy of its own')
  // The folder is a checkpoint of whatever was trained: it takes the place of what the run began with.
  const policy = { ...config.policy, path: folder, adapter: null, lora: null }
  const opened = await openMaster({ ...config, policy })
  if (!opened.ok) return opened
  const { trainable } = opened.value
  try {
    const { device, config: decoder } = trainable!.policy
    const trainer = await openTrainer(device, decoder, { valueHead: config.grpo.advantageBaseline === 'value' })
    try {
      const restored = await restore(trainer, trainable!.files, read.value)
      return restored.ok ? { ok: true, value: await replayed(trainer, read.value) } : restored
    } finally {
      await trainer.close()
    }
  } finally {
    await opened.value.policy.close()
  }
}

/** A value head and the reference, where the rows were run with them. */
async function restore(
  trainer: Trainer,
  files: Checkpoint,
  { evidence, config, optimizerStep }: NonFiniteRecord,
): Promise<Result<void>> {
  if (files.training !== null)
    await trainer.load({ weights: trainedOf(files), optimizer: files.training.optimizer, step: optimizerStep })
  if (evidence.phase === 'score' && evidence.weights === 'reference' && config.policy.type === 'checkpoint') {
    const base = await loadCheckpoint(config.policy.path, config.policy.adapter)
    if (!base.ok) return base
    await trainer.keepReference(base.value.weights)
  }
  return { ok: true, value: undefined }
}

async function replayed(trainer: Trainer, { step, tensor, evidence, config }: NonFiniteRecord): Promise<Replayed> {
  const first = (some: Evidence) => firstNonFinite(trainer, some, config.grpo.microBatchTokens)
  const rows: Replayed['rows'] = []
  for (const [at, row] of evidence.indices.entries()) {
    const alone: Evidence =
      evidence.phase === 'score'
        ? { ...evidence, indices: [row], rows: [evidence.rows[at]!] }
        : { ...evidence, indices: [row], rows: [evidence.rows[at]!] }
    rows.push({ row, tokens: evidence.rows[at]!.ids.length, tensor: await first(alone) })
  }
  return { step, tensor, rows, together: await first(evidence) }
}

/** A line per row, for a terminal. */
export function replayText({ step, tensor, rows, together }: Replayed): string {
  const lines = rows.map(
    ({ row, tokens, tensor: found }) =>
      `row ${row} (${tokens} tokens): ${found === null ? 'finite' : `${found} is not finite`}`,
  )
  const again = rows.some(({ tensor: found }) => found !== null) || together !== null
  return [
    `training stopped at step ${step}: ${tensor} was not finite`,
    ...lines,
    `all together: ${together === null ? 'finite' : `${together} is not finite`}`,
    again ? 'reproduced' : 'not reproduced: weights, rows or engine differ from those of the run',
  ].join('\n')
}
