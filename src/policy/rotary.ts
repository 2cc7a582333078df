/**
 * Frequencies of the rotary position embedding (Su et al. 2021, arXiv:2104.09864), plain or stretched for long contexts as Llama 3.1
 * does it. Rounded to float32 where transformers rounds, so that angles agree to the last bit.
 */

/** Llama 3.1's scaling: low frequencies are divided by `factor`, high ones stay, and those between are blended. */
export interface RopeScaling {
  factor: number
  lowFrequencyFactor: number
  highFrequencyFactor: number
  /** Context length of the pretraining, in tokens: wavelengths are compared with it. */
  originalContextLength: number
}

export interface RotarySettings {
  headSize: number
  ropeTheta: number
  ropeScaling: RopeScaling | null
}

const { fround } = Math

/** theta^(-2i/D) for i < D/2, then scaled; radians per position. */
export function rotaryFrequencies({ headSize, ropeTheta, ropeScaling }: RotarySettings): number[] {
  const plain = Array.from({ length: headSize / 2 }, (_, i) =>
    fround(1 / fround(ropeTheta ** fround((2 * i) / headSize))),
  )
  return ropeScaling === null ? plain : plain.map((frequency) => scaled(frequency, ropeScaling))
}

/** `_compute_llama3_parameters` of transformers 5, modeling_rope_utils.py. */
function scaled(frequency: number, scaling: RopeScaling): number {
  const { factor, lowFrequencyFactor, highFrequencyFactor, originalContextLength } = scaling
  const wavelength = fround((2 * Math.PI) / frequency)
  const low = fround(frequency / factor)
  if (wavelength > originalContextLength / lowFrequencyFactor) return low
  if (wavelength < originalContextLength / highFrequencyFactor) return frequency
  const blend = fround(
    fround(fround(originalContextLength / wavelength) - lowFrequencyFactor) /
      (highFrequencyFactor - lowFrequencyFactor),
  )
  return fround(fround(fround(1 - blend) * low) + fround(blend * frequency))
}
