import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Result } from '../../src/types.ts'
import { firstWorking, runFfmpeg } from '../../src/video/ffmpeg.ts'
import type { Frame } from '../../src/video/index.ts'
import {
  encodeVideo,
  framesAt,
  locateFfmpeg,
  openFrameReader,
  probe,
  uniformTimes,
  videoOptions,
} from '../../src/video/index.ts'
import { readBanner } from '../../src/video/probe.ts'

const scratch = mkdtempSync(join(tmpdir(), 'showrunner-video-'))
const film = join(scratch, 'colours.mp4')
const reading = { width: null, deadlineSeconds: 30 }
/** One colour per second. */
const palette = [
  [220, 30, 30],
  [30, 190, 60],
  [40, 60, 210],
  [230, 220, 40],
] as const
const width = 96
const height = 64

function flat(colour: readonly [number, number, number]): Buffer {
  const frame = Buffer.alloc(width * height * 3)
  for (let at = 0; at < frame.length; at++) frame[at] = colour[at % 3]!
  return frame
}

function* fourSeconds(fps: number) {
  for (const colour of palette) for (let n = 0; n < fps; n++) yield flat(colour)
}

function value<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(`${result.failure.kind}: ${result.failure.message}`)
  return result.value
}

function failure<T>(result: Result<T>) {
  if (result.ok) throw new Error('expected a failure')
  return result.failure
}

function nearest(frame: Frame): number {
  const middle = (Math.floor(frame.height / 2) * frame.width + Math.floor(frame.width / 2)) * 3
  const distances = palette.map((colour) =>
    colour.reduce((sum, part, index) => sum + Math.abs(part - frame.data[middle + index]!), 0),
  )
  return distances.indexOf(Math.min(...distances))
}

beforeAll(async () => {
  value(await encodeVideo(fourSeconds(8), { width, height, fps: 8, path: film }))
})
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

describe('finding ffmpeg', () => {
  test('FFMPEG_PATH comes first, when it works', async () => {
    const located = value(await locateFfmpeg())
    expect(located.version).not.toBe('')
    const named = value(await locateFfmpeg({ ...process.env, FFMPEG_PATH: located.path }))
    expect(named.source).toBe('FFMPEG_PATH')
  })

  test('a FFMPEG_PATH that does not start is passed over for one that does', async () => {
    const broken = join(scratch, 'broken-ffmpeg')
    writeFileSync(broken, '#!/bin/sh\nexit 3\n')
    chmodSync(broken, 0o755)
    const located = value(await locateFfmpeg({ FFMPEG_PATH: broken, PATH: '/nowhere' }))
    expect(located.source).not.toBe('FFMPEG_PATH')
    expect(located.source).not.toBe('PATH')
  })

  test('when none works, the failure lists what was tried and why not', async () => {
    const result = failure(
      await firstWorking(
        [
          { source: 'FFMPEG_PATH', find: async () => '/nowhere/ffmpeg' },
          { source: 'ffmpeg-static', find: () => Promise.reject(new Error('no such package')) },
          { source: 'node', find: async () => process.execPath },
        ],
        process.env,
      ),
    )
    expect(result.kind).toBe('missing_file')
    expect(result.message).toMatch(
      /FFMPEG_PATH \(\/nowhere\/ffmpeg\): .*ENOENT.*ffmpeg-static: no such package; node \(.*\): -version ended with code/,
    )
  })
})

describe('probing', () => {
  test('tells duration, size and streams', async () => {
    const facts = value(await probe(film, reading))
    expect(facts.duration).toBeCloseTo(4, 1)
    expect(facts).toMatchObject({ size: { width, height }, fps: 8, hasVideo: true, hasAudio: false })
  })

  test('a cover picture does not make an audio file a video', () => {
    const banner = [
      "Input #0, mp3, from 'x.mp3':",
      '  Duration: 01:02:03.50, start: 0.025056, bitrate: 132 kb/s',
      '  Stream #0:0: Audio: mp3, 44100 Hz, stereo, fltp, 128 kb/s',
      '  Stream #0:1: Video: png, rgb24(pc), 96x64 [SAR 1:1 DAR 3:2], 90k tbr, 90k tbn (attached pic)',
    ].join('\n')
    expect(readBanner(banner)).toEqual({ duration: 3723.5, size: null, fps: null, hasVideo: false, hasAudio: true })
  })

  test.each([
    ['missing', (path: string) => path, 'missing_file'],
    ['empty', (path: string) => writeFileSync(path, ''), 'bad_file'],
    ['not a video', (path: string) => writeFileSync(path, 'hello '.repeat(200)), 'bad_file'],
  ])('a file that is %s is named', async (name, make, kind) => {
    const path = join(scratch, `${name.replaceAll(' ', '-')}.mp4`)
    make(path)
    const result = failure(await framesAt(path, [0], reading))
    expect(result.kind).toBe(kind)
    expect(result.message).toContain(path)
    expect(result.message).not.toContain('\n')
  })
})

describe('frames', () => {
  test('come from the asked times in the asked order, the last one also past the end', async () => {
    const frames = value(await framesAt(film, [2.5, 0.5, 3.5, 1.5, 2.5, 99], reading))
    expect(frames.map(nearest)).toEqual([2, 0, 3, 1, 2, 3])
    const cuts = value(await framesAt(film, [0, 0.999, 1, 1.999, 2, 3], reading))
    expect(cuts.map(nearest)).toEqual([0, 0, 1, 1, 2, 3])
    expect(frames.map((frame) => frame.time)).toEqual([2.5, 0.5, 3.5, 1.5, 2.5, 99])
    expect(frames[0]).toMatchObject({ width, height })
    expect(frames[0]!.data).toHaveLength(width * height * 3)
  })

  test('colours survive the way through H.264', async () => {
    const [frame] = value(await framesAt(film, [0.5], reading))
    palette[0].forEach((part, index) => expect(Math.abs(frame!.data[index]! - part)).toBeLessThan(6))
  })

  test('are scaled down, keeping their shape, and never up', async () => {
    const [frame] = value(await framesAt(film, [0.5], { ...reading, width: 48 }))
    expect(frame).toMatchObject({ width: 48, height: 32 })
    const [same] = value(await framesAt(film, [0.5], { ...reading, width: 640 }))
    expect(same).toMatchObject({ width, height })
  })

  test('more frames than one call takes', async () => {
    const times = uniformTimes(4, 60)
    const frames = value(await framesAt(film, times, { ...reading, width: 16 }))
    expect(frames.map(nearest)).toEqual(times.map(Math.floor))
  })

  test('the centres of equal spans', () => {
    expect(uniformTimes(60, 3)).toEqual([10, 30, 50])
    expect(uniformTimes(60, 1)).toEqual([30])
  })

  test('a truncated file fails and is named; frames before the cut still come', async () => {
    const path = join(scratch, 'truncated.mp4')
    function* noisy() {
      for (const frame of fourSeconds(8)) yield frame.map((part, at) => (part + ((at * 7919) % 31)) % 256)
    }
    value(await encodeVideo(noisy(), { width, height, fps: 8, path }))
    truncateSync(path, Math.floor(statSync(path).size * 0.6))
    const result = failure(await framesAt(path, [0.5, 3.5], reading))
    expect(result.kind).toBe('bad_file')
    expect(result.message).toContain(path)
    expect(result.message).toMatch(/expected a frame at each of 0.47, 3.47 s/)
    expect(value(await framesAt(path, [0.5], reading)).map(nearest)).toEqual([0])
  })

  test('a file cut before its index fails and is named', async () => {
    const path = join(scratch, 'headless.mp4')
    writeFileSync(path, readFileSync(film).subarray(0, 60))
    const result = failure(await framesAt(path, [0.5], reading))
    expect(result).toMatchObject({ kind: 'bad_file', boundary: 'video' })
    expect(result.message).toContain(path)
  })

  test('a sound-only file fails and says so', async () => {
    const path = join(scratch, 'sound.wav')
    value(await runFfmpeg(['-v', 'error', '-f', 'lavfi', '-i', 'sine=frequency=440:duration=1', '-y', path], reading))
    const result = failure(await framesAt(path, [0.5], reading))
    expect(result.kind).toBe('bad_file')
    expect(result.message).toContain(path)
    expect(result.message).toContain('only sound')
  })

  test('an abort kills ffmpeg and a deadline does too', async () => {
    const endless = ['-v', 'error', '-re', '-f', 'lavfi', '-i', 'testsrc=size=64x64:rate=25', '-f', 'null', '-']
    const started = Date.now()
    const late = failure(await runFfmpeg(endless, { deadlineSeconds: 0.3 }))
    expect(late.kind).toBe('timeout')
    const controller = new AbortController()
    setTimeout(() => controller.abort(), 200)
    const cancelled = failure(await runFfmpeg(endless, { deadlineSeconds: 30, signal: controller.signal }))
    expect(cancelled.kind).toBe('cancelled')
    expect(Date.now() - started).toBeLessThan(4000)
    expect(failure(await framesAt(film, [1], { ...reading, signal: controller.signal })).kind).toBe('cancelled')
  })
})

describe('encoding', () => {
  test('gives the same bytes again, and leaves no partial file', async () => {
    const again = join(scratch, 'again.mp4')
    value(await encodeVideo(fourSeconds(8), { width, height, fps: 8, path: again }))
    expect(readFileSync(again).equals(readFileSync(film))).toBe(true)
    expect(readdirSync(scratch).filter((name) => name.endsWith('.partial'))).toEqual([])
  })

  test('what the sequence throws comes out, and no file is left', async () => {
    const path = join(scratch, 'interrupted.mp4')
    async function* broken() {
      yield flat(palette[0])
      throw Object.assign(new Error('the renderer broke'), { code: 'ENOENT' })
    }
    await expect(encodeVideo(broken(), { width, height, fps: 8, path })).rejects.toThrow('the renderer broke')
    await expect(encodeVideo([Buffer.alloc(5)], { width, height, fps: 8, path })).rejects.toThrow(
      /expected 18432 bytes/,
    )
    await expect(encodeVideo([], { width, height, fps: 8, path })).rejects.toThrow(/no frames/)
    expect(existsSync(path)).toBe(false)
    expect(readdirSync(scratch).filter((name) => name.includes('interrupted'))).toEqual([])
  })

  test('a place that cannot be written is a failure', async () => {
    writeFileSync(join(scratch, 'plain'), 'x')
    const path = join(scratch, 'plain', 'film.mp4')
    const result = failure(await encodeVideo([flat(palette[0])], { width, height, fps: 8, path }))
    expect(result.message).toContain(path)
  })

  test.skipIf(!existsSync('/dev/full'))(
    'a full disk is a failure that names the file and says what to do',
    async () => {
      const path = join(scratch, 'full.mp4')
      symlinkSync('/dev/full', `${path}.${process.pid}.partial`)
      const { kind, message } = failure(await encodeVideo(fourSeconds(8), { width, height, fps: 8, path }))
      expect(kind).toBe('disk_full')
      expect(message).toMatch(/full\.mp4: .*free some space/)
      expect(existsSync(path)).toBe(false)
    },
  )
})

describe('the frame reader', () => {
  const clip = { kind: 'video', path: film, offset: 1, duration: 2 } as const

  test('counts time from the start of the clip, and a cached frame is the same frame', async () => {
    const cacheDirectory = join(scratch, 'cache')
    const request = { source: clip, times: [0.5, 1.5], width: 48 }
    const first = value(await openFrameReader(videoOptions.parse({ cacheDirectory })).read(request))
    expect(first.map(nearest)).toEqual([1, 2])
    expect(first.map((frame) => frame.time)).toEqual([0.5, 1.5])
    // No ffmpeg could answer in this time: the second reader has only the disk.
    const second = value(
      await openFrameReader(videoOptions.parse({ cacheDirectory, deadlineSeconds: 1e-9 })).read(request),
    )
    expect(
      second.map((frame) => Buffer.from(frame.data).equals(Buffer.from(first[second.indexOf(frame)]!.data))),
    ).toEqual([true, true])
  })

  test('a cache that cannot be written does not lose the answer', async () => {
    const occupied = join(scratch, 'occupied')
    writeFileSync(occupied, 'not a folder')
    const reader = openFrameReader(videoOptions.parse({ cacheDirectory: join(occupied, 'frames') }))
    const warnings: string[] = []
    const onWarning = (warning: Error) => void warnings.push(warning.message)
    process.on('warning', onWarning)
    const frames = value(await reader.read({ source: clip, times: [0.5], width: null }))
    await new Promise((resolve) => setImmediate(resolve))
    process.off('warning', onWarning)
    expect(frames.map(nearest)).toEqual([1])
    expect(warnings.join()).toContain('not being cached')
  })

  test('a damaged cache entry is cut again', async () => {
    const cacheDirectory = join(scratch, 'damaged')
    const reader = openFrameReader(videoOptions.parse({ cacheDirectory }))
    const request = { source: clip, times: [0.5], width: null }
    value(await reader.read(request))
    const folder = join(cacheDirectory, readdirSync(cacheDirectory)[0]!)
    writeFileSync(join(folder, readdirSync(folder)[0]!), 'garbage')
    expect(value(await reader.read(request)).map(nearest)).toEqual([1])
  })

  test('reads folders of numbered pictures, and names the one that is missing', async () => {
    const directory = join(scratch, 'pictures')
    mkdirSync(directory)
    for (const [index, [r, g, b]] of palette.entries()) {
      await sharp({ create: { width, height, channels: 3, background: { r, g, b } } })
        .jpeg()
        .toFile(join(directory, `0000${index + 1}.jpg`))
    }
    const reader = openFrameReader(videoOptions.parse({ cacheDirectory: null }))
    const source = { kind: 'frames', directory, fps: 2, count: 4 } as const
    expect(value(await reader.read({ source, times: [0, 0.5, 1.2, 1.5, 9], width: 48 })).map(nearest)).toEqual([
      0, 1, 2, 3, 3,
    ])
    rmSync(join(directory, '00003.jpg'))
    const result = failure(await reader.read({ source, times: [1.2], width: null }))
    expect(result.kind).toBe('missing_file')
    expect(result.message).toContain('00003.jpg')
  })

  test('tells which pictures a request means: cut from the place told, they are the same', async () => {
    const cacheDirectory = join(scratch, 'told')
    const reader = openFrameReader(videoOptions.parse({ cacheDirectory }))
    const told = value(await reader.locate({ source: clip, times: [0.5, 1.5], width: 48 }))
    expect(told.map(({ path, at, width }) => ({ path, at, width }))).toEqual([
      { path: film, at: 1.5, width: 48 },
      { path: film, at: 2.5, width: 48 },
    ])
    const whole = { ...clip, offset: 0 }
    expect(value(await reader.locate({ source: whole, times: [1.5, 2.5], width: 48 }))).toEqual(told)
    expect(value(await reader.read({ source: whole, times: [1.5, 2.5], width: 48 })).map(nearest)).toEqual([1, 2])
    expect(existsSync(join(cacheDirectory, told[0]!.hash.slice(0, 2), `${told[0]!.hash}.png`))).toBe(true)
  })

  test('an identity follows the content, the times and the width', async () => {
    const reader = openFrameReader(videoOptions.parse({ cacheDirectory: null }))
    const identity = async (request: Parameters<typeof reader.identify>[0]) => value(await reader.identify(request))
    const one = await identity({ source: clip, times: [0.5], width: 48 })
    expect(await identity({ source: clip, times: [0.5], width: 48 })).toBe(one)
    const others = [
      await identity({ source: clip, times: [0.6], width: 48 }),
      await identity({ source: clip, times: [0.5], width: 96 }),
      await identity({ source: { ...clip, offset: 0 }, times: [0.5], width: 48 }),
    ]
    expect(new Set([one, ...others]).size).toBe(4)
    expect(failure(await reader.identify({ source: { kind: 'none' }, times: [0], width: null })).kind).toBe(
      'missing_file',
    )
  })
})
