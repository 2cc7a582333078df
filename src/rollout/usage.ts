/** Sums what calls used. */
import type { Usage } from '../types.ts'

export const noUsage: Usage = {
  calls: 0,
  promptTokens: 0,
  completionTokens: 0,
  frames: 0,
  seconds: 0,
  costUsd: 0,
  cached: 0,
}

export function addUsage(a: Usage, b: Usage): Usage {
  return {
    calls: a.calls + b.calls,
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    frames: a.frames + b.frames,
    seconds: a.seconds + b.seconds,
    costUsd: a.costUsd + b.costUsd,
    cached: a.cached + b.cached,
  }
}
