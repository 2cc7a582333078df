/**
 * Serialises an ONNX model: the few protobuf messages that a converted graph needs (field numbers of onnx.proto3, IR version 9).
 * Knows nothing about operators. (The engine has its own writer; rooms do not share code.)
 */

export type OnnxType = 'float32' | 'int64' | 'bool'

export interface OnnxTensor {
  name: string
  type: 'float32' | 'int64'
  dims: readonly number[]
  data: Float32Array | BigInt64Array
}

export interface OnnxNode {
  op: string
  inputs: readonly string[]
  outputs: readonly string[]
  /** Numbers are integers; floats are written `{ float }`. */
  attributes?: Readonly<Record<string, number | string | readonly number[] | { float: number }>>
  domain?: string
}

export interface OnnxValue {
  name: string
  type: OnnxType
  /** A string is a size known only when the graph runs. */
  shape: readonly (number | string)[]
}

export interface OnnxGraph {
  nodes: readonly OnnxNode[]
  inputs: readonly OnnxValue[]
  /** Names alone: ONNX Runtime infers their types. */
  outputs: readonly string[]
  tensors: readonly OnnxTensor[]
  opset: number
}

const typeCodes: Record<OnnxType, number> = { float32: 1, int64: 7, bool: 9 }
const attributeTypes = { float: 1, int: 2, string: 3, ints: 7 }
const text = new TextEncoder()

class Message {
  private readonly parts: Uint8Array[] = []
  private length = 0

  private raw(bytes: Uint8Array): void {
    this.parts.push(bytes)
    this.length += bytes.length
  }

  private varint(value: number | bigint): void {
    const bytes: number[] = []
    let rest = BigInt.asUintN(64, BigInt(value))
    while (rest > 127n) {
      bytes.push(Number(rest & 127n) | 128)
      rest >>= 7n
    }
    this.raw(Uint8Array.from([...bytes, Number(rest)]))
  }

  int(field: number, value: number): this {
    this.varint(field << 3)
    this.varint(value)
    return this
  }

  float(field: number, value: number): this {
    this.varint((field << 3) | 5)
    this.raw(new Uint8Array(Float32Array.of(value).buffer))
    return this
  }

  bytes(field: number, value: Uint8Array): this {
    this.varint((field << 3) | 2)
    this.varint(value.length)
    this.raw(value)
    return this
  }

  string(field: number, value: string): this {
    return this.bytes(field, text.encode(value))
  }

  message(field: number, value: Message): this {
    return this.bytes(field, value.done())
  }

  done(): Uint8Array {
    const whole = new Uint8Array(this.length)
    let at = 0
    for (const part of this.parts) {
      whole.set(part, at)
      at += part.length
    }
    return whole
  }
}

export function onnxBytes({ nodes, inputs, outputs, tensors, opset }: OnnxGraph): Uint8Array {
  const graph = new Message()
  for (const node of nodes) graph.message(1, nodeMessage(node))
  graph.string(2, 'converted')
  for (const tensor of tensors) graph.message(5, tensorMessage(tensor))
  for (const input of inputs) graph.message(11, valueMessage(input))
  for (const name of outputs) graph.message(12, new Message().string(1, name))
  const versions = [new Message().string(1, '').int(2, opset), new Message().string(1, 'com.microsoft').int(2, 1)]
  const model = new Message().int(1, 9).string(2, 'showrunner').message(7, graph)
  for (const version of versions) model.message(8, version)
  return model.done()
}

function nodeMessage({ op, inputs, outputs, attributes = {}, domain }: OnnxNode): Message {
  const node = new Message()
  for (const input of inputs) node.string(1, input)
  for (const output of outputs) node.string(2, output)
  node.string(3, outputs[0]!).string(4, op)
  for (const [name, value] of Object.entries(attributes)) {
    const attribute = new Message().string(1, name)
    if (typeof value === 'string') attribute.string(4, value).int(20, attributeTypes.string)
    else if (typeof value === 'number') attribute.int(3, value).int(20, attributeTypes.int)
    else if ('float' in value) attribute.float(2, value.float).int(20, attributeTypes.float)
    else {
      for (const item of value) attribute.int(8, item)
      attribute.int(20, attributeTypes.ints)
    }
    node.message(5, attribute)
  }
  if (domain) node.string(7, domain)
  return node
}

function tensorMessage({ name, type, dims, data }: OnnxTensor): Message {
  const tensor = new Message()
  for (const dim of dims) tensor.int(1, dim)
  return tensor
    .int(2, typeCodes[type])
    .string(8, name)
    .bytes(9, new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
}

function valueMessage({ name, type, shape }: OnnxValue): Message {
  const dims = new Message()
  for (const dim of shape)
    dims.message(1, typeof dim === 'string' ? new Message().string(2, dim) : new Message().int(1, dim))
  const tensorType = new Message().int(1, typeCodes[type]).message(2, dims)
  return new Message().string(1, name).message(2, new Message().message(1, tensorType))
}
