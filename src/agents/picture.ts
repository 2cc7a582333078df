/**
 * Pictures into the planes that convolutional nets read: crop, resize, channel order, normalisation, in one pass each.
 * Resizing is a triangle filter that widens when it shrinks, so that thin strokes do not vanish. Does not decode files.
 */

/** `data` is height * width * 3 bytes, row by row, red green blue. */
export interface Picture {
  width: number
  height: number
  data: Uint8Array
}

/** Pixels; `right` and `bottom` are exclusive. */
export interface Box {
  left: number
  top: number
  right: number
  bottom: number
}

export interface Planes {
  /** 3 * rows * columns values, plane by plane, in the order of `channels`. */
  into: Float32Array
  /** Where the first plane begins in `into`. */
  offset: number
  /** Size of a plane; the picture fills its top left corner. */
  rows: number
  columns: number
  /** Which colour goes into each plane: 0 red, 1 green, 2 blue. */
  channels: readonly [number, number, number]
  /** Value written = pixel * scale + shift, per plane; pixels from 0 to 255. */
  scale: readonly [number, number, number]
  shift: readonly [number, number, number]
}

interface Taps {
  first: number
  weights: Float32Array
}

/** For each of `size` outputs, which of the inputs from `from` to `to` it mixes, and how. */
function taps(from: number, to: number, size: number): Taps[] {
  const scale = (to - from) / size
  const reach = Math.max(1, scale)
  return Array.from({ length: size }, (_, index) => {
    const centre = from + (index + 0.5) * scale - 0.5
    const first = Math.max(from, Math.ceil(centre - reach))
    const last = Math.min(to - 1, Math.floor(centre + reach))
    const weights = new Float32Array(last - first + 1)
    let sum = 0
    for (let at = first; at <= last; at++) sum += weights[at - first] = Math.max(0, 1 - Math.abs(at - centre) / reach)
    if (sum === 0) weights[0] = sum = 1
    return { first, weights: weights.map((weight) => weight / sum) }
  })
}

/** Writes the part of `picture` inside `box` (whole pixels), resized to `height` x `width`, into planes. */
export function writePlanes(picture: Picture, box: Box, width: number, height: number, planes: Planes): void {
  const across = taps(box.left, box.right, width)
  const down = taps(box.top, box.bottom, height)
  const { data } = picture
  // Rows are resized across once each and kept until no output row needs them.
  const rows = new Map<number, Float32Array>()
  const row = (y: number) => {
    const known = rows.get(y)
    if (known) return known
    const resized = new Float32Array(width * 3)
    const start = y * picture.width * 3
    for (let x = 0; x < width; x++) {
      const { first, weights } = across[x]!
      let red = 0
      let green = 0
      let blue = 0
      for (let tap = 0, at = start + first * 3; tap < weights.length; tap++, at += 3) {
        const weight = weights[tap]!
        red += weight * data[at]!
        green += weight * data[at + 1]!
        blue += weight * data[at + 2]!
      }
      resized[x * 3] = red
      resized[x * 3 + 1] = green
      resized[x * 3 + 2] = blue
    }
    rows.set(y, resized)
    return resized
  }
  const { into, offset, columns, channels, scale, shift } = planes
  const plane = planes.rows * columns
  const mixed = new Float32Array(width * 3)
  for (let y = 0; y < height; y++) {
    const { first, weights } = down[y]!
    for (const known of rows.keys()) if (known < first) rows.delete(known)
    mixed.fill(0)
    for (let tap = 0; tap < weights.length; tap++) {
      const weight = weights[tap]!
      const source = row(first + tap)
      for (let at = 0; at < mixed.length; at++) mixed[at]! += weight * source[at]!
    }
    for (let channel = 0; channel < 3; channel++) {
      const a = scale[channel]!
      const b = shift[channel]!
      let to = offset + channel * plane + y * columns
      for (let at = channels[channel]!; at < mixed.length; at += 3) into[to++] = mixed[at]! * a + b
    }
  }
}

export function wholeOf(picture: Picture): Box {
  return { left: 0, top: 0, right: picture.width, bottom: picture.height }
}

/** Intersection over union of two boxes, 0 to 1. */
export function overlap(a: Box, b: Box): number {
  const width = Math.min(a.right, b.right) - Math.max(a.left, b.left)
  const height = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)
  if (width <= 0 || height <= 0) return 0
  const shared = width * height
  return shared / (area(a) + area(b) - shared)
}

function area(box: Box): number {
  return (box.right - box.left) * (box.bottom - box.top)
}
