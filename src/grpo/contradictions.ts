/**
 * Combinations of GRPO options that make no sense, or of which one would silently not be read. Single keys are checked by their schema.
 * A key counts as set when it differs from its default.
 */

import type { GrpoOptions } from './options.ts'

export interface Contradiction {
  key: keyof GrpoOptions
  problem: string
}

type Rule = [keys: readonly (keyof GrpoOptions)[], holds: (options: GrpoOptions) => boolean, problem: string]

/** Keys that are read only where the condition holds. */
const READ_ONLY_WHERE: readonly Rule[] = [
  [
    ['clipLow', 'clipHigh', 'dualClip'],
    ({ lossType }) => lossType !== 'cispo',
    'lossType cispo clips no ratio; it caps it at ratioCap',
  ],
  [['ratioCap'], ({ lossType }) => lossType === 'cispo', 'is read only with lossType cispo'],
  [['maxCompletionLength'], ({ lossType }) => lossType === 'dr_grpo', 'is read only with lossType dr_grpo'],
  [
    ['klEstimator', 'klBiasCorrection'],
    ({ klCoefficient }) => klCoefficient > 0,
    'is read only with a klCoefficient above 0',
  ],
  [
    ['valueCoefficient', 'valueLearningRate'],
    ({ advantageBaseline }) => advantageBaseline === 'value',
    'is read only with advantageBaseline value',
  ],
]

/** What a key needs of another. */
const NEEDS: readonly Rule[] = [
  [
    ['maxCompletionLength'],
    ({ lossType, maxCompletionLength }) => lossType !== 'dr_grpo' || maxCompletionLength !== null,
    'lossType dr_grpo divides by this length: set it, for example to the tokens that a trajectory may have',
  ],
  [
    ['dualClip'],
    ({ dualClip, clipHigh }) => dualClip === null || dualClip > 1 + clipHigh,
    'must be above 1 + clipHigh, where the ordinary clip ends',
  ],
  [
    ['advantageScale'],
    ({ advantageBaseline, advantageScale }) => advantageBaseline !== 'value' || advantageScale === 'none',
    'advantageBaseline value is R - V, which is not divided by a deviation: set advantageScale to none',
  ],
  [
    ['advantageScale'],
    ({ advantageBaseline, advantageScale }) => advantageBaseline !== 'leave_one_out' || advantageScale !== 'group',
    'advantageBaseline leave_one_out with advantageScale group is group_mean times a constant: set advantageScale to none or batch',
  ],
  [
    ['zeroVariance'],
    ({ advantageBaseline, zeroVariance }) => advantageBaseline !== 'value' || zeroVariance === 'keep',
    'advantageBaseline value learns from groups of equal rewards too: set zeroVariance to keep',
  ],
  [
    ['importanceSamplingCap'],
    ({ importanceSamplingCap, oldLogprobs }) => importanceSamplingCap === null || oldLogprobs === 'recomputed',
    'corrects recorded log-probabilities to recomputed ones: set oldLogprobs to recomputed',
  ],
]

export function contradictions(options: GrpoOptions, defaults: GrpoOptions): Contradiction[] {
  const isSet = (key: keyof GrpoOptions) => options[key] !== defaults[key]
  return [
    ...READ_ONLY_WHERE.flatMap(([keys, holds, problem]) =>
      holds(options) ? [] : keys.filter(isSet).map((key) => ({ key, problem })),
    ),
    ...NEEDS.flatMap(([keys, holds, problem]) => (holds(options) ? [] : keys.map((key) => ({ key, problem })))),
  ]
}
