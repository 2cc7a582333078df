/** Pictures of moments as an endpoint takes them. Chooses no moments. */
import type { Result, SeenFrame } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { jpegUrl } from './jpeg.ts'
import type { Moment } from './moments.ts'
import { hasPictures, seenFrame } from './moments.ts'
import { inChunks, requestFor } from './sight.ts'

export interface PictureOptions {
  width: number
  jpegQuality: number
}

export interface SentPicture {
  moment: Moment
  frame: SeenFrame
  url: string
}

/** Of the moments whose clips have pictures, in order. */
export async function picturesOf(
  moments: readonly Moment[],
  reader: FrameReader,
  { width, jpegQuality }: PictureOptions,
  signal: AbortSignal | undefined,
): Promise<Result<SentPicture[]>> {
  const visible = moments.filter(({ clip }) => hasPictures(clip))
  const pictures: SentPicture[] = []
  for (const here of inChunks(visible)) {
    const request = { ...requestFor(here, width), signal }
    const located = await reader.locate(request)
    if (!located.ok) return located
    const read = await reader.read(request)
    if (!read.ok) return read
    for (const [index, moment] of here.entries())
      pictures.push({
        moment,
        frame: seenFrame(moment, located.value[index]),
        url: await jpegUrl(read.value[index]!, jpegQuality),
      })
  }
  return { ok: true, value: pictures }
}

/** What the endpoint is told about the pictures before it. */
export function listed(pictures: readonly SentPicture[]): string {
  const times = pictures.map(({ moment }, index) => `${index + 1} at ${moment.at.toFixed(1)} s`)
  return `There are ${pictures.length} pictures, in the order of the video: ${times.join(', ')}.`
}
