/** The memory of a graph from its shapes, by hand, and against what ONNX Runtime's values must take. */

import { expect, test } from 'vitest'
import type { Value } from '../../src/engine/onnx/graph.ts'
import { programPeaks } from '../../src/engine/onnx/lower.ts'
import { livePeaks, peakBytes } from '../../src/engine/onnx/memory.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { Dim, ElementType } from '../../src/engine/shape.ts'

let count = 0
const value = (shape: Dim[], type: ElementType = 'float32'): Value => ({
  id: count++,
  type,
  shape,
  differentiable: false,
})

test('what is alive at once: a result, its operands until their last use, outputs to the end', () => {
  const [input, a, b, c, d] = [value(['T']), value(['T']), value(['T', 10]), value([5]), value(['T'])]
  const nodes = [
    { operator: 'Exp', inputs: [input], outputs: [a] },
    { operator: 'Outer', inputs: [a, a], outputs: [b] },
    { operator: 'ReduceSum', inputs: [b], outputs: [c] },
    { operator: 'Add', inputs: [c, input], outputs: [d] },
  ]
  // At Outer a and b are alive: 4 T + 40 T bytes; at ReduceSum b and c: 40 T + 20; at Add c and d.
  const peak = peakBytes(livePeaks(nodes, [d]))
  expect(peak({ T: 100 })).toBe(4400)
  expect(peak({ T: 3 })).toBe(140)
  // As an output, a stays: 4 T more at ReduceSum.
  expect(peakBytes(livePeaks(nodes, [a, d]))({ T: 100 })).toBe(4420)
})

test('a reshaped value is the same memory; sums and products of names', () => {
  const [input, a, flat, joined] = [
    value(['B', 'T']),
    value(['B', 'T']),
    value(['B*T']),
    value(['2*B', 'P+T'], 'int64'),
  ]
  const nodes = [
    { operator: 'Neg', inputs: [input], outputs: [a] },
    { operator: 'Reshape', inputs: [a, null], outputs: [flat] },
    { operator: 'Join', inputs: [flat], outputs: [joined] },
  ]
  const peak = peakBytes(livePeaks(nodes, [joined]))
  expect(peak({ B: 3, T: 5, P: 7 })).toBe(4 * 15 + 8 * 6 * 12)
  expect(() => peak({ B: 3, T: 5 })).toThrow('P')
})

test('a program with gradients keeps its forward pass; more of everything is never less', () => {
  const peakOf = (differentiated: boolean) => {
    const program = new ProgramBuilder()
    const { ops } = program
    const x = program.input('x', 'float32', ['R', 64])
    const w = program.input('w', 'float32', [64, 64])
    let hidden = x
    for (let layer = 0; layer < 5; layer += 1) hidden = ops.swiglu(ops.linear(hidden, w), hidden)
    const loss = ops.sum(hidden, [0, 1], false)
    program.output('loss', loss)
    if (differentiated) program.gradients(loss, new Map([['dw', w]]))
    return peakBytes(programPeaks(program.build()))
  }
  const [forward, backward] = [peakOf(false), peakOf(true)]
  // Forward: three values of a layer at most. With gradients every layer's three stay.
  expect(forward({ R: 1000 })).toBeLessThan(4 * 1000 * 64 * 4)
  expect(backward({ R: 1000 })).toBeGreaterThan(5 * 2 * 1000 * 64 * 4)
  for (const R of [1, 10, 100]) expect(backward({ R })).toBeLessThanOrEqual(backward({ R: R + 1 }))
})
