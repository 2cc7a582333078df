/** Operations by hand-computed values, and each one's gradient against central differences in float64. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { lowerToOnnx } from '../../src/engine/lower.ts'
import type { Ops } from '../../src/engine/ops.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { ProgramValue } from '../../src/engine/program.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import { broadcastShape, product } from '../../src/engine/shape.ts'

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

type Inputs = Record<string, { dims: number[]; values: number[] }>
type Model = (ops: Ops<ProgramValue>, inputs: Record<string, ProgramValue>) => ProgramValue

const float64 = ({ dims, values }: { dims: number[]; values: number[] }): TensorData => ({
  type: 'float64',
  dims,
  data: Float64Array.from(values),
})

/** Result of a model, with the gradient of sum(result * coefficients) for every input; the coefficients tell entries apart. */
async function evaluate(model: Model, inputs: Inputs) {
  const program = new ProgramBuilder('float64')
  const { ops } = program
  const values = Object.fromEntries(
    Object.entries(inputs).map(([name, { dims }]) => [name, program.input(name, 'float64', dims)]),
  )
  const result = model(ops, values)
  const shape = result.shape as number[]
  const size = shape.reduce((a, b) => a * b, 1)
  const coefficients = ops.reshape(ops.vector(Array.from({ length: size }, (_, index) => 1 + 0.3 * index)), shape)
  const scalar = ops.sum(
    ops.multiply(result, coefficients),
    shape.map((_, axis) => axis),
    false,
  )
  const names = Object.keys(inputs)
  program.gradients(scalar, new Map(names.map((name) => [`d${name}`, values[name]!])))
  program.output('result', result)
  program.output('scalar', scalar)
  await device.createSession('program', program.build())
  const run = (changed: Inputs) =>
    device.run({
      session: 'program',
      feeds: Object.fromEntries(Object.entries(changed).map(([name, input]) => [name, float64(input)])),
      fetch: ['result', 'scalar', ...names.map((name) => `d${name}`)],
    })
  const numbers = (tensor: TensorData | undefined) => [...(tensor!.data as Float64Array)]
  const outputs = await run(inputs)
  const numeric: Record<string, number[]> = {}
  for (const name of names) {
    numeric[name] = []
    for (let index = 0; index < inputs[name]!.values.length; index += 1) {
      const at = async (delta: number) => {
        const values = inputs[name]!.values.with(index, inputs[name]!.values[index]! + delta)
        return numbers((await run({ ...inputs, [name]: { ...inputs[name]!, values } })).scalar)[0]!
      }
      numeric[name].push(((await at(1e-5)) - (await at(-1e-5))) / 2e-5)
    }
  }
  const gradients = Object.fromEntries(names.map((name) => [name, numbers(outputs[`d${name}`])]))
  return { result: numbers(outputs.result), gradients, numeric, release: () => device.releaseSession('program') }
}

const a23 = { dims: [2, 3], values: [0.5, -1, 2, 1.5, 0.25, -0.75] }
const b23 = { dims: [2, 3], values: [1, 0.5, -2, 0.3, 2.5, 1.25] }
const row3 = { dims: [3], values: [2, -1, 0.5] }
const b32 = { dims: [3, 2], values: [1, 0.5, -2, 0.3, 2.5, 1.25] }
const c0 = (ops: Ops<ProgramValue>, value: number) => ops.scalar(value)
const sequence = (length: number, from: number, step: number) =>
  Array.from({ length }, (_, index) => Math.sin(from + step * index))
const headsOf = (heads: number, time: number, from: number) => ({
  dims: [1, heads, time, 4],
  values: sequence(heads * time * 4, from, 0.7),
})

const cases: Record<string, { model: Model; inputs: Inputs; result?: number[] }> = {
  'add, broadcasting a row': {
    model: (ops, { a, b }) => ops.add(a!, b!),
    inputs: { a: a23, b: row3 },
    result: [2.5, -2, 2.5, 3.5, -0.75, -0.25],
  },
  subtract: {
    model: (ops, { a, b }) => ops.subtract(a!, b!),
    inputs: { a: a23, b: b23 },
    result: [-0.5, -1.5, 4, 1.2, -2.25, -2],
  },
  'multiply, broadcasting a row': {
    model: (ops, { a, b }) => ops.multiply(a!, b!),
    inputs: { a: a23, b: row3 },
    result: [1, 1, 1, 3, -0.25, -0.375],
  },
  negate: { model: (ops, { a }) => ops.negate(a!), inputs: { a: a23 } },
  exp: { model: (ops, { a }) => ops.exp(a!), inputs: { a: a23 } },
  minimum: {
    model: (ops, { a, b }) => ops.minimum(a!, b!),
    inputs: { a: a23, b: b23 },
    result: [0.5, -1, -2, 0.3, 0.25, -0.75],
  },
  clamp: {
    model: (ops, { a }) => ops.clamp(a!, c0(ops, -0.9), c0(ops, 1)),
    inputs: { a: a23 },
    result: [0.5, -0.9, 1, 1, 0.25, -0.75],
  },
  reshape: { model: (ops, { a }) => ops.reshape(a!, [3, 2]), inputs: { a: a23 } },
  transpose: {
    model: (ops, { a }) => ops.transpose(a!, [1, 0]),
    inputs: { a: a23 },
    result: [0.5, 1.5, -1, 0.25, 2, -0.75],
  },
  concat: {
    model: (ops, { a, b }) => ops.concat([a!, b!], 1),
    inputs: { a: a23, b: b23 },
    result: [0.5, -1, 2, 1, 0.5, -2, 1.5, 0.25, -0.75, 0.3, 2.5, 1.25],
  },
  slice: { model: (ops, { a }) => ops.slice(a!, 1, 1, 3), inputs: { a: a23 }, result: [-1, 2, 0.25, -0.75] },
  sum: { model: (ops, { a }) => ops.sum(a!, [1], false), inputs: { a: a23 }, result: [1.5, 1] },
  'gatherRows, a row twice': {
    model: (ops, { a }) => ops.gatherRows(a!, ops.argMax(ops.gatherRows(a!, ops.argMax(ops.transpose(a!, [1, 0]))))),
    inputs: { a: { dims: [3, 3], values: [1, 2, 9, 4, 8, 6, 7, 5, 3] } },
  },
  pick: { model: (ops, { a }) => ops.pick(a!, ops.argMax(a!)), inputs: { a: a23 }, result: [2, 1.5] },
  matmul: {
    model: (ops, { a, b }) => ops.matmul(a!, b!),
    inputs: { a: a23, b: b32 },
    result: [7.5, 2.45, -0.875, -0.1125],
  },
  'matmul, left transposed, scaled': {
    model: (ops, { a, b }) => ops.matmul(a!, b!, { transposeLeft: true, scale: 0.5 }),
    inputs: { a: a23, b: b23 },
  },
  'matmul, right transposed': {
    model: (ops, { a, b }) => ops.matmul(a!, b!, { transposeRight: true }),
    inputs: { a: a23, b: b23 },
    result: [-4, 0.15, 3.125, 0.1375],
  },
  'matmul, both transposed': {
    model: (ops, { a, b }) => ops.matmul(a!, b!, { transposeLeft: true, transposeRight: true }),
    inputs: { a: a23, b: b32 },
  },
  'linear with bias': {
    model: (ops, { x, w, c }) => ops.linear(x!, w!, c!),
    inputs: { x: a23, w: b23, c: { dims: [2], values: [10, 20] } },
    result: [6, 20.15, 13.125, 20.1375],
  },
  softmax: { model: (ops, { a }) => ops.softmax(a!), inputs: { a: a23 } },
  logSoftmax: { model: (ops, { a }) => ops.logSoftmax(a!), inputs: { a: a23 } },
  rmsNorm: {
    model: (ops, { a, w }) => ops.rmsNorm(a!, w!, 0.25),
    inputs: { a: { dims: [1, 3], values: [1, 2, 2] }, w: row3 },
    result: [2, -2, 1].map((x) => x / Math.sqrt(3.25)),
  },
  swiglu: { model: (ops, { a, b }) => ops.swiglu(a!, b!), inputs: { a: a23, b: b23 } },
  rotate: {
    model: (ops, { x }) => {
      const angles = ops.reshape(ops.range(2), [2, 1])
      return ops.rotate(x!, ops.cos(angles), ops.sin(angles))
    },
    inputs: { x: { dims: [1, 1, 2, 2], values: [1, 2, 3, 4] } },
    result: [1, 2, 3 * Math.cos(1) - 4 * Math.sin(1), 4 * Math.cos(1) + 3 * Math.sin(1)],
  },
  'attention, two query heads per key head, causal': {
    model: (ops, { q, k, v }) => ops.attention(q!, k!, v!, ops.causalBias(3), 0.5),
    inputs: { q: headsOf(4, 3, 0), k: headsOf(2, 3, 1), v: headsOf(2, 3, 2) },
  },
}

describe.each(Object.entries(cases))('%s', (_, { model, inputs, result }) => {
  test('value and gradient', async () => {
    const evaluated = await evaluate(model, inputs)
    result?.forEach((expected, index) => expect(evaluated.result[index]).toBeCloseTo(expected, 10))
    for (const [name, numeric] of Object.entries(evaluated.numeric)) {
      numeric.forEach((expected, index) =>
        expect(evaluated.gradients[name]![index], `d${name}[${index}]`).toBeCloseTo(expected, 6),
      )
    }
    await evaluated.release()
  })
})

test('attention: head h reads key head floor(h K / H), and position t nothing after t', async () => {
  const { result, release } = await evaluate((ops, { q, k, v }) => ops.attention(q!, k!, v!, ops.causalBias(2), 1), {
    q: { dims: [1, 2, 2, 1], values: [0, 0, 0, Math.log(3)] },
    k: { dims: [1, 1, 2, 1], values: [0, 1] },
    v: { dims: [1, 1, 2, 1], values: [1, 5] },
  })
  // First head: 1, then the mean of 1 and 5. Second head: 1, then weights 1/4 and 3/4.
  ;[1, 3, 1, 4].forEach((expected, index) => expect(result[index]).toBeCloseTo(expected, 10))
  await release()
})

test('a gradient stops at stopGradient and adds up over uses', async () => {
  const { gradients, release } = await evaluate((ops, { x }) => ops.add(ops.multiply(x!, ops.stopGradient(x!)), x!), {
    x: { dims: [1], values: [3] },
  })
  expect(gradients.x).toEqual([4])
  await release()
})

test('named sizes are known only when the graph runs', async () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const x = program.input('x', 'float32', ['B', 'T', 4])
  program.output('y', ops.transpose(ops.reshape(x, ['B', 'T', 2, 2]), [0, 2, 1, 3]))
  program.output('flat', ops.reshape(ops.range('B*T'), ['B', 'T']))
  await device.createSession('sizes', program.build())
  for (const [batch, time] of [
    [1, 3],
    [2, 5],
  ] as const) {
    const feeds = { x: { type: 'float32' as const, dims: [batch, time, 4], data: new Float32Array(batch * time * 4) } }
    const { y, flat } = await device.run({ session: 'sizes', feeds, fetch: ['y', 'flat'] })
    expect(y!.dims).toEqual([batch, 2, time, 2])
    expect(flat!.dims).toEqual([batch, time])
    expect(flat!.data.at(-1)).toBe(batch * time - 1)
  }
  await device.releaseSession('sizes')
})

test('shapes that do not fit are refused while building', () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const [a, b] = [program.input('a', 'float32', [2, 3]), program.input('b', 'float32', [2, 4])]
  expect(() => ops.add(a, b)).toThrow('[2,3] and [2,4]')
  expect(() => ops.linear(a, b)).toThrow('[2,4]')
  program.output('sizes', ops.range('T'))
  expect(() => lowerToOnnx(program.build())).toThrow('T')
  expect(product('T', 2, 'B', 3)).toBe('6*B*T')
  expect(broadcastShape(['B', 1, 3], ['T', 1])).toEqual(['B', 'T', 3])
})

test('a scalar that does not depend on a value has no gradient for it', () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const [a, b] = [program.input('a', 'float32', [2]), program.input('b', 'float32', [2])]
  program.gradients(ops.sum(a, [0], false), new Map([['db', b]]))
  expect(() => lowerToOnnx(program.build())).toThrow('does not depend on b')
})
