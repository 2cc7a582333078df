/**
 * The same things followed from picture to picture: NanoDet-g finds them, and each picture's boxes go to the tracks of the picture before by
 * overlap, the best pair first (as in SORT, Bewley et al. 2016, without its motion model, which needs more pictures per second than are
 * looked at here). A track that nothing was found for waits a little; a cut of the film ends all.
 *
 * No endpoint: chat models do not follow boxes.
 */
import type { Agent, ObjectTrackingAnswer, ObjectTrackingRequest } from '../types.ts'
import { alike } from './appearance.ts'
import { overlapOf } from './boxShares.ts'
import { labels } from './detector.ts'
import { failed } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { everyFew, hasPictures, momentsAt, stretchOf } from './moments.ts'
import type { Sight, SightedObject } from './sight.ts'
import { oneCall } from './usage.ts'

export interface TrackingOptions {
  mostFrames: number
  minimumOverlap: number
  longestGapSeconds: number
  cutBelow: number
}

export type Track = ObjectTrackingAnswer['tracks'][number]

export function openObjectTracking(
  sight: Sight,
  options: TrackingOptions,
): Agent<ObjectTrackingRequest, ObjectTrackingAnswer> {
  return furtherAgent('objectTracking', 'embedded', async (request, { signal }) => {
    const { episode, objects, framesPerSecond } = request
    const stretch = stretchOf(request)
    if (!stretch.ok) return stretch
    const times = everyFew(stretch.value, 1 / framesPerSecond, options.mostFrames)
    const moments = momentsAt(episode, times)
    if (!moments.ok) return moments
    const visible = moments.value.filter(({ clip }) => hasPictures(clip))
    if (visible.length === 0)
      return failed('agent', 'missing_file', `episode ${episode.id} has no pictures in the stretch asked for`)
    const seen = await sight.see(visible, { objects: true, appearance: true }, signal)
    if (!seen.ok) return seen
    const { sights, cached } = seen.value
    const wanted = new Set(objects.map((label) => label.toLowerCase()))
    const steps = sights.map(({ moment, objects: found, appearance }, index) => {
      const before = sights[index - 1]
      return {
        time: moment.at,
        cut: before !== undefined && alike(before.appearance!, appearance!) < options.cutBelow,
        objects: found!.filter(({ label }) => wanted.size === 0 || wanted.has(label)),
      }
    })
    const unknown = [...wanted].filter((label) => !labels.includes(label))
    const step = (stretch.value.end - stretch.value.start) / Math.max(1, times.length)
    const notes = [
      ...(unknown.length === 0 ? [] : [`${unknown.join(' , ')} : not among the 80 kinds that are found .`]),
      ...(step * framesPerSecond > 1.01 ? [`one picture every ${step.toFixed(1)} s was looked at .`] : []),
      'who or what is the same is told by place alone .',
    ]
    return {
      ok: true,
      value: {
        tracks: follow(steps, options),
        frames: sights.map(({ frame }) => frame),
        caveat: notes.join(' '),
        usage: oneCall({ frames: sights.length, cached: cached ? 1 : 0 }),
      },
    }
  })
}

interface Step {
  time: number
  /** The film was cut before this picture. */
  cut: boolean
  objects: readonly SightedObject[]
}

/** Tracks in order of first appearance; `id` is the label and a number. */
export function follow(
  steps: readonly Step[],
  { minimumOverlap, longestGapSeconds }: Pick<TrackingOptions, 'minimumOverlap' | 'longestGapSeconds'>,
): Track[] {
  interface Following {
    label: string
    points: Track['points'][number][]
  }
  const all: Following[] = []
  let open: Following[] = []
  for (const { time, cut, objects } of steps) {
    open = cut ? [] : open.filter(({ points }) => time - points.at(-1)!.time <= longestGapSeconds)
    const pairs = open
      .flatMap((track) =>
        objects
          .filter(({ label }) => label === track.label)
          .map((object) => ({ track, object, overlap: overlapOf(track.points.at(-1)!.box, object.box) })),
      )
      .filter(({ overlap }) => overlap >= minimumOverlap)
      .sort((a, b) => b.overlap - a.overlap)
    const taken = new Set<Following | SightedObject>()
    for (const { track, object } of pairs) {
      if (taken.has(track) || taken.has(object)) continue
      taken.add(track).add(object)
      track.points.push({ time, box: object.box, score: object.score })
    }
    for (const object of objects) {
      if (taken.has(object)) continue
      const track = { label: object.label, points: [{ time, box: object.box, score: object.score }] }
      all.push(track)
      open.push(track)
    }
  }
  const numbers = new Map<string, number>()
  return all.map(({ label, points }) => {
    const number = (numbers.get(label) ?? 0) + 1
    numbers.set(label, number)
    return { id: `${label} ${number}`, label, points }
  })
}
