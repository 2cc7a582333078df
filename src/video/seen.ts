/** Shows again what a vision agent saw, from the record of it. Finds and chooses nothing. */
import sharp from 'sharp'
import type { Result, SeenPicture } from '../types.ts'
import { failed, reasonOf } from './failure.ts'
import { type FrameReader, identifyFile, pictureHash } from './frameCache.ts'

/** Whether the file is the one that was looked at. If not, `seenAsPng` may give another picture. */
export async function isUnchanged({ path, at, width, hash }: SeenPicture): Promise<boolean> {
  const file = await identifyFile(path)
  return file.ok && pictureHash(file.value, at, width) === hash
}

/** The picture in the size in which it was seen, lossless. From the frame cache of `frames` where it is there. */
export async function seenAsPng(frames: FrameReader, { path, at, width }: SeenPicture): Promise<Result<Buffer>> {
  if (at === null) {
    try {
      const picture = sharp(path).toColourspace('srgb')
      if (width !== null) picture.resize({ width, withoutEnlargement: true })
      return { ok: true, value: await picture.png().toBuffer() }
    } catch (error) {
      return failed(
        'missing_file',
        `${path}: cannot read this picture: ${reasonOf(error)}; was it moved since the run?`,
      )
    }
  }
  const read = await frames.read({ source: { kind: 'video', path, offset: 0, duration: at }, times: [at], width })
  if (!read.ok) return read
  const { data, width: across, height } = read.value[0]!
  const png = sharp(data, { raw: { width: across, height, channels: 3 } }).png({ compressionLevel: 2 })
  return { ok: true, value: await png.toBuffer() }
}
