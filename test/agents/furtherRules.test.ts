/** Rules of the further agents that need no model, by hand. */
import { expect, test } from 'vitest'
import { alike, appearanceSize } from '../../src/agents/appearance.ts'
import { overlapOf, sharedArea } from '../../src/agents/boxShares.ts'
import { everyFew, momentsAt, spread, stretchOf, thinned } from '../../src/agents/moments.ts'
import { follow } from '../../src/agents/objectTracking.ts'
import { relationsOf } from '../../src/agents/sceneGraphEmbedded.ts'
import { coverage, rate } from '../../src/agents/segmentScoringEmbedded.ts'
import { entitiesOf } from '../../src/agents/subtitlesEmbedded.ts'
import { runsOf } from '../../src/agents/temporalGrounding.ts'
import type { Box } from '../../src/types.ts'
import { episodeOf, value } from './film.ts'

const episode = episodeOf(() => ({ kind: 'none' }))

test('moments: clips begin at their start, the end belongs to the last', () => {
  const moments = value(momentsAt(episode, [-1, 0, 1.5, 2, 9.5, 10, 10.1]))
  expect(moments.map(({ clip, at, time }) => [clip.index, at, time])).toEqual([
    [0, 0, 0],
    [0, 1.5, 1.5],
    [1, 2, 0],
    [4, 9.5, 1.5],
    [4, 10, 2],
  ])
  expect(thinned(moments, 2).map(({ at }) => at)).toEqual([1.5, 9.5])
})

test('stretches are cut to the video; pictures spread over them', () => {
  expect(value(stretchOf({ episode, stretch: null }))).toEqual({ start: 0, end: 10 })
  expect(value(stretchOf({ episode, stretch: { start: -3, end: 4 } }))).toEqual({ start: 0, end: 4 })
  expect(value(stretchOf({ episode, stretch: { start: 12, end: 14 } }))).toEqual({ start: 10, end: 10 })
  expect(spread({ start: 4, end: 8 }, 2)).toEqual([5, 7])
  expect(everyFew({ start: 4, end: 8 }, 2, 10)).toEqual([5, 7])
  expect(everyFew({ start: 0, end: 8 }, 0.5, 2)).toEqual([2, 6])
  expect(everyFew({ start: 10, end: 10 }, 2, 10)).toEqual([])
})

test('coverage: rare words weigh more, words that nobody says half', () => {
  // kettle: 1 of 3 texts, ln 4. mira: 2 of 3, ln 2.5. buy: none, ln 4 / 2.
  const [kettle, mira, absent] = [Math.log(4), Math.log(2.5), Math.log(4) / 2]
  const whole = kettle + mira + absent
  const covered = coverage('did mira buy the kettle', ['mira had kettles', 'mira left', 'rain'])
  expect(covered[0]).toBeCloseTo((kettle + mira) / whole, 6)
  expect(covered[1]).toBeCloseTo(mira / whole, 6)
  expect(covered[2]).toBe(0)
  expect(coverage('', ['a'])).toEqual([0])
})

test("relevance: Symphony's scale", () => {
  expect(rate(0.4, 0, true)).toBe(4)
  expect(rate(0.4, 0, false)).toBe(3)
  expect(rate(0.1, 0.6, true)).toBe(3)
  expect(rate(0.2, 0, false)).toBe(2)
  expect(rate(0, 0, true)).toBe(2)
  expect(rate(0, 0.45, false)).toBe(2)
  expect(rate(0.19, 0.44, false)).toBe(1)
})

test('stretches of a temporal grounding: runs above the bar, best first, parted where pictures lack', () => {
  const scores = [0, 0, 0.9, 0.8, 0, 0, 1, 0, 0].map((score, index) => ({ time: 2 * index + 1, score }))
  expect(runsOf(scores, 2)).toEqual([
    { start: 12, end: 14, score: 1 },
    { start: 4, end: 8, score: 0.9 },
  ])
  const gap = scores.filter(({ time }) => time !== 7).map((one) => (one.time === 9 ? { ...one, score: 0.9 } : one))
  expect(runsOf(gap, 2).map(({ start, end }) => [start, end])).toEqual([
    [12, 14],
    [4, 6],
    [8, 10],
  ])
  expect(
    runsOf(
      [
        { time: 1, score: 0.5 },
        { time: 3, score: 0.5 },
      ],
      2,
    ),
  ).toEqual([])
})

const thing = (label: string, box: Box) => ({ label, score: 0.9, box, colour: 'red' as const })

test('tracks: by overlap, the best pair first; gaps, cuts and labels part them', () => {
  const options = { minimumOverlap: 0.3, longestGapSeconds: 1 }
  const at = (left: number, label = 'car') => thing(label, [left, 0, 0.2, 0.2])
  const step = (time: number, cut: boolean, ...objects: ReturnType<typeof at>[]) => ({ time, cut, objects })
  const ids = (steps: ReturnType<typeof step>[]) =>
    follow(steps, options).map(({ id, points }) => [id, points.map(({ time }) => time)])
  // two cars drive to the right; the second stands where the first was a little later
  expect(
    ids([step(0, false, at(0), at(0.15)), step(0.5, false, at(0.05), at(0.2)), step(1, false, at(0.1), at(0.25))]),
  ).toEqual([
    ['car 1', [0, 0.5, 1]],
    ['car 2', [0, 0.5, 1]],
  ])
  expect(ids([step(0, false, at(0)), step(1, false), step(2, false, at(0))])).toEqual([
    ['car 1', [0]],
    ['car 2', [2]],
  ])
  expect(ids([step(0, false, at(0)), step(0.5, false), step(1, false, at(0))])).toEqual([['car 1', [0, 1]]])
  expect(ids([step(0, false, at(0)), step(0.5, true, at(0))])).toEqual([
    ['car 1', [0]],
    ['car 2', [0.5]],
  ])
  expect(ids([step(0, false, at(0)), step(0.5, false, at(0, 'bus'))])).toEqual([
    ['car 1', [0]],
    ['bus 1', [0.5]],
  ])
})

test('relations: within, overlaps, left of, above; several of a label are numbered', () => {
  const car = thing('car', [0.1, 0.5, 0.4, 0.4])
  const wheel = thing('wheel', [0.2, 0.7, 0.1, 0.1])
  expect(relationsOf([car, wheel])).toEqual([{ subject: 'wheel', relation: 'within', object: 'car' }])
  // shared 0.2 x 0.4 = 0.08, union 0.24: a third
  expect(relationsOf([car, thing('car', [0.3, 0.5, 0.4, 0.4])])).toEqual([
    { subject: 'car 1', relation: 'overlaps', object: 'car 2' },
  ])
  expect(relationsOf([car, thing('dog', [0, 0.6, 0.05, 0.05])])).toMatchObject([
    { subject: 'dog', relation: 'left of' },
  ])
  expect(relationsOf([car, thing('sun', [0.3, 0, 0.1, 0.1])])).toMatchObject([{ subject: 'sun', relation: 'above' }])
  expect(sharedArea(car.box, wheel.box)).toBeCloseTo(0.01, 9)
  expect(overlapOf(car.box, wheel.box)).toBeCloseTo(0.01 / 0.16, 9)
  expect(overlapOf(car.box, [0.9, 0, 0.1, 0.1])).toBe(0)
})

test('likeness of pictures: half by features, half by colours', () => {
  const look = (feature: number, lightness: number) => {
    const vector = new Float32Array(appearanceSize)
    vector[0] = 1
    vector[1] = feature
    for (let at = 512; at < appearanceSize; at += 3) vector[at] = lightness
    return vector
  }
  expect(alike(look(0, 50), look(0, 50))).toBeCloseTo(1, 6)
  // cosine of (1, 0) and (1, 1) is 0.7071; every cell 20 units darker
  expect(alike(look(0, 50), look(1, 30))).toBeCloseTo((2 * Math.SQRT1_2 - 1) / 2 + Math.exp(-1) / 2, 5)
  // cosine 0.4472 < 1/2 says nothing
  expect(alike(look(0, 50), look(2, 50))).toBeCloseTo(0.5, 6)
})

test('entities: speakers and names inside of sentences', () => {
  const line = (speaker: string | null, text: string) => ({ clipId: 'c', start: null, end: null, speaker, text })
  expect(
    entitiesOf([
      line('mira', "We met Omar in Ashford. Then Lena's dog came."),
      line('omar', 'Did Mira say that?'),
      line(null, 'Hello'),
    ]),
  ).toEqual(['mira', 'omar', 'Ashford', 'Lena'])
})
