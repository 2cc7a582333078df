/**
 * What a training run keeps when it stops at a NaN or an infinity: `checkpoints/<run>/non-finite-step-000012/`, a checkpoint of the
 * weights that it stopped with, and `non-finite.json`, the rows that cause it with all that was asked of them. `replay.ts` runs them again.
 */

import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { type Checkpoint, saveCheckpoint } from './checkpoint/checkpoint.ts'
import { type RunConfig, runConfig } from './config.ts'
import type { Explained } from './grpo/nonFinite.ts'
import { grpoOptions } from './grpo/options.ts'
import { replaceFile, runFileFailure } from './runFolder.ts'
import type { Failure, Result } from './types.ts'

const FILE = 'non-finite.json'

/** JSON has no NaN and no infinity: they are written as words. */
const number = z.union([z.number(), z.enum(['NaN', 'Infinity', '-Infinity']).transform(Number)])
const numbers = z.array(number)
const place = z.number().int().min(0)
const scoreRow = z.object({ ids: z.array(place), positions: z.array(place) })
const given = { temperature: z.number().positive(), indices: z.array(place) }

const record = z.object({
  /** Training step that was stopped, and the optimizer steps taken before. */
  step: place,
  optimizerStep: place,
  policyVersion: z.string(),
  tensor: z.string(),
  evidence: z.discriminatedUnion('phase', [
    z.object({
      phase: z.literal('score'),
      ...given,
      weights: z.enum(['policy', 'reference']),
      rows: z.array(scoreRow).min(1),
    }),
    z.object({
      phase: z.literal('update'),
      ...given,
      objective: grpoOptions,
      rows: z
        .array(
          scoreRow.extend({
            oldLogprobs: numbers,
            referenceLogprobs: numbers.nullable(),
            importanceWeights: numbers.nullable(),
            advantage: number,
            tokenWeight: number,
            value: z.object({ return: number, weight: number }).nullable(),
          }),
        )
        .min(1),
    }),
  ]),
  config: runConfig,
})

export type NonFiniteRecord = z.output<typeof record>

export interface Stopped {
  step: number
  optimizerStep: number
  policyVersion: string
  error: Explained
  config: RunConfig
}

/** Writes checkpoint and rows; the failure that the run ends with says what happened and how to look at it. */
export async function stoppedAt(directory: string, stopped: Stopped, checkpoint: Checkpoint): Promise<Failure> {
  const { step, optimizerStep, policyVersion, error, config } = stopped
  const folder = join(directory, `non-finite-step-${String(step).padStart(6, '0')}`)
  const saved = await saveCheckpoint(folder, checkpoint)
  if (!saved.ok) return saved.failure
  const content = { step, optimizerStep, policyVersion, tensor: error.tensor, evidence: error.evidence, config }
  try {
    await replaceFile(join(folder, FILE), `${JSON.stringify(content, wordsForNumbers)}\n`)
  } catch (failed) {
    return runFileFailure(join(folder, FILE), failed).failure
  }
  return {
    boundary: 'policy',
    kind: 'bad_response',
    message: `training of ${config.name} was stopped at step ${step}: ${error.message}; rows and weights are in ${folder}; see them again with: showrunner replay ${folder}`,
  }
}

/** Reads what `stoppedAt` wrote. */
export async function readNonFinite(folder: string): Promise<Result<NonFiniteRecord>> {
  const path = join(folder, FILE)
  const bad = (kind: 'missing_file' | 'bad_file', problem: string): Result<NonFiniteRecord> => ({
    ok: false,
    failure: { boundary: 'policy', kind, message: `${path}: ${problem}` },
  })
  let json: unknown
  try {
    json = JSON.parse(await readFile(path, 'utf8'))
  } catch (error) {
    return bad(
      error instanceof SyntaxError ? 'bad_file' : 'missing_file',
      `expected what a training run keeps when it stops at a NaN or an infinity: ${(error as Error).message}`,
    )
  }
  const parsed = record.safeParse(json)
  if (parsed.success) return { ok: true, value: parsed.data }
  const { path: key, message } = parsed.error.issues[0]!
  return bad('bad_file', `${key.join('.') || 'the whole'}: ${message}`)
}

function wordsForNumbers(_key: string, value: unknown): unknown {
  if (typeof value === 'number' && !Number.isFinite(value)) return String(value)
  return value instanceof Float64Array || value instanceof Float32Array ? [...value] : value
}
