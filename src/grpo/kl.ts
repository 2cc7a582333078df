/** Estimates of KL(policy || reference) from one token that the policy sampled: as arithmetic, and as a graph (http://joschu.net/blog/kl-approx.html). */

import type { Ops } from '../engine/ops.ts'
import type { GrpoOptions } from './options.ts'

export type KlEstimator = GrpoOptions['klEstimator']

/**
 * With d = logp - ref: k1 = d, unbiased, of either sign; k2 = d²/2, biased, never negative; k3 = exp(-d) + d - 1, unbiased, never negative
 * (Shao et al. 2024, arXiv:2402.03300, eq. 4).
 */
export function klEstimate(estimator: KlEstimator, logprob: number, reference: number): number {
  const difference = logprob - reference
  switch (estimator) {
    case 'k1':
      return difference
    case 'k2':
      return difference ** 2 / 2
    case 'k3':
      return Math.exp(-difference) + difference - 1
  }
}

/** The same for tensors of one shape. */
export function klTerm<V>(ops: Ops<V>, estimator: KlEstimator, logprobs: V, reference: V): V {
  switch (estimator) {
    case 'k1':
      return ops.subtract(logprobs, reference)
    case 'k2': {
      const difference = ops.subtract(logprobs, reference)
      return ops.multiply(ops.multiply(difference, difference), ops.scalar(0.5))
    }
    case 'k3': {
      const difference = ops.subtract(reference, logprobs)
      return ops.subtract(ops.subtract(ops.exp(difference), difference), ops.scalar(1))
    }
  }
}
