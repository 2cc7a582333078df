/** One AdamW update of one tensor, in place. Plain loops: measured as fast as doing it in the graph. */

import type { AdamwRequest } from '../protocol.ts'

/**
 * Decoupled weight decay (Loshchilov & Hutter 2019, arXiv:1711.05101, algorithm 2), in the order of torch.optim.AdamW:
 * p -= lr wd p;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g²;  p -= lr/(1-b1^t) m / (sqrt(v)/sqrt(1-b2^t) + eps).
 */
export function adamwUpdate(
  parameter: Float32Array | Float64Array,
  gradient: Float32Array | Float64Array,
  first: Float32Array | Float64Array,
  second: Float32Array | Float64Array,
  weightDecay: number,
  { learningRate, beta1, beta2, epsilon, step, gradientScale }: Omit<AdamwRequest, 'tensors'>,
): void {
  const stepSize = learningRate / (1 - beta1 ** step)
  const secondScale = 1 / Math.sqrt(1 - beta2 ** step)
  const shrink = 1 - learningRate * weightDecay
  for (let index = 0; index < parameter.length; index += 1) {
    const g = gradient[index]! * gradientScale
    const m = beta1 * first[index]! + (1 - beta1) * g
    const v = beta2 * second[index]! + (1 - beta2) * g * g
    first[index] = m
    second[index] = v
    parameter[index] = parameter[index]! * shrink - (stepSize * m) / (Math.sqrt(v) * secondScale + epsilon)
  }
}
