/** Test pictures: words on panels, drawn as paths since system fonts may be absent. */
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import opentype from 'opentype.js'
import sharp from 'sharp'
import type { Picture } from '../../src/agents/picture.ts'

const require = createRequire(import.meta.url)
const bytes = readFileSync(require.resolve('dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf'))
const font = opentype.parse(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength))

export interface Drawing {
  width?: number
  height?: number
  wall?: string
  /** A word in `ink` on a panel of colour `panel`, its top at `y`. */
  signs?: readonly { word: string; panel: string; ink: string; y: number; size?: number }[]
  /** A photograph of the data set, at (x, y), `height` pixels high. */
  photographs?: readonly { name: string; x: number; y: number; height: number }[]
}

export function photographPath(name: string): string {
  return fileURLToPath(new URL(`../../src/dataset/miniature/photographs/${name}.webp`, import.meta.url))
}

export async function draw({
  width = 384,
  height = 216,
  wall = '#a0a09c',
  signs = [],
  photographs = [],
}: Drawing): Promise<Picture> {
  const panels = signs.map(({ word, panel, ink, y, size = 34 }) => {
    const path = font.getPath(word, 36, y + size * 1.15, size)
    path.fill = ink
    return `<rect x="16" y="${y}" width="${font.getAdvanceWidth(word, size) + 40}" height="${size * 1.6}" fill="${panel}"/>${path.toSVG(2)}`
  })
  const svg = `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}"><rect width="100%" height="100%" fill="${wall}"/>${panels.join('')}</svg>`
  const prints = await Promise.all(
    photographs.map(async ({ name, x, y, height: high }) => ({
      input: await sharp(photographPath(name)).resize({ height: high }).png().toBuffer(),
      left: x,
      top: y,
    })),
  )
  const { data, info } = await sharp(Buffer.from(svg))
    .composite(prints)
    .removeAlpha()
    .raw()
    .toBuffer({ resolveWithObject: true })
  return { width: info.width, height: info.height, data }
}
