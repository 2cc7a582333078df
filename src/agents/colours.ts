/**
 * Names colours: the nearest of a few named ones in CIELAB, where distances resemble what people see.
 * Eleven names, the basic colour terms of English (Berlin and Kay, 1969). Knows nothing about objects or text.
 */
import type { Box, Picture } from './picture.ts'

export type ColourName =
  | 'red'
  | 'orange'
  | 'yellow'
  | 'green'
  | 'blue'
  | 'purple'
  | 'pink'
  | 'brown'
  | 'black'
  | 'white'
  | 'gray'

/** Several examples per name, since a name covers a region: navy and sky are both blue. */
const examples: readonly (readonly [ColourName, ...number[]])[] = [
  ['red', 0xd9161c, 0xb01015, 0x8b0000, 0xe8403c],
  ['orange', 0xf58613, 0xff7000, 0xe07020, 0xffa340],
  ['yellow', 0xf7e01e, 0xffee66, 0xd9c400, 0xfff29a],
  ['green', 0x1f9a3c, 0x0b5d1e, 0x5fc45f, 0x2e8b57, 0x7f9f2f, 0x9fe09f, 0x556b2f],
  ['blue', 0x1433e6, 0x0a1a7a, 0x4a90e2, 0x87ceeb, 0x1e6fa8, 0x2f4f8f, 0xa9c9f0],
  ['purple', 0x8a1b96, 0x5b1a8b, 0xa45cc8, 0x4b0082, 0xb99bd8],
  ['pink', 0xf9a3c4, 0xff69b4, 0xe75480, 0xffc8dc, 0xe05a9a],
  ['brown', 0x6b3f1d, 0x8b5a2b, 0x4a2a12, 0xa0693c, 0xb98a5e],
  ['black', 0x141414, 0x000000, 0x262626],
  ['white', 0xfafafa, 0xffffff, 0xe9e9e9],
  ['gray', 0x808080, 0x5a5a5a, 0xa8a8a8, 0xc8c8c8, 0x3f3f3f],
]

type Lab = readonly [number, number, number]

const anchors: readonly { name: ColourName; lab: Lab }[] = examples.flatMap(([name, ...colours]) =>
  colours.map((colour) => ({
    name,
    lab: toLab((colour as number) >> 16, ((colour as number) >> 8) & 255, (colour as number) & 255),
  })),
)

/** CIELAB (D65, 2 degrees) of an sRGB colour with parts from 0 to 255. */
export function toLab(red: number, green: number, blue: number): Lab {
  const [r, g, b] = [red, green, blue].map((part) => {
    const v = part / 255
    return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4
  }) as [number, number, number]
  const [x, y, z] = [
    (0.4124564 * r + 0.3575761 * g + 0.1804375 * b) / 0.95047,
    0.2126729 * r + 0.7151522 * g + 0.072175 * b,
    (0.0193339 * r + 0.119192 * g + 0.9503041 * b) / 1.08883,
  ].map((v) => (v > 216 / 24389 ? Math.cbrt(v) : (v * 24389) / 27 / 116 + 16 / 116)) as [number, number, number]
  return [116 * y - 16, 500 * (x - y), 200 * (y - z)]
}

/** Names by colour, five bits a part: pictures ask for the same colours over and over. */
const known = new Map<number, ColourName>()

/** Name of an sRGB colour, parts from 0 to 255. */
export function nameColour(red: number, green: number, blue: number): ColourName {
  const key = ((red >> 3) << 10) | ((green >> 3) << 5) | (blue >> 3)
  let name = known.get(key)
  if (name === undefined) {
    const lab = toLab((red & ~7) | 4, (green & ~7) | 4, (blue & ~7) | 4)
    const distances = anchors.map((anchor) =>
      Math.hypot(anchor.lab[0] - lab[0], anchor.lab[1] - lab[1], anchor.lab[2] - lab[2]),
    )
    name = anchors[distances.indexOf(Math.min(...distances))]!.name
    known.set(key, name)
  }
  return name
}

/** The name that most pixels of the picture have. */
export function dominantColour(picture: Picture): ColourName {
  const step = Math.max(1, Math.round(Math.sqrt((picture.width * picture.height) / 20_000)))
  return most(picture, { left: 0, top: 0, right: picture.width, bottom: picture.height }, null, step)
}

/** The colour behind a line of text: of the band around its letters, which belongs to the panel that it stands on. */
export function panelColour(picture: Picture, text: Box): ColourName {
  const height = text.bottom - text.top
  const inner = {
    left: text.left + 0.25 * height,
    top: text.top + 0.2 * height,
    right: text.right - 0.25 * height,
    bottom: text.bottom - 0.2 * height,
  }
  const outer = {
    left: text.left - 0.1 * height,
    top: text.top - 0.1 * height,
    right: text.right + 0.1 * height,
    bottom: text.bottom + 0.1 * height,
  }
  return most(picture, outer, inner, 1)
}

/** The commonest colour of the middle half of a box, each way: what stands there rather than what is behind it. */
export function colourWithin(picture: Picture, { left, top, right, bottom }: Box): ColourName {
  const [across, down] = [(right - left) / 4, (bottom - top) / 4]
  const middle = { left: left + across, top: top + down, right: right - across, bottom: bottom - down }
  const step = Math.max(1, Math.round(Math.sqrt((4 * across * down) / 5_000)))
  return most(picture, middle, null, step)
}

/** The commonest name inside `outer` and outside `inner`. */
function most(picture: Picture, outer: Box, inner: Box | null, step: number): ColourName {
  const counts = new Map<ColourName, number>()
  for (let y = Math.max(0, Math.round(outer.top)); y < Math.min(picture.height, outer.bottom); y += step) {
    for (let x = Math.max(0, Math.round(outer.left)); x < Math.min(picture.width, outer.right); x += step) {
      if (inner && x >= inner.left && x < inner.right && y >= inner.top && y < inner.bottom) continue
      const at = (y * picture.width + x) * 3
      const name = nameColour(picture.data[at]!, picture.data[at + 1]!, picture.data[at + 2]!)
      counts.set(name, (counts.get(name) ?? 0) + 1)
    }
  }
  let best: ColourName = 'gray'
  for (const [name, count] of counts) if (count > (counts.get(best) ?? 0)) best = name
  return best
}
