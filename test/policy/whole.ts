/** The whole forward pass of a decoder on the test's device: logits at every position, and gradients of a loss that depends on them all. */
import seedrandom from 'seedrandom'
import type { Device } from '../../src/engine/device.ts'
import type { ProgramValue } from '../../src/engine/program.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import type { FloatType } from '../../src/engine/shape.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { decoderLogits, trainedWeights, weightShapes } from '../../src/policy/architecture.ts'
import type { WeightSource, WeightTensor } from '../../src/policy/weights.ts'
import { bindWeights, uploadWeights, weightInputs } from '../../src/policy/weights.ts'

export interface Whole {
  /** Logits [B * T, vocabulary]. */
  logits(ids: readonly (readonly number[])[]): Promise<TensorData>
  /** Sum of c * log softmax at every position, with seeded c; and its gradients by name of the weight. Weights may be moved. */
  loss(ids: readonly (readonly number[])[], moved?: Record<string, TensorData>): Promise<number>
  gradients(ids: readonly (readonly number[])[]): Promise<Record<string, TensorData>>
  release(): Promise<void>
}

let sessions = 0

export async function openWhole(
  device: Device,
  config: DecoderConfig,
  weights: WeightSource,
  float: FloatType = 'float32',
): Promise<Whole> {
  await uploadWeights(device, config, weights, 'policy', float)
  const program = new ProgramBuilder(float)
  const { ops } = program
  const inputs = weightInputs(program, config)
  const ids = program.input('ids', 'int32', ['B', 'T'])
  const rows = program.input('rows', 'int32', ['M'])
  const targets = program.input('targets', 'int32', ['M'])
  const shares = program.input('shares', float, ['M'])
  const logits = decoderLogits(ops, config, inputs, ids, rows)
  const logprobs = ops.logSoftmaxAt(logits, rows, targets)
  const loss = ops.sum(ops.multiply(logprobs, shares), [0], false)
  // Matrices kept in half precision are not trained.
  const trained = config.matrixType === 'float32' || config.lora !== null ? trainedWeights(config) : []
  program.output('logits', logits)
  program.output('loss', loss)
  if (trained.length > 0)
    program.gradients(loss, new Map(trained.map((name): [string, ProgramValue] => [`d ${name}`, inputs.get(name)!])))
  const session = `whole ${sessions}`
  sessions += 1
  await device.createSession(session, program.build(), bindWeights(config, 'policy'))

  async function run(batch: readonly (readonly number[])[], fetch: string[], moved: Record<string, TensorData> = {}) {
    const time = batch[0]!.length
    const count = batch.length * time
    const random = seedrandom('targets')
    const integers = (dims: number[], values: Iterable<number>): TensorData => ({
      type: 'int32',
      dims,
      data: Int32Array.from(values),
    })
    const share = Array.from({ length: count }, () => random() - 0.5)
    return device.run({
      session,
      fetch,
      feeds: {
        ids: integers([batch.length, time], batch.flat()),
        rows: integers([count], Array(count).keys()),
        targets: integers(
          [count],
          batch.flat().map(() => Math.floor(random() * config.vocabularySize)),
        ),
        shares: {
          type: float,
          dims: [count],
          data: float === 'float32' ? Float32Array.from(share) : Float64Array.from(share),
        },
        ...moved,
      },
    })
  }

  return {
    logits: async (batch) => (await run(batch, ['logits'])).logits!,
    loss: async (batch, moved) => Number((await run(batch, ['loss'], moved)).loss!.data[0]),
    async gradients(batch) {
      const outputs = await run(
        batch,
        trained.map((name) => `d ${name}`),
      )
      return Object.fromEntries(trained.map((name) => [name, outputs[`d ${name}`]!]))
    },
    release: () => device.releaseSession(session),
  }
}

/** Weights from a seed, large enough that every part of the model matters. */
export function randomWeights(config: DecoderConfig, seed: string): Map<string, WeightTensor> {
  const random = seedrandom(seed)
  return new Map(
    [...weightShapes(config)].map(([name, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      const center = name.includes('norm') ? 1 : 0
      return [name, { shape, data: Float32Array.from({ length }, () => center + 0.8 * (random() - 0.5)) }]
    }),
  )
}

/** Largest relative error of gradients against central differences, over the largest and some other entries of each trained tensor. Needs float64. */
export async function gradientError(
  whole: Whole,
  weights: ReadonlyMap<string, WeightTensor>,
  ids: readonly (readonly number[])[],
): Promise<Record<string, number>> {
  const step = 1e-5
  const errors: Record<string, number> = {}
  for (const [name, gradient] of Object.entries(await whole.gradients(ids))) {
    const data = gradient.data as Float64Array
    const { shape, data: values } = weights.get(name)!
    const largest = data.reduce((best, value, index) => (Math.abs(value) > Math.abs(data[best]!) ? index : best), 0)
    errors[name] = Math.abs(data[largest]!) > 1e-6 ? 0 : Number.POSITIVE_INFINITY
    for (const entry of new Set([largest, 0, Math.floor(data.length / 2), data.length - 1])) {
      const at = (delta: number) => {
        const moved = Float64Array.from(values)
        moved[entry]! += delta
        return whole.loss(ids, { [name]: { type: 'float64', dims: shape, data: moved } })
      }
      const numeric = ((await at(step)) - (await at(-step))) / (2 * step)
      const scale = Math.max(Math.abs(numeric), Math.abs(data[largest]!) * 1e-2)
      errors[name] = Math.max(errors[name], Math.abs(data[entry]! - numeric) / scale)
    }
  }
  return errors
}
