/**
 * The operations of `ops.ts` in TensorFlow.js, from its own operations, so that its automatic differentiation gives the gradients.
 * Three have gradients of our own, as their comments say: those of TensorFlow.js are missing, or slow, on some backend.
 */

import * as tf from '@tensorflow/tfjs'
import { MASKED, type MatmulOptions, type Ops } from '../ops.ts'
import type { Dim } from '../shape.ts'
import type { Sizes } from './sizes.ts'

type Tensor = tf.Tensor

export function tfjsOps(sizes: Sizes): Ops<Tensor> {
  const integers = (x: Tensor) => (x.dtype === 'int32' ? x : tf.cast(x, 'int32'))
  const floats = (condition: Tensor) => tf.cast(condition, 'float32')

  function reshape(x: Tensor, shape: readonly Dim[]): Tensor {
    const y = tf.reshape(x, sizes.target(shape))
    sizes.measure('reshape', shape, y.shape)
    return y
  }

  function matmul(a: Tensor, b: Tensor, options: MatmulOptions = {}): Tensor {
    const y = tf.matMul(a, b, options.transposeLeft, options.transposeRight)
    return options.scale === undefined || options.scale === 1 ? y : tf.mul(y, options.scale)
  }

  function rotate(x: Tensor, cos: Tensor, sin: Tensor): Tensor {
    const [first, second] = tf.split(x, 2, -1) as [Tensor, Tensor]
    return tf.concat(
      [tf.sub(tf.mul(first, cos), tf.mul(second, sin)), tf.add(tf.mul(second, cos), tf.mul(first, sin))],
      -1,
    )
  }

  function attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, scale: number): Tensor {
    const [batch, heads, time, width] = q.shape as [number, number, number, number]
    const [, groups, source] = k.shape as [number, number, number, number]
    const shared = heads / groups
    // The query heads that share a key head stand below one another, so that one product serves them all.
    const queries = tf.reshape(q, [batch, groups, shared * time, width])
    const scores = tf.reshape(matmul(queries, k, { transposeRight: true, scale }), [
      batch,
      groups,
      shared,
      time,
      source,
    ])
    const weights = tf.reshape(tf.softmax(tf.add(scores, bias)), [batch, groups, shared * time, source])
    return tf.reshape(tf.matMul(weights, v), q.shape)
  }

  return {
    shapeOf: (x) => x.shape,
    scalar: (value) => tf.scalar(value, 'float32'),
    vector: (values) => tf.tensor1d([...values], 'float32'),
    integers: (values) => tf.tensor1d([...values], 'int32'),
    toFloat: floats,

    add: (a, b) => tf.add(a, b),
    subtract: (a, b) => tf.sub(a, b),
    multiply: (a, b) => tf.mul(a, b),
    negate: (x) => tf.neg(x),
    exp: (x) => tf.exp(x),
    minimum: (a, b) => tf.minimum(a, b),
    clamp: (x, low, high) => tf.maximum(tf.minimum(x, high), low),
    greater: (a, b) => floats(tf.greater(a, b)),
    equal: (a, b) => floats(tf.equal(integers(a), integers(b))),
    stopGradient: (x) => withGradient([x], [], ([value]) => tf.clone(value!), tf.zerosLike),

    reshape,
    transpose: (x, permutation) => tf.transpose(x, [...permutation]),
    concat: (xs, axis) => tf.concat([...xs], axis),
    split: (x, axis, parts) =>
      tf.split(
        x,
        parts.map((part) => sizes.of(part)),
        axis,
      ),
    slice: (x, axis, start, end) =>
      tf.slice(
        x,
        x.shape.map((_, i) => (i === axis ? start : 0)),
        x.shape.map((size, i) => (i === axis ? end - start : size)),
      ),

    sum: (x, axes, keepDims) => tf.sum(x, [...axes], keepDims),
    argMax: (x) => tf.argMax(x, -1),

    gatherRows: (table, indices) => gatherRows(table, integers(indices)),

    matmul,
    linear: (x, weight, bias) => {
      const y = tf.getBackend() === 'wasm' ? wasmLinear(x, weight) : tf.matMul(x, weight, false, true)
      return bias === undefined ? y : tf.add(y, bias)
    },

    softmax: (x) => tf.softmax(x),
    logSoftmaxAt: (x, rows, columns) => entriesAt(tf.logSoftmax(x), integers(rows), integers(columns)),
    entropy: (x) => tf.neg(tf.sum(tf.mul(tf.softmax(x), tf.logSoftmax(x)), -1)),
    rmsNorm: (x, weight, epsilon) =>
      tf.mul(tf.mul(x, tf.rsqrt(tf.add(tf.mean(tf.square(x), -1, true), epsilon))), weight),
    swiglu: (gate, up) => tf.mul(tf.mul(gate, tf.sigmoid(gate)), up),
    rotate,
    attention,

    range: (size) => tf.range(0, sizes.of(size), 1, 'float32'),
    causalBias: (size) => {
      const positions = tf.range(0, sizes.of(size), 1, 'float32')
      return tf.mul(floats(tf.greater(tf.expandDims(positions, 0), tf.expandDims(positions, 1))), MASKED)
    },
    cos: (x) => tf.cos(x),
    sin: (x) => tf.sin(x),
  }
}

/** A function with a gradient of its own. `kept` is what the gradient needs: other tensors of the forward pass are gone by then. */
function withGradient<K extends Tensor[]>(
  inputs: Tensor[],
  kept: K,
  forward: (inputs: Tensor[]) => Tensor,
  backward: (gradient: Tensor, kept: K) => Tensor | Tensor[],
): Tensor {
  return tf.customGrad((...given) => {
    const save = given.pop() as tf.GradSaveFunc
    save(kept)
    return {
      value: forward(given as Tensor[]),
      gradFunc: (gradient: Tensor, saved: Tensor[]) => backward(gradient, saved as K),
    }
  })(...inputs)
}

/**
 * x [R, in], weight [out, in] -> x weightᵀ. The wasm backend multiplies operands that it need not transpose several times faster than
 * others, so they are transposed before, here and in the gradients.
 */
function wasmLinear(x: Tensor, weight: Tensor): Tensor {
  return withGradient(
    [x, weight],
    [x, weight],
    ([a, w]) => tf.matMul(a!, tf.transpose(w!)),
    (gradient, [a, w]) => [tf.matMul(gradient, w!), tf.matMul(tf.transpose(gradient), a!)],
  )
}

/** Rows may be gathered more than once, so their gradients add up. */
function gatherRows(table: Tensor, indices: Tensor): Tensor {
  const rows = table.shape[0]!
  const flattened: [tf.Tensor1D] = [tf.reshape(indices, [-1])]
  return withGradient(
    [table],
    flattened,
    ([x]) => tf.gather(x!, indices),
    (gradient, [flat]) => {
      const perIndex = tf.reshape(gradient, [flat.size, -1])
      // The wasm backend has no segment sum: there the rows are added up by a product with a matrix of ones and zeros.
      const summed =
        tf.getKernel('UnsortedSegmentSum', tf.getBackend()) === undefined
          ? tf.matMul(agreement(tf.range(0, rows, 1, 'int32'), flat), perIndex)
          : tf.unsortedSegmentSum(perIndex, flat, rows)
      return tf.reshape(summed, table.shape)
    },
  )
}

/** x [N, C], rows and columns [M] -> [M]. Entries may be taken more than once, so their gradients add up. */
function entriesAt(x: Tensor, rows: Tensor, columns: Tensor): Tensor {
  const [height, width] = x.shape as [number, number]
  const at = tf.add(tf.mul(rows, tf.scalar(width, 'int32')), columns)
  return withGradient(
    [x],
    [rows, columns],
    ([value]) => tf.gather(tf.reshape(value!, [-1]), at),
    (gradient, [ofRows, ofColumns]) =>
      tf.matMul(
        agreement(tf.range(0, height, 1, 'int32'), ofRows!),
        tf.mul(agreement(ofColumns!, tf.range(0, width, 1, 'int32')), tf.expandDims(gradient, 1)),
      ),
  )
}

/** [N], [M] -> [N, M]: 1 where they agree, else 0. */
function agreement(a: Tensor, b: Tensor): Tensor {
  return tf.cast(tf.equal(tf.expandDims(a, 1), tf.expandDims(b, 0)), 'float32')
}
