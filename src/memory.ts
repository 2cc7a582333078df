/**
 * The memory budget of training, `training.memoryGiB`: how much of it weights, optimizer, caches and the process take, which micro-batches
 * the rest allows, and whether it is enough for the longest row that can come. Estimates; it measures nothing.
 */

import type { RunConfig } from './config.ts'
import type { BatchShape } from './grpo/batching.ts'
import { rowShape, rowsShape, updateMemory } from './grpo/memory.ts'
import { type DecoderConfig, storageType, trainedWeights, weightShapes } from './policy/architecture.ts'
import type { Result } from './types.ts'

const GIB = 2 ** 30

/** Node, ONNX Runtime, our code, and the embedded agents with what they keep. */
const PROCESS = 0.4 * GIB
/** Rows and tokens of the largest run of the decoder, and what its arena takes over what is alive in it. */
const DECODER_ROWS = 64
const DECODER_TOKENS = 2048
const DECODER_ARENA = 1.6

export interface MemoryPlan {
  /** Whether a micro-batch may be run. */
  withinMemory: (shape: BatchShape) => boolean
  /** One line on what was chosen; null without a budget. */
  line: string | null
}

/** Fails when the budget cannot hold one row of `contextLength` tokens, naming the least that can. */
export function planMemory(config: RunConfig, decoder: DecoderConfig, contextLength: number): Result<MemoryPlan> {
  const budget = config.training.memoryGiB
  if (budget === null) return { ok: true, value: { withinMemory: () => true, line: null } }
  const fail = (message: string): Result<MemoryPlan> => ({
    ok: false,
    failure: { boundary: 'config', kind: 'bad_request', message: `training.memoryGiB: ${message}` },
  })
  if (config.engine.type !== 'onnxruntime')
    return fail(`memory is planned for engine onnxruntime only, not for ${config.engine.type}; leave it out`)
  const fixed = fixedBytes(config, decoder, contextLength)
  const runs = updateMemory(decoder, config.grpo)
  const least = fixed + runs(rowShape(contextLength))
  if (least > budget * GIB) {
    return fail(
      `${budget} GiB are too little for one row of ${contextLength} tokens: weights, optimizer, cache and process take about ${gib(fixed)}, the row ${gib(least - fixed)}; give at least ${gib(Math.ceil((least / GIB) * 100) * (GIB / 100))}, or bound the length of rows by policy.cacheTokens`,
    )
  }
  const withinMemory = (shape: BatchShape) => fixed + runs(shape) <= budget * GIB
  let rows = 1
  while ((rows + 1) * contextLength <= config.grpo.microBatchTokens && withinMemory(rowsShape(rows + 1, contextLength)))
    rows += 1
  const tokens = rows * contextLength
  const estimate = gib(fixed + runs(rowsShape(rows, contextLength)))
  const line = `memory: micro-batches of ${tokens} tokens in the longest rows, estimated ${estimate} of ${budget} GiB`
  return { ok: true, value: { withinMemory, line } }
}

/** What does not depend on micro-batches. */
function fixedBytes(config: RunConfig, decoder: DecoderConfig, contextLength: number): number {
  const shapes = weightShapes(decoder)
  const size = (shape: readonly number[]) => shape.reduce((product, dim) => product * dim, 1)
  let weights = 0
  for (const [name, shape] of shapes)
    weights += size(shape) * (storageType(decoder, name, shape, 'float32') === 'float16' ? 2 : 4)
  const trained = trainedWeights(decoder).reduce((sum, name) => sum + 4 * size(shapes.get(name)!), 0)
  // The reference of an adapter is the model below it.
  const reference = config.grpo.klCoefficient > 0 && decoder.lora === null ? weights : 0
  // On the device, and while they are loaded; then gradients, a run's own, two moments, and three copies to save.
  const training = 2 * weights + reference + 7 * trained

  const { layers, keyValueHeads, headSize, hiddenSize, intermediateSize, vocabularySize, heads } = decoder
  const perToken = 2 * 4 * keyValueHeads * headSize
  const policy = config.policy.type === 'checkpoint' ? config.policy : { rows: 0, cacheTokens: 0 }
  const conversations = Math.max(policy.rows, config.rollout.concurrency)
  const cache = layers * perToken * Math.min(policy.cacheTokens, conversations * contextLength)
  // A run reads the cache of one layer at a time, and keeps little else but what it is at and the logits.
  const run =
    DECODER_ROWS * contextLength * (perToken + 3 * 4 * heads) +
    4 * DECODER_TOKENS * (4 * hiddenSize + 3 * intermediateSize) +
    3 * 4 * DECODER_ROWS * vocabularySize
  return PROCESS + training + cache + DECODER_ARENA * run
}

function gib(bytes: number): string {
  return `${(bytes / GIB).toFixed(2)} GiB`
}
