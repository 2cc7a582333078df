/** The programs that the trainer runs: log-probabilities (and values), the policy loss with gradients, and cross-entropy with gradients. */

import type { Ops } from '../engine/ops.ts'
import type { ProgramValue } from '../engine/program.ts'
import { ProgramBuilder } from '../engine/program.ts'
import type { FloatType } from '../engine/shape.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { decoderHidden, trainedWeights, vocabularyLogits } from '../policy/architecture.ts'
import { weightInputs } from '../policy/weights.ts'
import type { PolicyObjective } from './loss.ts'
import { policyLoss } from './loss.ts'
import { predictedValues, valueHeadShapes, valueLossTerm } from './value.ts'

/** Name of the output that holds the gradient of a weight. */
export function gradientOutput(name: string): string {
  return `gradient/${name}`
}

interface Parts {
  program: ProgramBuilder
  ops: Ops<ProgramValue>
  weights: Map<string, ProgramValue>
  /** Names of the weights that gradients are asked for. */
  trained: readonly string[]
  /** Values [M] of the states at the wanted rows; null without a value head. */
  values: ProgramValue | null
  /** Log-probabilities [M, vocabulary] at the wanted rows. */
  logSoftmax: ProgramValue
  /** Ids [M] of the targets and their log-probabilities. */
  targets: ProgramValue
  logprobs: ProgramValue
}

/** Inputs: weights by Hugging Face name, `ids` [B, T], `rows` [M], `targets` [M], `inverseTemperature`. */
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
  const ids = program.input('ids', 'int32', ['B', 'T'])
  const rows = program.input('rows', 'int32', ['M'])
  const targets = program.input('targets', 'int32', ['M'])
  const inverseTemperature = program.input('inverseTemperature', float, [])
  const hidden = decoderHidden(ops, config, weights, ids, rows)
  const logits = ops.multiply(vocabularyLogits(ops, config, weights, hidden), inverseTemperature)
  const logSoftmax = ops.logSoftmax(logits)
  const logprobs = ops.pick(logSoftmax, targets)
  const values = valueHead ? predictedValues(ops, weights, hidden) : null
  return { program, ops, weights, trained, values, logSoftmax, targets, logprobs }
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
 * `importanceWeights` [M]; with ratios per sequence `rowOfToken` [M], `rowIndices` [B], `rowShares` [M]; with a value head `returns`,
 * `valueWeights` [M]. Outputs besides gradients: `loss`, `logprobs` [M], `entropy` [M], and with a value head `valueLoss`.
 */
export function policyGraph(
  config: DecoderConfig,
  options: PolicyGraphOptions,
  float: FloatType = 'float32',
): ProgramBuilder {
  const { objective, valueCoefficient } = options
  const parts = forward(config, float, valueCoefficient !== null)
  const { program, ops, logprobs, logSoftmax, values } = parts
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
              indices: program.input('rowIndices', 'int32', ['B']),
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
  program.output('entropy', ops.negate(ops.sum(ops.multiply(ops.exp(logSoftmax), logSoftmax), [1], false)))
  program.output('logprobs', logprobs)
  program.output('loss', loss)
  return program
}

/** Further input: `tokenWeights` [M]. Loss: minus the weighted sum of log-probabilities. Output `correct` [M]: 1 where the likeliest token is the target. */
export function supervisedGraph(config: DecoderConfig, float: FloatType = 'float32'): ProgramBuilder {
  const parts = forward(config, float)
  const { program, ops, logprobs, logSoftmax, targets } = parts
  const tokenWeights = program.input('tokenWeights', float, ['M'])
  const loss = ops.negate(ops.sum(ops.multiply(logprobs, tokenWeights), [0], false))
  addGradients(parts, loss)
  program.output('correct', ops.equal(ops.argMax(logSoftmax), targets))
  program.output('logprobs', logprobs)
  program.output('loss', loss)
  return program
}
