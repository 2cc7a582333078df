/** The graphs that the trainer runs: log-probabilities (and values), the policy loss with gradients, and cross-entropy with gradients. */

import type { FloatType, Value } from '../engine/graph.ts'
import { Graph } from '../engine/graph.ts'
import { graphOps } from '../engine/graph-ops.ts'
import type { Ops } from '../engine/ops.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { decoderHidden, vocabularyLogits, weightShapes } from '../policy/architecture.ts'
import type { PolicyObjective } from './loss.ts'
import { policyLoss } from './loss.ts'
import { predictedValues, valueHeadShapes, valueLossTerm } from './value.ts'

/** Name of the output that holds the gradient of a weight. */
export function gradientOutput(name: string): string {
  return `gradient/${name}`
}

interface Parts {
  graph: Graph
  ops: Ops<Value>
  weights: Map<string, Value>
  /** Values [M] of the states at the wanted rows; null without a value head. */
  values: Value | null
  /** Log-probabilities [M, vocabulary] at the wanted rows. */
  logSoftmax: Value
  /** Ids [M] of the targets and their log-probabilities. */
  targets: Value
  logprobs: Value
}

/** Inputs: weights by Hugging Face name, `ids` [B, T], `rows` [M], `targets` [M], `inverseTemperature`. */
function forward(config: DecoderConfig, float: FloatType, differentiable: boolean, valueHead = false): Parts {
  const graph = new Graph(float)
  const ops = graphOps(graph)
  const shapes = valueHead ? [...weightShapes(config), ...valueHeadShapes(config)] : [...weightShapes(config)]
  const weights = new Map(shapes.map(([name, shape]) => [name, graph.input(name, float, shape, { differentiable })]))
  const ids = graph.input('ids', 'int32', ['B', 'T'])
  const rows = graph.input('rows', 'int32', ['M'])
  const targets = graph.input('targets', 'int32', ['M'])
  const inverseTemperature = graph.input('inverseTemperature', float, [])
  const hidden = decoderHidden(ops, config, weights, ids, rows)
  const logits = ops.multiply(vocabularyLogits(ops, config, weights, hidden), inverseTemperature)
  const logSoftmax = ops.logSoftmax(logits)
  const logprobs = ops.pick(logSoftmax, targets)
  const values = valueHead ? predictedValues(ops, weights, hidden) : null
  return { graph, ops, weights, values, logSoftmax, targets, logprobs }
}

function addGradients({ graph, ops, weights }: Parts, loss: Value): void {
  const gradients = graph.gradients(loss, [...weights.values()], ops.add)
  ;[...weights.keys()].forEach((name, index) => graph.output(gradientOutput(name), gradients[index]!))
}

/** Output: `logprobs` [M]; with a value head also `values` [M]. */
export function scoreGraph(config: DecoderConfig, float: FloatType = 'float32', valueHead = false): Graph {
  const { graph, logprobs, values } = forward(config, float, false, valueHead)
  graph.output('logprobs', logprobs)
  if (values !== null) graph.output('values', values)
  return graph
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
export function policyGraph(config: DecoderConfig, options: PolicyGraphOptions, float: FloatType = 'float32'): Graph {
  const { objective, valueCoefficient } = options
  const parts = forward(config, float, true, valueCoefficient !== null)
  const { graph, ops, logprobs, logSoftmax, values } = parts
  const column = (name: string) => graph.input(name, float, ['M'])
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
              rowOfToken: graph.input('rowOfToken', 'int32', ['M']),
              indices: graph.input('rowIndices', 'int32', ['B']),
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
    graph.output('valueLoss', valueLoss)
  }
  addGradients(parts, total)
  graph.output('entropy', ops.negate(ops.sum(ops.multiply(ops.exp(logSoftmax), logSoftmax), [1], false)))
  graph.output('logprobs', logprobs)
  graph.output('loss', loss)
  return graph
}

/** Further input: `tokenWeights` [M]. Loss: minus the weighted sum of log-probabilities. Output `correct` [M]: 1 where the likeliest token is the target. */
export function supervisedGraph(config: DecoderConfig, float: FloatType = 'float32'): Graph {
  const parts = forward(config, float, true)
  const { graph, ops, logprobs, logSoftmax, targets } = parts
  const tokenWeights = graph.input('tokenWeights', float, ['M'])
  const loss = ops.negate(ops.sum(ops.multiply(logprobs, tokenWeights), [0], false))
  addGradients(parts, loss)
  graph.output('correct', ops.equal(ops.argMax(logSoftmax), targets))
  graph.output('logprobs', logprobs)
  graph.output('loss', loss)
  return graph
}
