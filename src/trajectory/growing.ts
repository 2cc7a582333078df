/**
 * A training segment while it grows, call by call: the prompt's ids, what was sampled, what was observed, and so on. Whether a call goes on
 * from a segment is for the caller to say; `continues` compares ids. Stores nothing.
 */

export interface GrowingSegment {
  ids: number[]
  actionMask: (0 | 1)[]
  logprobs: number[]
  promptLength: number
  policyVersion: string
}

/** One call: the whole prompt that was sent, and what was sampled with which log-probabilities. */
export interface SampledCall {
  promptIds: readonly number[]
  tokenIds: readonly number[]
  logprobs: readonly number[]
  policyVersion: string
}

export function beginSegment({
  promptIds,
  policyVersion,
}: Pick<SampledCall, 'promptIds' | 'policyVersion'>): GrowingSegment {
  return { ids: [], actionMask: [], logprobs: [], promptLength: promptIds.length, policyVersion }
}

/** Appends what the prompt has beyond the segment, never sampled, and the sampled ids. The prompt must begin with the segment's ids. */
export function growSegment(segment: GrowingSegment, { promptIds, tokenIds, logprobs }: SampledCall): void {
  const append = (id: number, mask: 0 | 1, logprob: number) => {
    segment.ids.push(id)
    segment.actionMask.push(mask)
    segment.logprobs.push(logprob)
  }
  for (let t = segment.ids.length; t < promptIds.length; t++) append(promptIds[t] as number, 0, 0)
  for (const [t, id] of tokenIds.entries()) append(id, 1, logprobs[t] as number)
}

/** Whether a prompt begins with the whole segment, sampled by the same version. */
export function continues(
  segment: GrowingSegment,
  { promptIds, policyVersion }: Pick<SampledCall, 'promptIds' | 'policyVersion'>,
): boolean {
  return (
    segment.policyVersion === policyVersion &&
    segment.ids.length <= promptIds.length &&
    segment.ids.every((id, t) => promptIds[t] === id)
  )
}
