/**
 * The embedded inspector: what the nets see at the moments asked for, put as the question asks (`query.ts`, `sentences.ts`), clip by clip;
 * what people wrote about clips without pictures is told as it stands. It does not reason about the question.
 */
import type { Agent, InspectionAnswer, InspectionRequest } from '../types.ts'
import { failed } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { describedAt, hasPictures, type Moment, momentsAt, thinned } from './moments.ts'
import { queryKind } from './query.ts'
import { describe } from './sentences.ts'
import type { Sight, Sighted } from './sight.ts'
import { oneCall } from './usage.ts'

const namesOnly = 'words , colors and 80 kinds of objects were looked for ; actions are not seen .'

export function openFrameInspectionEmbedded(
  sight: Sight,
  { mostFrames }: { mostFrames: number },
): Agent<InspectionRequest, InspectionAnswer> {
  return furtherAgent('frameInspection', 'embedded', async ({ episode, times, question }, { signal }) => {
    const placed = momentsAt(episode, times)
    if (!placed.ok) return placed
    const moments = thinned(placed.value, mostFrames)
    const kind = queryKind(question)
    const everything = kind === 'everything'
    const wanted = {
      text: everything || kind === 'text' || kind === 'colour',
      objects: everything || kind === 'object' || kind === 'count',
    }
    const seen = await sight.see(
      moments.filter(({ clip }) => hasPictures(clip)),
      wanted,
      signal,
    )
    if (!seen.ok) return seen
    const { sights, cached } = seen.value
    const tell = (here: readonly Moment[]): string => {
      const own = sights.filter(({ moment }) => here.includes(moment))
      return own.length > 0 ? describe(kind, [perceptOf(own)]) : [...new Set(here.map(describedAt))].join(' ').trim()
    }
    const clips = [...new Set(moments.map(({ clip }) => clip))]
    const told = clips
      .map((clip) => tell(moments.filter((moment) => moment.clip === clip)))
      .filter((text) => text !== '')
    if (told.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures at the moments asked for`)
    const fewer = moments.length < times.length ? `looked at ${moments.length} of ${times.length} moments .` : null
    return {
      ok: true,
      value: {
        text: [...new Set(told)].join(' '),
        frames: sights.map(({ frame }) => frame),
        caveat: [sights.length > 0 ? namesOnly : null, fewer].filter((part) => part !== null).join(' ') || null,
        usage: oneCall({ frames: sights.length, cached: cached && sights.length > 0 ? 1 : 0 }),
      },
    }
  })
}

function perceptOf(sights: readonly Sighted[]) {
  const text = sights.flatMap((sighted) => (sighted.text === null ? [] : [sighted.text]))
  const objects = sights.flatMap((sighted) => (sighted.objects === null ? [] : [sighted.objects]))
  return { text: text.length > 0 ? text : null, objects: objects.length > 0 ? objects : null }
}
