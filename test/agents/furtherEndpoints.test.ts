/** The further agents behind a scripted HTTP server, with pictures of a real film; and captions from files. */
import { getEventListeners } from 'node:events'
import { existsSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Episode } from '../../src/types.ts'
import { asks, type Film, failure, makeFilm, open, value } from './film.ts'
import type { ChatServer, ReceivedBody, ScriptedReply } from './server.ts'
import { hangs, raw, says, startChatServer, status } from './server.ts'

let film: Film
let server: ChatServer
let episode: Episode
const everything = { episode: null as unknown as Episode, stretch: null }

beforeAll(async () => {
  film = await makeFilm()
  server = await startChatServer()
  episode = film.episode
  everything.episode = episode
})
afterAll(async () => {
  await server.close()
  film.remove()
})

const endpoint = (extra: Record<string, unknown> = {}) => ({
  type: 'endpoint',
  baseUrl: server.baseUrl,
  model: 'seer',
  retries: 1,
  promptUsdPerMillion: 1,
  ...extra,
})

const picturesIn = ({ messages }: ReceivedBody) => {
  const { content } = messages.at(-1)!
  return typeof content === 'string' ? [] : content.flatMap(({ image_url }) => (image_url ? [image_url.url] : []))
}
const wordsIn = ({ messages }: ReceivedBody) => {
  const { content } = messages.at(-1)!
  return typeof content === 'string' ? content : content.map(({ text }) => text ?? '').join('')
}

describe('captioner', () => {
  test('several pictures per call, one caption for each; prices and what was kept are counted', async () => {
    const agents = await open({ captioner: endpoint({ picturesPerCall: 2 }) })
    const reply: ScriptedReply = (response, body, request) =>
      says(JSON.stringify({ captions: picturesIn(body).map((_, index) => `picture ${index + 1}`) }))(
        response,
        body,
        request,
      )
    server.script(reply)
    const answer = value(await agents.captioner.ask({ episode, times: [0.5, 2.5, 4.5, 99] }, {}))
    expect(answer.captions).toEqual([
      { time: 0.5, text: 'picture 1' },
      { time: 2.5, text: 'picture 2' },
      { time: 4.5, text: 'picture 1' },
    ])
    expect(answer.caveat).toContain('1 of 4 moments')
    expect(answer.usage).toMatchObject({ calls: 2, frames: 3, promptTokens: 2000, costUsd: 0.002, cached: 0 })
    const full = server.received.find((body) => picturesIn(body).length === 2)!
    expect(wordsIn(full)).toContain('1 at 0.5 s, 2 at 2.5 s')
    const jpeg = Buffer.from(picturesIn(full)[0]!.split(',')[1]!, 'base64')
    expect(await sharp(jpeg).metadata()).toMatchObject({ format: 'jpeg', width: 384, height: 216 })
    const again = value(await agents.captioner.ask({ episode, times: [0.5, 2.5] }, {}))
    expect(again.usage).toMatchObject({ calls: 1, cached: 1, costUsd: 0 })
    expect(server.received).toHaveLength(2)
    await agents.close()
  })

  test('a wrong number of captions is a failure, and is not kept', async () => {
    const agents = await open({ captioner: endpoint() })
    server.script(says('{"captions": ["one"]}'), says('```json\n{"captions": ["one", "two"]}\n```'))
    const wrong = failure(await agents.captioner.ask({ episode, times: [0.5, 2.5] }, {}))
    expect(wrong).toMatchObject({ boundary: 'agent', kind: 'bad_response' })
    expect(wrong.message).toMatch(/captioner \(endpoint:seer\).*captions/)
    const { captions } = value(await agents.captioner.ask({ episode, times: [0.5, 2.5] }, {}))
    expect(captions.map(({ text }) => text)).toEqual(['one', 'two'])
    await agents.close()
  })

  test('retries, and gives up at the deadline', async () => {
    const agents = await open({ captioner: endpoint() })
    server.script(status(503, { 'retry-after': '0' }), says('{"captions": ["one"]}'))
    expect(value(await agents.captioner.ask({ episode, times: [0.5] }, {})).captions).toHaveLength(1)
    expect(server.received).toHaveLength(2)
    await agents.close()
    const hasty = await open({ captioner: endpoint({ deadlineSeconds: 0.5 }) })
    server.script(hangs)
    expect(failure(await hasty.captioner.ask({ episode, times: [2.5] }, {}))).toMatchObject({
      kind: 'timeout',
      message: expect.stringContaining('captioner (endpoint:seer)'),
    })
    await hasty.close()
  })

  test('from a file: one caption per second; a video or a file that is not there, and one that is no such file', async () => {
    const path = join(film.scratch, 'captions.json')
    writeFileSync(path, JSON.stringify({ film_s01e01: ['a', 'b\nand c', ''], other: 'x' }))
    const stored = async (file: string, secondsPerCaption = 1) =>
      open({ captioner: { type: 'stored', path: file, secondsPerCaption } })
    const agents = await stored(path)
    const answer = value(await agents.captioner.ask({ episode, times: [0, 1.9, 2.5, 7] }, {}))
    expect(answer.captions).toEqual([
      { time: 0, text: 'a' },
      { time: 1.9, text: 'b and c' },
    ])
    expect(answer.caveat).toBe('there is no caption of 2 of 4 moments .')
    const ask = (id: string) => agents.captioner.ask({ episode: { ...episode, id }, times: [0] }, {})
    expect(failure(await ask('third'))).toMatchObject({
      kind: 'missing_file',
      message: expect.stringContaining('third'),
    })
    expect(failure(await ask('other'))).toMatchObject({ kind: 'bad_file', message: expect.stringContaining('"x"') })
    const slow = await stored(path, 2)
    expect(value(await slow.captioner.ask({ episode, times: [3] }, {})).captions).toEqual([
      { time: 3, text: 'b and c' },
    ])
    const absent = await stored(join(film.scratch, 'absent.json'))
    expect(failure(await absent.captioner.ask({ episode, times: [0] }, {}))).toMatchObject({ kind: 'missing_file' })
    writeFileSync(path, '[1')
    const broken = await stored(path)
    expect(failure(await broken.captioner.ask({ episode, times: [0] }, {}))).toMatchObject({ kind: 'bad_file' })
    await Promise.all([agents, slow, absent, broken].map((one) => one.close()))
  })

  const egoSchema = join(import.meta.dirname, '../../../shared/data/benchmarks/egoschema_captions.part.json')
  test.skipIf(!existsSync(egoSchema))('from a file: the published captions of EgoSchema', async () => {
    const agents = await open({ captioner: { type: 'stored', path: egoSchema } })
    const video = { id: '0074f737-11cb-497d-8d07-77c3a8127391', show: 'egoschema', clips: [] }
    const times = Array.from({ length: 180 }, (_, second) => second)
    const { captions, caveat } = value(await agents.captioner.ask({ episode: video, times }, {}))
    expect(captions).toHaveLength(180)
    expect(captions[1]).toEqual({ time: 1, text: '#C C picks a bowl' })
    expect(caveat).toBeNull()
    const focus = 'what does C do with the sponge ?'
    const summary = value(await agents.summary.ask({ lines: captions, focus, words: 30 }, {}))
    expect(summary.text).toContain('sponge')
    expect(summary.text.split(' ').length).toBeLessThanOrEqual(30)
    await agents.close()
  })
})

test('many calls under one signal: no listener is left on it, and none too many are on it meanwhile', async () => {
  const { signal } = new AbortController()
  const warned: string[] = []
  const warn = ({ name }: Error) => warned.push(name)
  process.on('warning', warn)
  const agents = await open({ captioner: endpoint({ picturesPerCall: 1, width: 32 }) })
  server.script(says('{"captions": ["one"]}'))
  const times = Array.from({ length: 30 }, (_, index) => 0.5 + index / 100)
  const { captions, usage } = value(await agents.captioner.ask({ episode, times }, { signal }))
  expect(captions).toHaveLength(30)
  expect(usage.calls).toBe(30)
  await agents.close()
  process.off('warning', warn)
  expect(warned).not.toContain('MaxListenersExceededWarning')
  expect(getEventListeners(signal, 'abort')).toHaveLength(0)
})

test('summary: notes with their times in, words out, cut where they were too many', async () => {
  const agents = await open({ summary: endpoint() })
  server.script(says('<think>hm</think> Ann bakes bread and then eats it.'))
  const lines = [
    { time: 1, text: 'Ann <b>bakes</b>' },
    { time: null, text: 'Ann eats' },
  ]
  const answer = value(await agents.summary.ask({ lines, focus: 'what does Ann do ?', words: 5 }, {}))
  expect(answer.text).toBe('Ann bakes bread and then')
  expect(answer.caveat).toBe('cut off after 5 of 7 words .')
  const sent = wordsIn(server.received[0]!)
  expect(sent).toContain('1.0 s: Ann b bakes /b\nAnn eats')
  expect(sent).toContain('what does Ann do ?')
  await agents.close()
})

test('subtitles: lines by number, so that what comes back was said; none are asked for without a query', async () => {
  const agents = await open({ subtitles: endpoint() })
  server.script(says('Here: {"lines": [3, 1, 9, 1], "entities": ["mira: calm"], "topic": "things"}'))
  const answer = value(await agents.subtitles.ask({ ...everything, query: 'where is the kettle ?', count: 5 }, {}))
  expect(answer.lines.map(({ speaker, start }) => [speaker, start])).toEqual([
    ['mira', 0.2],
    ['ivan', 2.5],
  ])
  expect(answer).toMatchObject({
    available: true,
    entities: ['mira: calm'],
    topic: 'things',
    caveat: '1 lines were named that there are not .',
  })
  expect(wordsIn(server.received[0]!)).toContain('1. [0.2 s] mira : i left the kettle at Ashford .')
  const all = value(await agents.subtitles.ask({ ...everything, query: null, count: 9 }, {}))
  expect(all.lines).toHaveLength(4)
  expect(server.received).toHaveLength(1)
  server.script(says('no idea'))
  expect(failure(await agents.subtitles.ask({ ...everything, query: 'who ?', count: 5 }, {})).kind).toBe('bad_response')
  await agents.close()
})

test('frame inspection: the pictures and the question, at most so many pictures', async () => {
  const agents = await open({ frameInspection: endpoint({ mostFrames: 2 }) })
  server.script(says('At 4.5 s the wall is blue.'))
  const times = [0.5, 2.5, 4.5, 6.5]
  const answer = value(await agents.frameInspection.ask({ episode, times, question: 'which color ?' }, {}))
  expect(answer).toMatchObject({ text: 'At 4.5 s the wall is blue.', caveat: 'looked at 2 of 4 moments .' })
  expect(answer.frames.map(({ clipId }) => clipId.slice(-2))).toEqual(['01', '03'])
  expect(picturesIn(server.received[0]!)).toHaveLength(2)
  expect(wordsIn(server.received[0]!)).toContain('Question: which color ?')
  await agents.close()
})

test('segment scoring: one call per segment with its pictures and the options; a score outside of the scale is refused', async () => {
  const agents = await open({ segmentScoring: endpoint() })
  const reply: ScriptedReply = (response, body, request) => {
    const first = wordsIn(body).includes('1 at 0.3 s')
    const score = first
      ? { relevance: 4, caption: 'a sign', reasoning: 'it says so' }
      : { relevance: 1, caption: 'zebras', reasoning: null }
    says(JSON.stringify(score))(response, body, request)
  }
  server.script(reply)
  const segments = [
    { start: 0, end: 2 },
    { start: 2, end: 4 },
  ]
  const question = asks('what does the sign say ?', ['lantern', 'harbor'])
  const request = { episode, question, segments, framesPerSegment: 3 }
  const { scores, usage } = value(await agents.segmentScoring.ask(request, {}))
  expect(scores).toEqual([
    { relevance: 4, caption: 'a sign', reasoning: 'it says so' },
    { relevance: 1, caption: 'zebras', reasoning: null },
  ])
  expect(usage).toMatchObject({ calls: 2, frames: 6 })
  expect(server.received.map((body) => picturesIn(body).length)).toEqual([3, 3])
  expect(wordsIn(server.received[0]!)).toContain('a1: harbor')
  server.script(says('{"relevance": 5, "caption": ""}'))
  const later = { ...request, segments: [{ start: 4, end: 6 }] }
  expect(failure(await agents.segmentScoring.ask(later, {})).message).toContain('relevance')
  await agents.close()
})

test('scene graph: one picture per call, boxes inside the picture', async () => {
  const agents = await open({ sceneGraph: endpoint() })
  const object = { label: 'sign', box: [0, 0.1, 0.5, 0.2], attributes: ['red'] }
  const relation = { subject: 'sign', relation: 'on', object: 'wall' }
  server.script(says(JSON.stringify({ objects: [object], relations: [relation] })))
  const { scenes } = value(await agents.sceneGraph.ask({ episode, times: [0.5] }, {}))
  expect(scenes).toEqual([{ time: 0.5, objects: [object], relations: [relation] }])
  server.script(says(JSON.stringify({ objects: [{ ...object, box: [0, 0, 320, 100] }] })))
  expect(failure(await agents.sceneGraph.ask({ episode, times: [2.5] }, {})).kind).toBe('bad_response')
  await agents.close()
})

describe('vectors of pictures and words', () => {
  /** What a picture looks like to this model: its mean colour; words: the colour that they name. */
  const embeds: ScriptedReply = async (response, body, request) => {
    const [url] = picturesIn(body)
    const words = wordsIn(body)
    const jpeg = url === undefined ? null : Buffer.from(url.split(',')[1]!, 'base64')
    const embedding =
      jpeg === null
        ? [words.includes('red') ? 1 : 0, 0, words.includes('blue') ? 1 : 0]
        : (await sharp(jpeg).stats()).channels.map(({ mean }) => mean)
    raw(JSON.stringify({ data: [{ embedding }], usage: { prompt_tokens: 10 } }))(response, body, request)
  }

  test('frame retrieval and temporal grounding go by them, over one connection; each picture is asked for once', async () => {
    const agents = await open({ frameRetrieval: endpoint(), temporalGrounding: endpoint() })
    server.script(embeds)
    const request = { ...everything, query: 'a blue wall', count: 2 }
    const found = value(await agents.frameRetrieval.ask(request, {}))
    expect(found.hits[0]!.time).toBe(5)
    // the wall is #1433e6: cosine with pure blue
    expect(found.hits[0]!.score).toBeCloseTo(0xe6 / Math.hypot(0x14, 0x33, 0xe6), 1)
    expect(found.usage).toMatchObject({ calls: 6, frames: 5, promptTokens: 60, cached: 0 })
    const grounded = value(await agents.temporalGrounding.ask(request, {}))
    expect(grounded.stretches).toMatchObject([{ start: 4, end: 6 }])
    expect(grounded.usage.cached).toBe(6)
    expect(server.received).toHaveLength(6)
    await agents.close()
  })

  test('visual similarity', async () => {
    const agents = await open({ visualSimilarity: endpoint() })
    server.script(embeds)
    const at = (start: number) => ({ episode, stretch: { start, end: start + 1 } })
    const request = { reference: at(4), candidates: [at(0), at(5)], framesPerPlace: 1 }
    const { similarities } = value(await agents.visualSimilarity.ask(request, {}))
    expect(similarities[1]).toBeGreaterThan(0.99)
    expect(similarities[0]).toBeLessThan(0.9)
    await agents.close()
  })

  test('a reply without a vector, and vectors of two lengths', async () => {
    const agents = await open({ visualSimilarity: endpoint(), frameRetrieval: endpoint() })
    server.script(raw('{"data": []}'))
    const request = { ...everything, query: 'a wall', count: 2 }
    expect(failure(await agents.frameRetrieval.ask(request, {})).message).toMatch(/frameRetrieval.*data\[0\].embedding/)
    let length = 2
    server.script((response, body, incoming) =>
      raw(JSON.stringify({ data: [{ embedding: Array(length++).fill(1) }] }))(response, body, incoming),
    )
    expect(failure(await agents.frameRetrieval.ask(request, {})).message).toMatch(/one length/)
    await agents.close()
  })
})

test('a key that is not set is a failure when the agents are opened', async () => {
  const { openAgents, agentsOptions } = await import('../../src/agents/index.ts')
  const opened = await openAgents(agentsOptions.parse({ summary: endpoint({ apiKeyEnv: 'SHOWRUNNER_NO_SUCH_KEY' }) }))
  expect(failure(opened).message).toContain('SHOWRUNNER_NO_SUCH_KEY')
})
