/** Several pictures as one: side by side in rows, for endpoints that take a single image or count each one. Chooses no pictures. */
import sharp from 'sharp'
import type { Frame } from '../video/index.ts'

export interface ContactSheet {
  /** Pictures in a row; the last row may have fewer. */
  columns: number
  jpeg: Buffer
}

/** Reading order: left to right, then the next row. Each picture keeps its size; the rest of a cell is black. */
export async function contactSheet(frames: readonly Frame[], quality: number): Promise<ContactSheet> {
  const columns = Math.ceil(Math.sqrt(frames.length))
  const across = Math.max(...frames.map(({ width }) => width))
  const down = Math.max(...frames.map(({ height }) => height))
  const rows = Math.ceil(frames.length / columns)
  const sheet = sharp({ create: { width: columns * across, height: rows * down, channels: 3, background: 'black' } })
  const placed = frames.map(({ width, height, data }, index) => ({
    input: Buffer.from(data.buffer, data.byteOffset, data.byteLength),
    raw: { width, height, channels: 3 as const },
    left: (index % columns) * across,
    top: Math.floor(index / columns) * down,
  }))
  return { columns, jpeg: await sheet.composite(placed).jpeg({ quality }).toBuffer() }
}
