/**
 * Finds everyday objects (the 80 classes of COCO) with NanoDet-g: fast, right about people, vehicles, cups and phones, weak on small things and
 * cartoons. Weights and their licence: `weights/` and NOTICE.
 *
 * Sources: spec row 2 of models.md; box distributions as in Generalized Focal Loss (arXiv 2006.04388).
 */

import type * as ort from 'onnxruntime-node'
import type { Box, Picture } from './picture.ts'
import { overlap, wholeOf, writePlanes } from './picture.ts'
import { floatTensor, openSession } from './runtime.ts'

export interface SeenObject {
  label: string
  score: number
  box: Box
}

/** Objects of one picture, the surest first. */
export type Detector = (picture: Picture, threshold: number) => Promise<SeenObject[]>

const side = 416
const bins = 11
const overlapLimit = 0.5
// Two labels on nearly the same box are two opinions about one thing.
const sameThing = 0.75
// The net reads (v - mean) / deviation with planes blue, green, red.
const deviation = [57.375, 57.12, 58.395] as const
const mean = [103.53, 116.28, 123.675] as const
const scale = deviation.map((part) => 1 / part) as [number, number, number]
const shift = mean.map((part, plane) => -part / deviation[plane]!) as [number, number, number]

/** Scores and boxes of each scale: cells are `stride` pixels of the 416 x 416 input wide. */
const scales = [
  { scores: 'Identity', boxes: 'Identity_3', stride: 8 },
  { scores: 'Identity_1', boxes: 'Identity_4', stride: 16 },
  { scores: 'Identity_2', boxes: 'Identity_5', stride: 32 },
] as const

/** `model`: the converted ONNX bytes of `weights/nanodet.json`. */
export async function openDetector(model: Uint8Array): Promise<Detector> {
  const run = await openSession(model)
  return async (picture, threshold) => {
    const output = await run({ input_1: detectorInput(picture) })
    const candidates: SeenObject[] = []
    for (const { scores, boxes, stride } of scales) {
      const probabilities = output[scores]!.data as Float32Array
      const sides = output[boxes]!.data as Float32Array
      const cells = side / stride
      for (let cell = 0; cell < cells * cells; cell++) {
        let best = 0
        for (let label = 1; label < labels.length; label++) {
          if (probabilities[cell * labels.length + label]! > probabilities[cell * labels.length + best]!) best = label
        }
        const score = probabilities[cell * labels.length + best]!
        if (score < threshold) continue
        const x = ((cell % cells) + 0.5) * stride
        const y = (Math.floor(cell / cells) + 0.5) * stride
        const [left, top, right, bottom] = [0, 1, 2, 3].map(
          (edge) => stride * expectation(sides, (cell * 4 + edge) * bins),
        ) as [number, number, number, number]
        candidates.push({
          label: labels[best]!,
          score,
          box: {
            left: (Math.max(0, x - left) * picture.width) / side,
            top: (Math.max(0, y - top) * picture.height) / side,
            right: (Math.min(side, x + right) * picture.width) / side,
            bottom: (Math.min(side, y + bottom) * picture.height) / side,
          },
        })
      }
    }
    return suppress(candidates)
  }
}

/** The picture as the net reads it: [1, 3, 416, 416]. */
export function detectorInput(picture: Picture): ort.Tensor {
  const input = new Float32Array(3 * side * side)
  writePlanes(picture, wholeOf(picture), side, side, {
    into: input,
    offset: 0,
    rows: side,
    columns: side,
    channels: [2, 1, 0],
    scale,
    shift,
  })
  return floatTensor(input, [1, 3, side, side])
}

/** Mean of the softmax distribution over distances 0 to 10 that starts at `at`. */
function expectation(logits: Float32Array, at: number): number {
  let highest = -Infinity
  for (let bin = 0; bin < bins; bin++) highest = Math.max(highest, logits[at + bin]!)
  let sum = 0
  let weighted = 0
  for (let bin = 0; bin < bins; bin++) {
    const weight = Math.exp(logits[at + bin]! - highest)
    sum += weight
    weighted += bin * weight
  }
  return weighted / sum
}

/** Non-maximum suppression: of boxes with the same label that overlap by half, or of any labels that nearly coincide, the surest stays. */
function suppress(candidates: readonly SeenObject[]): SeenObject[] {
  const kept: SeenObject[] = []
  for (const candidate of [...candidates].sort((a, b) => b.score - a.score)) {
    const doubled = kept.some(
      ({ label, box }) => overlap(box, candidate.box) > (label === candidate.label ? overlapLimit : sameThing),
    )
    if (!doubled) kept.push(candidate)
  }
  return kept
}

/** COCO's classes in the net's order. */
export const labels: readonly string[] = [
  'person',
  'bicycle',
  'car',
  'motorcycle',
  'airplane',
  'bus',
  'train',
  'truck',
  'boat',
  'traffic light',
  'fire hydrant',
  'stop sign',
  'parking meter',
  'bench',
  'bird',
  'cat',
  'dog',
  'horse',
  'sheep',
  'cow',
  'elephant',
  'bear',
  'zebra',
  'giraffe',
  'backpack',
  'umbrella',
  'handbag',
  'tie',
  'suitcase',
  'frisbee',
  'skis',
  'snowboard',
  'sports ball',
  'kite',
  'baseball bat',
  'baseball glove',
  'skateboard',
  'surfboard',
  'tennis racket',
  'bottle',
  'wine glass',
  'cup',
  'fork',
  'knife',
  'spoon',
  'bowl',
  'banana',
  'apple',
  'sandwich',
  'orange',
  'broccoli',
  'carrot',
  'hot dog',
  'pizza',
  'donut',
  'cake',
  'chair',
  'couch',
  'potted plant',
  'bed',
  'dining table',
  'toilet',
  'tv',
  'laptop',
  'mouse',
  'remote',
  'keyboard',
  'cell phone',
  'microwave',
  'oven',
  'toaster',
  'sink',
  'refrigerator',
  'book',
  'clock',
  'vase',
  'scissors',
  'teddy bear',
  'hair drier',
  'toothbrush',
]
