/** Draws one token from logits. Pure: the same logits and the same random number give the same token. */

export interface SampledToken {
  id: number
  /** Natural logarithm of the token's probability under the temperature-scaled distribution; at temperature 0 under that of temperature 1. */
  logprob: number
}

/**
 * @param logits of one position: [vocabularySize].
 * @param temperature 0 takes the likeliest token (the first of equals); otherwise logits are divided by it.
 * @param random a number in [0, 1): the token is where the cumulative distribution passes it.
 * Returns null when the distribution is not finite.
 */
export function sampleToken(logits: Float32Array, temperature: number, random: number): SampledToken | null {
  let best = 0
  for (let id = 1; id < logits.length; id++) if (logits[id]! > logits[best]!) best = id
  const scale = temperature === 0 ? 1 : 1 / temperature
  const largest = logits[best]!
  let sum = 0
  for (let id = 0; id < logits.length; id++) sum += Math.exp((logits[id]! - largest) * scale)
  // A NaN anywhere, or an infinite maximum, makes the sum NaN.
  if (!Number.isFinite(sum)) return null
  let id = best
  if (temperature !== 0) {
    const threshold = random * sum
    let passed = 0
    for (let candidate = 0; candidate < logits.length; candidate++) {
      passed += Math.exp((logits[candidate]! - largest) * scale)
      // When rounding keeps the sum below the threshold to the end, the likeliest token stands.
      if (passed > threshold) {
        id = candidate
        break
      }
    }
  }
  const logprob = (logits[id]! - largest) * scale - Math.log(sum)
  return Number.isFinite(logprob) ? { id, logprob } : null
}
