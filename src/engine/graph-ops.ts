/**
 * The operations of `ops.ts` as ONNX nodes, each with its gradient rule beside it.
 * float32 graphs use ONNX Runtime's fused operators where they are faster; float64 graphs, which check gradients, use standard ones.
 */

import type { Graph, Value } from './graph.ts'
import { MASKED, type MatmulOptions, type Ops } from './ops.ts'
import type { Dim } from './shape.ts'
import { broadcastShape, product, sameShape, total } from './shape.ts'

const MICROSOFT = { domain: 'com.microsoft' }

/** MLAS sums products of at most so many terms in one sweep: their order depends on nothing else. */
const MLAS_SWEEP = 128

/** @param rowBlock see `Program`. */
export function graphOps(graph: Graph, rowBlock: number | null = null): Ops<Value> {
  const fused = graph.float === 'float32'
  const axesOf = (axes: readonly number[]) => graph.constant('int64', [axes.length], axes)

  // ---- elementwise

  function elementwise(operator: string, a: Value, b: Value): Value {
    return graph.emit(operator, [a, b], a.type, broadcastShape(a.shape, b.shape))
  }

  function unary(operator: string, x: Value): Value {
    return graph.emit(operator, [x], x.type, x.shape)
  }

  /** Sums a gradient over the axes along which its operand was broadcast. */
  function unbroadcast(gradient: Value, shape: readonly Dim[]): Value {
    if (sameShape(gradient.shape, shape)) return gradient
    const extra = gradient.shape.length - shape.length
    const axes = gradient.shape
      .map((_, axis) => axis)
      .filter((axis) => axis < extra || (shape[axis - extra] === 1 && gradient.shape[axis] !== 1))
    const summed = axes.length === 0 ? gradient : sum(gradient, axes, true)
    return reshape(summed, shape)
  }

  function add(a: Value, b: Value): Value {
    return graph.differentiate(elementwise('Add', a, b), [a, b], (g) => [
      a.differentiable ? unbroadcast(g, a.shape) : null,
      b.differentiable ? unbroadcast(g, b.shape) : null,
    ])
  }

  function subtract(a: Value, b: Value): Value {
    return graph.differentiate(elementwise('Sub', a, b), [a, b], (g) => [
      a.differentiable ? unbroadcast(g, a.shape) : null,
      b.differentiable ? unbroadcast(unary('Neg', g), b.shape) : null,
    ])
  }

  function multiply(a: Value, b: Value): Value {
    return graph.differentiate(elementwise('Mul', a, b), [a, b], (g) => [
      a.differentiable ? unbroadcast(elementwise('Mul', g, b), a.shape) : null,
      b.differentiable ? unbroadcast(elementwise('Mul', g, a), b.shape) : null,
    ])
  }

  function negate(x: Value): Value {
    return graph.differentiate(unary('Neg', x), [x], (g) => [unary('Neg', g)])
  }

  function exp(x: Value): Value {
    const y = unary('Exp', x)
    return graph.differentiate(y, [x], (g) => [elementwise('Mul', g, y)])
  }

  function toFloat(x: Value): Value {
    return graph.emit('Cast', [x], graph.float, x.shape, {
      attributes: { to: graph.float === 'float32' ? 1 : 11 },
    })
  }

  /**
   * A half-precision matrix as numbers to compute with, made only once `after` is there: the runtime would widen all matrices at the
   * start, as they wait for nothing. The target shape, to which some size of `after` times 0 is added, makes this one wait.
   */
  function widened(matrix: Value, after: Value): Value {
    if (matrix.type !== 'float16') return matrix
    const rows = graph.emit('Shape', [after], 'int64', [1], { attributes: { start: 0, end: 1 } })
    const none = graph.emit('Sub', [rows, rows], 'int64', [1])
    const shape = graph.emit('Add', [graph.sizesOf(matrix.shape), none], 'int64', [matrix.shape.length])
    return toFloat(graph.emit('Reshape', [matrix, shape], matrix.type, matrix.shape))
  }

  function compare(operator: string, a: Value, b: Value): Value {
    return toFloat(graph.emit(operator, [a, b], 'bool', broadcastShape(a.shape, b.shape)))
  }

  function minimum(a: Value, b: Value): Value {
    const y = elementwise('Min', a, b)
    return graph.differentiate(y, [a, b], (g) => {
      const takesA = compare('LessOrEqual', a, b)
      return [
        a.differentiable ? unbroadcast(elementwise('Mul', g, takesA), a.shape) : null,
        b.differentiable
          ? unbroadcast(elementwise('Mul', g, elementwise('Sub', graph.scalar(1), takesA)), b.shape)
          : null,
      ]
    })
  }

  function clamp(x: Value, low: Value, high: Value): Value {
    const y = elementwise('Max', elementwise('Min', x, high), low)
    return graph.differentiate(y, [x], (g) => [elementwise('Mul', g, compare('Equal', x, y))])
  }

  function stopGradient(x: Value): Value {
    return x.differentiable ? unary('Identity', x) : x
  }

  // ---- shape

  function reshape(x: Value, shape: readonly Dim[]): Value {
    if (sameShape(x.shape, shape)) return x
    return graph.differentiate(view(x, shape), [x], (g) => [view(g, x.shape)])
  }

  /** What each reshaped value was before it was first reshaped, so that reshapes in a row become one. */
  const beforeReshapes = new Map<Value, Value>()

  function reshapeTo(x: Value, target: Value, shape: readonly Dim[]): Value {
    const source = beforeReshapes.get(x) ?? x
    const y = graph.emit('Reshape', [source, target], x.type, shape)
    beforeReshapes.set(y, source)
    return y
  }

  /** Reshape that records no gradient, for use inside operations that have their own. */
  function view(x: Value, shape: readonly Dim[]): Value {
    if (sameShape(x.shape, shape)) return x
    const source = beforeReshapes.get(x) ?? x
    const unknown = shape.filter((dim, axis) => typeof dim === 'string' && source.shape[axis] !== dim).length
    const target =
      unknown <= 1
        ? graph.constant(
            'int64',
            [shape.length],
            shape.map((dim, axis) => (typeof dim === 'number' ? dim : source.shape[axis] === dim ? 0 : -1)),
          )
        : graph.sizesOf(shape)
    return reshapeTo(x, target, shape)
  }

  function transpose(x: Value, permutation: readonly number[]): Value {
    const shape = permutation.map((axis) => x.shape[axis]!)
    // Where only axes of size 1 change places, nothing moves in memory.
    const moving = permutation.filter((axis) => x.shape[axis] !== 1)
    if (moving.every((axis, place) => place === 0 || moving[place - 1]! < axis)) return reshape(x, shape)
    const y = graph.emit('Transpose', [x], x.type, shape, { attributes: { perm: permutation } })
    const inverse = permutation.map((_, axis) => permutation.indexOf(axis))
    return graph.differentiate(y, [x], (g) => [transpose(g, inverse)])
  }

  function split(x: Value, axis: number, sizes: readonly Dim[]): Value[] {
    const results = sizes.map((size) => ({ type: x.type, shape: x.shape.map((dim, i) => (i === axis ? size : dim)) }))
    return graph.emitMany('Split', [x, graph.sizesOf(sizes)], results, { attributes: { axis } })
  }

  function concat(xs: readonly Value[], axis: number): Value {
    const sizes = xs.map((x) => x.shape[axis]!)
    const y = graph.emit(
      'Concat',
      xs,
      xs[0]!.type,
      xs[0]!.shape.map((dim, i) => (i === axis ? total(sizes) : dim)),
      { attributes: { axis } },
    )
    return graph.differentiate(y, xs, (g) => split(g, axis, sizes))
  }

  function slice(x: Value, axis: number, start: number, end: number): Value {
    const size = x.shape[axis] as number
    const bound = (value: number) => graph.constant('int64', [1], [value])
    const y = graph.emit(
      'Slice',
      [x, bound(start), bound(end), bound(axis)],
      x.type,
      x.shape.map((dim, i) => (i === axis ? end - start : dim)),
    )
    return graph.differentiate(y, [x], (g) => {
      const pads = x.shape.flatMap(() => [0, 0])
      pads[axis] = start
      pads[x.shape.length + axis] = size - end
      return [graph.emit('Pad', [g, graph.constant('int64', [pads.length], pads)], x.type, x.shape)]
    })
  }

  // ---- reductions

  function sum(x: Value, axes: readonly number[], keepDims: boolean): Value {
    const kept = x.shape.map((dim, axis) => (axes.includes(axis) ? 1 : dim))
    const shape = keepDims ? kept : x.shape.filter((_, axis) => !axes.includes(axis))
    const y = graph.emit('ReduceSum', [x, axesOf(axes)], x.type, shape, { attributes: { keepdims: keepDims ? 1 : 0 } })
    return graph.differentiate(y, [x], (g) => [
      graph.emit('Expand', [reshape(g, kept), graph.sizesOf(x.shape)], x.type, x.shape),
    ])
  }

  function argMax(x: Value): Value {
    return graph.emit('ArgMax', [x], 'int64', x.shape.slice(0, -1), {
      attributes: { axis: x.shape.length - 1, keepdims: 0 },
    })
  }

  // ---- selection

  function toInt64(indices: Value): Value {
    return indices.type === 'int64'
      ? indices
      : graph.emit('Cast', [indices], 'int64', indices.shape, { attributes: { to: 7 } })
  }

  function zeros(shape: readonly Dim[]): Value {
    return graph.emit('Expand', [graph.scalar(0), graph.sizesOf(shape)], graph.float, shape)
  }

  function gatherRows(table: Value, indices: Value): Value {
    const rows = graph.emit('Gather', [table, indices], table.type, [...indices.shape, ...table.shape.slice(1)], {
      attributes: { axis: 0 },
    })
    return graph.differentiate(rows.type === 'float16' ? toFloat(rows) : rows, [table], (g) => {
      // Rows may be gathered more than once, so their gradients add up.
      const at = reshape(toInt64(indices), [...indices.shape, 1])
      return [
        graph.emit('ScatterND', [zeros(table.shape), at, g], table.type, table.shape, {
          attributes: { reduction: 'add' },
        }),
      ]
    })
  }

  // ---- linear algebra

  const swapLast = (x: Value) => {
    const rank = x.shape.length
    const permutation = [...Array(rank - 2).keys(), rank - 1, rank - 2]
    return graph.emit(
      'Transpose',
      [x],
      x.type,
      permutation.map((axis) => x.shape[axis]!),
      { attributes: { perm: permutation } },
    )
  }

  function product2(
    a: Value,
    b: Value,
    { transposeLeft = false, transposeRight = false, scale = 1 }: MatmulOptions,
  ): Value {
    const rank = a.shape.length
    const rows = a.shape[transposeLeft ? rank - 1 : rank - 2]!
    const columns = b.shape[transposeRight ? rank - 2 : rank - 1]!
    const shape = [...a.shape.slice(0, -2), rows, columns]
    if (fused && (transposeLeft || transposeRight || scale !== 1)) {
      const attributes = { transA: transposeLeft ? 1 : 0, transB: transposeRight ? 1 : 0, alpha: { float: scale } }
      return graph.emit('FusedMatMul', [a, b], a.type, shape, { ...MICROSOFT, attributes })
    }
    const y = graph.emit('MatMul', [transposeLeft ? swapLast(a) : a, transposeRight ? swapLast(b) : b], a.type, shape)
    return scale === 1 ? y : elementwise('Mul', y, graph.scalar(scale))
  }

  function matmul(a: Value, b: Value, options: MatmulOptions = {}): Value {
    const { transposeLeft = false, transposeRight = false, scale = 1 } = options
    return graph.differentiate(product2(a, b, options), [a, b], (g) => [
      // With C = A B: dA = G Bᵀ, dB = Aᵀ G; a transposed operand gets the transpose of that.
      !a.differentiable
        ? null
        : transposeLeft
          ? product2(b, g, { transposeLeft: transposeRight, transposeRight: true, scale })
          : product2(g, b, { transposeRight: !transposeRight, scale }),
      !b.differentiable
        ? null
        : transposeRight
          ? product2(g, a, { transposeLeft: true, transposeRight: transposeLeft, scale })
          : product2(a, g, { transposeLeft: !transposeLeft, scale }),
    ])
  }

  function gemm(inputs: Value[], shape: readonly Dim[], transA: number, transB: number): Value {
    return graph.emit('Gemm', inputs, inputs[0]!.type, shape, { attributes: { transA, transB } })
  }

  function linear(x: Value, weight: Value, bias?: Value): Value {
    const out = weight.shape[0]!
    const inputs = bias === undefined ? [x, weight] : [x, weight, bias]
    const wide = widened(weight, x)
    const inOneSweep = (x.shape[1] as number) <= MLAS_SWEEP
    const y =
      rowBlock === null || inOneSweep
        ? gemm(bias === undefined ? [x, wide] : [x, wide, bias], [x.shape[0]!, out], 0, 1)
        : linearInBlocks(x, wide, bias)
    return graph.differentiate(y, inputs, (g) => [
      // Half-precision weights are widened anew, so that their float32 copies do not live from here to there.
      x.differentiable ? gemm([g, widened(weight, g)], x.shape, 0, 0) : null,
      weight.differentiable ? weightGradient(g, x) : null,
      bias?.differentiable ? sum(g, [0], false) : null,
    ])
  }

  /**
   * gᵀ x, [out, in]. MLAS reads a transposed left operand slowly: turning the narrower of the two first, and the result back where that
   * is x, measured 10 to 25 % faster; not so for a vocabulary, whose g is too large to have a second time.
   */
  function weightGradient(g: Value, x: Value): Value {
    const [out, width] = [g.shape[1] as number, x.shape[1] as number]
    if (out > 8 * width) return gemm([g, x], [out, width], 1, 0)
    return out <= width ? product2(swapLast(g), x, {}) : swapLast(product2(swapLast(x), g, {}))
  }

  /** Targets of reshapes to blocks of rows, [-1, rows in a block, width], by the names of the sizes. */
  const blockShapes = new Map<string, Value>()

  /**
   * weight xᵀ for each block of rows, turned back. MLAS, the runtime's matrix library, packs the right operand of a product, here the few
   * rows and not the weight, and sums in an order that depends on how many columns that operand (or a thread's part of it) has: in blocks
   * of 16 on nothing.
   */
  function linearInBlocks(x: Value, weight: Value, bias: Value | undefined): Value {
    const [rows, width] = x.shape as [Dim, number]
    const out = weight.shape[0]!
    const key = `${rows}/${width}`
    let target = blockShapes.get(key)
    if (target === undefined) {
      const one = (value: number) => graph.constant('int64', [1], [value])
      const inBlock = graph.emit('Min', [graph.size(rows), one(rowBlock!)], 'int64', [1])
      target = graph.emit('Concat', [one(-1), inBlock, one(width)], 'int64', [3], { attributes: { axis: 0 } })
      blockShapes.set(key, target)
    }
    const blocks = reshapeTo(x, target, ['G', 'C', width])
    const attributes = { transA: 0, transB: 1, alpha: { float: 1 } }
    const turned = fused
      ? graph.emit('FusedMatMul', [weight, blocks], x.type, ['G', out, 'C'], { ...MICROSOFT, attributes })
      : graph.emit('MatMul', [weight, swapLast(blocks)], x.type, ['G', out, 'C'])
    const y = swapLast(turned)
    return view(bias === undefined ? y : elementwise('Add', y, bias), [rows, out])
  }

  // ---- layers

  const last = (x: Value) => x.shape.length - 1

  function softmax(x: Value): Value {
    const y = graph.emit('Softmax', [x], x.type, x.shape, { attributes: { axis: -1 } })
    return graph.differentiate(y, [x], (g) => [
      elementwise('Mul', y, elementwise('Sub', g, sum(elementwise('Mul', g, y), [last(x)], true))),
    ])
  }

  /** Shared by what reads the same logits. */
  const logSoftmaxes = new Map<Value, Value>()

  function logSoftmaxOf(x: Value): Value {
    const known = logSoftmaxes.get(x)
    if (known !== undefined) return known
    const y = graph.emit('LogSoftmax', [x], x.type, x.shape, { attributes: { axis: -1 } })
    logSoftmaxes.set(x, y)
    return y
  }

  function logSoftmaxAt(x: Value, rows: Value, columns: Value): Value {
    const logs = logSoftmaxOf(x)
    const size = rows.shape[0]!
    const at = concat([reshape(toInt64(rows), [size, 1]), reshape(toInt64(columns), [size, 1])], 1)
    // With P = softmax(x): dx = (picked entries of g) - P * (sum of g over what is picked in the row). Few passes over [N, C].
    return graph.differentiate(graph.emit('GatherND', [logs, at], x.type, rows.shape), [x], (g) => {
      const into = (table: Value, where: Value) =>
        graph.emit('ScatterND', [table, where, g], x.type, table.shape, { attributes: { reduction: 'add' } })
      const rowSums = into(zeros([x.shape[0]!]), reshape(toInt64(rows), [size, 1]))
      const spread = elementwise('Mul', unary('Exp', logs), reshape(unary('Neg', rowSums), [x.shape[0]!, 1]))
      return [into(spread, at)]
    })
  }

  function entropy(x: Value): Value {
    const logs = logSoftmaxOf(x)
    const weighted = elementwise('Mul', unary('Exp', logs), logs)
    return unary('Neg', sum(weighted, [1], false))
  }

  function rmsNorm(x: Value, weight: Value, epsilon: number): Value {
    const width = x.shape[last(x)] as number
    const [y, inverse] = normalise(x, weight, epsilon, width)
    // With n = x r, r = 1 / rms and g' = g w: dx = r (g' - n mean(g' n)), dw = sum over rows of g n.
    return graph.differentiate(y, [x, weight], (g) => {
      const normalised = elementwise('Mul', x, inverse)
      const scaled = elementwise('Mul', g, weight)
      const mean = elementwise('Mul', sum(elementwise('Mul', g, y), [last(x)], true), graph.scalar(1 / width))
      return [
        elementwise('Mul', elementwise('Sub', scaled, elementwise('Mul', normalised, mean)), inverse),
        weight.differentiable ? unbroadcast(elementwise('Mul', g, normalised), weight.shape) : null,
      ]
    })
  }

  /** The normalised, weighted tensor and 1 / rms of each row. */
  function normalise(x: Value, weight: Value, epsilon: number, width: number): [Value, Value] {
    const rowShape = [...x.shape.slice(0, -1), 1]
    if (fused) {
      const results = [
        { type: x.type, shape: x.shape },
        { type: x.type, shape: rowShape },
      ]
      const attributes = { axis: -1, epsilon: { float: epsilon }, stash_type: 1 }
      return graph.emitMany('SimplifiedLayerNormalization', [x, weight], results, { attributes }) as [Value, Value]
    }
    const sumOfSquares = graph.emit('ReduceSum', [elementwise('Mul', x, x), axesOf([last(x)])], x.type, rowShape, {
      attributes: { keepdims: 1 },
    })
    const meanSquare = elementwise('Mul', sumOfSquares, graph.scalar(1 / width))
    const inverse = unary('Reciprocal', unary('Sqrt', elementwise('Add', meanSquare, graph.scalar(epsilon))))
    return [elementwise('Mul', elementwise('Mul', x, inverse), weight), inverse]
  }

  function swiglu(gate: Value, up: Value): Value {
    const silu = fused
      ? graph.emit('QuickGelu', [gate], gate.type, gate.shape, { ...MICROSOFT, attributes: { alpha: { float: 1 } } })
      : elementwise('Mul', gate, unary('Sigmoid', gate))
    // With s = sigmoid(x) and y = x s: dy/dx = s + y (1 - s) = y + s (1 - y).
    return graph.differentiate(elementwise('Mul', silu, up), [gate, up], (g) => {
      const slope = elementwise(
        'Add',
        silu,
        elementwise('Mul', unary('Sigmoid', gate), elementwise('Sub', graph.scalar(1), silu)),
      )
      return [elementwise('Mul', elementwise('Mul', g, up), slope), elementwise('Mul', g, silu)]
    })
  }

  function rotate(x: Value, cos: Value, sin: Value): Value {
    const turned = rotateHalves(x, cos, sin, 1)
    // A rotation's transpose turns the other way.
    return graph.differentiate(turned, [x], (g) => [rotateHalves(g, cos, sin, -1)])
  }

  function rotateHalves(x: Value, cos: Value, sin: Value, direction: 1 | -1): Value {
    const rows = fused ? rotaryRows(x, cos) : null
    if (rows !== null) {
      const table = (t: Value) => view(t, [product(...t.shape.slice(0, -1)), t.shape[last(t)]!])
      const turn = direction === 1 ? sin : unary('Neg', sin)
      return graph.emit('RotaryEmbedding', [x, rows, table(cos), table(turn)], x.type, x.shape, MICROSOFT)
    }
    const axis = last(x)
    const half = (x.shape[axis] as number) / 2
    const [first, second] = split(x, axis, [half, half])
    const times = (a: Value, b: Value) => elementwise('Mul', a, b)
    const operators = direction === 1 ? ['Sub', 'Add'] : ['Add', 'Sub']
    const parts = [
      elementwise(operators[0]!, times(first!, cos), times(second!, sin)),
      elementwise(operators[1]!, times(second!, cos), times(first!, sin)),
    ]
    return graph.emit('Concat', parts, x.type, x.shape, { attributes: { axis } })
  }

  /**
   * Which row of the tables the fused operator takes for each token: rows from 0 on for all sequences when the tables are [T, D/2], each
   * sequence's own when they are [B, 1, T, D/2]. Null for tables that it cannot read.
   */
  function rotaryRows(x: Value, cos: Value): Value | null {
    if (cos.shape.length === 2) return graph.constant('int64', [1], [0])
    const [batch, heads, time] = cos.shape
    if (cos.shape.length !== 4 || heads !== 1 || batch !== x.shape[0] || time !== x.shape[2]) return null
    return view(integerRange(product(batch!, time!)), [batch!, time!])
  }

  function attention(q: Value, k: Value, v: Value, bias: Value, scale: number): Value {
    const [batch, heads, time, width] = q.shape as [Dim, number, Dim, number]
    const [, groups, source] = k.shape as [Dim, number, Dim, number]
    const shared = heads / groups
    // The query heads that share a key head stand below one another, so that one product serves them all.
    const stacked = [batch, groups, product(shared, time), width]
    const queries = view(q, stacked)
    const scores = product2(queries, k, { transposeRight: true, scale })
    const biased = elementwise('Add', view(scores, [batch, groups, shared, time, source]), bias)
    const weights = view(
      graph.emit('Softmax', [biased], q.type, biased.shape, { attributes: { axis: -1 } }),
      scores.shape,
    )
    const context = product2(weights, v, {})
    const y = view(context, q.shape)
    return graph.differentiate(y, [q, k, v], (gradient) => {
      const g = view(gradient, stacked)
      // Softmax backward needs sum_s P dP per row, which equals sum_d G O (Dao et al. 2022, arXiv:2205.14135, B.2).
      const rowSums = sum(elementwise('Mul', g, context), [3], true)
      const gradientOfScores = elementwise(
        'Mul',
        weights,
        elementwise('Sub', product2(g, v, { transposeRight: true }), rowSums),
      )
      // dK = dSᵀ Q and dV = Pᵀ G are made as (Qᵀ dS)ᵀ and (Gᵀ P)ᵀ: transposing the narrow operand measured 1.5 times faster.
      return [
        view(product2(gradientOfScores, k, { scale }), q.shape),
        swapLast(product2(queries, gradientOfScores, { transposeLeft: true, scale })),
        swapLast(product2(g, weights, { transposeLeft: true })),
      ]
    })
  }

  // ---- made from sizes

  function integerRange(size: Dim): Value {
    const scalarSize = graph.emit('Squeeze', [graph.size(size)], 'int64', [])
    const ends = [0, 1].map((value) => graph.constant('int64', [], [value]))
    return graph.emit('Range', [ends[0]!, scalarSize, ends[1]!], 'int64', [size])
  }

  function range(size: Dim): Value {
    return toFloat(integerRange(size))
  }

  function causalBias(size: Dim): Value {
    const positions = range(size)
    const later = compare('Greater', reshape(positions, [1, size]), reshape(positions, [size, 1]))
    return elementwise('Mul', later, graph.scalar(MASKED))
  }

  return {
    shapeOf: (x) => x.shape,
    scalar: (value) => graph.scalar(value),
    vector: (values) => graph.constant(graph.float, [values.length], values),
    integers: (values) => graph.constant('int32', [values.length], values),
    toFloat: (x) => (x.type === graph.float ? x : toFloat(x)),
    add,
    subtract,
    multiply,
    negate,
    exp,
    minimum,
    clamp,
    greater: (a, b) => compare('Greater', a, b),
    equal: (a, b) => compare('Equal', toInt64(a), toInt64(b)),
    stopGradient,
    reshape,
    transpose,
    concat,
    split: (x, axis, sizes) => {
      if (x.differentiable) throw new Error('split has no gradient')
      return split(x, axis, sizes)
    },
    slice,
    sum,
    argMax,
    gatherRows,
    matmul,
    linear,
    softmax,
    logSoftmaxAt,
    entropy,
    rmsNorm,
    swiglu,
    rotate,
    attention,
    range,
    causalBias,
    cos: (x) => unary('Cos', x),
    sin: (x) => unary('Sin', x),
  }
}
