/** Pictures in the form in which chat endpoints take them. */
import sharp from 'sharp'
import type { Frame } from '../video/index.ts'

export async function jpegUrl({ width, height, data }: Frame, quality: number): Promise<string> {
  return dataUrl(
    await sharp(data, { raw: { width, height, channels: 3 } })
      .jpeg({ quality })
      .toBuffer(),
  )
}

export function dataUrl(jpeg: Buffer): string {
  return `data:image/jpeg;base64,${jpeg.toString('base64')}`
}
