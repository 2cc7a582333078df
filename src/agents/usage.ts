/** What calls cost, for the records of this room. */
import type { Usage } from '../types.ts'

/** One call's usage; what is not named is 0. */
export function oneCall(parts: Partial<Usage>): Usage {
  return { calls: 1, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0, ...parts }
}

/** Seconds since `begin`, a value of `performance.now()`. */
export function secondsSince(begin: number): number {
  return (performance.now() - begin) / 1000
}
