/** All operations of `../ops.ts` as ONNX nodes that a graph collects. */

import type { Ops } from '../ops.ts'
import { basicOps } from './basic.ts'
import type { Graph, Value } from './graph.ts'
import { layers } from './layers.ts'
import { products } from './products.ts'

/** @param rowBlock see `Program`. */
export function graphOps(graph: Graph, rowBlock: number | null = null): Ops<Value> {
  const basic = basicOps(graph)
  const product = products(graph, basic, rowBlock)
  const { compare, toFloat, toInt64, unary } = basic
  return {
    ...basic,
    ...product,
    ...layers(graph, basic, product),
    shapeOf: (x) => x.shape,
    scalar: (value) => graph.scalar(value),
    vector: (values) => graph.constant(graph.float, [values.length], values),
    integers: (values) => graph.constant('int32', [values.length], values),
    toFloat: (x) => (x.type === graph.float ? x : toFloat(x)),
    greater: (a, b) => compare('Greater', a, b),
    equal: (a, b) => compare('Equal', toInt64(a), toInt64(b)),
    split: (x, axis, sizes) => {
      if (x.differentiable) throw new Error('split has no gradient')
      return basic.split(x, axis, sizes)
    },
    cos: (x) => unary('Cos', x),
    sin: (x) => unary('Sin', x),
  }
}
