/**
 * The layers of `../ops.ts` as ONNX nodes, with gradients that keep and compute less than those of their parts would. float32 graphs use
 * ONNX Runtime's fused operators where they are faster; float64 graphs, which check gradients, use standard ones.
 */

import type { Dim } from '../shape.ts'
import { product } from '../shape.ts'
import type { BasicOps } from './basic.ts'
import type { Graph, Value } from './graph.ts'
import type { Products } from './products.ts'

const MICROSOFT = { domain: 'com.microsoft' }

export function layers(graph: Graph, basic: BasicOps, { rawProduct }: Products) {
  const {
    axesOf,
    concat,
    elementwise,
    integerRange,
    reshape,
    split,
    sum,
    swapLast,
    toInt64,
    unary,
    unbroadcast,
    view,
    zeros,
  } = basic
  const fused = graph.float === 'float32'

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
    const scores = rawProduct(queries, k, { transposeRight: true, scale })
    const biased = elementwise('Add', view(scores, [batch, groups, shared, time, source]), bias)
    const weights = view(
      graph.emit('Softmax', [biased], q.type, biased.shape, { attributes: { axis: -1 } }),
      scores.shape,
    )
    const context = rawProduct(weights, v, {})
    const y = view(context, q.shape)
    return graph.differentiate(y, [q, k, v], (gradient) => {
      const g = view(gradient, stacked)
      // Softmax backward needs sum_s P dP per row, which equals sum_d G O (Dao et al. 2022, arXiv:2205.14135, B.2).
      const rowSums = sum(elementwise('Mul', g, context), [3], true)
      const gradientOfScores = elementwise(
        'Mul',
        weights,
        elementwise('Sub', rawProduct(g, v, { transposeRight: true }), rowSums),
      )
      // dK = dSᵀ Q and dV = Pᵀ G are made as (Qᵀ dS)ᵀ and (Gᵀ P)ᵀ: transposing the narrow operand measured 1.5 times faster.
      return [
        view(rawProduct(gradientOfScores, k, { scale }), q.shape),
        swapLast(rawProduct(queries, gradientOfScores, { transposeLeft: true, scale })),
        swapLast(rawProduct(g, weights, { transposeLeft: true })),
      ]
    })
  }

  return { softmax, logSoftmaxAt, entropy, rmsNorm, swiglu, rotate, attention }
}
