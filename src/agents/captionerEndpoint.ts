/** The captioner behind a chat endpoint with image inputs: several pictures per call, one caption for each. Clips without pictures are left out. */
import { z } from 'zod'
import type { Agent, CaptionAnswer, CaptionRequest } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { askJson, type Behind } from './askEndpoint.ts'
import { failed } from './failure.ts'
import { furtherAgent, summed } from './furtherAgent.ts'
import { momentsAt } from './moments.ts'
import { listed, type PictureOptions, picturesOf } from './pictures.ts'

const instructions = [
  'You caption still pictures of a video, each by itself. A caption is one sentence: who or what is there, what they do, where, and any writing, word for word.',
  'Tell only what is visible. Reply with JSON alone, one caption per picture in their order: {"captions": ["...", "..."]}',
].join('\n')

export interface EndpointCaptionerOptions extends PictureOptions {
  picturesPerCall: number
}

export function openCaptionerEndpoint(
  behind: Behind,
  frames: FrameReader,
  options: EndpointCaptionerOptions,
): Agent<CaptionRequest, CaptionAnswer> {
  return furtherAgent('captioner', `endpoint:${behind.model}`, async ({ episode, times }, { signal }) => {
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const pictures = await picturesOf(moments.value, frames, options, signal)
    if (!pictures.ok) return pictures
    const batches = Array.from({ length: Math.ceil(pictures.value.length / options.picturesPerCall) }, (_, batch) =>
      pictures.value.slice(batch * options.picturesPerCall, (batch + 1) * options.picturesPerCall),
    )
    const answers = await Promise.all(
      batches.map((batch) =>
        askJson(
          behind,
          { agent: 'captioner', instructions, pictures: batch.map(({ url }) => url), text: listed(batch), signal },
          z.object({ captions: z.array(z.string()).length(batch.length) }),
        ),
      ),
    )
    const captions: { time: number; text: string }[] = []
    const usage = []
    for (const [index, answer] of answers.entries()) {
      if (!answer.ok) return answer
      usage.push(answer.value.usage)
      for (const [place, text] of answer.value.value.captions.entries())
        captions.push({ time: batches[index]![place]!.moment.at, text: text.replace(/\s+/g, ' ').trim() })
    }
    if (captions.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures at the moments asked for`)
    const unknown = times.length - captions.length
    return {
      ok: true,
      value: {
        captions,
        frames: pictures.value.map(({ frame }) => frame),
        caveat: unknown === 0 ? null : `there is no picture of ${unknown} of ${times.length} moments .`,
        usage: summed(usage),
      },
    }
  })
}
