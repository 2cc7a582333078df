/**
 * Vision behind a chat endpoint with image inputs: frames of the clips as JPEG, then the master's query (spec 1.7, row 19).
 * The number of pictures stated is the number sent. The question and its options are not given, nor are boxes.
 */
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions'
import type { Clip, Failure, Result, SeenFrame, SeenPicture, VisionAgent } from '../types.ts'
import type { Frame, FrameReader } from '../video/index.ts'
import { uniformTimes } from '../video/index.ts'
import type { AnswerCache } from './cache.ts'
import { contactSheet } from './contactSheet.ts'
import type { ChatEndpoint, ChatReply } from './endpoint.ts'
import { failed } from './failure.ts'
import { dataUrl, jpegUrl } from './jpeg.ts'
import { oneCall, secondsSince } from './usage.ts'
import { clipSeconds } from './visionEmbedded.ts'

const instructions = [
  'You look at still pictures from a video on behalf of someone who cannot see them, and report what they show.',
  'Tell only what is visible: people, what they do, objects, places, colours, and any writing, word for word. Be brief and concrete.',
  'If the pictures do not show what is asked for, say so plainly and do not guess.',
].join('\n')

export interface EndpointVisionOptions {
  model: string
  /** Pictures per look; several clips share them evenly. */
  framesPerLook: number
  frameTimes: 'uniform' | 'firstMinute'
  layout: 'pictures' | 'sheet'
  width: number
  jpegQuality: number
}

export function openVisionEndpoint(
  endpoint: ChatEndpoint,
  frames: FrameReader,
  cache: AnswerCache,
  options: EndpointVisionOptions,
): VisionAgent {
  return {
    name: `endpoint:${options.model}`,
    async look({ clips, query }, { signal }) {
      const begin = performance.now()
      const pictures = await gather(clips, frames, options, signal)
      if (!pictures.ok) return pictures
      const messages = prompt(pictures.value, await images(pictures.value, options), query)
      const answered = await cache.answer<ChatReply>({
        content: ['vision', endpoint.identity, messages],
        boundary: 'vision',
        what: `looking at ${clips.map(({ id }) => id).join(', ')} with ${options.model}`,
        signal,
        answer: (shared) => endpoint.ask(messages, shared),
      })
      if (!answered.ok) return answered
      const { value, cached } = answered.value
      const seen = pictures.value.map(({ clipId, time, picture }): SeenFrame => ({ clipId, time, picture }))
      const spent = cached ? { cached: 1 } : value.usage
      return {
        ok: true,
        value: {
          text: value.text.trim(),
          frames: seen,
          usage: oneCall({ ...spent, frames: seen.length, seconds: secondsSince(begin) }),
        },
      }
    },
  }
}

interface Picture extends SeenFrame {
  frame: Frame
}

async function gather(
  clips: readonly Clip[],
  reader: FrameReader,
  options: EndpointVisionOptions,
  signal: AbortSignal | undefined,
): Promise<Result<Picture[]>> {
  const pictures: Picture[] = []
  // a folder may hold fewer pictures than are wanted; each is sent once
  const seen = new Set<string>()
  for (const [index, clip] of clips.entries()) {
    // whole numbers that differ by at most one and add up to what a look may have
    const before = Math.floor((index * options.framesPerLook) / clips.length)
    const wanted = Math.floor(((index + 1) * options.framesPerLook) / clips.length) - before
    const times = timesIn(clipSeconds(clip), wanted, options.frameTimes)
    const request = { source: clip.source, times, width: options.width, signal }
    const located = await reader.locate(request)
    if (!located.ok) return about(clip, located.failure)
    const read = await reader.read(request)
    if (!read.ok) return about(clip, read.failure)
    for (const [place, frame] of read.value.entries()) {
      const picture = located.value[place] as SeenPicture
      const which = `${picture.path} ${picture.at}`
      if (!seen.has(which)) pictures.push({ clipId: clip.id, time: frame.time, picture, frame })
      seen.add(which)
    }
  }
  return { ok: true, value: pictures }
}

const MINUTE = 60

/**
 * Seconds on the clip's timeline. `firstMinute`: at 3 pictures per second and n = 12 these are pictures 1, 16, ... 166, those of the
 * released code (spec longvideoagent.md, row 19); what a shorter clip does not have is left out.
 */
function timesIn(seconds: number, n: number, frameTimes: EndpointVisionOptions['frameTimes']): number[] {
  if (frameTimes === 'uniform') return uniformTimes(seconds, n)
  return Array.from({ length: n }, (_, index) => (index * MINUTE) / n).filter((time) => time === 0 || time < seconds)
}

/** Names the clip in a failure of its frames. */
function about({ id }: Clip, { boundary, kind, message }: Failure): Result<never> {
  return failed(boundary, kind, `clip ${id}: ${message}`)
}

/** What is sent: data URLs, and how they are to be read. */
interface Images {
  urls: string[]
  order: string
}

async function images(pictures: readonly Picture[], { layout, jpegQuality }: EndpointVisionOptions): Promise<Images> {
  const frames = pictures.map(({ frame }) => frame)
  if (layout === 'sheet' && frames.length > 1) {
    const { columns, jpeg } = await contactSheet(frames, jpegQuality)
    const order = `in the order of the video, together on one sheet: ${columns} in a row, left to right, then the next row`
    return { urls: [dataUrl(jpeg)], order }
  }
  const urls = await Promise.all(frames.map((frame) => jpegUrl(frame, jpegQuality)))
  return { urls, order: 'in the order of the video' }
}

function prompt(pictures: readonly Picture[], { urls, order }: Images, query: string): ChatCompletionMessageParam[] {
  const clips = [...new Set(pictures.map(({ clipId }) => clipId))]
  const spans = clips.map((clipId) => {
    const times = pictures.filter((picture) => picture.clipId === clipId).map(({ time }) => `${time.toFixed(1)} s`)
    return `${times.length} of clip ${clipId}, at ${times.join(', ')}`
  })
  return [
    { role: 'system', content: instructions },
    {
      role: 'user',
      content: [
        ...urls.map((url) => ({ type: 'image_url' as const, image_url: { url } })),
        {
          type: 'text' as const,
          text: `There are ${pictures.length} pictures, ${order}: ${spans.join('; ')}.\n\nWhat is asked for: ${query}`,
        },
      ],
    },
  ]
}
