/**
 * Where in a place something like a description is seen (`frameScores.ts`): runs of neighbouring pictures that score more than halfway
 * from the median to the best. Hints, to be verified by looking.
 */
import { median } from 'simple-statistics'
import type { Agent, Stretch, TemporalGroundingAnswer, TemporalGroundingRequest } from '../types.ts'
import type { FrameScorer } from './frameScores.ts'
import { furtherAgent } from './furtherAgent.ts'

export function openTemporalGrounding(scorer: FrameScorer): Agent<TemporalGroundingRequest, TemporalGroundingAnswer> {
  return furtherAgent('temporalGrounding', scorer.name, async (request, { signal }) => {
    const scored = await scorer.score(request, request.query, signal)
    if (!scored.ok) return scored
    const { scores, step, note, usage } = scored.value
    const stretches = runsOf(scores, step).slice(0, request.count)
    const within = (time: number) => stretches.some(({ start, end }) => time >= start && time <= end)
    const notes = [note, stretches.length === 0 ? 'nothing stands out from the rest .' : null]
    return {
      ok: true,
      value: {
        stretches,
        frames: scores.flatMap(({ time, frame }) => (frame !== null && within(time) ? [frame] : [])),
        caveat: notes.filter((note) => note !== null).join(' ') || null,
        usage,
      },
    }
  })
}

/** Best first; each reaches half a step beyond its pictures. None when all pictures score the same. */
export function runsOf(
  scores: readonly { time: number; score: number }[],
  step: number,
): (Stretch & { score: number })[] {
  const values = scores.map(({ score }) => score)
  const [middle, best] = [median(values), Math.max(...values)]
  const bar = (middle + best) / 2
  const runs: (Stretch & { score: number })[] = []
  let open: (Stretch & { score: number }) | null = null
  for (const { time, score } of scores) {
    if (score <= bar) open = null
    // moments without pictures part what is on both sides of them
    else if (open !== null && time - step / 2 <= open.end + step / 4) {
      open.end = time + step / 2
      open.score = Math.max(open.score, score)
    } else {
      open = { start: time - step / 2, end: time + step / 2, score }
      runs.push(open)
    }
  }
  return runs.sort((a, b) => b.score - a.score || a.start - b.start)
}
