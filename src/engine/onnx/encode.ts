/**
 * Writes ONNX models as protobuf bytes: the few message types that a computation graph needs.
 * It does not read models, check them, or know what an operator means.
 *
 * Field numbers are those of onnx.proto3 (ONNX 1.12, IR version 8).
 */

import type { Dim, ElementType } from '../shape.ts'

const ELEMENT_TYPE_CODE: Record<ElementType, number> = {
  float32: 1,
  int32: 6,
  int64: 7,
  bool: 9,
  float16: 10,
  float64: 11,
}

export const OPSET_VERSION = 17
const MICROSOFT_OPSET_VERSION = 1
const IR_VERSION = 8

/** An operator attribute: an integer, a list of integers, a string, or `{ float }`. */
export type Attribute = number | readonly number[] | string | { float: number }

export interface NodeProto {
  operator: string
  /** An empty name leaves out an optional input or output. */
  inputs: readonly string[]
  outputs: readonly string[]
  attributes: Readonly<Record<string, Attribute>>
  /** Empty for standard ONNX, `com.microsoft` for ONNX Runtime's own operators. */
  domain: string
}

export interface TensorProto {
  name: string
  type: ElementType
  dims: readonly number[]
  data: ArrayBufferView
}

export interface ValueProto {
  name: string
  type: ElementType
  shape: readonly Dim[]
}

export interface ModelProto {
  nodes: readonly NodeProto[]
  inputs: readonly ValueProto[]
  outputs: readonly ValueProto[]
  initializers: readonly TensorProto[]
}

/** Serialises a model. Sizes above 2 GiB are not possible in protobuf; weights should be inputs. */
export function encodeModel(model: ModelProto): Uint8Array {
  const graph = new Writer()
  for (const node of model.nodes) graph.message(1, encodeNode(node))
  graph.string(2, 'graph')
  for (const tensor of model.initializers) graph.message(5, encodeTensor(tensor))
  for (const value of model.inputs) graph.message(11, encodeValue(value))
  for (const value of model.outputs) graph.message(12, encodeValue(value))

  const writer = new Writer()
  writer.integer(1, IR_VERSION)
  writer.string(2, 'showrunner')
  writer.message(7, graph)
  writer.message(8, encodeOpset('', OPSET_VERSION))
  writer.message(8, encodeOpset('com.microsoft', MICROSOFT_OPSET_VERSION))
  return writer.finish()
}

function encodeOpset(domain: string, version: number): Writer {
  const writer = new Writer()
  writer.string(1, domain)
  writer.integer(2, version)
  return writer
}

function encodeNode(node: NodeProto): Writer {
  const writer = new Writer()
  for (const name of node.inputs) writer.string(1, name)
  for (const name of node.outputs) writer.string(2, name)
  writer.string(3, node.outputs[0] ?? '')
  writer.string(4, node.operator)
  for (const [name, value] of Object.entries(node.attributes)) writer.message(5, encodeAttribute(name, value))
  if (node.domain !== '') writer.string(7, node.domain)
  return writer
}

function encodeAttribute(name: string, value: Attribute): Writer {
  const writer = new Writer()
  writer.string(1, name)
  if (typeof value === 'string') {
    writer.string(4, value)
    writer.integer(20, 3)
  } else if (typeof value === 'number') {
    writer.integer(3, value)
    writer.integer(20, 2)
  } else if ('float' in value) {
    writer.float(2, value.float)
    writer.integer(20, 1)
  } else {
    for (const item of value) writer.integer(8, item)
    writer.integer(20, 7)
  }
  return writer
}

function encodeTensor(tensor: TensorProto): Writer {
  const writer = new Writer()
  for (const dim of tensor.dims) writer.integer(1, dim)
  writer.integer(2, ELEMENT_TYPE_CODE[tensor.type])
  writer.string(8, tensor.name)
  const { buffer, byteOffset, byteLength } = tensor.data
  writer.bytes(9, new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength))
  return writer
}

function encodeValue(value: ValueProto): Writer {
  const shape = new Writer()
  for (const dim of value.shape) {
    const dimension = new Writer()
    if (typeof dim === 'number') dimension.integer(1, dim)
    else dimension.string(2, dim)
    shape.message(1, dimension)
  }
  const tensorType = new Writer()
  tensorType.integer(1, ELEMENT_TYPE_CODE[value.type])
  tensorType.message(2, shape)
  const type = new Writer()
  type.message(1, tensorType)
  const writer = new Writer()
  writer.string(1, value.name)
  writer.message(2, type)
  return writer
}

/** Protobuf wire format: a growing list of byte chunks. */
class Writer {
  private readonly chunks: Uint8Array[] = []
  private length = 0

  integer(field: number, value: number): void {
    this.varint(field << 3)
    this.varint(value)
  }

  float(field: number, value: number): void {
    this.varint((field << 3) | 5)
    this.raw(new Uint8Array(new Float32Array([value]).buffer))
  }

  bytes(field: number, bytes: Uint8Array): void {
    this.varint((field << 3) | 2)
    this.varint(bytes.length)
    this.raw(bytes)
  }

  string(field: number, text: string): void {
    this.bytes(field, new TextEncoder().encode(text))
  }

  message(field: number, message: Writer): void {
    this.bytes(field, message.finish())
  }

  finish(): Uint8Array {
    const bytes = new Uint8Array(this.length)
    let offset = 0
    for (const chunk of this.chunks) {
      bytes.set(chunk, offset)
      offset += chunk.length
    }
    return bytes
  }

  private raw(bytes: Uint8Array): void {
    this.chunks.push(bytes)
    this.length += bytes.length
  }

  /** Negative integers take ten bytes, as two's complement of 64 bits. */
  private varint(value: number): void {
    let rest = BigInt.asUintN(64, BigInt(value))
    const bytes: number[] = []
    while (rest > 127n) {
      bytes.push(Number(rest & 127n) | 128)
      rest >>= 7n
    }
    bytes.push(Number(rest))
    this.raw(Uint8Array.from(bytes))
  }
}
