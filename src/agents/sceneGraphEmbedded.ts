/**
 * The embedded scene graph: detected objects with the colour in their middle, written words as objects of the label `text`, and relations
 * told by boxes alone. Of several with one label, relations number them in the order of the list: `zebra 1`, `zebra 2`.
 *
 *   within     nine tenths of the smaller box lie in the larger      overlaps   the boxes share a tenth of their union
 *   left of, above                                                   otherwise, by the axis on which the centres are further apart
 */
import type { Agent, Box, SceneGraphAnswer, SceneGraphRequest } from '../types.ts'
import { sharedArea } from './boxShares.ts'
import { failed } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { hasPictures, momentsAt } from './moments.ts'
import type { Sight, Sighted } from './sight.ts'
import { oneCall } from './usage.ts'

type Scene = SceneGraphAnswer['scenes'][number]
type Thing = Scene['objects'][number]

const flat = 'relations are of boxes in the picture ; nobody judged what touches , holds or faces what .'

export function openSceneGraphEmbedded(sight: Sight): Agent<SceneGraphRequest, SceneGraphAnswer> {
  return furtherAgent('sceneGraph', 'embedded', async ({ episode, times }, { signal }) => {
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const visible = moments.value.filter(({ clip }) => hasPictures(clip))
    if (visible.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures at the moments asked for`)
    const seen = await sight.see(visible, { text: true, objects: true }, signal)
    if (!seen.ok) return seen
    const { sights, cached } = seen.value
    return {
      ok: true,
      value: {
        scenes: sights.map(sceneOf),
        frames: sights.map(({ frame }) => frame),
        caveat: flat,
        usage: oneCall({ frames: sights.length, cached: cached ? 1 : 0 }),
      },
    }
  })
}

function sceneOf({ moment, text, objects }: Sighted): Scene {
  const found: Thing[] = [
    ...(objects ?? []).map(({ label, box, colour }) => ({ label, box, attributes: [colour] })),
    ...(text?.lines ?? []).map(({ text, box, panel }) => ({
      label: 'text',
      box,
      attributes: [text.toLowerCase(), panel],
    })),
  ]
  return { time: moment.at, objects: found, relations: relationsOf(found) }
}

export function relationsOf(things: readonly Pick<Thing, 'label' | 'box'>[]): Scene['relations'] {
  const name = (index: number) => {
    const { label } = things[index]!
    const same = things.flatMap((thing, at) => (thing.label === label ? [at] : []))
    return same.length === 1 ? label : `${label} ${same.indexOf(index) + 1}`
  }
  return things.flatMap((thing, first) =>
    things.slice(first + 1).map((other, offset) => {
      const [subject, relation, object] = relate(thing.box, other.box)
      const indices = [first, first + 1 + offset]
      return { subject: name(indices[subject]!), relation, object: name(indices[object]!) }
    }),
  )
}

/** Which of the two stands first, how, and to which. */
function relate(a: Box, b: Box): [subject: 0 | 1, relation: string, object: 0 | 1] {
  const shared = sharedArea(a, b)
  const [areaA, areaB] = [a[2] * a[3], b[2] * b[3]]
  if (shared >= 0.9 * Math.min(areaA, areaB)) return areaA <= areaB ? [0, 'within', 1] : [1, 'within', 0]
  if (shared >= 0.1 * (areaA + areaB - shared)) return [0, 'overlaps', 1]
  const across = a[0] + a[2] / 2 - (b[0] + b[2] / 2)
  const down = a[1] + a[3] / 2 - (b[1] + b[3] / 2)
  if (Math.abs(across) >= Math.abs(down)) return across <= 0 ? [0, 'left of', 1] : [1, 'left of', 0]
  return down <= 0 ? [0, 'above', 1] : [1, 'above', 0]
}
