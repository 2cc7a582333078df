/**
 * The still picture of one miniature clip: a textured neutral wall, a sign (a word on a coloured panel) and photographs of an object.
 *
 * Composed in process with sharp. A pure function of the scene and its seed. Does not move anything (`render.ts`) and does not encode.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import opentype from 'opentype.js'
import sharp from 'sharp'
import { Dice, type Scene } from './story.ts'

/** What a viewer sees of the picture at any time. */
export const FRAME = { width: 384, height: 216 }
/** The picture is larger than the frame on every side, so that the frame can wander over it. */
export const WANDER = { x: 6, y: 4 }
export const PICTURE = { width: FRAME.width + 2 * WANDER.x, height: FRAME.height + 2 * WANDER.y }

const photographs = new URL('./photographs/', import.meta.url)

/** Width and height of what a caller needs to know of a photograph, and its bytes. */
interface Photograph {
  bytes: Buffer
  width: number
  height: number
}

interface Box {
  left: number
  top: number
  width: number
  height: number
}

export interface PictureMaterial {
  /** Panel colours: name -> `#rrggbb`. */
  colors: Readonly<Record<string, string>>
  font: opentype.Font
  photograph(label: string): Promise<Photograph>
}

/** Reads what pictures are made of. Throws when the repository lacks one of its own files. */
export async function loadMaterial(): Promise<PictureMaterial> {
  const colors = JSON.parse(await readFile(new URL('colors.json', photographs), 'utf8')) as Record<string, string>
  const fontPath = createRequire(import.meta.url).resolve('dejavu-fonts-ttf/ttf/DejaVuSans-Bold.ttf')
  const fontBytes = await readFile(fontPath)
  const font = opentype.parse(fontBytes.buffer.slice(fontBytes.byteOffset, fontBytes.byteOffset + fontBytes.byteLength))
  const known = new Map<string, Promise<Photograph>>()
  const photograph = (label: string) => {
    const path = fileURLToPath(new URL(`${label}.webp`, photographs))
    const photo = known.get(label) ?? loadPhotograph(path)
    known.set(label, photo)
    return photo
  }
  return { colors, font, photograph }
}

async function loadPhotograph(path: string): Promise<Photograph> {
  const bytes = await readFile(path)
  const { width, height } = await sharp(bytes).metadata()
  return { bytes, width, height }
}

/** Raw RGB of the whole picture: `PICTURE.width * PICTURE.height * 3` bytes, rows from the top. */
export async function composePicture(scene: Scene, seed: string, material: PictureMaterial): Promise<Buffer> {
  const dice = new Dice(`picture/${seed}`)
  const wall = drawWall(dice)
  const photo = await material.photograph(scene.object)
  const copies = placeCopies(photo, scene.count, dice)
  const sign = Buffer.from(drawSign(scene, dice, material))
  const prints = await Promise.all(
    copies.map(async (box) => ({
      input: await sharp(photo.bytes)
        .resize(box.width, box.height, { fit: 'fill' })
        .png({ compressionLevel: 0 })
        .toBuffer(),
      left: box.left,
      top: box.top,
    })),
  )
  return sharp(wall.pixels, { raw: { width: wall.width, height: wall.height, channels: 3 } })
    .resize(PICTURE.width, PICTURE.height, { fit: 'fill', kernel: 'cubic' })
    .composite([{ input: sign, left: 0, top: 0 }, ...prints])
    .removeAlpha()
    .raw()
    .toBuffer()
}

/** Low-resolution grey noise, to be enlarged into plaster-like blotches. Neutral, so that the panel owns the picture's colour. */
function drawWall(dice: Dice): { pixels: Buffer; width: number; height: number } {
  const [width, height] = [50, 28]
  const pixels = Buffer.alloc(width * height * 3)
  const base = 150 + dice.below(45)
  const warmth = dice.below(7) - 3
  for (let i = 0; i < width * height; i++) {
    const level = base + dice.below(15) - 7
    pixels[3 * i] = level + warmth
    pixels[3 * i + 1] = level
    pixels[3 * i + 2] = level - warmth
  }
  return { pixels, width, height }
}

const SIGN_BAND = { top: WANDER.y + 8, height: 62 }
const OBJECT_BAND: Box = {
  left: 2 * WANDER.x,
  top: SIGN_BAND.top + SIGN_BAND.height + 10,
  width: PICTURE.width - 4 * WANDER.x,
  height: PICTURE.height - 2 * WANDER.y - 2 - (SIGN_BAND.top + SIGN_BAND.height + 10),
}

/** The panel with its word in capitals, as SVG over the whole picture. Letters are paths: system fonts may be absent. */
function drawSign(scene: Scene, dice: Dice, material: PictureMaterial): string {
  const fill = material.colors[scene.color]
  if (!fill) throw new Error(`sign colour "${scene.color}" is not in colors.json (${Object.keys(material.colors)})`)
  const word = scene.sign.toUpperCase()
  const widest = PICTURE.width - 4 * WANDER.x - 48
  const fontSize = Math.min(40, (40 * widest) / material.font.getAdvanceWidth(word, 40))
  const textWidth = material.font.getAdvanceWidth(word, fontSize)
  const width = textWidth + 40
  const free = PICTURE.width - 4 * WANDER.x - width
  const left = 2 * WANDER.x + free * dice.uniform()
  const { top, height } = SIGN_BAND
  const capHeight = 0.729 * fontSize // DejaVu Sans Bold: capitals are 1493 of 2048 units
  const ink = luminance(fill) > 0.18 ? '#101010' : '#f8f8f8'
  const letters = material.font.getPath(word, left + 20, top + (height + capHeight) / 2, fontSize).toPathData(1)
  return (
    `<svg xmlns="http://www.w3.org/2000/svg" width="${PICTURE.width}" height="${PICTURE.height}">` +
    `<rect x="${left.toFixed(1)}" y="${top}" width="${width.toFixed(1)}" height="${height}" rx="5" fill="${fill}" stroke="#3c3c3c" stroke-width="2"/>` +
    `<path d="${letters}" fill="${ink}"/></svg>`
  )
}

/** Relative luminance of `#rrggbb`, 0..1 (WCAG 2: linearised sRGB). Above 0.18 black text has the better contrast. */
export function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((at) => {
    const v = Number.parseInt(hex.slice(at, at + 2), 16) / 255
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  return 0.2126 * r + 0.7152 * g + 0.0722 * b
}

/** A copy covers at most this many square pixels: the detector reads some things worse when they fill the frame. */
const LARGEST_COPY = 98 * 98

/** Boxes of `count` copies side by side, in as many rows as let them be largest. */
function placeCopies(photo: Photograph, count: number, dice: Dice): Box[] {
  const gap = 8
  const layouts = (count > 3 ? [1, 2] : [1]).map((rows) => {
    const columns = Math.ceil(count / rows)
    const cell = { width: OBJECT_BAND.width / columns, height: OBJECT_BAND.height / rows }
    const fitting = Math.min((cell.width - gap) / photo.width, (cell.height - gap / 2) / photo.height)
    return { columns, cell, scale: Math.min(fitting, Math.sqrt(LARGEST_COPY / (photo.width * photo.height))) }
  })
  const { columns, cell, scale } = layouts.reduce((best, other) => (other.scale > best.scale ? other : best))
  return Array.from({ length: count }, (_, i) => {
    const size = scale * (0.88 + 0.12 * dice.uniform())
    const [width, height] = [Math.round(photo.width * size), Math.round(photo.height * size)]
    const row = Math.floor(i / columns)
    const inRow = Math.min(columns, count - row * columns)
    const centre = OBJECT_BAND.left + (OBJECT_BAND.width * ((i % columns) + 0.5)) / inRow
    const slack = Math.max(0, Math.min(cell.width - width - gap, 40))
    return {
      left: Math.round(centre - width / 2 + slack * (dice.uniform() - 0.5)),
      top: Math.round(
        OBJECT_BAND.top + row * cell.height + (cell.height - height) * (0.5 + 0.4 * (dice.uniform() - 0.5)),
      ),
      width,
      height,
    }
  })
}
