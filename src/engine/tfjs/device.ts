/**
 * A device of TensorFlow.js: named tensors, and programs that are interpreted. For the device thread, since its backends block.
 * It computes in float32 only: float16 tensors are widened where they arrive, integers have 32 bits. Tensors of TensorFlow.js cannot be
 * written into, so what a run writes in place is made anew.
 */

import { Float16Array } from '@petamoriken/float16'
import * as tf from '@tensorflow/tfjs'
import type { Program } from '../program.ts'
import type { AdamwRequest, Device, RunRequest, Scatter, TensorData } from '../protocol.ts'
import { chooseBackend } from './backend.ts'
import { interpret } from './interpret.ts'

interface Session {
  program: Program
  bind: Readonly<Record<string, string>>
}

export async function openTfjsDevice(): Promise<Device> {
  const { backend, note } = await chooseBackend()
  const tensors = new Map<string, tf.Tensor>()
  const sessions = new Map<string, Session>()

  function resident(name: string): tf.Tensor {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw new Error(`No tensor named ${name} on the device`)
    return tensor
  }

  /** The device takes the tensor over. */
  function set(name: string, tensor: tf.Tensor): void {
    tensors.get(name)?.dispose()
    tensors.set(name, tensor)
  }

  function remove(names: Iterable<string>): void {
    for (const name of names) {
      tensors.get(name)?.dispose()
      tensors.delete(name)
    }
  }

  function run(request: RunRequest): Record<string, TensorData> {
    const session = sessions.get(request.session)
    if (session === undefined) throw new Error(`No session named ${request.session}`)
    const { fetch = [], keep = {}, accumulate = {}, scatter = {}, inPlace = {}, feeds = {} } = request
    const inputs = new Map<string, tf.Tensor>()
    for (const [input, name] of Object.entries({ ...session.bind, ...request.bind })) inputs.set(input, resident(name))
    const fed = Object.entries(feeds).map(([input, tensor]) => [input, fromData(tensor)] as const)
    for (const [input, tensor] of fed) inputs.set(input, tensor)
    const wanted = [...new Set([fetch, ...[keep, accumulate, scatter, inPlace].map(Object.keys)].flat())]
    let made: tf.Tensor[] = []
    try {
      made = interpret(session.program, inputs, wanted)
      const output = (name: string) => made[wanted.indexOf(name)]!
      for (const [name, target] of Object.entries(keep)) set(target, tf.clone(output(name)))
      for (const [name, target] of Object.entries(inPlace)) set(target, tf.clone(output(name)))
      for (const [name, target] of Object.entries(accumulate)) {
        const sum = tensors.get(target)
        set(target, sum === undefined ? tf.clone(output(name)) : tf.add(sum, output(name)))
      }
      for (const [name, target] of Object.entries(scatter)) scatterRows(output(name), target)
      return Object.fromEntries(fetch.map((name) => [name, toData(output(name))]))
    } finally {
      tf.dispose(made)
      tf.dispose(fed.map(([, tensor]) => tensor))
    }
  }

  function scatterRows(output: tf.Tensor, { into, rows }: Scatter): void {
    const target = resident(into)
    const [height, width] = target.shape as [number, number]
    if (output.size !== rows.length * width)
      throw new Error(`Cannot scatter [${output.shape}] into ${rows.length} rows of ${into} [${target.shape}]`)
    // Each row of the new tensor is one of the old tensor or, behind them, of the output.
    const sources = Int32Array.from({ length: height }, (_, row) => row)
    rows.forEach((row, source) => {
      if (row >= 0) sources[row] = height + source
    })
    set(
      into,
      tf.tidy(() => tf.gather(tf.concat([target, tf.reshape(output, [rows.length, width])]), tf.tensor1d(sources))),
    )
  }

  /** `adamw.ts` as operations, so that it runs where the tensors are. */
  function adamw(request: AdamwRequest): void {
    const { learningRate, beta1, beta2, epsilon, step, gradientScale } = request
    const stepSize = learningRate / (1 - beta1 ** step)
    const secondScale = 1 / Math.sqrt(1 - beta2 ** step)
    for (const { parameter, gradient, first, second, weightDecay } of request.tensors) {
      const updated = tf.tidy(() => {
        const weights = resident(parameter)
        const g = tf.mul(resident(gradient), gradientScale)
        const moment = (name: string) => tensors.get(name) ?? tf.zerosLike(weights)
        const m = tf.add(tf.mul(moment(first), beta1), tf.mul(g, 1 - beta1))
        const v = tf.add(tf.mul(moment(second), beta2), tf.mul(tf.square(g), 1 - beta2))
        const change = tf.div(tf.mul(m, stepSize), tf.add(tf.mul(tf.sqrt(v), secondScale), epsilon))
        return [m, v, tf.sub(tf.mul(weights, 1 - learningRate * weightDecay), change)] as const
      })
      ;[first, second, parameter].forEach((name, index) => set(name, updated[index]!))
    }
  }

  return {
    inUse: { engine: 'tfjs', version: tf.version_core, backend, note },
    async upload(uploads) {
      for (const [name, tensor] of uploads) set(name, fromData(tensor))
    },
    async download(names) {
      return names.map((name) => toData(resident(name)))
    },
    async copy(from, to) {
      set(to, tf.clone(resident(from)))
    },
    async remove(names) {
      remove(names)
    },
    async names() {
      return [...tensors.keys()]
    },
    async createSession(session, program, bind = {}) {
      if (program.float !== 'float32')
        throw new Error(`TensorFlow.js computes in float32, but ${session} asks for ${program.float}`)
      sessions.set(session, { program, bind })
    },
    async releaseSession(session) {
      sessions.delete(session)
    },
    async run(request) {
      return run(request)
    },
    async squaredNorms(names) {
      return names.map((name) => squaredNorm(resident(name)))
    },
    async adamw(request) {
      adamw(request)
    },
    async close() {
      sessions.clear()
      remove([...tensors.keys()])
    },
  }
}

function squaredNorm(tensor: tf.Tensor): number {
  let sum = 0
  for (const value of tensor.dataSync()) sum += value * value
  return sum
}

function fromData({ type, dims, data }: TensorData): tf.Tensor {
  const shape = [...dims]
  switch (type) {
    case 'float32':
      return tf.tensor(data as Float32Array, shape, 'float32')
    case 'float16': {
      const bits = data as Uint16Array<ArrayBuffer>
      return tf.tensor(Float32Array.from(new Float16Array(bits.buffer, bits.byteOffset, bits.length)), shape, 'float32')
    }
    case 'int32':
      return tf.tensor(data as Int32Array, shape, 'int32')
    case 'int64':
      return tf.tensor(Int32Array.from(data as BigInt64Array, Number), shape, 'int32')
    case 'bool':
      return tf.tensor(data as Uint8Array, shape, 'bool')
    case 'float64':
      throw new Error('TensorFlow.js has no float64')
  }
}

/** A copy. */
function toData(tensor: tf.Tensor): TensorData {
  const data = tensor.dataSync<'int32' | 'float32'>().slice()
  return { type: tensor.dtype as 'float32' | 'int32' | 'bool', dims: tensor.shape, data }
}
