/** Segment scoring behind a chat endpoint with image inputs: one call per segment, with its pictures, the question and its options (spec systems.md, section 3.2). */
import { z } from 'zod'
import type { Agent, Question, Relevance, SegmentScoringAnswer, SegmentScoringRequest, Stretch } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { askJson, type Behind, inline } from './askEndpoint.ts'
import { furtherAgent, summed } from './furtherAgent.ts'
import { momentsAt, spread } from './moments.ts'
import { listed, type PictureOptions, picturesOf } from './pictures.ts'

const instructions = [
  'You judge how much one short segment of a long video has to do with a question about that video. You see still pictures of the segment.',
  'Scores: 4: what question and options are about is visible, and is enough to answer. 3: some of it is visible, more is needed. 2: only something related to it is. 1: nothing to do with it.',
  'Reply with JSON alone: {"relevance": 1 to 4, "caption": "what happens in the segment, in a sentence or two", "reasoning": "why this score, or null for 1"}',
].join('\n')

const reply = z.object({
  relevance: z.number().int().min(1).max(4),
  caption: z.string(),
  reasoning: z.string().nullable().default(null),
})

export function openSegmentScoringEndpoint(
  behind: Behind,
  frames: FrameReader,
  options: PictureOptions,
): Agent<SegmentScoringRequest, SegmentScoringAnswer> {
  return furtherAgent('segmentScoring', `endpoint:${behind.model}`, async (request, { signal }) => {
    const { episode, question, segments, framesPerSegment } = request
    const score = async (segment: Stretch) => {
      const moments = momentsAt(episode, spread(segment, framesPerSegment))
      if (!moments.ok) return moments
      const pictures = await picturesOf(moments.value, frames, options, signal)
      if (!pictures.ok) return pictures
      const seen = pictures.value.map(({ frame }) => frame)
      if (seen.length === 0) return { ok: true as const, value: { seen, answer: null } }
      const urls = pictures.value.map(({ url }) => url)
      const text = `${listed(pictures.value)}\n\n${asked(question)}`
      const answer = await askJson(
        behind,
        { agent: 'segmentScoring', instructions, pictures: urls, text, signal },
        reply,
      )
      return answer.ok ? { ok: true as const, value: { seen, answer: answer.value } } : answer
    }
    const answers = await Promise.all(segments.map(score))
    const scores: SegmentScoringAnswer['scores'][number][] = []
    const seen = []
    const usage = []
    for (const one of answers) {
      if (!one.ok) return one
      const { answer } = one.value
      seen.push(...one.value.seen)
      if (answer !== null) usage.push(answer.usage)
      scores.push(
        answer === null
          ? { relevance: 1, caption: '', reasoning: null }
          : { ...answer.value, relevance: answer.value.relevance as Relevance },
      )
    }
    const blind = answers.filter((one) => one.ok && one.value.answer === null).length
    return {
      ok: true,
      value: {
        scores,
        frames: seen,
        caveat: blind === 0 ? null : `${blind} of ${segments.length} segments have no pictures and were given 1 .`,
        usage: summed(usage),
      },
    }
  })
}

function asked({ text, options }: Question): string {
  return [`Question: ${inline(text)}`, ...options.map((option, index) => `a${index}: ${inline(option)}`)].join('\n')
}
