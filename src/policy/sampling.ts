/**
 * Draws one token from the distribution after a prompt. Pure: the same numbers in give the same token out.
 *
 * Log-probabilities are those of the temperature-scaled distribution as the model gives it, before anything that changes what is drawn
 * (cuts, bias, bans): they are what training divides by. How much the change matters is told beside them, as `keptMass`.
 */
import type { TokenLogprob, ToldToken } from '../types.ts'

/** How to draw. Absent means off. Applied in this order: bias, temperature, minP, topK, topP (as vLLM does). */
export interface DrawSettings {
  /** 0 takes the likeliest token (the first of equals), with log-probabilities of temperature 1; otherwise logits are divided by it. */
  temperature: number
  /** Keeps the fewest tokens, likeliest first, whose probabilities (of what minP and topK kept) reach this sum; in (0, 1]. */
  topP?: number
  /** Keeps this many of the likeliest, ties going to lower ids; 0 keeps all. */
  topK?: number
  /** Keeps tokens at least this many times as probable as the likeliest one; in [0, 1]. */
  minP?: number
  /** Added to logits, by id. */
  logitBias?: ReadonlyMap<number, number>
}

export interface DrawnToken extends TokenLogprob {
  /**
   * Probability of the token divided by the probability that it was drawn with; for cuts, the share of the distribution that they kept.
   * null when nothing changed the distribution, and at temperature 0.
   */
  keptMass: number | null
}

/** Why there is no token: the distribution holds NaN or infinity, or nothing in it may be drawn. */
export type NoToken = 'not_finite' | 'no_choice'

/** Whether the settings draw from the distribution as it is. */
export function isWhole({ topP = 1, topK = 0, minP = 0, logitBias }: DrawSettings): boolean {
  return topP >= 1 && topK === 0 && minP <= 0 && (logitBias === undefined || logitBias.size === 0)
}

/**
 * Draws from a whole distribution.
 * @param probabilities at the temperature (1 when `greedy`): [vocabularySize], summing to 1 but for rounding.
 * @param random in [0, 1): the token is where the cumulative distribution passes it.
 */
export function drawWhole(probabilities: Float32Array, greedy: boolean, random: number): DrawnToken | NoToken {
  // The softmax of anything that is not finite is NaN everywhere.
  if (!(probabilities[0]! >= 0)) return 'not_finite'
  let id = greedy ? -1 : passing(probabilities, random)
  // When rounding keeps the sum below the number to the end, the likeliest token stands.
  if (id < 0) id = largest(probabilities)
  return { id, logprob: Math.log(probabilities[id]!), keptMass: null }
}

function passing(probabilities: Float32Array, random: number): number {
  let passed = 0
  for (let id = 0; id < probabilities.length; id++) {
    passed += probabilities[id]!
    if (passed > random) return id
  }
  return -1
}

function largest(values: Float32Array | Float64Array): number {
  let best = 0
  for (let id = 1; id < values.length; id++) if (values[id]! > values[best]!) best = id
  return best
}

/**
 * Draws from what the settings, and an allowed set, leave of a distribution.
 * @param logprobs of `logprobsOf`, at the settings' temperature.
 * @param allowed 1 at the ids that may be drawn: [vocabularySize]; null for all.
 * @param random in [0, 1).
 */
export function drawChanged(
  logprobs: Float64Array,
  settings: DrawSettings,
  allowed: Uint8Array | null,
  random: number,
): DrawnToken | NoToken {
  const weights = Float64Array.from(logprobs)
  for (const [id, bias] of settings.logitBias ?? []) weights[id]! += bias / (settings.temperature || 1)
  if (allowed) for (let id = 0; id < weights.length; id++) if (allowed[id] !== 1) weights[id] = -Infinity
  const best = largest(weights)
  if (weights[best] === -Infinity) return 'no_choice'
  if (settings.temperature === 0) return { id: best, logprob: logprobs[best]!, keptMass: null }
  const kept = cut(weights, weights[best]!, settings)
  const shares = kept.map((id) => Math.exp(weights[id]! - weights[best]!))
  const sum = shares.reduce((a, b) => a + b)
  let index = 0
  for (let passed = shares[0]!; passed <= random * sum && index < kept.length - 1; passed += shares[index]!) index++
  const id = kept[index]!
  return { id, logprob: logprobs[id]!, keptMass: (Math.exp(logprobs[id]!) / shares[index]!) * sum }
}

/** Ids that the cuts leave, likeliest first where an order was needed. */
function cut(weights: Float64Array, best: number, { topP = 1, topK = 0, minP = 0 }: DrawSettings): number[] {
  const floor = minP > 0 ? best + Math.log(minP) : -Infinity
  let kept: number[] = []
  for (let id = 0; id < weights.length; id++) if (weights[id]! > -Infinity && weights[id]! >= floor) kept.push(id)
  const byWeight = (a: number, b: number) => weights[b]! - weights[a]! || a - b
  if (topK > 0 && topK < kept.length) kept = kept.sort(byWeight).slice(0, topK)
  if (topP >= 1) return kept
  let total = 0
  for (const id of kept) total += Math.exp(weights[id]! - best)
  // What is less probable than this adds up to less than what topP leaves out: it is not sorted.
  const rare = (total * (1 - topP)) / kept.length
  kept = kept.filter((id) => Math.exp(weights[id]! - best) >= rare).sort(byWeight)
  let passed = 0
  const end = kept.findIndex((id) => {
    passed += Math.exp(weights[id]! - best)
    return passed >= topP * total
  })
  return end < 0 ? kept : kept.slice(0, end + 1)
}

/** Log-probabilities at a temperature (1 for 0); null when they are not finite. Logits: [vocabularySize]. */
export function logprobsOf(logits: Float32Array, temperature: number): Float64Array | null {
  const scale = 1 / (temperature || 1)
  const top = logits[largest(logits)]!
  const logprobs = new Float64Array(logits.length)
  let sum = 0
  for (let id = 0; id < logits.length; id++) {
    logprobs[id] = (logits[id]! - top) * scale
    sum += Math.exp(logprobs[id]!)
  }
  // A NaN anywhere, or an infinite maximum, makes the sum NaN.
  if (!Number.isFinite(sum)) return null
  const logSum = Math.log(sum)
  for (let id = 0; id < logits.length; id++) logprobs[id]! -= logSum
  return logprobs
}

/** A token with its rank and the `count` likeliest ones beside it, ties going to lower ids. */
export function tell(logprobs: Float64Array, id: number, count: number): ToldToken {
  const logprob = logprobs[id]!
  let rank = 1
  for (let other = 0; other < logprobs.length; other++)
    if (logprobs[other]! > logprob || (logprobs[other] === logprob && other < id)) rank++
  return { id, logprob, rank, alternatives: likeliest(logprobs, count) }
}

function likeliest(logprobs: Float64Array, count: number): TokenLogprob[] {
  const top: number[] = []
  if (count === 0) return []
  for (let id = 0; id < logprobs.length; id++) {
    if (top.length === count && !(logprobs[id]! > logprobs[top[count - 1]!]!)) continue
    let place = top.length
    while (place > 0 && logprobs[id]! > logprobs[top[place - 1]!]!) place--
    top.splice(place, 0, id)
    if (top.length > count) top.pop()
  }
  return top.map((id) => ({ id, logprob: logprobs[id]! }))
}
