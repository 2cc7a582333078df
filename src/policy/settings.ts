/** What a request's `Sampling` asks of the decoder, checked. Knows no tokenizer beyond its end tokens. */
import type { GenerateRequest, Generation, Sampling, SamplingCut } from '../types.ts'
import type { DecodeRequest, SampledToken } from './decoder.ts'
import type { StopCheck } from './stopping.ts'

/** What is wrong with the settings, in words; null when nothing is. */
export function samplingProblem(
  { sampling, tellSampled, tellPrompt }: GenerateRequest,
  vocabularySize: number,
): string | null {
  const { temperature, maxTokens, minTokens = 0, topP = 1, topK = 0, minP = 0, logitBias = new Map() } = sampling
  const whole = (value: number, least: number) => Number.isInteger(value) && value >= least
  const count = (value: number | undefined) => value === undefined || (whole(value, 0) && value <= vocabularySize)
  const checks: [boolean, string][] = [
    [temperature >= 0 && temperature < Infinity, `temperature ${temperature}, expected at least 0`],
    [whole(maxTokens, 1), `maxTokens ${maxTokens}, expected a whole number of at least 1`],
    [
      whole(minTokens, 0) && minTokens <= maxTokens,
      `minTokens ${minTokens}, expected a whole number up to maxTokens ${maxTokens}`,
    ],
    [topP > 0 && topP <= 1, `topP ${topP}, expected more than 0 and at most 1`],
    [whole(topK, 0), `topK ${topK}, expected a whole number of at least 0`],
    [minP >= 0 && minP <= 1, `minP ${minP}, expected 0 to 1`],
    [count(tellSampled), `tellSampled ${tellSampled}, expected 0 to ${vocabularySize}`],
    [count(tellPrompt), `tellPrompt ${tellPrompt}, expected 0 to ${vocabularySize}`],
  ]
  for (const id of [...logitBias.keys(), ...(sampling.stopIds ?? [])])
    checks.push([whole(id, 0) && id < vocabularySize, `token id ${id}, expected 0 to ${vocabularySize - 1}`])
  for (const bias of logitBias.values()) checks.push([Number.isFinite(bias), `logitBias ${bias}, expected a number`])
  return checks.find(([holds]) => !holds)?.[1] ?? null
}

export interface Stopping {
  minTokens: DecodeRequest['minTokens']
  isEnd: DecodeRequest['isEnd']
  /** Once `isEnd` was true: the stop string or id, or null for the model's own end. */
  reason(): string | number | null
}

/** @param ownEnds the model's end tokens. */
export function stopping(sampling: Sampling, ownEnds: ReadonlySet<number>, stopped: StopCheck): Stopping {
  const { ignoreEnd = false, stopIds = [], minTokens = 0 } = sampling
  const ends = ignoreEnd ? new Set<number>() : ownEnds
  let reason: string | number | null = null
  return {
    minTokens: minTokens > 0 ? { tokens: minTokens, ids: [...ends, ...stopIds] } : undefined,
    isEnd: (sampled) => {
      const last = sampled.at(-1)!
      if (stopIds.includes(last)) reason = last
      else if (sampled.length >= minTokens) reason = stopped(sampled)
      return reason !== null || ends.has(last)
    },
    reason: () => reason,
  }
}

/** What changed the distribution, and by how much; nothing at temperature 0, where nothing is drawn. */
export function cutOf(sampling: Sampling, tokens: readonly SampledToken[]): Pick<Generation, 'cut'> {
  const changes: [boolean, SamplingCut][] = [
    [(sampling.topP ?? 1) < 1, 'top_p'],
    [(sampling.topK ?? 0) > 0, 'top_k'],
    [(sampling.minP ?? 0) > 0, 'min_p'],
    [(sampling.logitBias?.size ?? 0) > 0, 'logit_bias'],
    [(sampling.minTokens ?? 0) > 0, 'min_tokens'],
    [sampling.allowed !== undefined, 'allowed'],
  ]
  const by = changes.filter(([holds]) => holds).map(([, name]) => name)
  if (by.length === 0 || sampling.temperature === 0) return {}
  return { cut: { by, keptMass: tokens.map(({ keptMass }) => keptMass ?? 1) } }
}
