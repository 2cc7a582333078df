/**
 * The operations that a model is written in. `V` is whatever stands for a tensor: an entry of a recorded program (`program.ts`), a node
 * of an ONNX graph (`onnx/ops.ts`), an eager tensor. A model written over `Ops` says nothing of gradients, devices or memory.
 *
 * Every operation is differentiable in its floating-point arguments unless its comment says otherwise.
 */

import type { Dim } from './shape.ts'

/** Added to attention scores that must not count. Finite, so that no row can become NaN. */
export const MASKED = -1e9

export interface MatmulOptions {
  /** Swap the last two axes of the left or the right operand. */
  transposeLeft?: boolean
  transposeRight?: boolean
  /** Factor on the product. Default 1. */
  scale?: number
}

export interface Ops<V> {
  shapeOf(x: V): readonly Dim[]
  scalar(value: number): V
  /** A constant vector, rounded to the engine's floating-point type. */
  vector(values: readonly number[]): V
  /** A constant vector of integers. */
  integers(values: readonly number[]): V
  /** Half-precision numbers or integers as the engine's floating-point type. Not differentiable. */
  toFloat(x: V): V

  // Elementwise, with NumPy broadcasting. Sums and products may be of integers.
  add(a: V, b: V): V
  subtract(a: V, b: V): V
  multiply(a: V, b: V): V
  negate(x: V): V
  exp(x: V): V
  /** The smaller of two; at a tie the gradient goes to `a`. */
  minimum(a: V, b: V): V
  /** x held to [low, high] (scalars, not differentiated); the gradient is 1 inside, bounds included, and 0 outside. */
  clamp(x: V, low: V, high: V): V
  /** 1 where a > b, else 0. Not differentiable. */
  greater(a: V, b: V): V
  /** 1 where two integer tensors agree, else 0. Not differentiable. */
  equal(a: V, b: V): V
  stopGradient(x: V): V

  // Shape.
  reshape(x: V, shape: readonly Dim[]): V
  transpose(x: V, permutation: readonly number[]): V
  concat(xs: readonly V[], axis: number): V
  /** Parts of these sizes along an axis. Not differentiable. */
  split(x: V, axis: number, sizes: readonly Dim[]): readonly V[]
  /** x[start, end) along an axis of fixed size. */
  slice(x: V, axis: number, start: number, end: number): V

  // Reductions.
  sum(x: V, axes: readonly number[], keepDims: boolean): V
  /** Index of the largest entry along the last axis, as an integer tensor. Not differentiable. */
  argMax(x: V): V

  // Selection by integer indices.
  /** table [N, ...], indices of any shape -> [...indices, ...]. What is taken from a half-precision table becomes floating point. */
  gatherRows(table: V, indices: V): V

  // Linear algebra.
  /** Batched product over the last two axes; leading axes are equal. */
  matmul(a: V, b: V, options?: MatmulOptions): V
  /** x [R, in], weight [out, in], bias [out] -> x weightᵀ + bias: [R, out]. A half-precision weight is widened for each product. */
  linear(x: V, weight: V, bias?: V): V

  // Layers.
  softmax(x: V): V
  /** Entries of log softmax: x [N, C], rows and columns integers [M] -> [M], log softmax(x)[rows[i], columns[i]]. */
  logSoftmaxAt(x: V, rows: V, columns: V): V
  /** Entropy of softmax, in nats: [N, C] -> [N]. Not differentiable. */
  entropy(x: V): V
  /** x / sqrt(mean(x²) + epsilon) * weight, over the last axis (Zhang & Sennrich 2019, arXiv:1910.07467). */
  rmsNorm(x: V, weight: V, epsilon: number): V
  /** silu(gate) * up, with silu(x) = x sigmoid(x) (Shazeer 2020, arXiv:2002.05202). */
  swiglu(gate: V, up: V): V
  /**
   * Rotary position embedding in the half-rotation form of Hugging Face (Su et al. 2021, arXiv:2104.09864):
   * with x = [x1, x2] split in the middle of the last axis, [x1 cos - x2 sin, x2 cos + x1 sin].
   * x [B, H, T, D]; cos and sin broadcast to [B, H, T, D/2] and are not differentiated.
   */
  rotate(x: V, cos: V, sin: V): V
  /**
   * softmax(q kᵀ scale + bias) v with grouped heads (Ainslie et al. 2023, arXiv:2305.13245): query head h reads key head floor(h K / H).
   * q [B, H, T, D]; k, v [B, K, S, D]; bias broadcasts to [B, K, H/K, T, S] and is not differentiated -> [B, H, T, D].
   */
  attention(q: V, k: V, v: V, bias: V, scale: number): V

  // Made from sizes; not differentiable.
  /** 0, 1, ..., size - 1 as floating point: [size]. */
  range(size: Dim): V
  /** [size, size]: 0 where column <= row, a large negative number elsewhere. */
  causalBias(size: Dim): V
  cos(x: V): V
  sin(x: V): V
}
