/** TensorFlow.js against ONNX Runtime: each operation and its gradient, on every backend that is here; and the device's verbs. */

import * as tf from '@tensorflow/tfjs'
import '@tensorflow/tfjs-backend-wasm'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import { openTfjsDevice } from '../../src/engine/tfjs/device.ts'
import { interpret } from '../../src/engine/tfjs/interpret.ts'
import { caseProgram, cases } from './cases.ts'

const float32 = (dims: number[], values: number[]): TensorData => ({
  type: 'float32',
  dims,
  data: Float32Array.from(values),
})
const vector = (...values: number[]) => float32([values.length], values)

let onnx: Device
beforeAll(async () => {
  tf.enableProdMode()
  onnx = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => onnx.close())

describe.each(['wasm', 'cpu'])('%s', (backend) => {
  beforeAll(async () => {
    expect(await tf.setBackend(backend)).toBe(true)
  })

  test.each(Object.entries(cases))('%s: value and gradient are those of ONNX Runtime', async (_, { model, inputs }) => {
    const program = caseProgram(model, inputs, 'float32')
    const outputs = ['result', 'scalar', ...Object.keys(inputs).map((name) => `d${name}`)]
    await onnx.createSession('case', program)
    const feeds = Object.fromEntries(
      Object.entries(inputs).map(([name, { dims, values }]) => [name, float32(dims, values)]),
    )
    const expected = await onnx.run({ session: 'case', feeds, fetch: outputs })
    await onnx.releaseSession('case')
    const given = new Map(Object.entries(inputs).map(([name, { dims, values }]) => [name, tf.tensor(values, dims)]))
    const before = tf.memory().numTensors
    const made = interpret(program, given, outputs)
    expect(tf.memory().numTensors).toBe(before + made.length)
    outputs.forEach((name, index) => {
      expect(made[index]!.shape, name).toEqual(expected[name]!.dims)
      made[index]!.dataSync().forEach((value, entry) => {
        const other = Number(expected[name]!.data[entry])
        expect(Math.abs(value - other) / Math.max(1, Math.abs(other)), `${name}[${entry}]`).toBeLessThan(2e-6)
      })
    })
    tf.dispose([made, [...given.values()]])
  })

  test('a gradient stops at stopGradient; gradients are left out when nobody wants them', () => {
    const program = new ProgramBuilder()
    const x = program.input('x', 'float32', [1])
    const scalar = program.ops.sum(program.ops.multiply(x, program.ops.stopGradient(x)), [0], false)
    program.gradients(scalar, new Map([['dx', x]]))
    program.output('y', scalar)
    const inputs = new Map([['x', tf.tensor([3])]])
    const [gradient] = interpret(program.build(), inputs, ['dx'])
    expect([...gradient!.dataSync()]).toEqual([3])
    const [y] = interpret(program.build(), inputs, ['y'])
    expect([...y!.dataSync()]).toEqual([9])
  })

  test('attention to nothing but masked positions is finite, and so is its gradient', () => {
    const program = new ProgramBuilder()
    const { ops } = program
    const [q, k, bias] = [
      program.input('q', 'float32', [1, 1, 1, 2]),
      program.input('k', 'float32', [1, 1, 2, 2]),
      program.input('bias', 'float32', [2]),
    ]
    program.gradients(ops.sum(ops.attention(q, k, k, bias, 1), [0, 1, 2, 3], false), new Map([['dk', k]]))
    const given = {
      q: tf.tensor([1, 2], [1, 1, 1, 2]),
      k: tf.tensor([1, 2, 3, 4], [1, 1, 2, 2]),
      bias: tf.tensor([-1e9, -1e9]),
    }
    const [gradient] = interpret(program.build(), new Map(Object.entries(given)), ['dk'])
    expect([...gradient!.dataSync()].every(Number.isFinite)).toBe(true)
  })
})

describe('the device', () => {
  let device: Device
  beforeAll(async () => {
    device = await openDevice(engineOptions.parse('tfjs'))
  })
  afterAll(() => device.close())

  const download = async (name: string) => [...(await device.download([name]))[0]!.data].map(Number)
  const scaling = () => {
    const program = new ProgramBuilder()
    const [x, w] = [program.input('x', 'float32', ['N']), program.input('w', 'float32', ['N'])]
    program.output('y', program.ops.multiply(x, w))
    return program.build()
  }

  test('says what it runs on, and why on nothing better', () => {
    const { engine, version, backend, note } = device.inUse
    expect([engine, version]).toEqual(['tfjs', tf.version_core])
    if (backend === 'wasm') expect(note).toContain('@tensorflow/tfjs-node')
    else expect(backend).toContain('@tensorflow/tfjs-node')
  })

  test('resident tensors: bound, kept, accumulated, in place, copied, removed', async () => {
    await device.upload(new Map([['w', vector(2, 3)]]))
    await device.createSession('scale', scaling(), { w: 'w' })
    const run = { session: 'scale', fetch: ['y'], keep: { y: 'kept' } }
    const { y } = await device.run({ ...run, feeds: { x: vector(1, 10) } })
    expect([...y!.data]).toEqual([2, 30])
    await device.run({ session: 'scale', bind: { x: 'kept' }, accumulate: { y: 'sum' } })
    await device.run({ session: 'scale', bind: { x: 'kept' }, accumulate: { y: 'sum' } })
    expect(await download('sum')).toEqual([8, 180])
    await device.copy('kept', 'copy')
    await device.run({ session: 'scale', bind: { x: 'kept' }, inPlace: { y: 'kept' } })
    expect(await download('kept')).toEqual([4, 90])
    expect(await download('copy')).toEqual([2, 30])
    expect(await device.squaredNorms(['kept'])).toEqual([8116])
    await device.remove(['kept', 'copy', 'sum', 'never there'])
    expect(await device.names()).toEqual(['w'])
  })

  test('rows are scattered; -1 is dropped', async () => {
    const program = new ProgramBuilder()
    program.output('more', program.ops.add(program.input('x', 'float32', ['B', 'T', 2]), program.ops.scalar(1)))
    await device.createSession('scatter', program.build())
    await device.upload(new Map([['cache', float32([3, 2], [9, 9, 9, 9, 9, 9])]]))
    const feeds = { x: float32([1, 3, 2], [0, 1, 2, 3, 4, 5]) }
    await device.run({
      session: 'scatter',
      feeds,
      scatter: { more: { into: 'cache', rows: Int32Array.of(2, -1, 0) } },
    })
    expect(await download('cache')).toEqual([5, 6, 9, 9, 1, 2])
  })

  test('half precision and 64-bit integers are converted where they arrive', async () => {
    const halves: TensorData = { type: 'float16', dims: [2], data: Uint16Array.of(0x3c00, 0xc100) }
    await device.upload(
      new Map<string, TensorData>([
        ['halves', halves],
        ['longs', { type: 'int64', dims: [2], data: BigInt64Array.of(7n, -2n) }],
      ]),
    )
    expect(await download('halves')).toEqual([1, -2.5])
    expect(await download('longs')).toEqual([7, -2])
  })

  test('AdamW moves as that of the other engine', async () => {
    const tensors = new Map([
      ['p', vector(1, -2, 0.5)],
      ['g', vector(0.5, 0.1, -4)],
    ])
    const result: number[][] = []
    for (const engine of [device, onnx]) {
      await engine.upload(tensors)
      for (const step of [1, 2, 3]) {
        await engine.adamw({
          tensors: [{ parameter: 'p', gradient: 'g', first: 'm', second: 'v', weightDecay: 0.1 }],
          learningRate: 0.1,
          beta1: 0.9,
          beta2: 0.99,
          epsilon: 1e-8,
          step,
          gradientScale: 0.5,
        })
      }
      const moved = await engine.download(['p', 'm', 'v'])
      result.push(moved.flatMap(({ data }) => [...data].map(Number)))
    }
    result[0]!.forEach((value, index) => expect(value).toBeCloseTo(result[1]![index]!, 6))
  })

  test('errors name what is missing or does not fit, and leave the device usable', async () => {
    await expect(device.download(['nobody'])).rejects.toThrow('No tensor named nobody on the device')
    await expect(device.run({ session: 'none' })).rejects.toThrow('No session named none')
    const run = (x: TensorData, fetch = ['y']) => device.run({ session: 'scale', feeds: { x }, fetch })
    await expect(run(vector(1))).rejects.toThrow('Input w: expected shape [N], got [2]')
    await expect(run(vector(1, 2), ['z'])).rejects.toThrow('no output z')
    await expect(device.run({ session: 'scale', fetch: ['y'] })).rejects.toThrow('Input x is missing')
    await expect(device.createSession('exact', new ProgramBuilder('float64').build())).rejects.toThrow('float32')
    expect([...(await run(vector(1, 1))).y!.data]).toEqual([2, 3])
  })
})

test('a run, a failed run and an update leave no tensors behind', async () => {
  const device = await openTfjsDevice()
  const program = new ProgramBuilder()
  const [x, w] = [program.input('x', 'float32', ['N']), program.input('w', 'float32', ['N'])]
  const scalar = program.ops.sum(program.ops.multiply(x, program.ops.exp(w)), [0], false)
  program.output('loss', scalar)
  program.gradients(scalar, new Map([['dw', w]]))
  await device.upload(new Map([['w', vector(1, 2)]]))
  await device.createSession('loss', program.build(), { w: 'w' })
  const counts: number[] = []
  for (let step = 1; step <= 4; step += 1) {
    const feeds = { x: vector(3, 4) }
    await device.run({ session: 'loss', feeds, fetch: ['loss'], accumulate: { dw: 'g' } })
    await device.run({ session: 'loss', feeds, fetch: ['loss'], accumulate: { dw: 'g' } })
    await expect(device.run({ session: 'loss', feeds: { x: vector(1) }, fetch: ['loss'] })).rejects.toThrow('shape')
    await expect(device.run({ session: 'loss', feeds, fetch: ['loss', 'none'] })).rejects.toThrow('no output none')
    const tensors = [{ parameter: 'w', gradient: 'g', first: 'm', second: 'v', weightDecay: 0 }]
    await device.adamw({ tensors, learningRate: 0.1, beta1: 0.9, beta2: 0.9, epsilon: 1e-8, step, gradientScale: 1 })
    await device.remove(['g'])
    counts.push(tf.memory().numTensors)
  }
  expect(new Set(counts).size).toBe(1)
  const held = tf.memory().numTensors
  await device.close()
  expect(tf.memory().numTensors).toBe(held - 3)
})
