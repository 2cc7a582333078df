/** The further agents' embedded bodies, with real ffmpeg and real nets on a film whose content is known. */
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { OpenAgents } from '../../src/agents/index.ts'
import type { Episode, Stretch } from '../../src/types.ts'
import { asks, episodeOf, type Film, failure, makeFilm, open, value } from './film.ts'

let film: Film
let agents: OpenAgents
let episode: Episode
const clip = (index: number): Stretch => ({ start: 2 * index, end: 2 * index + 2 })

beforeAll(async () => {
  film = await makeFilm()
  episode = film.episode
  agents = await open({ cacheDirectory: join(film.scratch, 'cache') })
})
afterAll(async () => {
  await agents.close()
  film.remove()
})

test('captioner: everything seen at each moment; moments past the end are left out and counted', async () => {
  const answer = value(await agents.captioner.ask({ episode, times: [0.5, 2.5, 4.5, 11] }, {}))
  expect(answer.captions).toEqual([
    { time: 0.5, text: 'the sign says lantern . the sign is red . i see car .' },
    { time: 2.5, text: 'the picture is mostly gray . i see zebra .' },
    { time: 4.5, text: 'the picture is mostly blue .' },
  ])
  expect(answer.frames.map(({ clipId, time }) => [clipId.slice(-2), time])).toEqual([
    ['00', 0.5],
    ['01', 0.5],
    ['02', 0.5],
  ])
  expect(answer.caveat).toMatch(/no actions .*1 of 4 moments/)
  expect(answer.usage).toMatchObject({ calls: 1, frames: 3, cached: 0, costUsd: 0 })
  expect(answer.usage.seconds).toBeGreaterThan(0)
})

test('what was seen once is kept, for every agent that looks at the same moment', async () => {
  const again = value(await agents.captioner.ask({ episode, times: [4.5, 0.5] }, {}))
  expect(again.captions.map(({ time }) => time)).toEqual([4.5, 0.5])
  expect(again.usage.cached).toBe(1)
  const inspected = value(await agents.frameInspection.ask({ episode, times: [0.5], question: 'what color ?' }, {}))
  expect(inspected.usage.cached).toBe(1)
})

test('clips that people described are captioned in their words, clips with nothing are left out', async () => {
  const described = episodeOf((index) =>
    index === 0 ? { kind: 'descriptions', lines: [{ start: 0, end: 1, text: 'Mira  pours tea.' }] } : { kind: 'none' },
  )
  const answer = value(await agents.captioner.ask({ episode: described, times: [0.5, 1.5, 2.5] }, {}))
  expect(answer.captions).toEqual([{ time: 0.5, text: 'Mira pours tea.' }])
  expect(answer).toMatchObject({ frames: [], caveat: 'nothing is known of 2 of 3 moments .' })
  const question = 'what does she do ?'
  const inspected = value(await agents.frameInspection.ask({ episode: described, times: [0.5], question }, {}))
  expect(inspected).toMatchObject({ text: 'Mira pours tea.', caveat: null })
  expect(failure(await agents.frameInspection.ask({ episode: described, times: [5], question }, {}))).toMatchObject({
    boundary: 'agent',
    kind: 'missing_file',
    message: expect.stringContaining('frameInspection (embedded): episode film_s01e01'),
  })
})

test('an episode without times is a failure that says so', async () => {
  const timeless = { ...episode, clips: episode.clips.map((one) => ({ ...one, start: 0, end: 0 })) }
  expect(failure(await agents.captioner.ask({ episode: timeless, times: [1] }, {}))).toMatchObject({
    kind: 'missing_file',
    message: expect.stringContaining('film_s01e01: how long its clips are is unknown'),
  })
})

test('a film that cannot be read, and a caller that cancels', async () => {
  const lost = episodeOf(() => ({ kind: 'video', path: join(film.scratch, 'absent.mp4'), offset: 0, duration: 2 }))
  expect(failure(await agents.captioner.ask({ episode: lost, times: [1] }, {}))).toMatchObject({
    boundary: 'agent',
    kind: 'missing_file',
    message: expect.stringContaining('absent.mp4'),
  })
  const signal = AbortSignal.abort()
  expect(failure(await agents.captioner.ask({ episode, times: [1] }, { signal })).kind).toBe('cancelled')
})

test('frame inspection: answers as the question asks, clip by clip, once for what is said twice', async () => {
  const look = async (question: string, ...times: number[]) =>
    value(await agents.frameInspection.ask({ episode, times, question }, {})).text
  expect(await look('what does the sign say ?', 0.5, 1.5, 9)).toBe('the sign says lantern . the sign says harbor .')
  expect(await look('what color is the sign ?', 0.5, 9)).toBe('the sign is red . the sign is green .')
  expect(await look('how many animals are there ?', 2.5)).toBe('count : 2 zebra .')
  const few = await open({ frameInspection: { type: 'embedded', mostFrames: 1 } })
  const answer = value(await few.frameInspection.ask({ episode, times: [4.2, 4.5, 5], question: 'color ?' }, {}))
  expect(answer.frames.map(({ time }) => time)).toEqual([0.5])
  expect(answer.caveat).toContain('looked at 1 of 3 moments')
  await few.close()
})

test('summary: all lines when they fit, each once; else the lines that bear on the focus, in order', async () => {
  const lines = [
    'Ann bakes bread',
    'The dog sleeps.',
    'Ann bakes bread',
    'A train leaves the station.',
    'Ann eats the bread.',
  ]
  const ask = async (words: number, focus: string | null) =>
    value(await agents.summary.ask({ lines: lines.map((text) => ({ time: null, text })), focus, words }, {}))
  expect(await ask(30, null)).toMatchObject({
    text: 'Ann bakes bread . The dog sleeps. A train leaves the station. Ann eats the bread.',
    caveat: null,
  })
  const short = await ask(8, 'what does Ann do with the bread ?')
  expect(short.text).toBe('Ann bakes bread . Ann eats the bread.')
  expect(short.caveat).toMatch(/chosen and not retold/)
  expect((await ask(2, 'trains at stations')).text).toBe('A train')
  expect(value(await agents.summary.ask({ lines: [], focus: null, words: 5 }, {})).text).toBe('')
})

test('subtitles: lines that bear on the query, on the timeline of the episode; what is missing is told apart', async () => {
  const ask = async (query: string | null, stretch: Stretch | null, of = episode) =>
    value(await agents.subtitles.ask({ episode: of, stretch, query, count: 3 }, {}))
  const answer = await ask('where did mira leave the kettle ?', null)
  expect(answer.lines[0]).toEqual({
    clipId: 'film_s01e01_seg01_clip_00',
    start: 0.2,
    end: 1,
    speaker: 'mira',
    text: 'i left the kettle at Ashford .',
  })
  expect(answer.entities.slice(0, 1)).toEqual(['mira'])
  expect(answer.entities).toContain('Ashford')
  expect(answer.topic).toBe('')
  // Every line of a stretch: those that reach into it.
  expect((await ask(null, { start: 1.9, end: 3 })).lines.map(({ start }) => start)).toEqual([2.5])
  expect((await ask(null, { start: 1.8, end: 3 })).lines.map(({ start }) => start)).toEqual([1.2, 2.5])
  expect(await ask('quarterly taxes of submarines', { start: 4, end: 6 })).toMatchObject({ available: true, lines: [] })
  const silent = { ...episode, clips: episode.clips.map((one) => ({ ...one, subtitles: [] })) }
  expect(await ask('kettle', null, silent)).toMatchObject({ available: false, lines: [] })
})

test('segment scoring: question and option found, only related, and unrelated segments', async () => {
  const segments = [0, 1, 2].map(clip)
  const question = asks('what object is shown where mira talks about the kettle ?', ['clock', 'car', 'apple'])
  const { scores, caveat, usage } = value(
    await agents.segmentScoring.ask({ episode, question, segments, framesPerSegment: 15 }, {}),
  )
  expect(scores.map(({ relevance }) => relevance)).toEqual([4, 1, 1])
  expect(scores[0]).toMatchObject({
    caption: 'the sign says lantern . the sign is red . i see car .',
    reasoning: expect.stringContaining('mentions car .'),
  })
  expect(scores[1]!.reasoning).toBeNull()
  expect(caveat).toMatch(/by words/)
  // four of the fifteen, whatever was asked for
  expect(usage.frames).toBe(12)
})

test('frame retrieval and temporal grounding: where a described thing is seen', async () => {
  const request = { episode, stretch: null, query: 'a zebra', count: 2 }
  const found = value(await agents.frameRetrieval.ask(request, {}))
  // one picture of every two seconds: the middles of the clips
  expect(found.usage.frames).toBe(5)
  expect(found.hits[0]!.time).toBe(3)
  expect(found.hits[0]!.score).toBeGreaterThan(found.hits[1]!.score)
  expect(found.frames.map(({ time }) => time)).toEqual([1, 1])
  const grounded = value(await agents.temporalGrounding.ask({ ...request, query: 'car' }, {}))
  expect(grounded.stretches.map(({ start, end }) => [start, end]).sort()).toEqual([
    [0, 2],
    [6, 8],
  ])
  const within = value(
    await agents.temporalGrounding.ask({ ...request, stretch: { start: 4, end: 8 }, query: 'car' }, {}),
  )
  expect(within.stretches).toMatchObject([{ start: 6, end: 8 }])
  const none = value(await agents.temporalGrounding.ask({ ...request, query: 'somebody opens a door' }, {}))
  expect(none.caveat).toMatch(/none shares a word/)
})

test('scene graph: things, their colours and places', async () => {
  const { scenes } = value(await agents.sceneGraph.ask({ episode, times: [0.5, 2.5] }, {}))
  expect(scenes.map(({ objects }) => objects.map(({ label }) => label))).toEqual([
    ['car', 'text'],
    ['zebra', 'zebra'],
  ])
  expect(scenes[0]!.objects[1]!.attributes).toEqual(['lantern', 'red'])
  expect(scenes[0]!.relations).toEqual([{ subject: 'text', relation: 'above', object: 'car' }])
  // the photograph of the car stands at x = 40 of 384, y = 120 of 216
  const [left, top] = scenes[0]!.objects[0]!.box
  expect(left).toBeGreaterThan(0.07)
  expect(left).toBeLessThan(0.15)
  expect(top).toBeGreaterThan(0.5)
  expect(scenes[1]!.relations).toMatchObject([{ relation: 'left of' }])
})

test('object tracking: a moving car is one thing, a cut ends it, two zebras are two', async () => {
  const ask = async (objects: string[]) =>
    value(await agents.objectTracking.ask({ episode, stretch: null, objects, framesPerSecond: 2 }, {}))
  const { tracks, caveat } = await ask(['car', 'unicorn'])
  const spans = tracks
    .filter(({ points }) => points.length > 2)
    .map(({ points }) => [points[0]!.time, points.at(-1)!.time])
  expect(spans).toEqual([
    [0.25, 1.75],
    [6.25, 7.75],
  ])
  const moving = tracks.find(({ points }) => points[0]!.time === 6.25)!.points
  // 14 of 384 pixels in a quarter of a second
  const [first, last] = [moving[0]!.box, moving.at(-1)!.box]
  expect(last[0] + last[2] / 2 - (first[0] + first[2] / 2)).toBeCloseTo((6 * 14) / 384, 1)
  expect(caveat).toContain('unicorn : not among the 80 kinds')
  const zebras = (await ask(['zebra'])).tracks.filter(({ points }) => points.length > 2)
  expect(zebras.map(({ id }) => id)).toEqual(['zebra 1', 'zebra 2'])
})

test('visual similarity: the other half of a scene is the most alike', async () => {
  const half = (index: number, part: 0 | 1) => ({
    episode,
    stretch: { start: 2 * index + part, end: 2 * index + part + 1 },
  })
  const candidates = [0, 1, 2, 4].map((index) => half(index, 1))
  for (const [place, index] of [0, 1, 2, 4].entries()) {
    const { similarities } = value(
      await agents.visualSimilarity.ask({ reference: half(index, 0), candidates, framesPerPlace: 1 }, {}),
    )
    expect(similarities.indexOf(Math.max(...similarities))).toBe(place)
    expect(similarities[place]).toBeGreaterThan(0.9)
    expect(Math.min(...similarities)).toBeGreaterThanOrEqual(0)
    expect(similarities.filter((_, other) => other !== place).every((one) => one < 0.8)).toBe(true)
  }
})
