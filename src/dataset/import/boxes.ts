/**
 * TVQA+'s boxes around what question and answer name (spec/longvideoagent.md 2.2): checked, cut to the picture, counted. They tell the answer, so
 * they belong to the gold part; only an oracle may look at them.
 */
import { isObject } from '../json.ts'
import type { BoxTuple } from '../layout.ts'
import { describe } from '../rows.ts'
import type { Findings } from './findings.ts'

/** Pixels of the pictures that the boxes were drawn on. */
const PICTURE = { width: 640, height: 360 }

/** Picture n of a clip is at (n - 1) / 3 seconds. */
const PICTURES_PER_SECOND = 3

/**
 * Boxes by number of picture; pictures without boxes are left out. `bbox` is the row's field, as TVQA+ and LongTVQA+ have it
 * (`{img_id, top, left, width, height, label}`) or as a list `[left, top, width, height, label]`. `duration`: of the clip, in seconds, null when unknown.
 */
export function readBoxes(
  bbox: unknown,
  where: string,
  duration: number | null,
  findings: Findings,
): Record<string, BoxTuple[]> {
  const boxes: Record<string, BoxTuple[]> = {}
  if (bbox === undefined || bbox === null) return boxes
  if (!isObject(bbox)) {
    findings.add('box/format', where, `expected {picture: [box, ...]}, got ${describe(bbox)}`)
    return boxes
  }
  for (const [picture, list] of Object.entries(bbox)) {
    if (!/^[1-9]\d*$/.test(picture) || !Array.isArray(list)) {
      findings.add(
        'box/format',
        where,
        `bbox ${describe(picture)}: expected a number from 1 with a list, got ${describe(list)}`,
      )
      continue
    }
    const kept = list.flatMap((box: unknown) => {
      const read = readBox(box)
      if (!read) {
        findings.add(
          'box/format',
          where,
          `picture ${picture}: expected left, top, width, height, label, got ${describe(box)}`,
        )
        return []
      }
      const cut = cutToPicture(read)
      if (!cut) {
        findings.add('box/outside', where, `picture ${picture}: ${describe(read)}`)
        return []
      }
      if (cut.some((side, i) => side !== read[i]))
        findings.add('box/cut', where, `picture ${picture}: ${describe(read)}`)
      return [cut]
    })
    if (kept.length === 0) continue
    if (duration !== null && (Number(picture) - 1) / PICTURES_PER_SECOND > duration)
      findings.add('box/after-clip', where, `picture ${picture}, the clip has ${duration} s`)
    boxes[picture] = kept
  }
  return boxes
}

function readBox(box: unknown): BoxTuple | null {
  const [left, top, width, height, label] = Array.isArray(box)
    ? (box as unknown[])
    : isObject(box)
      ? [box.left, box.top, box.width, box.height, box.label]
      : []
  const isNumber = (value: unknown): value is number => typeof value === 'number' && Number.isFinite(value)
  return isNumber(left) && isNumber(top) && isNumber(width) && isNumber(height) && typeof label === 'string'
    ? [left, top, width, height, label]
    : null
}

/** null when nothing of the box is inside. */
function cutToPicture([left, top, width, height, label]: BoxTuple): BoxTuple | null {
  const [x, y] = [Math.max(0, left), Math.max(0, top)]
  const [right, bottom] = [Math.min(PICTURE.width, left + width), Math.min(PICTURE.height, top + height)]
  return right > x && bottom > y ? [x, y, right - x, bottom - y, label] : null
}
