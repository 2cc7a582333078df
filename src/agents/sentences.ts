/**
 * Puts what was seen in the frames of some clips into words: plain, lower-case, with spaces around marks, for masters that read words.
 *
 *   text        the sign says lantern .                  several lines: the sign says lantern , open daily .
 *   colour      the sign is red .                        the panel behind the text; without text: the picture is mostly red .
 *   object      i see cup , person .                     singular labels of COCO, seen in the most frames first
 *   count       count : 3 cup .                          several: count : 3 cup , 1 person .
 *   everything  the text, colour and object sentences that found something, in that order
 *   nothing     i see no text .   i see no object .   i see nothing .
 *
 * Frames of a clip are merged: near-equal readings of a line are one (the surest is kept), colours go by majority, objects by union,
 * and a count is the commonest one (the larger of two). Clips are joined in order; a count is the largest of any clip.
 * Does not look at pictures.
 */
import { distance } from 'fastest-levenshtein'
import type { ColourName } from './colours.ts'
import type { QueryKind } from './query.ts'

/** Text and colours of one frame. */
export interface FrameText {
  lines: readonly { text: string; score: number; panel: ColourName }[]
  colour: ColourName
}

/** Objects of one frame, the surest first. */
export type FrameObjects = readonly { label: string; score: number }[]

/** What was seen in a clip's frames; null where nobody looked. */
export interface ClipPercept {
  text: readonly FrameText[] | null
  objects: readonly FrameObjects[] | null
}

export function describe(kind: QueryKind, clips: readonly ClipPercept[]): string {
  const signs = unique(
    clips.flatMap(({ text }) => mergeLines(text ?? [])),
    (sign) => sign.text,
  )
  const objects = mergeObjects(clips)
  const text = signs.length > 0 ? `the sign says ${signs.map((sign) => sign.text).join(' , ')} .` : null
  const things = objects.length > 0 ? `i see ${objects.map(({ label }) => label).join(' , ')} .` : null
  switch (kind) {
    case 'text':
      return text ?? 'i see no text .'
    case 'colour':
      return colourSentence(signs, clips)
    case 'object':
      return things ?? 'i see no object .'
    case 'count':
      return objects.length > 0
        ? `count : ${objects.map(({ label, count }) => `${count} ${label}`).join(' , ')} .`
        : 'i see no object .'
    case 'everything':
      if (text === null && things === null) return 'i see nothing .'
      return [text, colourSentence(signs, clips), things].filter((sentence) => sentence !== null).join(' ')
  }
}

function colourSentence(signs: readonly Sign[], clips: readonly ClipPercept[]): string {
  if (signs.length > 0)
    return `the sign is ${unique(
      signs.map(({ panel }) => panel),
      String,
    ).join(' , ')} .`
  const colours = clips.flatMap(({ text }) =>
    text && text.length > 0 ? [commonest(text.map((frame) => frame.colour))] : [],
  )
  return colours.length > 0 ? `the picture is mostly ${unique(colours, String).join(' , ')} .` : 'i see nothing .'
}

interface Sign {
  text: string
  panel: ColourName
}

/** Two readings of a line in different frames are the same line when at most a third of the letters differ. */
const sameLine = 1 / 3

function mergeLines(frames: readonly FrameText[]): Sign[] {
  const lines: { text: string; score: number; panels: ColourName[]; frame: number }[] = []
  frames.forEach((frame, number) => {
    for (const line of frame.lines) {
      const text = plain(line.text)
      if (text === '') continue
      const known = lines.find(
        (other) =>
          other.text === text ||
          (other.frame !== number && distance(other.text, text) <= sameLine * Math.min(text.length, other.text.length)),
      )
      if (!known) {
        lines.push({ text, score: line.score, panels: [line.panel], frame: number })
        continue
      }
      known.panels.push(line.panel)
      if (line.score > known.score) Object.assign(known, { text, score: line.score })
      known.frame = number
    }
  })
  return lines.map(({ text, panels }) => ({ text, panel: commonest(panels) }))
}

function mergeObjects(clips: readonly ClipPercept[]): { label: string; count: number }[] {
  const seen = new Map<string, { frames: number; score: number; count: number }>()
  for (const { objects } of clips) {
    const counts = new Map<string, number[]>()
    for (const frame of objects ?? []) {
      for (const label of new Set(frame.map((object) => object.label))) {
        const here = frame.filter((object) => object.label === label)
        counts.set(label, [...(counts.get(label) ?? []), here.length])
        const before = seen.get(label) ?? { frames: 0, score: 0, count: 0 }
        seen.set(label, { ...before, frames: before.frames + 1, score: Math.max(before.score, here[0]!.score) })
      }
    }
    for (const [label, numbers] of counts) {
      const entry = seen.get(label)!
      entry.count = Math.max(entry.count, commonest(numbers.sort((a, b) => b - a)))
    }
  }
  return [...seen]
    .sort(([nameA, a], [nameB, b]) => b.frames - a.frames || b.score - a.score || nameA.localeCompare(nameB, 'en'))
    .map(([label, { count }]) => ({ label, count }))
}

/** Lower case, marks at the ends of words gone, nothing that could be read as a tag. */
function plain(text: string): string {
  return text
    .normalize('NFKC')
    .toLowerCase()
    .replace(/[<>]/g, ' ')
    .split(/\s+/)
    .map((word) => word.replace(/^[^\p{L}\p{N}]+|[^\p{L}\p{N}]+$/gu, ''))
    .filter((word) => word !== '')
    .join(' ')
}

/** The value that occurs most; of equals, the one that comes first. */
function commonest<T>(values: readonly T[]): T {
  let best = values[0] as T
  const times = (value: T) => values.filter((other) => other === value).length
  for (const value of values) if (times(value) > times(best)) best = value
  return best
}

function unique<T>(values: readonly T[], key: (value: T) => string): T[] {
  return [...new Map(values.toReversed().map((value) => [key(value), value])).values()].toReversed()
}
