/**
 * A program: the calls that a model and a loss make over `Ops`, as plain data that crosses thread boundaries and that every engine
 * carries out in its own way (`onnx/lower.ts` makes an ONNX model of it). It is recorded once per shape of
 * model; sizes of batches may stay names. Shapes are checked here, where the model's line is in the stack.
 *
 * It computes nothing and knows no engine. An engine sees whole operations (`rmsNorm`, `attention`), so it may fuse as it likes.
 */

import type { Ops } from './ops.ts'
import type { Dim, ElementType, FloatType } from './shape.ts'
import { broadcastShape, product, sameShape, total } from './shape.ts'

/** The tensor that an input or an instruction stands for. Compared by identity; belongs to one builder. */
export class ProgramValue {
  constructor(
    readonly id: number,
    readonly type: ElementType,
    readonly shape: readonly Dim[],
  ) {}
}

export type Operation = Exclude<keyof Ops<ProgramValue>, 'shapeOf'>

/** An argument of an operation, in which `{ value }` stands for an earlier result. */
export type Argument =
  | number
  | string
  | boolean
  | undefined
  | { readonly [key: string]: Argument }
  | readonly Argument[]

export interface Instruction {
  operation: Operation
  arguments: readonly Argument[]
  /** Ids of the results. */
  results: readonly number[]
}

export interface Program {
  /** What `scalar`, `vector`, `range` and `toFloat` make. */
  float: FloatType
  /**
   * A promise that the rows of every `linear` are at most this many, at least two, or a multiple of this. Engines may then compute them in
   * blocks of that size, with results that do not depend on how many there are. null: nothing is promised.
   */
  rowBlock: number | null
  inputs: readonly { name: string; value: number; type: ElementType; shape: readonly Dim[] }[]
  instructions: readonly Instruction[]
  outputs: readonly { name: string; value: number }[]
  /** Derivatives of a scalar with respect to inputs: further outputs. */
  gradients: { of: number; outputs: readonly { name: string; input: number }[] } | null
}

export class ProgramBuilder {
  readonly ops: Ops<ProgramValue>
  private readonly values: ProgramValue[] = []
  private readonly inputs: { name: string; value: number; type: ElementType; shape: readonly Dim[] }[] = []
  private readonly instructions: Instruction[] = []
  private readonly outputs: { name: string; value: number }[] = []
  private gradient: Program['gradients'] = null

  constructor(
    readonly float: FloatType = 'float32',
    readonly rowBlock: number | null = null,
  ) {
    this.ops = this.recordingOps()
  }

  /** Names in the shape are sizes known when the program runs; an equal name is an equal size. */
  input(name: string, type: ElementType, shape: readonly Dim[]): ProgramValue {
    if (this.inputs.some((input) => input.name === name)) throw new Error(`The program has an input ${name} already`)
    const value = this.value(type, shape)
    this.inputs.push({ name, value: value.id, type, shape })
    return value
  }

  output(name: string, value: ProgramValue): void {
    this.claimOutput(name)
    this.outputs.push({ name, value: this.idOf(value) })
  }

  /** Asks for the gradients of a scalar with respect to inputs, each as the output of that name. Once per program. */
  gradients(scalar: ProgramValue, inputs: ReadonlyMap<string, ProgramValue>): void {
    if (this.gradient !== null) throw new Error('The program asks for gradients already')
    if (scalar.shape.length > 0) throw new Error(`Only a scalar has gradients, got [${scalar.shape.join()}]`)
    const outputs = [...inputs].map(([name, value]) => {
      this.claimOutput(name)
      const input = this.inputs.find((candidate) => candidate.value === this.idOf(value))
      if (input === undefined) throw new Error(`${name}: gradients are with respect to inputs`)
      if (input.type !== this.float) throw new Error(`${name}: input ${input.name} is ${input.type}, not ${this.float}`)
      return { name, input: input.value }
    })
    this.gradient = { of: this.idOf(scalar), outputs }
  }

  build(): Program {
    const { float, rowBlock, inputs, instructions, outputs, gradient } = this
    return {
      float,
      rowBlock,
      inputs: [...inputs],
      instructions: [...instructions],
      outputs: [...outputs],
      gradients: gradient,
    }
  }

  private value(type: ElementType, shape: readonly Dim[]): ProgramValue {
    const value = new ProgramValue(this.values.length, type, shape)
    this.values.push(value)
    return value
  }

  private idOf(value: ProgramValue): number {
    if (this.values[value.id] !== value) throw new Error('A value of another program')
    return value.id
  }

  private claimOutput(name: string): void {
    const taken = [...this.outputs, ...(this.gradient?.outputs ?? [])]
    if (taken.some((output) => output.name === name)) throw new Error(`The program has an output ${name} already`)
  }

  private encode(argument: unknown): Argument {
    if (argument instanceof ProgramValue) return { value: this.idOf(argument) }
    if (Array.isArray(argument)) return argument.map((item) => this.encode(item))
    return argument as Argument
  }

  private record<K extends Operation>(
    operation: K,
    args: Parameters<Ops<ProgramValue>[K]>,
    results: readonly { type: ElementType; shape: readonly Dim[] }[],
  ): ProgramValue[] {
    const values = results.map(({ type, shape }) => this.value(type, shape))
    this.instructions.push({
      operation,
      arguments: args.map((argument) => this.encode(argument)),
      results: values.map(({ id }) => id),
    })
    return values
  }

  private recordingOps(): Ops<ProgramValue> {
    const { float } = this
    const one = <K extends Operation>(
      operation: K,
      args: Parameters<Ops<ProgramValue>[K]>,
      type: ElementType,
      shape: readonly Dim[],
    ) => this.record(operation, args, [{ type, shape }])[0]!
    const like = (operation: Operation, x: ProgramValue, ...rest: unknown[]) =>
      one(operation, [x, ...rest] as never, x.type, x.shape)
    const broadcast = (operation: 'add' | 'subtract' | 'multiply' | 'minimum', a: ProgramValue, b: ProgramValue) => {
      if (a.type !== b.type) throw new Error(`Cannot ${operation} ${a.type} and ${b.type}`)
      return one(operation, [a, b], a.type, broadcastShape(a.shape, b.shape))
    }
    const compare = (operation: 'greater' | 'equal', a: ProgramValue, b: ProgramValue) =>
      one(operation, [a, b], float, broadcastShape(a.shape, b.shape))
    const along = (x: ProgramValue, axis: number, size: Dim) => x.shape.map((dim, i) => (i === axis ? size : dim))

    return {
      shapeOf: (x) => x.shape,
      scalar: (value) => one('scalar', [value], float, []),
      vector: (values) => one('vector', [values], float, [values.length]),
      integers: (values) => one('integers', [values], 'int32', [values.length]),
      toFloat: (x) => one('toFloat', [x], float, x.shape),

      add: (a, b) => broadcast('add', a, b),
      subtract: (a, b) => broadcast('subtract', a, b),
      multiply: (a, b) => broadcast('multiply', a, b),
      minimum: (a, b) => broadcast('minimum', a, b),
      negate: (x) => like('negate', x),
      exp: (x) => like('exp', x),
      clamp: (x, low, high) => like('clamp', x, low, high),
      greater: (a, b) => compare('greater', a, b),
      equal: (a, b) => compare('equal', a, b),
      stopGradient: (x) => like('stopGradient', x),

      reshape: (x, shape) => {
        const known = [x.shape, shape].every((dims) => dims.every((dim) => typeof dim === 'number'))
        if (known && product(...x.shape) !== product(...shape))
          throw new Error(`Cannot reshape [${x.shape.join()}] to [${shape.join()}]`)
        return one('reshape', [x, shape], x.type, shape)
      },
      transpose: (x, permutation) =>
        one(
          'transpose',
          [x, permutation],
          x.type,
          permutation.map((axis) => x.shape[axis]!),
        ),
      concat: (xs, axis) =>
        one('concat', [xs, axis], xs[0]!.type, along(xs[0]!, axis, total(xs.map((x) => x.shape[axis]!)))),
      split: (x, axis, sizes) =>
        this.record(
          'split',
          [x, axis, sizes],
          sizes.map((size) => ({ type: x.type, shape: along(x, axis, size) })),
        ),
      slice: (x, axis, start, end) => {
        const size = x.shape[axis]
        if (typeof size !== 'number') throw new Error(`Only axes of fixed size can be sliced, got ${size}`)
        return one('slice', [x, axis, start, end], x.type, along(x, axis, end - start))
      },

      sum: (x, axes, keepDims) =>
        one(
          'sum',
          [x, axes, keepDims],
          x.type,
          keepDims
            ? x.shape.map((dim, axis) => (axes.includes(axis) ? 1 : dim))
            : x.shape.filter((_, axis) => !axes.includes(axis)),
        ),
      argMax: (x) => one('argMax', [x], 'int64', x.shape.slice(0, -1)),

      gatherRows: (table, indices) =>
        one('gatherRows', [table, indices], table.type === 'float16' ? float : table.type, [
          ...indices.shape,
          ...table.shape.slice(1),
        ]),

      matmul: (a, b, options = {}) => {
        if (!sameShape(a.shape.slice(0, -2), b.shape.slice(0, -2)))
          throw new Error(`Cannot multiply [${a.shape.join()}] by [${b.shape.join()}]`)
        const rows = a.shape.at(options.transposeLeft ? -1 : -2)!
        const columns = b.shape.at(options.transposeRight ? -2 : -1)!
        return one('matmul', [a, b, options], a.type, [...a.shape.slice(0, -2), rows, columns])
      },
      linear: (x, weight, bias) => {
        const [out, width] = weight.shape
        if (x.shape.length !== 2 || x.shape[1] !== width)
          throw new Error(`Cannot apply weight [${weight.shape.join()}] to [${x.shape.join()}]`)
        return one('linear', [x, weight, bias], x.type, [x.shape[0]!, out!])
      },

      softmax: (x) => like('softmax', x),
      logSoftmaxAt: (x, rows, columns) => {
        if (!sameShape(rows.shape, columns.shape))
          throw new Error(`Cannot pair rows [${rows.shape.join()}] with columns [${columns.shape.join()}]`)
        return one('logSoftmaxAt', [x, rows, columns], x.type, rows.shape)
      },
      entropy: (x) => one('entropy', [x], x.type, [x.shape[0]!]),
      rmsNorm: (x, weight, epsilon) => {
        if (typeof x.shape.at(-1) !== 'number') throw new Error('The last axis of a normalised tensor has a fixed size')
        return like('rmsNorm', x, weight, epsilon)
      },
      swiglu: (gate, up) => like('swiglu', gate, up),
      rotate: (x, cos, sin) => like('rotate', x, cos, sin),
      attention: (q, k, v, bias, scale) => like('attention', q, k, v, bias, scale),

      range: (size) => one('range', [size], float, [size]),
      causalBias: (size) => one('causalBias', [size], float, [size, size]),
      cos: (x) => like('cos', x),
      sin: (x) => like('sin', x),
    }
  }
}

/** Carries out instructions in order over an engine's operations. `values` holds the inputs, and then every result, by id. */
export function replay<V>(instructions: readonly Instruction[], ops: Ops<V>, values: Map<number, V>): void {
  const decode = (argument: Argument): unknown => {
    if (Array.isArray(argument)) return argument.map(decode)
    if (argument === null || typeof argument !== 'object' || !('value' in argument)) return argument
    const value = values.get(argument.value as number)
    if (value === undefined) throw new Error(`The program reads value ${argument.value} before it is made`)
    return value
  }
  for (const { operation, arguments: args, results } of instructions) {
    const method = ops[operation] as (...args: unknown[]) => V | readonly V[]
    const made = method(...args.map(decode))
    const list = Array.isArray(made) ? (made as readonly V[]) : [made as V]
    results.forEach((id, index) => values.set(id, list[index]!))
  }
}
