/** Operations with inputs, and their results where they are worked out by hand: what every engine must agree on. */

import type { Ops } from '../../src/engine/ops.ts'
import type { Program, ProgramValue } from '../../src/engine/program.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { FloatType } from '../../src/engine/shape.ts'

export type Inputs = Record<string, { dims: number[]; values: number[] }>
export type Model = (ops: Ops<ProgramValue>, inputs: Record<string, ProgramValue>) => ProgramValue

/**
 * Outputs: `result` of the model; `scalar`, its entries times coefficients that tell them apart; and for every input `d<name>`, the
 * gradient of the scalar.
 */
export function caseProgram(model: Model, inputs: Inputs, float: FloatType): Program {
  const program = new ProgramBuilder(float)
  const { ops } = program
  const values = Object.fromEntries(
    Object.entries(inputs).map(([name, { dims }]) => [name, program.input(name, float, dims)]),
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
  program.gradients(scalar, new Map(Object.entries(values).map(([name, value]) => [`d${name}`, value])))
  program.output('result', result)
  program.output('scalar', scalar)
  return program.build()
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

export const cases: Record<string, { model: Model; inputs: Inputs; result?: number[] }> = {
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
  'logSoftmaxAt, an entry twice and a row never': {
    model: (ops, { a }) => ops.logSoftmaxAt(a!, ops.integers([0, 1, 1, 1]), ops.integers([2, 0, 0, 2])),
    inputs: { a: { dims: [3, 3], values: [0, 0, Math.log(2), Math.log(3), 0, 0, 1, 2, 3] } },
    result: [1 / 2, 3 / 5, 3 / 5, 1 / 5].map(Math.log),
  },
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
  'rotate, each row of the batch by its own angles': {
    model: (ops, { x }) => {
      const angles = ops.reshape(ops.range(4), [2, 1, 2, 1])
      return ops.rotate(x!, ops.cos(angles), ops.sin(angles))
    },
    inputs: { x: { dims: [2, 1, 2, 2], values: [1, 2, 3, 4, 1, 0, 0, 1] } },
    result: [
      ...[1, 2, 3 * Math.cos(1) - 4 * Math.sin(1), 4 * Math.cos(1) + 3 * Math.sin(1)],
      ...[Math.cos(2), Math.sin(2), -Math.sin(3), Math.cos(3)],
    ],
  },
  'attention, two query heads per key head, causal': {
    model: (ops, { q, k, v }) => ops.attention(q!, k!, v!, ops.causalBias(3), 0.5),
    inputs: { q: headsOf(4, 3, 0), k: headsOf(2, 3, 1), v: headsOf(2, 3, 2) },
  },
}
