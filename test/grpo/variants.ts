/** Variants of the policy loss that tests of its graph and of its gradients go through. */

import type { PolicyObjective } from '../../src/grpo/loss.ts'

/** Every loss type, level, clip, KL and weighting at least once, and where they act on one another, together. */
export const VARIANTS: Record<string, Partial<PolicyObjective> & { importanceWeights?: boolean }> = {
  'clip per token': {},
  'clip per sequence': { importanceSamplingLevel: 'sequence' },
  'dual clip': { dualClip: 1.6 },
  'dual clip per sequence': { dualClip: 1.6, importanceSamplingLevel: 'sequence' },
  'cispo per token': { lossType: 'cispo', ratioCap: 1.2 },
  'cispo per sequence': { lossType: 'cispo', ratioCap: 1.2, importanceSamplingLevel: 'sequence' },
  k1: { klCoefficient: 0.3, klEstimator: 'k1', klBiasCorrection: false },
  'k1 corrected': { klCoefficient: 0.3, klEstimator: 'k1' },
  k2: { klCoefficient: 0.3, klEstimator: 'k2', klBiasCorrection: false },
  'k2 corrected': { klCoefficient: 0.3, klEstimator: 'k2' },
  k3: { klCoefficient: 0.3, klBiasCorrection: false },
  'k3 corrected': { klCoefficient: 0.3 },
  'k3 corrected per sequence': { klCoefficient: 0.3, importanceSamplingLevel: 'sequence' },
  'importance weights and KL': { klCoefficient: 0.3, importanceWeights: true },
  'importance weights per sequence': { importanceSamplingLevel: 'sequence', importanceWeights: true },
}
