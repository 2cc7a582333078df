/**
 * The plain operations of `../ops.ts` as ONNX nodes: arithmetic, shapes, sums, selections, and what is made from sizes. Each has its
 * gradient rule beside it. `products.ts` and `layers.ts` build on them.
 */

import { MASKED } from '../ops.ts'
import type { Dim } from '../shape.ts'
import { broadcastShape, sameShape, total } from '../shape.ts'
import type { Graph, Value } from './graph.ts'

export type BasicOps = ReturnType<typeof basicOps>

export function basicOps(graph: Graph) {
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

  /** The last two axes in each other's place; for use inside operations that have their own gradients. */
  function swapLast(x: Value): Value {
    const rank = x.shape.length
    const permutation = [...Array(rank - 2).keys(), rank - 1, rank - 2]
    const shape = permutation.map((axis) => x.shape[axis]!)
    return graph.emit('Transpose', [x], x.type, shape, { attributes: { perm: permutation } })
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
    elementwise,
    unary,
    unbroadcast,
    add,
    subtract,
    multiply,
    negate,
    exp,
    minimum,
    clamp,
    compare,
    toFloat,
    toInt64,
    stopGradient,
    reshape,
    reshapeTo,
    view,
    transpose,
    swapLast,
    concat,
    split,
    slice,
    sum,
    argMax,
    gatherRows,
    zeros,
    axesOf,
    integerRange,
    range,
    causalBias,
  }
}
