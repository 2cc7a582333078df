/** The frames of a place that fit a description best (`frameScores.ts`), best first. */
import type { Agent, FrameRetrievalAnswer, FrameRetrievalRequest } from '../types.ts'
import type { FrameScorer } from './frameScores.ts'
import { furtherAgent } from './furtherAgent.ts'

export function openFrameRetrieval(scorer: FrameScorer): Agent<FrameRetrievalRequest, FrameRetrievalAnswer> {
  return furtherAgent('frameRetrieval', scorer.name, async (request, { signal }) => {
    const scored = await scorer.score(request, request.query, signal)
    if (!scored.ok) return scored
    const { scores, step, note, usage } = scored.value
    const best = [...scores].sort((a, b) => b.score - a.score || a.time - b.time).slice(0, request.count)
    const sampled = `one picture every ${step.toFixed(1)} s was compared .`
    return {
      ok: true,
      value: {
        hits: best.map(({ time, score }) => ({ time, score })),
        frames: best.flatMap(({ frame }) => (frame === null ? [] : [frame])),
        caveat: note === null ? sampled : `${note} ${sampled}`,
        usage,
      },
    }
  })
}
