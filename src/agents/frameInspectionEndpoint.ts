/** Frame inspection behind a chat endpoint with image inputs: pictures at the moments asked for and the question in, words out. */
import type { Agent, InspectionAnswer, InspectionRequest } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { askWords, type Behind, inline } from './askEndpoint.ts'
import { failed } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { momentsAt, thinned } from './moments.ts'
import { listed, type PictureOptions, picturesOf } from './pictures.ts'

const instructions = [
  'You look at still pictures of a video, given with their times, and answer a question about them for somebody who cannot see them.',
  'Tell only what is visible; name the time of what you tell. Where the pictures do not show what is asked for, say so plainly and do not guess.',
].join('\n')

export interface EndpointInspectionOptions extends PictureOptions {
  mostFrames: number
}

export function openFrameInspectionEndpoint(
  behind: Behind,
  frames: FrameReader,
  options: EndpointInspectionOptions,
): Agent<InspectionRequest, InspectionAnswer> {
  return furtherAgent('frameInspection', `endpoint:${behind.model}`, async (request, { signal }) => {
    const { episode, times, question } = request
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const pictures = await picturesOf(thinned(moments.value, options.mostFrames), frames, options, signal)
    if (!pictures.ok) return pictures
    if (pictures.value.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures at the moments asked for`)
    const urls = pictures.value.map(({ url }) => url)
    const text = `${listed(pictures.value)}\n\nQuestion: ${inline(question)}`
    const answered = await askWords(behind, { agent: 'frameInspection', instructions, pictures: urls, text, signal })
    if (!answered.ok) return answered
    const { value, usage } = answered.value
    const fewer = pictures.value.length < times.length
    return {
      ok: true,
      value: {
        text: value,
        frames: pictures.value.map(({ frame }) => frame),
        caveat: fewer ? `looked at ${pictures.value.length} of ${times.length} moments .` : null,
        usage,
      },
    }
  })
}
