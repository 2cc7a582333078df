import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import sharp from 'sharp'
import { expect, test, vi } from 'vitest'
import { inspectDataset, openDataset, writeMiniature } from '../../src/dataset/index.ts'
import { composePicture, FRAME, loadMaterial, luminance, PICTURE, WANDER } from '../../src/dataset/miniature/picture.ts'
import { clipSpans, FRAMES_PER_SECOND, renderEpisode } from '../../src/dataset/miniature/render.ts'
import { tellStory } from '../../src/dataset/miniature/story.ts'
import { COLORS, OBJECTS, SIGNS } from '../../src/dataset/miniature/words.ts'
import { encodeVideo } from '../../src/video/encode.ts'
import { failure, folder, value } from './folder.ts'

vi.setConfig({ testTimeout: 30_000 })

const photographs = new URL('../../src/dataset/miniature/photographs/', import.meta.url)

test('every object has a photograph with transparency that is small, measured and credited; every colour a value', async () => {
  const notice = readFileSync(new URL('../../NOTICE', import.meta.url), 'utf8')
  const labels = JSON.parse(readFileSync(new URL('labels.json', photographs), 'utf8')) as {
    label: string
    detected: number[]
  }[]
  const { colors } = await loadMaterial()
  let bytes = 0
  for (const object of OBJECTS) {
    const path = new URL(`${object}.webp`, photographs)
    const meta = await sharp(readFileSync(path)).metadata()
    expect([meta.hasAlpha, Math.max(meta.width, meta.height) <= 200], object).toEqual([true, true])
    expect(labels.find((one) => one.label === object)?.detected.slice(0, 3), object).toEqual([1, 1, 1])
    expect(notice, object).toContain(`${object}.webp`)
    bytes += statSync(path).size
  }
  expect(bytes).toBeLessThan(600_000)
  for (const color of COLORS) expect(colors[color], color).toMatch(/^#[0-9a-f]{6}$/)
})

test('letters contrast with their panel, at least 4.5 to 1', async () => {
  const { colors } = await loadMaterial()
  for (const [name, hex] of Object.entries(colors)) {
    const panel = luminance(hex)
    const ink = luminance(panel > 0.18 ? '#101010' : '#f8f8f8')
    expect((Math.max(panel, ink) + 0.05) / (Math.min(panel, ink) + 0.05), name).toBeGreaterThan(4.5)
  }
})

/** Where pixels of about this colour are: count and bounding box. */
function find(pixels: Buffer, hex: string): { count: number; left: number; right: number } {
  const want = [1, 3, 5].map((at) => Number.parseInt(hex.slice(at, at + 2), 16))
  let [count, left, right] = [0, PICTURE.width, 0]
  for (let i = 0; i < pixels.length; i += 3) {
    if (!want.every((part, c) => Math.abs((pixels[i + c] as number) - part) < 12)) continue
    count++
    const x = (i / 3) % PICTURE.width
    left = Math.min(left, x)
    right = Math.max(right, x)
  }
  return { count, left, right }
}

test('a sign is on its panel and inside the frame wherever the camera is', async () => {
  const material = await loadMaterial()
  for (const [i, sign] of SIGNS.entries()) {
    const pixels = await composePicture(
      { sign, color: 'purple', object: 'zebra', count: 1 + (i % 3) },
      `test/${i}`,
      material,
    )
    expect(pixels).toHaveLength(PICTURE.width * PICTURE.height * 3)
    const panel = find(pixels, material.colors.purple as string)
    expect(panel.count, sign).toBeGreaterThan(3000)
    expect(panel.left, sign).toBeGreaterThanOrEqual(2 * WANDER.x)
    expect(panel.right, sign).toBeLessThan(PICTURE.width - 2 * WANDER.x)
  }
})

test('an episode has the frames that its spans say, and the camera moves', async () => {
  const story = tellStory({ seed: 3, episode: 0, words: 'all', questionsPerEpisode: 4, decoyRate: 0.2 })
  const frames: Uint8Array[] = []
  for await (const frame of renderEpisode(story, '3', await loadMaterial())) frames.push(frame)
  const spans = clipSpans(story, '3')
  expect(frames).toHaveLength((spans.at(-1)?.end as number) * FRAMES_PER_SECOND)
  expect(frames[0]).toHaveLength(FRAME.width * FRAME.height * 3)
  expect(Buffer.compare(frames[0] as Buffer, frames[10] as Buffer)).not.toBe(0)
  for (const { start, end } of spans) expect(end - start).toBeGreaterThan(4)
})

const small = { seed: 5, episodes: 2, split: 'val', words: 'all', questionsPerEpisode: 6, encode: encodeVideo } as const

test('written, read back, inspected; a second run does nothing, a half-written one is completed to the same bytes', async () => {
  const out = join(folder(), 'mini')
  const progress: string[] = []
  const first = value(
    await writeMiniature({ ...small, out, onProgress: (done, total) => progress.push(`${done}/${total}`) }),
  )
  expect(first).toMatchObject({ written: true, episodes: 2, clips: 16, questions: 12 })
  expect(progress).toEqual(['0/2', '1/2', '2/2'])

  const dataset = value(await openDataset(out, { split: 'val' }))
  expect(dataset.questions).toHaveLength(12)
  const story = tellStory({ ...small, episode: 0, decoyRate: 0.2 })
  const episode = dataset.episodes.get(story.episodeId)
  expect(episode?.clips.map((clip) => clip.id)).toEqual(story.clips.map((clip) => clip.id))
  expect(episode?.clips.map((clip) => clip.subtitles.map(({ speaker, text }) => ({ speaker, text })))).toEqual(
    story.clips.map((clip) => clip.lines),
  )
  for (const question of story.questions) {
    const { answer, clipId, span, kind } = dataset.gold.get(String(question.qid)) as NonNullable<
      ReturnType<typeof dataset.gold.get>
    >
    const clip = episode?.clips.find((one) => one.id === clipId)
    expect([answer, clip?.index, kind]).toEqual([question.answer, question.clip, question.kind])
    if (kind === 'dialogue') expect(clip?.subtitles[question.line]).toMatchObject({ start: span?.[0], end: span?.[1] })
    else expect(span).toEqual([0, (clip?.end as number) - (clip?.start as number)])
  }
  const report = value(await inspectDataset(out))
  expect(report).toMatchObject({
    subtitles: { timed: 16, missing: 0 },
    pictures: { video: 16, missingVideos: [] },
    leaks: { goldKeysInTasks: [], optionInQuestion: { n: 0 } },
  })

  const files = () =>
    Object.fromEntries(
      (readdirSync(out, { recursive: true }) as string[])
        .filter((name) => /\.\w+$/.test(name))
        .map((name) => [name, readFileSync(join(out, name))]),
    )
  const before = files()
  expect(Object.keys(before).filter((name) => name.includes('partial') || name.includes('unfinished'))).toEqual([])
  const video = join(out, 'videos', `${story.episodeId}.mp4`)
  const touched = statSync(video).mtimeMs
  expect(value(await writeMiniature({ ...small, out }))).toEqual({ ...first, written: false })
  expect(statSync(video).mtimeMs).toBe(touched)

  // As after a crash between two episodes: a video and everything that is written last are not there.
  const stopped = join(folder(), 'mini')
  const stop = new AbortController()
  const aborted = failure(
    await writeMiniature({
      ...small,
      out: stopped,
      signal: stop.signal,
      // the second episode begins once the first is whole, and is stopped as it begins
      encode: async (frames, options) => {
        if (options.path.includes('e02')) {
          while (!existsSync(join(stopped, 'videos', 'mini_s01e01.mp4')))
            await new Promise((wake) => setTimeout(wake, 10))
          stop.abort()
        }
        return encodeVideo(frames, options)
      },
    }),
  )
  expect(aborted).toMatchObject({ kind: 'cancelled' })
  expect(failure(await openDataset(stopped)).message).toContain('unfinished')
  expect(failure(await writeMiniature({ ...small, seed: 6, out: stopped })).message).toContain(
    'holds an unfinished data set',
  )
  rmSync(video)
  rmSync(join(out, 'dataset.json'))
  expect(failure(await openDataset(out)).message).toContain('unfinished')
  expect(failure(await writeMiniature({ ...small, out })).message).toContain('is not empty')
  expect(value(await writeMiniature({ ...small, out: stopped })).written).toBe(true)
  const after = Object.fromEntries(
    (readdirSync(stopped, { recursive: true }) as string[])
      .filter((name) => /\.\w+$/.test(name))
      .map((name) => [name, readFileSync(join(stopped, name))]),
  )
  expect(Object.keys(after).sort()).toEqual(Object.keys(before).sort())
  for (const [name, bytes] of Object.entries(before)) expect(Buffer.compare(bytes, after[name] as Buffer), name).toBe(0)
})

test('another data set in the folder is left alone', async () => {
  const out = join(folder(), 'mini')
  value(await writeMiniature({ ...small, episodes: 1, out }))
  expect(failure(await writeMiniature({ ...small, episodes: 1, seed: 6, out }))).toMatchObject({
    kind: 'bad_file',
    message: expect.stringMatching(/holds the miniature data set .*"seed":5.*"seed":6.*choose another --out/),
  })
  expect(failure(await writeMiniature({ ...small, out: folder({ 'notes.txt': 'mine' }) })).message).toContain(
    'is not empty (notes.txt)',
  )
})

test("an encoder's failure is passed on", async () => {
  const full = async () => ({
    ok: false as const,
    failure: { boundary: 'video' as const, kind: 'disk_full' as const, message: 'videos/x.mp4: no space left' },
  })
  expect(failure(await writeMiniature({ ...small, encode: full, out: join(folder(), 'mini') }))).toMatchObject({
    kind: 'disk_full',
  })
})
