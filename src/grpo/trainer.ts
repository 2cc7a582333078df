/**
 * The trainer: holds the weights, their gradients and the optimizer's state on a device, and changes them by four verbs: score,
 * forward-backward, optimizer step, save. It knows no rollouts, rewards or schedules; another trainer may stand behind the same interface.
 */

import type { Device } from '../engine/device.ts'
import type { FloatType } from '../engine/graph.ts'
import type { RunRequest, TensorData } from '../engine/protocol.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { weightShapes } from '../policy/architecture.ts'
import type { WeightSet, WeightTensor } from '../policy/weights.ts'
import { bindWeights, downloadWeights, residentName, uploadWeights } from '../policy/weights.ts'
import type { MicroBatch } from './batching.ts'
import { microBatches } from './batching.ts'
import { gradientOutput, policyGraph, scoreGraph, supervisedGraph } from './graphs.ts'
import { clipCoefficient, decays } from './optimizer.ts'
import type { OptimizerOptions } from './options.ts'

/** A sequence and what is asked at some of its positions (from 1, ascending): everything below is per position. */
export interface ScoreRow {
  ids: readonly number[]
  positions: readonly number[]
}

export interface PolicyTrainingRow extends ScoreRow {
  oldLogprobs: ArrayLike<number>
  /** Null without a KL term. */
  referenceLogprobs: ArrayLike<number> | null
  advantage: number
  /** Share of each token in the loss. */
  tokenWeight: number
}

export interface SupervisedTrainingRow extends ScoreRow {
  tokenWeights: readonly number[]
}

export interface PolicyObjective {
  clipLow: number
  clipHigh: number
  klCoefficient: number
  klBiasCorrection: boolean
}

export interface BatchSize {
  /** Padded tokens in one pass. */
  microBatchTokens: number
}

export interface TrainerState {
  weights: Map<string, WeightTensor>
  /** AdamW's moments, `first/<weight>` and `second/<weight>`; empty before the first step. */
  optimizer: Map<string, WeightTensor>
  /** Optimizer steps taken. */
  step: number
}

export interface Trainer {
  /** Optimizer steps taken. */
  readonly step: number
  /** Log-probability of the token at each position of each row, at a temperature, under the current weights or the kept reference. */
  score(
    rows: readonly ScoreRow[],
    options: BatchSize & { temperature: number; weights: WeightSet },
  ): Promise<Float64Array[]>
  /** Adds the gradient of the GRPO loss over these rows to what is accumulated. Log-probabilities and entropies are per row and position. */
  forwardBackward(
    rows: readonly PolicyTrainingRow[],
    objective: PolicyObjective,
    options: BatchSize & { temperature: number },
  ): Promise<{ loss: number; logprobs: Float64Array[]; entropies: Float64Array[] }>
  /** The same for cross-entropy. `correct` is 1 where the likeliest token is the right one. */
  forwardBackwardSupervised(
    rows: readonly SupervisedTrainingRow[],
    options: BatchSize,
  ): Promise<{ loss: number; logprobs: Float64Array[]; correct: Float64Array[] }>
  /**
   * One AdamW update with the accumulated gradients, which are then forgotten. Throws, without touching the weights, when a gradient
   * is not finite. Resolves to the global norm before clipping.
   */
  optimizerStep(options: Omit<OptimizerOptions, 'schedule' | 'warmupSteps'>): Promise<{ gradNorm: number }>
  /** Forgets accumulated gradients. */
  discardGradients(): Promise<void>
  /** Keeps a copy of the current weights, or of these, as the reference policy. */
  keepReference(weights?: ReadonlyMap<string, WeightTensor>): Promise<void>
  save(): Promise<TrainerState>
  /** Continues from a saved state. A state without moments starts the optimizer afresh. */
  load(state: {
    weights: ReadonlyMap<string, WeightTensor>
    optimizer?: ReadonlyMap<string, WeightTensor>
    step?: number
  }): Promise<void>
  /** Frees the sessions; the weights stay on the device. */
  close(): Promise<void>
}

/** Throws on NaN or infinity; the message names what was not finite. */
export class NonFiniteError extends Error {
  override name = 'NonFiniteError'
}

/** A trainer of the policy weights on this device (see `uploadWeights`), or of `weights` when given. */
export async function openTrainer(
  device: Device,
  config: DecoderConfig,
  weights?: ReadonlyMap<string, WeightTensor>,
  float: FloatType = 'float32',
): Promise<Trainer> {
  const shapes = weightShapes(config)
  const names = [...shapes.keys()]
  const gradientName = (name: string) => `gradient/${name}`
  const firstName = (name: string) => `first/${name}`
  const secondName = (name: string) => `second/${name}`
  const sessions = new Set<string>()
  const scalar = (value: number): TensorData => ({ type: float, dims: [], data: floatArray(float, 1).fill(value) })
  let step = 0

  /** What an earlier trainer on this device, or an earlier state of this one, left behind. */
  async function forgetOptimizer(): Promise<void> {
    await device.remove(names.flatMap((name) => [gradientName(name), firstName(name), secondName(name)]))
  }

  await forgetOptimizer()
  if (weights !== undefined) await uploadWeights(device, config, weights, 'policy', float)

  async function session(key: string, build: () => Uint8Array): Promise<string> {
    const name = `trainer/${key}`
    if (!sessions.has(name)) {
      await device.createSession(name, build(), bindWeights(config, 'policy'))
      sessions.add(name)
    }
    return name
  }

  const gradientsInto = Object.fromEntries(names.map((name) => [gradientOutput(name), gradientName(name)]))

  /** Runs every micro-batch and collects per-token outputs by row. Accumulated gradients are forgotten when a loss is not finite. */
  async function runAll(
    rows: readonly ScoreRow[],
    microBatchTokens: number,
    request: { session: string; temperature: number; bind?: RunRequest['bind']; accumulate?: RunRequest['accumulate'] },
    columns: (batch: MicroBatch) => Record<string, TensorData>,
    perToken: readonly string[],
  ): Promise<{ loss: number; outputs: Float64Array[][] }> {
    const outputs = perToken.map(() => rows.map(({ positions }) => new Float64Array(positions.length)))
    const hasLoss = request.accumulate !== undefined
    let loss = 0
    for (const batch of microBatches(rows, microBatchTokens)) {
      const results = await device.run({
        session: request.session,
        bind: request.bind,
        accumulate: request.accumulate,
        fetch: hasLoss ? [...perToken, 'loss'] : perToken,
        feeds: {
          ids: { type: 'int32', dims: [batch.batch, batch.time], data: batch.ids },
          rows: { type: 'int32', dims: [batch.rows.length], data: batch.rows },
          targets: { type: 'int32', dims: [batch.targets.length], data: batch.targets },
          inverseTemperature: scalar(1 / request.temperature),
          ...columns(batch),
        },
      })
      perToken.forEach((output, which) => {
        let offset = 0
        const values = results[output]!.data as Float32Array
        for (const member of batch.members) {
          const into = outputs[which]![member]!
          for (let index = 0; index < into.length; index += 1) into[index] = values[offset + index]!
          offset += into.length
        }
      })
      if (hasLoss) {
        const addend = Number(results.loss!.data[0])
        if (!Number.isFinite(addend)) {
          await discardGradients()
          throw new NonFiniteError(`The loss is ${addend} at optimizer step ${step}; the weights were not changed`)
        }
        loss += addend
      }
    }
    return { loss, outputs }
  }

  async function discardGradients(): Promise<void> {
    await device.remove(names.map(gradientName))
  }

  return {
    get step() {
      return step
    },

    async score(rows, { microBatchTokens, temperature, weights: set }) {
      const key = await session('score', () => scoreGraph(config, float).build())
      const request = { session: key, temperature, bind: bindWeights(config, set) }
      const { outputs } = await runAll(rows, microBatchTokens, request, () => ({}), ['logprobs'])
      return outputs[0]!
    },

    async forwardBackward(rows, objective, { microBatchTokens, temperature }) {
      const kl = objective.klCoefficient > 0
      const { klBiasCorrection } = objective
      const variant = kl ? (klBiasCorrection ? 'policy+kl*ratio' : 'policy+kl') : 'policy'
      const key = await session(variant, () => policyGraph(config, { kl, klBiasCorrection }, float).build())
      const columns = ({ members }: MicroBatch): Record<string, TensorData> => {
        const each = (of: (row: PolicyTrainingRow, index: number) => number) =>
          column(
            float,
            members.map((member) => rows[member]!),
            of,
          )
        return {
          oldLogprobs: each((row, index) => row.oldLogprobs[index]!),
          advantages: each((row) => row.advantage),
          tokenWeights: each((row) => row.tokenWeight),
          ratioFloor: scalar(1 - objective.clipLow),
          ratioCeiling: scalar(1 + objective.clipHigh),
          ...(kl
            ? {
                referenceLogprobs: each((row, index) => row.referenceLogprobs![index]!),
                klCoefficient: scalar(objective.klCoefficient),
              }
            : {}),
        }
      }
      const request = { session: key, temperature, accumulate: gradientsInto }
      const { loss, outputs } = await runAll(rows, microBatchTokens, request, columns, ['logprobs', 'entropy'])
      return { loss, logprobs: outputs[0]!, entropies: outputs[1]! }
    },

    async forwardBackwardSupervised(rows, { microBatchTokens }) {
      const key = await session('supervised', () => supervisedGraph(config, float).build())
      const columns = ({ members }: MicroBatch) => ({
        tokenWeights: column(
          float,
          members.map((member) => rows[member]!),
          (row, index) => row.tokenWeights[index]!,
        ),
      })
      const request = { session: key, temperature: 1, accumulate: gradientsInto }
      const { loss, outputs } = await runAll(rows, microBatchTokens, request, columns, ['logprobs', 'correct'])
      return { loss, logprobs: outputs[0]!, correct: outputs[1]! }
    },

    async optimizerStep({ learningRate, maxGradNorm, weightDecay, beta1, beta2, epsilon }) {
      const squares = await device.squaredNorms(names.map(gradientName))
      const bad = squares.findIndex((square) => !Number.isFinite(square))
      if (bad >= 0) {
        await discardGradients()
        throw new NonFiniteError(
          `The gradient of ${names[bad]} is not finite at optimizer step ${step}; the weights were not changed`,
        )
      }
      const gradNorm = Math.sqrt(squares.reduce((sum, square) => sum + square, 0))
      const gradientScale = clipCoefficient(gradNorm, maxGradNorm)
      const tensors = names.map((name) => ({
        parameter: residentName('policy', name),
        gradient: gradientName(name),
        first: firstName(name),
        second: secondName(name),
        weightDecay: decays(name) ? weightDecay : 0,
      }))
      await device.adamw({ tensors, learningRate, beta1, beta2, epsilon, step: step + 1, gradientScale })
      step += 1
      await discardGradients()
      return { gradNorm }
    },

    discardGradients,

    async keepReference(reference) {
      if (reference !== undefined) await uploadWeights(device, config, reference, 'reference', float)
      else for (const name of names) await device.copy(residentName('policy', name), residentName('reference', name))
    },

    async save() {
      const optimizer = new Map<string, WeightTensor>()
      if (step > 0) {
        const keys = names.flatMap((name) => [firstName(name), secondName(name)])
        const moments = await device.download(keys)
        keys.forEach((key, index) =>
          optimizer.set(key, {
            shape: moments[index]!.dims,
            data: Float32Array.from(moments[index]!.data as Float32Array),
          }),
        )
      }
      return { weights: await downloadWeights(device, config), optimizer, step }
    },

    async load(state) {
      await uploadWeights(device, config, state.weights, 'policy', float)
      await forgetOptimizer()
      const moments = new Map<string, TensorData>()
      if (state.optimizer !== undefined && state.optimizer.size > 0) {
        for (const name of names) {
          for (const key of [firstName(name), secondName(name)]) {
            const tensor = state.optimizer.get(key)
            if (tensor === undefined) throw new Error(`The optimizer's state lacks ${key}`)
            moments.set(key, {
              type: float,
              dims: tensor.shape,
              data: float === 'float32' ? tensor.data : Float64Array.from(tensor.data),
            })
          }
        }
      }
      await device.upload(moments)
      step = state.step ?? 0
    },

    async close() {
      for (const name of sessions) await device.releaseSession(name)
      sessions.clear()
    },
  }
}

/** One number per position of each row, in a row. */
function column<R extends ScoreRow>(
  float: FloatType,
  rows: readonly R[],
  of: (row: R, index: number) => number,
): TensorData {
  const data = floatArray(
    float,
    rows.reduce((sum, { positions }) => sum + positions.length, 0),
  )
  let offset = 0
  for (const row of rows) {
    for (let index = 0; index < row.positions.length; index += 1) data[offset + index] = of(row, index)
    offset += row.positions.length
  }
  return { type: float, dims: [data.length], data }
}

function floatArray(float: FloatType, length: number): Float32Array | Float64Array {
  return float === 'float32' ? new Float32Array(length) : new Float64Array(length)
}
