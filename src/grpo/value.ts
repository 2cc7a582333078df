/**
 * The learned value baseline: a linear head on the policy's final hidden state, trained to predict a trajectory's reward from the state
 * before its first sampled token. One value per trajectory, not per token: the advantage is R - V for all of its tokens.
 * The head is no part of the model: it is kept with the optimizer's state and never saved among the weights.
 */

import { variance } from 'simple-statistics'
import type { Ops } from '../engine/ops.ts'
import type { DecoderConfig, Weights } from '../policy/architecture.ts'
import { weight } from '../policy/architecture.ts'

const WEIGHT = 'value_head.weight'
const BIAS = 'value_head.bias'

/** Names and shapes of the head, as those of `weightShapes`. It starts at 0. */
export function valueHeadShapes({ hiddenSize }: DecoderConfig): Map<string, number[]> {
  return new Map([
    [WEIGHT, [1, hiddenSize]],
    [BIAS, [1]],
  ])
}

/** Normed hidden states [M, hiddenSize] -> values [M]. */
export function predictedValues<V>(ops: Ops<V>, weights: Weights<V>, hidden: V): V {
  const values = ops.linear(hidden, weight(weights, WEIGHT), weight(weights, BIAS))
  return ops.reshape(values, [ops.shapeOf(hidden)[0]!])
}

/** sum_i w_i (V_i - R_i)², each [M]: the mean squared error where the weights of N states are 1/N and all others 0. */
export function valueLossTerm<V>(ops: Ops<V>, values: V, returns: V, weights: V): V {
  const error = ops.subtract(values, returns)
  return ops.sum(ops.multiply(ops.multiply(error, error), weights), [0], false)
}

/** 1 - Var(R - V) / Var(R): 1 when the values foretell the returns, 0 when they are no better than a constant; null when all returns are equal. */
export function explainedVariance(values: readonly number[], returns: readonly number[]): number | null {
  if (returns.length === 0) return null
  const total = variance([...returns])
  return total === 0 ? null : 1 - variance(returns.map((value, index) => value - values[index]!)) / total
}
