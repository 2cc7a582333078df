/** Which pictures the vision agent behind an endpoint is sent, and what it is told about them. */
import { copyFileSync, mkdirSync } from 'node:fs'
import { join } from 'node:path'
import sharp from 'sharp'
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest'
import { agentsOptions, openAgents } from '../../src/agents/index.ts'
import type { MarkedBoxes } from '../../src/agents/oracleBoxes.ts'
import type { Clip } from '../../src/types.ts'
import { folder, value } from '../dataset/folder.ts'
import { type ChatServer, says, startChatServer } from './server.ts'

let server: ChatServer
beforeAll(async () => {
  server = await startChatServer()
})
afterAll(() => server.close())
beforeEach(() => server.script(says('a kettle')))

/** A clip of `seconds` at 3 pictures per second, each 32 x 18. */
async function framesClip(root: string, index: number, seconds: number): Promise<Clip> {
  const directory = join(root, `clip${index}`)
  mkdirSync(directory)
  const first = join(directory, '00001.jpg')
  const background = { r: index * 40, g: 0, b: 0 }
  await sharp({ create: { width: 32, height: 18, channels: 3, background } })
    .jpeg()
    .toFile(first)
  const count = Math.round(seconds * 3)
  for (let n = 2; n <= count; n++) copyFileSync(first, join(directory, `${String(n).padStart(5, '0')}.jpg`))
  const source = { kind: 'frames', directory, fps: 3, count } as const
  return { id: `e1_seg01_clip_0${index}`, index, start: 0, end: 0, subtitles: [], source }
}

async function look(clips: Clip[], vision: Record<string, unknown> = {}, boxes: MarkedBoxes | null = null) {
  const options = agentsOptions.parse({
    cacheDirectory: null,
    oracleBoxes: boxes !== null,
    vision: { type: 'endpoint', baseUrl: server.baseUrl, model: 'm', width: 32, ...vision },
  })
  const agents = value(await openAgents(options, boxes))
  const answer = value(await agents.vision.look({ clips, query: 'what is there' }, {}))
  await agents.close()
  const content = server.received.at(-1)?.messages[1]?.content
  if (typeof content === 'string' || content === undefined) throw new Error('expected parts')
  const urls = content.flatMap(({ image_url }) => (image_url ? [image_url.url] : []))
  return { answer, urls, text: content.at(-1)?.text as string }
}

const numbers = (paths: readonly (string | undefined)[]) => paths.map((path) => Number(path?.match(/(\d+)\.jpg$/)?.[1]))

test("the released code's pictures: 1, 16, ... 166 of 180, or every 12th; of a shorter clip those that there are", async () => {
  const clip = await framesClip(folder(), 0, 80)
  const released = await look([clip], { frameTimes: 'firstMinute' })
  expect(numbers(released.answer.frames.map(({ picture }) => picture?.path))).toEqual(
    Array.from({ length: 12 }, (_, index) => 1 + 15 * index),
  )
  const evaluated = await look([clip], { frameTimes: 'firstMinute', framesPerLook: 15 })
  expect(numbers(evaluated.answer.frames.map(({ picture }) => picture?.path))).toEqual(
    Array.from({ length: 15 }, (_, index) => 1 + 12 * index),
  )
  const short = await look([await framesClip(folder(), 1, 12)], { frameTimes: 'firstMinute' })
  expect(short.answer.frames.map(({ time }) => time)).toEqual([0, 5, 10])
  expect(short.text).toMatch(/^There are 3 pictures, /)
  expect(short.urls).toHaveLength(3)
})

test('where a folder holds fewer pictures than are wanted each is sent once, and that number is told', async () => {
  const { answer, urls, text } = await look([await framesClip(folder(), 0, 2)], { framesPerLook: 12 })
  expect(numbers(answer.frames.map(({ picture }) => picture?.path))).toEqual([1, 2, 3, 4, 5, 6])
  expect(urls).toHaveLength(6)
  expect(text).toMatch(/^There are 6 pictures, /)
})

test('uniform pictures reach from one end of the clip to the other', async () => {
  const { answer } = await look([await framesClip(folder(), 0, 80)], { framesPerLook: 4 })
  expect(answer.frames.map(({ time }) => time)).toEqual([10, 30, 50, 70])
})

test('the clips of a window share what a look may have, to the last picture', async () => {
  const root = folder()
  const clips = await Promise.all([0, 1, 2, 3, 4].map((index) => framesClip(root, index, 10)))
  const { answer, urls, text } = await look(clips, { framesPerLook: 12 })
  const counts = clips.map(({ id }) => answer.frames.filter(({ clipId }) => clipId === id).length)
  expect(counts).toEqual([2, 2, 3, 2, 3])
  expect(urls).toHaveLength(12)
  expect(answer.usage.frames).toBe(12)
  expect(text).toContain('3 of clip e1_seg01_clip_02, at ')
})

test('a contact sheet: one image of rows, in reading order, and the record of every picture', async () => {
  const root = folder()
  const clips = [await framesClip(root, 1, 10), await framesClip(root, 6, 10)]
  const { answer, urls, text } = await look(clips, { framesPerLook: 6, layout: 'sheet', jpegQuality: 95 })
  expect(urls).toHaveLength(1)
  expect(answer.frames).toHaveLength(6)
  expect(answer.frames.every(({ picture }) => picture !== undefined)).toBe(true)
  expect(text).toContain('There are 6 pictures')
  expect(text).toContain('3 in a row')
  const { data, info } = await sharp(Buffer.from(urls[0]!.split(',')[1]!, 'base64'))
    .raw()
    .toBuffer({ resolveWithObject: true })
  expect([info.width, info.height]).toEqual([3 * 32, 2 * 18])
  const red = (x: number, y: number) => data[(y * info.width + x) * 3]!
  for (const x of [16, 48, 80]) {
    expect(Math.abs(red(x, 9) - 40)).toBeLessThan(8)
    expect(Math.abs(red(x, 27) - 240)).toBeLessThan(8)
  }
})

test('oracle boxes stand in front of the answer, only those of the clips in view', async () => {
  const root = folder()
  const clips = [await framesClip(root, 0, 10)]
  const box = { left: 1, top: 2, width: 30, height: 40 }
  const boxes: MarkedBoxes = new Map([
    [
      clips[0]!.id,
      [
        { ...box, time: 4, label: 'mug' },
        { ...box, time: 2, label: 'Penny' },
        { ...box, time: 4, label: 'Leonard' },
      ],
    ],
    ['e1_seg01_clip_09', [{ ...box, time: 1, label: 'piano' }]],
  ])
  const { answer } = await look(clips, {}, boxes)
  expect(answer.text).toBe(
    'box 2.0 s : Penny at 1 2 30 40\nbox 4.0 s : mug at 1 2 30 40 , Leonard at 1 2 30 40\na kettle',
  )
})
