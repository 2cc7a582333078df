/** The programs that the trainer runs: log-probabilities (and values), the policy loss with gradients, and cross-entropy with gradients. */

import type { Ops } from '../engine/ops.ts'
import type { ProgramValue } from '../engine/program.ts'
import { ProgramBuilder } from '../engine/program.ts'
import type { TensorData } from '../engine/protocol.ts'
import type { Dim, FloatType } from '../engine/shape.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { trainedWeights, vocabularyLogits } from '../policy/architecture.ts'
import { sharedPrefixHidden } from '../policy/sharedPrefix.ts'
import { weightInputs } from '../policy/weights.ts'
import type { MicroBatch } from './batching.ts'
import type { PolicyObjective } from './loss.ts'
import { policyLoss } from './loss.ts'
import { predictedValues, valueHeadShapes, valueLossTerm } from './value.ts'

/** Name of the output that holds the gradient of a weight. */
export function gradientOutput(name: string): string {
  return `gradient/${name}`
}

/** A micro-batch under the names of the programs' inputs. */
export function microBatchInputs(batch: MicroBatch, float: FloatType): Record<string, TensorData> {
  const { G, P, B, T } = batch.shape
  const integers = (data: Int32Array, dims: readonly number[] = [data.length]): TensorData => ({
    type: 'int32',
    dims,
    data,
  })
  const lengths = float === 'float32' ? Float32Array.from(batch.prefixLengths) : Float64Array.from(batch.prefixLengths)
  return {
    prefixIds: integers(batch.prefixIds, [G, P]),
    prefixLengths: { type: float, dims: [G], data: lengths },
    ids: integers(batch.ids, [B, T]),
    prefixOf: integers(batch.prefixOf),
    prefixStates: integers(batch.prefixStates),
    rowStates: integers(batch.rowStates),
    stateOf: integers(batch.stateOf),
    targets: integers(batch.targets),
  }
}

interface Parts {
  program: ProgramBuilder
  ops: Ops<ProgramValue>
  weights: Map<string, ProgramValue>
  /** Names of the weights that gradients are asked for. */
  trained: readonly string[]
  /** Values [M] of the states that predict the targets; null without a value head. */
  values: ProgramValue | null
  /** Temperature-scaled logits [N, vocabulary] of the N wanted states. */
  logits: ProgramValue
  /** The state that predicts each target, its id, and its log-probability: [M]. */
  stateOf: ProgramValue
  targets: ProgramValue
  logprobs: ProgramValue
}

/**
 * Inputs: weights by Hugging Face name; what `MicroBatch` holds: `prefixIds` [G, P], `prefixLengths` [G], `ids` [B, T], `prefixOf` [B],
 * `prefixStates` [N1], `rowStates` [N2], `stateOf` [M], `targets` [M]; and `inverseTemperature`.
 */
function forward(config: DecoderConfig, float: FloatType, valueHead = false): Parts {
  const program = new ProgramBuilder(float)
  const { ops } = program
  const weights = weightInputs(program, config)
  const trained = trainedWeights(config)
  if (valueHead) {
    for (const [name, shape] of valueHeadShapes(config)) {
      weights.set(name, program.input(name, float, shape))
      trained.push(name)
    }
  }
  const integers = (name: string, shape: readonly Dim[]) => program.input(name, 'int32', shape)
  const blocks = {
    prefixIds: integers('prefixIds', ['G', 'P']),
    prefixLengths: program.input('prefixLengths', float, ['G']),
    ids: integers('ids', ['B', 'T']),
    prefixOf: integers('prefixOf', ['B']),
    prefixStates: integers('prefixStates', ['N1']),
    rowStates: integers('rowStates', ['N2']),
  }
  const stateOf = integers('stateOf', ['M'])
  const targets = integers('targets', ['M'])
  const inverseTemperature = program.input('inverseTemperature', float, [])
  const hidden = sharedPrefixHidden(ops, config, weights, blocks)
  // The states are scaled rather than the logits, of which there are many more.
  const logits = vocabularyLogits(ops, config, weights, ops.multiply(hidden, inverseTemperature))
  const logprobs = ops.logSoftmaxAt(logits, stateOf, targets)
  const values = valueHead ? ops.gatherRows(predictedValues(ops, weights, hidden), stateOf) : null
  return { program, ops, weights, trained, values, logits, stateOf, targets, logprobs }
}

function addGradients({ program, weights, trained }: Parts, loss: ProgramValue): void {
  program.gradients(loss, new Map(trained.map((name) => [gradientOutput(name), weights.get(name)!])))
}

/** Output: `logprobs` [M]; with a value head also `values` [M]. */
export function scoreGraph(config: DecoderConfig, float: FloatType = 'float32', valueHead = false): ProgramBuilder {
  const { program, logprobs, values } = forward(config, float, valueHead)
  program.output('logprobs', logprobs)
  if (values !== null) program.output('values', values)
  return program
}

export interface PolicyGraphOptions {
  objective: PolicyObjective
  /** Token losses are multiplied by `importanceWeights`. */
  importanceWeights: boolean
  /** Weight of the value head's mean squared error in the loss; null without a head. */
  valueCoefficient: number | null
}

/**
 * Further inputs: `oldLogprobs`, `advantages`, `tokenWeights` [M]; with KL `referenceLogprobs` [M]; with importance weights
 * `importanceWeights` [M]; with ratios per sequence `rowOfToken` [M], `rowIndices` [S], `rowShares` [M]; with a value head `returns`,
 * `valueWeights` [M]. Outputs besides gradients: `loss`, `logprobs` [M], `entropy` [M], and with a value head `valueLoss`.
 */
export function policyGraph(
  config: DecoderConfig,
  options: PolicyGraphOptions,
  float: FloatType = 'float32',
): ProgramBuilder {
  const { objective, valueCoefficient } = options
  const parts = forward(config, float, valueCoefficient !== null)
  const { program, ops, logprobs, logits, stateOf, values } = parts
  const column = (name: string) => program.input(name, float, ['M'])
  const loss = policyLoss(
    ops,
    {
      logprobs,
      oldLogprobs: column('oldLogprobs'),
      advantages: column('advantages'),
      weights: column('tokenWeights'),
      referenceLogprobs: objective.klCoefficient > 0 ? column('referenceLogprobs') : null,
      importanceWeights: options.importanceWeights ? column('importanceWeights') : null,
      rows:
        objective.importanceSamplingLevel === 'sequence'
          ? {
              rowOfToken: program.input('rowOfToken', 'int32', ['M']),
              indices: program.input('rowIndices', 'int32', ['S']),
              shares: column('rowShares'),
            }
          : null,
    },
    objective,
  )
  let total = loss
  if (values !== null) {
    const valueLoss = valueLossTerm(ops, values, column('returns'), column('valueWeights'))
    total = ops.add(loss, ops.multiply(valueLoss, ops.scalar(valueCoefficient!)))
    program.output('valueLoss', valueLoss)
  }
  addGradients(parts, total)
  program.output('entropy', ops.gatherRows(ops.entropy(logits), stateOf))
  program.output('logprobs', logprobs)
  program.output('loss', loss)
  return program
}

/** Further input: `tokenWeights` [M]. Loss: minus the weighted sum of log-probabilities. Output `correct` [M]: 1 where the likeliest token is the target. */
export function supervisedGraph(config: DecoderConfig, float: FloatType = 'float32'): ProgramBuilder {
  const parts = forward(config, float)
  const { program, ops, logprobs, logits, stateOf, targets } = parts
  const tokenWeights = program.input('tokenWeights', float, ['M'])
  const loss = ops.negate(ops.sum(ops.multiply(logprobs, tokenWeights), [0], false))
  addGradients(parts, loss)
  program.output('correct', ops.equal(ops.gatherRows(ops.argMax(logits), stateOf), targets))
  program.output('logprobs', logprobs)
  program.output('loss', loss)
  return program
}
