/**
 * The boxes of an imported data set, by question. Gold: they stand around what question and *answer* name, so only an oracle that says so in its
 * reports may look at them. Kept apart from `openDataset`, which never loads them.
 */
import type { Result } from '../types.ts'
import { failed } from './failure.ts'
import { type BoxesLine, paths } from './layout.ts'
import { readLines, readMarker } from './lines.ts'

export interface FrameBoxes {
  /** Number of the picture in the clip's folder, from 1: it shows the clip at (picture - 1) / 3 seconds. */
  picture: number
  /** Pixels of a 640 x 360 picture. */
  boxes: { left: number; top: number; width: number; height: number; label: string }[]
}

/** Boxes by qid, pictures in order; questions without boxes are absent. Fails like `openDataset`. */
export async function openBoxes(directory: string, split?: string): Promise<Result<Map<string, FrameBoxes[]>>> {
  const marker = await readMarker(directory)
  if (!marker.ok) return marker
  if (!marker.value)
    return failed(
      'bad_file',
      `${directory}: boxes are read from imported data sets only; see \`showrunner dataset import\``,
    )
  const all = new Map<string, FrameBoxes[]>()
  for (const [name, { boxes }] of Object.entries(marker.value.splits)) {
    if (boxes === 0 || (split !== undefined && name !== split)) continue
    for await (const line of readLines<BoxesLine>(paths(directory).boxes(name))) {
      if (!line.ok) return line
      const { qid, boxes: pictures } = line.value
      all.set(
        qid,
        Object.entries(pictures).map(([picture, list]) => ({
          picture: Number(picture),
          boxes: list.map(([left, top, width, height, label]) => ({ left, top, width, height, label })),
        })),
      )
    }
  }
  return { ok: true, value: all }
}
