/**
 * The decoder's weights on the device. One set is shared by training, scoring and decoding: sessions bind these names, so that
 * an update is seen by the next run of each. Knows no files and no model beyond names and shapes.
 */

import type { Device } from '../engine/device.ts'
import type { TensorData } from '../engine/protocol.ts'
import type { FloatType } from '../engine/shape.ts'
import type { DecoderConfig } from './architecture.ts'
import { weightShapes } from './architecture.ts'

/** Row-major values of one tensor. */
export interface WeightTensor {
  shape: readonly number[]
  data: Float32Array
}

/** `policy` is what is trained and sampled from; `reference` is the frozen policy of the KL term. */
export type WeightSet = 'policy' | 'reference'

/** Name on the device of a weight with this Hugging Face name. */
export function residentName(set: WeightSet, name: string): string {
  return `${set}/${name}`
}

/** Session inputs (Hugging Face names) to names on the device, for all weights. */
export function bindWeights(config: DecoderConfig, set: WeightSet): Record<string, string> {
  return Object.fromEntries([...weightShapes(config).keys()].map((name) => [name, residentName(set, name)]))
}

/** Places all weights on the device. Throws when one is missing or has another shape than the configuration says; extra ones are ignored. */
export async function uploadWeights(
  device: Device,
  config: DecoderConfig,
  weights: ReadonlyMap<string, WeightTensor>,
  set: WeightSet = 'policy',
  float: FloatType = 'float32',
): Promise<void> {
  const tensors = new Map<string, TensorData>()
  for (const [name, shape] of weightShapes(config)) {
    const tensor = weights.get(name)
    if (tensor === undefined) throw new Error(`The weights lack ${name} [${shape}]`)
    if (tensor.shape.join() !== shape.join())
      throw new Error(`Weight ${name}: expected shape [${shape}], got [${tensor.shape}]`)
    const data = float === 'float32' ? tensor.data : Float64Array.from(tensor.data)
    tensors.set(residentName(set, name), { type: float, dims: shape, data })
  }
  await device.upload(tensors)
}

/** A copy of all weights, by Hugging Face name. */
export async function downloadWeights(
  device: Device,
  config: DecoderConfig,
  set: WeightSet = 'policy',
): Promise<Map<string, WeightTensor>> {
  const names = [...weightShapes(config).keys()]
  const tensors = await device.download(names.map((name) => residentName(set, name)))
  return new Map(
    names.map((name, index) => [
      name,
      { shape: tensors[index]!.dims, data: Float32Array.from(tensors[index]!.data as Float32Array) },
    ]),
  )
}
