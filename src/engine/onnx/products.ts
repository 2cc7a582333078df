/** Matrix products as ONNX nodes, with their gradients: batched ones, and those with a weight. */

import type { MatmulOptions } from '../ops.ts'
import type { Dim } from '../shape.ts'
import type { BasicOps } from './basic.ts'
import type { Graph, Value } from './graph.ts'

const MICROSOFT = { domain: 'com.microsoft' }

/** MLAS sums products of at most so many terms in one sweep: their order depends on nothing else. */
const MLAS_SWEEP = 128

export type Products = ReturnType<typeof products>

/** @param rowBlock see `Program`. */
export function products(graph: Graph, basic: BasicOps, rowBlock: number | null) {
  const { elementwise, reshapeTo, sum, swapLast, toFloat, view } = basic
  const fused = graph.float === 'float32'

  /** The product alone; the operations that use it have their own gradients. */
  function rawProduct(
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
    return graph.differentiate(rawProduct(a, b, options), [a, b], (g) => [
      // With C = A B: dA = G Bᵀ, dB = Aᵀ G; a transposed operand gets the transpose of that.
      !a.differentiable
        ? null
        : transposeLeft
          ? rawProduct(b, g, { transposeLeft: transposeRight, transposeRight: true, scale })
          : rawProduct(g, b, { transposeRight: !transposeRight, scale }),
      !b.differentiable
        ? null
        : transposeRight
          ? rawProduct(g, a, { transposeLeft: true, transposeRight: transposeLeft, scale })
          : rawProduct(a, g, { transposeLeft: !transposeLeft, scale }),
    ])
  }

  function gemm(inputs: Value[], shape: readonly Dim[], transA: number, transB: number): Value {
    return graph.emit('Gemm', inputs, inputs[0]!.type, shape, { attributes: { transA, transB } })
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
    return out <= width ? rawProduct(swapLast(g), x, {}) : swapLast(rawProduct(swapLast(x), g, {}))
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

  return { rawProduct, matmul, linear }
}
