/** The three graphs that the trainer runs: log-probabilities, the GRPO loss with gradients, and cross-entropy with gradients. */

import type { FloatType, Value } from '../engine/graph.ts'
import { Graph } from '../engine/graph.ts'
import { graphOps } from '../engine/graph-ops.ts'
import type { Ops } from '../engine/ops.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { decoderLogits, weightShapes } from '../policy/architecture.ts'
import { policyLoss } from './loss.ts'

/** Name of the output that holds the gradient of a weight. */
export function gradientOutput(name: string): string {
  return `gradient/${name}`
}

interface Parts {
  graph: Graph
  ops: Ops<Value>
  weights: Map<string, Value>
  /** Log-probabilities [M, vocabulary] at the wanted rows. */
  logSoftmax: Value
  /** Ids [M] of the targets and their log-probabilities. */
  targets: Value
  logprobs: Value
}

/** Inputs: weights by Hugging Face name, `ids` [B, T], `rows` [M], `targets` [M], `inverseTemperature`. Output: `logprobs` [M]. */
function forward(config: DecoderConfig, float: FloatType, differentiable: boolean): Parts {
  const graph = new Graph(float)
  const ops = graphOps(graph)
  const weights = new Map(
    [...weightShapes(config)].map(([name, shape]) => [name, graph.input(name, float, shape, { differentiable })]),
  )
  const ids = graph.input('ids', 'int32', ['B', 'T'])
  const rows = graph.input('rows', 'int32', ['M'])
  const targets = graph.input('targets', 'int32', ['M'])
  const inverseTemperature = graph.input('inverseTemperature', float, [])
  const logits = ops.multiply(decoderLogits(ops, config, weights, ids, rows), inverseTemperature)
  const logSoftmax = ops.logSoftmax(logits)
  const logprobs = ops.pick(logSoftmax, targets)
  return { graph, ops, weights, logSoftmax, targets, logprobs }
}

function addGradients({ graph, ops, weights }: Parts, loss: Value): void {
  const gradients = graph.gradients(loss, [...weights.values()], ops.add)
  ;[...weights.keys()].forEach((name, index) => graph.output(gradientOutput(name), gradients[index]!))
}

export function scoreGraph(config: DecoderConfig, float: FloatType = 'float32'): Graph {
  const { graph, logprobs } = forward(config, float, false)
  graph.output('logprobs', logprobs)
  return graph
}

export interface PolicyGraphOptions {
  kl: boolean
  klBiasCorrection: boolean
}

/** Further inputs: `oldLogprobs`, `advantages`, `tokenWeights` [M], `ratioFloor`, `ratioCeiling`; with KL `referenceLogprobs` [M], `klCoefficient`. */
export function policyGraph(config: DecoderConfig, options: PolicyGraphOptions, float: FloatType = 'float32'): Graph {
  const parts = forward(config, float, true)
  const { graph, ops, logprobs, logSoftmax } = parts
  const column = (name: string) => graph.input(name, float, ['M'])
  const scalar = (name: string) => graph.input(name, float, [])
  const loss = policyLoss(ops, {
    logprobs,
    oldLogprobs: column('oldLogprobs'),
    advantages: column('advantages'),
    weights: column('tokenWeights'),
    ratioFloor: scalar('ratioFloor'),
    ratioCeiling: scalar('ratioCeiling'),
    kl: options.kl
      ? {
          referenceLogprobs: column('referenceLogprobs'),
          coefficient: scalar('klCoefficient'),
          biasCorrection: options.klBiasCorrection,
        }
      : null,
  })
  addGradients(parts, loss)
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
