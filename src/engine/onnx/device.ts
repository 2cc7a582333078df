/**
 * A device of ONNX Runtime: named tensors, and programs lowered to ONNX models. For the device thread, since a run blocks.
 * It knows no model, no loss and no policy.
 */

import * as ort from 'onnxruntime-node'
import type { OnnxOptions } from '../options.ts'
import type { AdamwRequest, Device, RunRequest, Scatter, TensorArray, TensorData } from '../protocol.ts'
import { adamwUpdate } from './adamw.ts'
import { lowerToOnnx } from './lower.ts'
import { startableProviders } from './providers.ts'

interface Session {
  inference: ort.InferenceSession
  bind: Readonly<Record<string, string>>
}

export async function openOnnxDevice(options: OnnxOptions): Promise<Device> {
  // What goes wrong is thrown; it need not be printed as well.
  ort.env.logLevel = 'fatal'
  const { providers, note } = await startableProviders(options)
  const tensors = new Map<string, ort.Tensor>()
  const sessions = new Map<string, Session>()

  function sessionOptions(): ort.InferenceSession.SessionOptions {
    return {
      executionProviders: providers,
      intraOpNumThreads: options.threads,
      interOpNumThreads: 1,
      executionMode: 'sequential',
      // Higher levels fuse operators into ones that have no float64 kernel, and measured no faster here.
      graphOptimizationLevel: 'basic',
      enableCpuMemArena: options.memoryArena,
      enableMemPattern: false,
      logSeverityLevel: 3,
      // Spinning threads steal the cores from ffmpeg and the main thread; weights are inputs, so there is nothing to prepack.
      extra: { session: { disable_prepacking: '1', intra_op: { allow_spinning: '0' } } },
    }
  }

  async function release(session: string): Promise<void> {
    const released = sessions.get(session)
    sessions.delete(session)
    await released?.inference.release()
  }

  async function run(request: RunRequest): Promise<Record<string, TensorData>> {
    const session = sessions.get(request.session)
    if (session === undefined) throw new Error(`No session named ${request.session}`)
    const feeds: Record<string, ort.Tensor> = {}
    for (const [input, name] of Object.entries({ ...session.bind, ...request.bind }))
      feeds[input] = residentTensor(name)
    for (const [input, tensor] of Object.entries(request.feeds ?? {})) feeds[input] = toOrt(tensor)
    const fetches: Record<string, ort.Tensor | null> = {}
    for (const output of request.fetch ?? []) fetches[output] = null
    for (const output of Object.keys(request.keep ?? {})) fetches[output] = null
    for (const output of Object.keys(request.accumulate ?? {})) fetches[output] = null
    for (const output of Object.keys(request.scatter ?? {})) fetches[output] = null
    for (const [output, name] of Object.entries(request.inPlace ?? {})) fetches[output] = residentTensor(name)

    const results = await session.inference.run(feeds, fetches)
    for (const [output, name] of Object.entries(request.keep ?? {})) tensors.set(name, results[output]!)
    for (const [output, name] of Object.entries(request.accumulate ?? {})) accumulate(name, results[output]!)
    for (const [output, target] of Object.entries(request.scatter ?? {})) scatter(results[output]!, target)
    const fetched: Record<string, TensorData> = {}
    for (const output of request.fetch ?? []) {
      // What is fetched is moved to the caller, so what also stays here is copied.
      const stays =
        output in (request.keep ?? {}) || output in (request.accumulate ?? {}) || output in (request.inPlace ?? {})
      fetched[output] = stays ? copyOf(results[output]!) : fromOrt(results[output]!)
    }
    return fetched
  }

  function scatter(output: ort.Tensor, { into, rows }: Scatter): void {
    const target = residentTensor(into)
    const width = target.dims.at(-1)!
    if (output.size !== rows.length * width)
      throw new Error(`Cannot scatter [${output.dims}] into ${rows.length} rows of ${into} [${target.dims}]`)
    const from = output.data as Float32Array
    const to = target.data as Float32Array
    for (let row = 0; row < rows.length; row += 1) {
      const start = rows[row]! * width
      if (start < 0) continue
      for (let column = 0; column < width; column += 1) to[start + column] = from[row * width + column]!
    }
  }

  function accumulate(name: string, addend: ort.Tensor): void {
    const sum = tensors.get(name)
    if (sum === undefined) {
      tensors.set(name, addend)
      return
    }
    const into = sum.data as Float32Array
    const from = addend.data as Float32Array
    for (let index = 0; index < into.length; index += 1) into[index] = into[index]! + from[index]!
  }

  function adamw(request: AdamwRequest): void {
    for (const { parameter, gradient, first, second, weightDecay } of request.tensors) {
      const weights = floats(parameter)
      adamwUpdate(
        weights,
        floats(gradient),
        moments(first, parameter),
        moments(second, parameter),
        weightDecay,
        request,
      )
    }
  }

  function moments(name: string, like: string): Float32Array | Float64Array {
    if (!tensors.has(name)) {
      const { type, dims, size } = residentTensor(like)
      tensors.set(
        name,
        new ort.Tensor(
          type as 'float32',
          type === 'float64' ? (new Float64Array(size) as never) : new Float32Array(size),
          dims,
        ),
      )
    }
    return floats(name)
  }

  function floats(name: string): Float32Array | Float64Array {
    const { data } = residentTensor(name)
    if (data instanceof Float32Array || data instanceof Float64Array) return data
    throw new Error(`Tensor ${name} on the device is not floating point`)
  }

  function residentTensor(name: string): ort.Tensor {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw new Error(`No tensor named ${name} on the device`)
    return tensor
  }

  return {
    inUse: { engine: 'onnxruntime', version: ort.env.versions.node ?? 'unknown', backend: providers.join(', '), note },
    async upload(uploads) {
      for (const [name, tensor] of uploads) tensors.set(name, toOrt(tensor))
    },
    async download(names) {
      return names.map((name) => copyOf(residentTensor(name)))
    },
    async copy(from, to) {
      tensors.set(to, toOrt(copyOf(residentTensor(from))))
    },
    async remove(names) {
      for (const name of names) tensors.delete(name)
    },
    async names() {
      return [...tensors.keys()]
    },
    async createSession(session, program, bind = {}) {
      await release(session)
      const model = lowerToOnnx(program)
      const inference = await ort.InferenceSession.create(model, sessionOptions()).catch((error: Error) => {
        throw new Error(`ONNX Runtime refuses the session ${session}: ${error.message}`)
      })
      sessions.set(session, { inference, bind })
    },
    releaseSession: release,
    run,
    async squaredNorms(names) {
      return names.map((name) => squaredNorm(floats(name)))
    },
    async adamw(request) {
      adamw(request)
    },
    async close() {
      for (const session of [...sessions.keys()]) await release(session)
      tensors.clear()
    },
  }
}

function squaredNorm(values: Float32Array | Float64Array): number {
  let sum = 0
  for (let index = 0; index < values.length; index += 1) sum += values[index]! * values[index]!
  return sum
}

function toOrt(tensor: TensorData): ort.Tensor {
  return new ort.Tensor(tensor.type as 'float32', tensor.data as Float32Array, tensor.dims)
}

function fromOrt(tensor: ort.Tensor): TensorData {
  return { type: tensor.type as TensorData['type'], dims: tensor.dims, data: tensor.data as TensorArray }
}

function copyOf(tensor: ort.Tensor): TensorData {
  const { type, dims, data } = fromOrt(tensor)
  return { type, dims, data: data.slice() }
}
