/**
 * What the runs of an update take in memory, by the shape of a micro-batch: from the programs themselves, before any of them has run. For
 * ONNX Runtime on the CPU. Weights, optimizer, caches and the process itself are not in it.
 */

import { programPeaks } from '../engine/onnx/lower.ts'
import { peakBytes } from '../engine/onnx/memory.ts'
import type { Program } from '../engine/program.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import type { BatchShape } from './batching.ts'
import { policyGraph, scoreGraph } from './graphs.ts'
import type { GrpoOptions } from './options.ts'

/**
 * What a session's arena grows to, over what is alive at once: it grows in doubling steps and is never quite full. Chosen so that measured
 * peaks stay below the budget (`npm run bench -- memory`).
 */
const ARENA = 1.6
/** The session itself: the model's graph in several forms, and buffers. */
const SESSION = 64 * 2 ** 20

/** Bytes that all programs of an update with these options take together, each in an arena of its own, at the largest micro-batch. */
export function updateMemory(config: DecoderConfig, options: GrpoOptions): (shape: BatchShape) => number {
  const programs: Program[] = [
    policyGraph(config, {
      objective: options,
      importanceWeights: options.importanceSamplingCap !== null,
      valueCoefficient: options.advantageBaseline === 'value' ? options.valueCoefficient : null,
    }).build(),
  ]
  if (options.oldLogprobs === 'recomputed') programs.push(scoreGraph(config).build())
  if (options.klCoefficient > 0) programs.push(scoreGraph({ ...config, lora: null }).build())
  if (options.advantageBaseline === 'value') programs.push(scoreGraph(config, 'float32', true).build())
  const peaks = programs.map((program) => peakBytes(programPeaks(program)))
  return ({ prefixStates, rowStates, ...shape }) => {
    const sizes = { ...shape, N1: prefixStates, N2: rowStates }
    return peaks.reduce((sum, peak) => sum + SESSION + ARENA * peak(sizes), 0)
  }
}

/** One sequence of so many tokens alone, every one of them a target: no row of that length takes more. */
export function rowShape(tokens: number): BatchShape {
  return rowsShape(1, tokens)
}

/** The same of several sequences that share nothing. */
export function rowsShape(rows: number, tokens: number): BatchShape {
  const states = rows * Math.max(1, tokens - 2)
  return {
    G: rows,
    P: 1,
    B: rows,
    T: Math.max(1, tokens - 2),
    prefixStates: rows,
    rowStates: states,
    M: rows + states,
    S: rows,
  }
}
