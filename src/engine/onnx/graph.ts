/**
 * A computation graph under construction: values with symbolic shapes, operator nodes, and reverse-mode differentiation that
 * appends gradient nodes to the same graph. It knows no operator's meaning: `ops.ts` emits nodes and records their gradients.
 *
 * The same graph can be built in float32 or, to check gradients, in float64.
 */

import type { Dim, ElementType, FloatType } from '../shape.ts'
import type { Attribute, NodeProto, TensorProto } from './encode.ts'
import { encodeModel } from './encode.ts'

/** A tensor in the graph. Compared by identity. */
export interface Value {
  readonly id: number
  readonly type: ElementType
  readonly shape: readonly Dim[]
  /** True when a gradient can flow through it. */
  readonly differentiable: boolean
}

interface Node {
  operator: string
  inputs: readonly (Value | null)[]
  outputs: readonly Value[]
  attributes: Readonly<Record<string, Attribute>>
  domain: string
}

interface TapeEntry {
  inputs: readonly Value[]
  output: Value
  pullback: (gradient: Value) => readonly (Value | null)[]
}

export interface EmitOptions {
  attributes?: Readonly<Record<string, Attribute>>
  /** `com.microsoft` for ONNX Runtime's own operators. */
  domain?: string
}

export class Graph {
  readonly float: FloatType
  private readonly nodes: Node[] = []
  private readonly inputs: { name: string; value: Value }[] = []
  private readonly outputs: { name: string; value: Value }[] = []
  private readonly constants = new Map<Value, TensorProto>()
  private readonly constantByKey = new Map<string, Value>()
  private readonly names = new Map<Value, string>()
  private readonly sizes = new Map<string, Value>()
  private readonly tape: TapeEntry[] = []
  private differentiating = false
  private count = 0

  constructor(float: FloatType = 'float32') {
    this.float = float
  }

  /** Declares a graph input. Named dimensions that no earlier input has are measured on this one. */
  input(name: string, type: ElementType, shape: readonly Dim[], options: { differentiable?: boolean } = {}): Value {
    const value = this.value(type, shape, options.differentiable ?? false)
    this.inputs.push({ name, value })
    this.names.set(value, name)
    shape.forEach((dim, axis) => {
      if (typeof dim !== 'string' || this.sizes.has(dim)) return
      const measured = this.emit('Shape', [value], 'int64', [1], { attributes: { start: axis, end: axis + 1 } })
      this.sizes.set(dim, measured)
    })
    return value
  }

  /** Names a result. A value that is an input or already named gets a copy, so that the name is the node's own output otherwise. */
  output(name: string, value: Value): void {
    const named =
      this.names.has(value) || this.constants.has(value)
        ? this.emit('Identity', [value], value.type, value.shape)
        : value
    this.names.set(named, name)
    this.outputs.push({ name, value: named })
  }

  /** A constant tensor; equal constants are shared. */
  constant(type: ElementType, dims: readonly number[], values: readonly number[]): Value {
    const key = `${type}[${dims.join()}]${values.join()}`
    const known = this.constantByKey.get(key)
    if (known !== undefined) return known
    const value = this.value(type, dims, false)
    this.constants.set(value, { name: '', type, dims, data: typedArray(type, values) })
    this.constantByKey.set(key, value)
    return value
  }

  scalar(value: number): Value {
    return this.constant(this.float, [], [value])
  }

  /** Appends an operator with one result that no gradient flows through. */
  emit(
    operator: string,
    inputs: readonly (Value | null)[],
    type: ElementType,
    shape: readonly Dim[],
    options: EmitOptions = {},
  ): Value {
    return this.emitMany(operator, inputs, [{ type, shape }], options)[0]!
  }

  /** Appends an operator with several results. */
  emitMany(
    operator: string,
    inputs: readonly (Value | null)[],
    results: readonly { type: ElementType; shape: readonly Dim[] }[],
    options: EmitOptions = {},
  ): Value[] {
    const outputs = results.map(({ type, shape }) => this.value(type, shape, false))
    this.nodes.push({ operator, inputs, outputs, attributes: options.attributes ?? {}, domain: options.domain ?? '' })
    return outputs
  }

  /**
   * Makes a value differentiable: `pullback` turns the gradient of `output` into gradients of `inputs` (null for none).
   * Does nothing when no input is differentiable or while gradients are being built (there are no second derivatives).
   */
  differentiate(
    output: Value,
    inputs: readonly Value[],
    pullback: (gradient: Value) => readonly (Value | null)[],
  ): Value {
    if (this.differentiating || !inputs.some((input) => input.differentiable)) return output
    ;(output as { differentiable: boolean }).differentiable = true
    this.tape.push({ inputs, output, pullback })
    return output
  }

  /**
   * Gradients of a scalar with respect to some values, by reverse accumulation over everything recorded so far.
   * `add` sums two gradients of the same value. A value that the scalar does not depend on is a programming error.
   */
  gradients(scalar: Value, wrt: readonly Value[], add: (a: Value, b: Value) => Value): Value[] {
    const gradient = new Map<Value, Value>([[scalar, this.scalar(1)]])
    this.differentiating = true
    for (let index = this.tape.length - 1; index >= 0; index -= 1) {
      const { inputs, output, pullback } = this.tape[index]!
      const upstream = gradient.get(output)
      if (upstream === undefined) continue
      const contributions = pullback(upstream)
      inputs.forEach((input, position) => {
        const contribution = contributions[position]
        if (contribution === null || contribution === undefined || !input.differentiable) return
        const earlier = gradient.get(input)
        gradient.set(input, earlier === undefined ? contribution : add(earlier, contribution))
      })
    }
    this.differentiating = false
    return wrt.map((value) => {
      const result = gradient.get(value)
      if (result === undefined)
        throw new Error(`The scalar does not depend on ${this.names.get(value) ?? `value ${value.id}`}`)
      return result
    })
  }

  /** Size of a dimension at run time: int64 [1]. Products and sums of names are computed. */
  size(dim: Dim): Value {
    if (typeof dim === 'number') return this.constant('int64', [1], [dim])
    const known = this.sizes.get(dim)
    if (known !== undefined) return known
    const [separator, operator] = dim.includes('+') ? ['+', 'Add'] : ['*', 'Mul']
    const parts = dim.split(separator)
    if (parts.length === 1) throw new Error(`No input has a dimension named ${dim}`)
    const combined = parts
      .map((part) => this.size(/^\d+$/.test(part) ? Number(part) : part))
      .reduce((a, b) => this.emit(operator, [a, b], 'int64', [1]))
    this.sizes.set(dim, combined)
    return combined
  }

  /** Sizes of a whole shape at run time: int64 [rank]. */
  sizesOf(shape: readonly Dim[]): Value {
    if (shape.every((dim) => typeof dim === 'number')) return this.constant('int64', [shape.length], shape as number[])
    return this.emit(
      'Concat',
      shape.map((dim) => this.size(dim)),
      'int64',
      [shape.length],
      { attributes: { axis: 0 } },
    )
  }

  get nodeCount(): number {
    return this.nodes.length
  }

  inputNames(): string[] {
    return this.inputs.map(({ name }) => name)
  }

  outputNames(): string[] {
    return this.outputs.map(({ name }) => name)
  }

  /** The nodes that outputs need, in order, and the outputs. */
  executed(): { nodes: Node[]; outputs: Value[]; needed: ReadonlySet<Value> } {
    const outputs = this.outputs.map(({ value }) => value)
    const needed = new Set<Value>(outputs)
    const kept: Node[] = []
    for (let index = this.nodes.length - 1; index >= 0; index -= 1) {
      const node = this.nodes[index]!
      if (!node.outputs.some((output) => needed.has(output))) continue
      kept.push(node)
      for (const input of node.inputs) if (input !== null) needed.add(input)
    }
    return { nodes: kept.reverse(), outputs, needed }
  }

  /** The model as ONNX bytes, without the nodes that no output needs. */
  build(): Uint8Array {
    const { nodes: kept, needed } = this.executed()
    const nodes: NodeProto[] = kept.map((node) => ({
      operator: node.operator,
      inputs: node.inputs.map((input) => (input === null ? '' : this.nameOf(input))),
      outputs: node.outputs.map((output) => (needed.has(output) ? this.nameOf(output) : '')),
      attributes: node.attributes,
      domain: node.domain,
    }))
    const initializers = [...this.constants]
      .filter(([value]) => needed.has(value))
      .map(([value, tensor]) => ({ ...tensor, name: this.nameOf(value) }))
    const describe = ({ name, value }: { name: string; value: Value }) => ({
      name,
      type: value.type,
      shape: value.shape,
    })
    return encodeModel({ nodes, initializers, inputs: this.inputs.map(describe), outputs: this.outputs.map(describe) })
  }

  private nameOf(value: Value): string {
    return this.names.get(value) ?? `v${value.id}`
  }

  private value(type: ElementType, shape: readonly Dim[], differentiable: boolean): Value {
    this.count += 1
    return { id: this.count, type, shape, differentiable }
  }
}

function typedArray(type: ElementType, values: readonly number[]): ArrayBufferView {
  switch (type) {
    case 'float32':
      return Float32Array.from(values)
    case 'float64':
      return Float64Array.from(values)
    case 'int32':
      return Int32Array.from(values)
    case 'int64':
      return BigInt64Array.from(values.map((value) => BigInt(value)))
    case 'bool':
      return Uint8Array.from(values)
    case 'float16':
      throw new Error('Constants are float32 or float64, and cast where float16 is wanted')
  }
}
