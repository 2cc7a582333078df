/** The trainer on an engine: weights, gradients and moments are named tensors of a device, and every verb runs programs there. */

import type { Device } from '../engine/device.ts'
import type { Program } from '../engine/program.ts'
import type { RunRequest, TensorData } from '../engine/protocol.ts'
import type { FloatType } from '../engine/shape.ts'
import type { DecoderConfig } from '../policy/architecture.ts'
import { trainedWeights } from '../policy/architecture.ts'
import type { WeightTensor } from '../policy/weights.ts'
import { bindWeights, downloadTrained, residentName, uploadWeights } from '../policy/weights.ts'
import type { BatchShape, MicroBatch } from './batching.ts'
import { microBatches, paddedTokens } from './batching.ts'
import type { PolicyGraphOptions } from './graphs.ts'
import { gradientOutput, microBatchInputs, policyGraph, scoreGraph, supervisedGraph } from './graphs.ts'
import type { PolicyObjective } from './loss.ts'
import { allFinite, NonFiniteError } from './nonFinite.ts'
import { clipCoefficient, decays } from './optimizer.ts'
import type { PolicyTrainingRow, ScoreRow, Trainer, Work } from './trainer.ts'
import { valueHeadShapes } from './value.ts'

export interface TrainerOptions {
  /** Uploaded first; without them the policy weights that the device has are trained. */
  weights?: ReadonlyMap<string, WeightTensor>
  /** float64 is for checks. Default float32. */
  float?: FloatType
  /** With a value head (`value.ts`), which starts at 0. Default false. */
  valueHead?: boolean
  /** Says whether a micro-batch may be run, as memory allows (`memory.ts`). Default: any. */
  withinMemory?: (shape: BatchShape) => boolean
}

/** A trainer of the policy weights on this device (see `uploadWeights`). */
export async function openTrainer(
  device: Device,
  config: DecoderConfig,
  { weights, float = 'float32', valueHead = false, withinMemory = () => true }: TrainerOptions = {},
): Promise<Trainer> {
  const policyNames = trainedWeights(config)
  const valueShapes = valueHead ? valueHeadShapes(config) : new Map<string, number[]>()
  const names = [...policyNames, ...valueShapes.keys()]
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

  /** A value head that predicts 0. */
  async function resetValueHead(): Promise<void> {
    const zeros = [...valueShapes].map(([name, dims]): [string, TensorData] => {
      const size = dims.reduce((a, b) => a * b)
      return [residentName('policy', name), { type: float, dims, data: floatArray(float, size) }]
    })
    await device.upload(new Map(zeros))
  }

  await forgetOptimizer()
  await resetValueHead()
  if (weights !== undefined) await uploadWeights(device, config, weights, 'policy', float)

  const policyBinding = bindWeights(config, 'policy')
  const headBinding = Object.fromEntries([...valueShapes.keys()].map((name) => [name, residentName('policy', name)]))

  async function session(key: string, build: () => Program, bind: Record<string, string>): Promise<string> {
    const name = `trainer/${key}`
    if (!sessions.has(name)) {
      await device.createSession(name, build(), bind)
      sessions.add(name)
    }
    return name
  }

  const into = (of: readonly string[]) =>
    Object.fromEntries(of.map((name) => [gradientOutput(name), gradientName(name)]))

  /**
   * Runs every micro-batch, collects per-token outputs by row and adds up the losses. Accumulated gradients are forgotten
   * when one of these is not finite.
   */
  async function runAll(
    rows: readonly ScoreRow[],
    microBatchTokens: number,
    request: { session: string; temperature: number; bind?: RunRequest['bind']; accumulate?: RunRequest['accumulate'] },
    columns: (batch: MicroBatch) => Record<string, TensorData>,
    perToken: readonly string[],
    lossNames: readonly string[],
  ): Promise<{ losses: number[]; outputs: Float64Array[][]; work: Work }> {
    const fits = (shape: BatchShape) => paddedTokens(shape) <= microBatchTokens && withinMemory(shape)
    const work: Work = {
      positions: 0,
      tokens: 0,
      unshared: rows.reduce((sum, row) => sum + (row.positions.at(-1) ?? 0), 0),
    }
    const outputs = perToken.map(() => rows.map(({ positions }) => new Float64Array(positions.length)))
    const losses = lossNames.map(() => 0)
    for (const batch of microBatches(rows, fits)) {
      work.positions += paddedTokens(batch.shape)
      work.tokens += batch.tokens
      const results = await device.run({
        session: request.session,
        bind: request.bind,
        accumulate: request.accumulate,
        fetch: [...perToken, ...lossNames],
        feeds: {
          ...microBatchInputs(batch, float),
          inverseTemperature: scalar(1 / request.temperature),
          ...columns(batch),
        },
      })
      let notFinite: string | null = null
      perToken.forEach((output, which) => {
        let offset = 0
        const values = results[output]!.data as Float32Array
        if (!allFinite(values)) notFinite ??= output
        for (const member of batch.members) {
          const into = outputs[which]![member]!
          for (let index = 0; index < into.length; index += 1) into[index] = values[offset + index]!
          offset += into.length
        }
      })
      for (const [which, name] of lossNames.entries()) {
        const addend = Number(results[name]!.data[0])
        if (!Number.isFinite(addend)) notFinite ??= name
        losses[which]! += addend
      }
      if (notFinite !== null) {
        await discardGradients()
        throw new NonFiniteError(notFinite, atStep())
      }
    }
    return { losses, outputs, work }
  }

  const atStep = () => `at optimizer step ${step}`

  /** The name of the first gradient that is not finite, by the sums of squares of all. */
  function badGradient(squares: readonly number[]): string | null {
    const bad = squares.findIndex((square) => !Number.isFinite(square))
    return bad < 0 ? null : `gradient of ${names[bad]}`
  }

  async function discardGradients(): Promise<void> {
    await device.remove(names.map(gradientName))
  }

  return {
    get step() {
      return step
    },

    async score(rows, { microBatchTokens, temperature, weights: set }) {
      // The reference of an adapter is the model without it, whose weights are here already.
      const base = set === 'reference' && config.lora !== null ? { ...config, lora: null } : null
      const scored = base ?? config
      const bind = bindWeights(scored, base === null ? set : 'policy')
      const key = await session(base === null ? 'score' : 'score base', () => scoreGraph(scored, float).build(), bind)
      const request = { session: key, temperature, bind }
      const { outputs } = await runAll(rows, microBatchTokens, request, () => ({}), ['logprobs'], [])
      return outputs[0]!
    },

    async values(rows, { microBatchTokens }) {
      if (!valueHead) throw new Error('This trainer was opened without a value head')
      const key = await session('values', () => scoreGraph(config, float, true).build(), {
        ...policyBinding,
        ...headBinding,
      })
      const first = rows.map(({ ids, positions }) => ({ ids, positions: positions.slice(0, 1) }))
      const request = { session: key, temperature: 1 }
      const { outputs } = await runAll(first, microBatchTokens, request, () => ({}), ['values'], [])
      return outputs[0]!.map((values) => values[0]!)
    },

    async forwardBackward(rows, objective, { microBatchTokens, temperature }) {
      const variant: PolicyGraphOptions = {
        objective: lossOptions(objective),
        importanceWeights: rows.some((row) => row.importanceWeights !== null),
        valueCoefficient: valueHead ? objective.valueCoefficient : null,
      }
      const build = () => policyGraph(config, variant, float).build()
      const key = await session(`policy ${JSON.stringify(variant)}`, build, { ...policyBinding, ...headBinding })
      const columns = ({ members }: MicroBatch): Record<string, TensorData> => {
        const included = members.map((member) => rows[member]!)
        const each = (of: (row: PolicyTrainingRow, index: number) => number) => column(float, included, of)
        const perSequence = objective.importanceSamplingLevel === 'sequence'
        return {
          oldLogprobs: each((row, index) => row.oldLogprobs[index]!),
          advantages: each((row) => row.advantage),
          tokenWeights: each((row) => row.tokenWeight),
          ...(objective.klCoefficient > 0 && {
            referenceLogprobs: each((row, index) => row.referenceLogprobs![index]!),
          }),
          ...(variant.importanceWeights && { importanceWeights: each((row, index) => row.importanceWeights![index]!) }),
          ...(perSequence && { ...membership(included), rowShares: each((row) => 1 / row.positions.length) }),
          ...(valueHead && {
            returns: each((row, index) => (index === 0 ? (row.value?.return ?? 0) : 0)),
            valueWeights: each((row, index) => (index === 0 ? (row.value?.weight ?? 0) : 0)),
          }),
        }
      }
      const request = { session: key, temperature, accumulate: into(names) }
      const lossNames = valueHead ? ['loss', 'valueLoss'] : ['loss']
      const { losses, outputs, work } = await runAll(
        rows,
        microBatchTokens,
        request,
        columns,
        ['logprobs', 'entropy'],
        lossNames,
      )
      const [logprobs, entropies] = outputs as [Float64Array[], Float64Array[]]
      return { loss: losses[0]!, valueLoss: losses[1] ?? null, logprobs, entropies, work }
    },

    async forwardBackwardSupervised(rows, { microBatchTokens }) {
      const key = await session('supervised', () => supervisedGraph(config, float).build(), policyBinding)
      const columns = ({ members }: MicroBatch) => ({
        tokenWeights: column(
          float,
          members.map((member) => rows[member]!),
          (row, index) => row.tokenWeights[index]!,
        ),
      })
      const request = { session: key, temperature: 1, accumulate: into(policyNames) }
      const { losses, outputs } = await runAll(
        rows,
        microBatchTokens,
        request,
        columns,
        ['logprobs', 'correct'],
        ['loss'],
      )
      return { loss: losses[0]!, logprobs: outputs[0]!, correct: outputs[1]! }
    },

    async optimizerStep(options) {
      const { learningRate, valueLearningRate, maxGradNorm, weightDecay, beta1, beta2, epsilon } = options
      const squares = await device.squaredNorms(names.map(gradientName))
      const bad = badGradient(squares)
      if (bad !== null) {
        await discardGradients()
        throw new NonFiniteError(bad, atStep())
      }
      /** One AdamW update of some weights, clipped by their own global norm; resolves to that norm. */
      const update = async (group: readonly string[], rate: number): Promise<number> => {
        const norm = Math.sqrt(group.reduce((sum, name) => sum + squares[names.indexOf(name)]!, 0))
        const tensors = group.map((name) => ({
          parameter: residentName('policy', name),
          gradient: gradientName(name),
          first: firstName(name),
          second: secondName(name),
          weightDecay: decays(name) ? weightDecay : 0,
        }))
        const gradientScale = clipCoefficient(norm, maxGradNorm)
        await device.adamw({ tensors, learningRate: rate, beta1, beta2, epsilon, step: step + 1, gradientScale })
        return norm
      }
      const gradNorm = await update(policyNames, learningRate)
      if (valueHead) {
        if (valueLearningRate === undefined) throw new Error('A trainer with a value head needs its learning rate')
        await update([...valueShapes.keys()], valueLearningRate)
      }
      step += 1
      await discardGradients()
      return { gradNorm }
    },

    async nonFiniteGradient() {
      return badGradient(await device.squaredNorms(names.map(gradientName)))
    },

    discardGradients,

    async keepReference(reference) {
      if (config.lora !== null) return
      if (reference !== undefined) await uploadWeights(device, config, reference, 'reference', float)
      else
        for (const name of policyNames) await device.copy(residentName('policy', name), residentName('reference', name))
    },

    async save() {
      const optimizer = new Map<string, WeightTensor>()
      if (step > 0) {
        const moments = names.flatMap((name) => [firstName(name), secondName(name)])
        const heads = [...valueShapes.keys()]
        const tensors = await device.download([...moments, ...heads.map((name) => residentName('policy', name))])
        ;[...moments, ...heads].forEach((key, index) =>
          optimizer.set(key, {
            shape: tensors[index]!.dims,
            data: Float32Array.from(tensors[index]!.data as Float32Array),
          }),
        )
      }
      return { weights: await downloadTrained(device, config), optimizer, step }
    },

    async load(state) {
      await uploadWeights(device, config, state.weights, 'policy', float, policyNames)
      await forgetOptimizer()
      await resetValueHead()
      const tensors = new Map<string, TensorData>()
      const saved = state.optimizer
      if (saved !== undefined && saved.size > 0) {
        const place = (key: string, residentAs: string) => {
          const tensor = saved.get(key)
          if (tensor === undefined) throw new Error(`The optimizer's state lacks ${key}`)
          const data = float === 'float32' ? tensor.data : Float64Array.from(tensor.data)
          tensors.set(residentAs, { type: float, dims: tensor.shape, data })
        }
        for (const name of names) for (const key of [firstName(name), secondName(name)]) place(key, key)
        for (const name of valueShapes.keys()) place(name, residentName('policy', name))
      }
      await device.upload(tensors)
      step = state.step ?? 0
    },

    async close() {
      for (const name of sessions) await device.releaseSession(name)
      sessions.clear()
    },
  }
}

/** The options that the loss reads, and no others, so that equal losses share a session. */
function lossOptions(objective: PolicyObjective): PolicyObjective {
  const { lossType, importanceSamplingLevel, clipLow, clipHigh, dualClip, ratioCap } = objective
  const { klCoefficient, klEstimator, klBiasCorrection } = objective
  return {
    lossType,
    importanceSamplingLevel,
    clipLow,
    clipHigh,
    dualClip,
    ratioCap,
    klCoefficient,
    klEstimator,
    klBiasCorrection,
  }
}

/** Which row of the micro-batch each token belongs to. */
function membership(rows: readonly ScoreRow[]): Record<'rowOfToken' | 'rowIndices', TensorData> {
  const rowOfToken = Int32Array.from(rows.flatMap(({ positions }, row) => positions.map(() => row)))
  const integers = (data: Int32Array): TensorData => ({ type: 'int32', dims: [data.length], data })
  return { rowOfToken: integers(rowOfToken), rowIndices: integers(Int32Array.from(rows.keys())) }
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
