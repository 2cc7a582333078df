/**
 * The embedded captioner: what the nets see at each moment in one plain sentence or a few (`sentences.ts`); where people described a clip,
 * their words for that moment. It sees no actions, nobody's name and no object outside of COCO's 80 kinds.
 */
import type { Agent, CaptionAnswer, CaptionRequest } from '../types.ts'
import { furtherAgent } from './furtherAgent.ts'
import { describedAt, hasPictures, momentsAt } from './moments.ts'
import { describe } from './sentences.ts'
import type { Sight, Sighted } from './sight.ts'
import { oneCall } from './usage.ts'

export const seesOnly = 'these captions name written words , colors and 80 kinds of objects , and no actions .'

export function openCaptionerEmbedded(sight: Sight): Agent<CaptionRequest, CaptionAnswer> {
  return furtherAgent('captioner', 'embedded', async ({ episode, times }, { signal }) => {
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const visible = moments.value.filter(({ clip }) => hasPictures(clip))
    const seen = await sight.see(visible, { text: true, objects: true }, signal)
    if (!seen.ok) return seen
    const { sights, cached } = seen.value
    const texts = new Map(sights.map((sighted) => [sighted.moment, captionOf(sighted)]))
    const captions = moments.value
      .map((moment) => ({ time: moment.at, text: texts.get(moment) ?? describedAt(moment) }))
      .filter(({ text }) => text !== '')
    const unknown = times.length - captions.length
    const lacking = unknown === 0 ? null : `nothing is known of ${unknown} of ${times.length} moments .`
    return {
      ok: true,
      value: {
        captions,
        frames: sights.map(({ frame }) => frame),
        caveat: [visible.length > 0 ? seesOnly : null, lacking].filter((part) => part !== null).join(' ') || null,
        usage: oneCall({ frames: sights.length, cached: cached && sights.length > 0 ? 1 : 0 }),
      },
    }
  })
}

/** Everything that was seen at one moment; where that is nothing, the colour of the picture. */
export function captionOf({ text, objects }: Sighted): string {
  const percept = { text: text === null ? null : [text], objects: objects === null ? null : [objects] }
  const found = (text?.lines.length ?? 0) + (objects?.length ?? 0) > 0
  return describe(found ? 'everything' : 'colour', [percept])
}
