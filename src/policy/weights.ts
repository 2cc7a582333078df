/**
 * The decoder's weights on the device. One set is shared by training, scoring and decoding: sessions bind these names, so that
 * an update is seen by the next run of each. Knows no files and no model beyond names and shapes.
 */

import type { Device } from '../engine/device.ts'
import type { ProgramBuilder, ProgramValue } from '../engine/program.ts'
import type { TensorData } from '../engine/protocol.ts'
import type { FloatType } from '../engine/shape.ts'
import type { DecoderConfig } from './architecture.ts'
import { storageType, trainedWeights, weightShapes } from './architecture.ts'
import { halves } from './half.ts'

/** Row-major values of one tensor. */
export interface WeightTensor {
  shape: readonly number[]
  data: Float32Array
}

/** `policy` is what is trained and sampled from; `reference` is the frozen policy of the KL term; others are copies that are served. */
export type WeightSet = 'policy' | 'reference' | (string & {})

/** Name on the device of a weight with this Hugging Face name. */
export function residentName(set: WeightSet, name: string): string {
  return `${set}/${name}`
}

/** Session inputs (Hugging Face names) to names on the device, for all weights. */
export function bindWeights(config: DecoderConfig, set: WeightSet): Record<string, string> {
  return Object.fromEntries([...weightShapes(config).keys()].map((name) => [name, residentName(set, name)]))
}

/** The same for the weights that training changes: what differs between the versions of one policy. */
export function bindTrained(config: DecoderConfig, set: WeightSet): Record<string, string> {
  return Object.fromEntries(trainedWeights(config).map((name) => [name, residentName(set, name)]))
}

/** Declares all weights as inputs of a program, by Hugging Face name. */
export function weightInputs(program: ProgramBuilder, config: DecoderConfig): Map<string, ProgramValue> {
  return new Map(
    [...weightShapes(config)].map(([name, shape]) => [
      name,
      program.input(name, storageType(config, name, shape, program.float), shape),
    ]),
  )
}

/** Where weights come from: a map in memory, or files that are read as each tensor is asked for. */
export type WeightSource = Pick<ReadonlyMap<string, WeightTensor>, 'get'>

/**
 * Places weights on the device, all or those named, one after another. Throws when one is missing, has another shape than the
 * configuration says, or does not fit into half precision where that is asked for; extra ones are ignored.
 */
export async function uploadWeights(
  device: Device,
  config: DecoderConfig,
  weights: WeightSource,
  set: WeightSet = 'policy',
  float: FloatType = 'float32',
  names: readonly string[] = [...weightShapes(config).keys()],
): Promise<void> {
  const shapes = weightShapes(config)
  for (const name of names) {
    const shape = shapes.get(name)!
    const tensor = weights.get(name)
    if (tensor === undefined) throw new Error(`The weights lack ${name} [${shape}]`)
    if (tensor.shape.join() !== shape.join())
      throw new Error(`Weight ${name}: expected shape [${shape}], got [${tensor.shape}]`)
    const type = storageType(config, name, shape, float)
    await device.upload(
      new Map([[residentName(set, name), { type, dims: shape, data: stored(tensor.data, type, name) }]]),
    )
  }
}

function stored(data: Float32Array, type: FloatType | 'float16', name: string): TensorData['data'] {
  if (type === 'float32') return data
  if (type === 'float64') return Float64Array.from(data)
  for (let index = 0; index < data.length; index += 1) {
    if (Math.abs(data[index]!) >= HALF_OVERFLOW)
      throw new Error(
        `Weight ${name} holds ${data[index]}, too large for float16 (65504); set policy.frozenType to float32`,
      )
  }
  return halves(data)
}

/** Rounds to infinity in half precision. */
const HALF_OVERFLOW = 65_520

/** A copy of the weights that training changes, by Hugging Face name. */
export async function downloadTrained(device: Device, config: DecoderConfig): Promise<Map<string, WeightTensor>> {
  const names = trainedWeights(config)
  const tensors = await device.download(names.map((name) => residentName('policy', name)))
  return new Map(
    names.map((name, index) => [
      name,
      { shape: tensors[index]!.dims, data: Float32Array.from(tensors[index]!.data as Float32Array) },
    ]),
  )
}
