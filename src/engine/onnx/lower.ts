/** A program as an ONNX model: its operations become nodes, its gradients further nodes behind them. */

import type { Program } from '../program.ts'
import { replay } from '../program.ts'
import { Graph } from './graph.ts'
import type { Polynomial } from './memory.ts'
import { livePeaks } from './memory.ts'
import { graphOps } from './ops.ts'

/** Throws when the scalar does not depend on an input whose gradient is asked for. */
export function lowerToOnnx(program: Program): Uint8Array {
  return lowerToGraph(program).build()
}

/** Memory of a run of the program as ONNX, beside its inputs: see `livePeaks`. */
export function programPeaks(program: Program): Polynomial[] {
  const { nodes, outputs } = lowerToGraph(program).executed()
  return livePeaks(nodes, outputs)
}

function lowerToGraph(program: Program): Graph {
  const graph = new Graph(program.float)
  const ops = graphOps(graph, program.rowBlock)
  const wanted = new Set(program.gradients?.outputs.map(({ input }) => input))
  const values = new Map(
    program.inputs.map(({ name, value, type, shape }) => [
      value,
      graph.input(name, type, shape, { differentiable: wanted.has(value) }),
    ]),
  )
  replay(program.instructions, ops, values)
  for (const { name, value } of program.outputs) graph.output(name, values.get(value)!)
  if (program.gradients !== null) {
    const { of, outputs } = program.gradients
    const inputs = outputs.map(({ input }) => values.get(input)!)
    const gradients = graph.gradients(values.get(of)!, inputs, ops.add)
    outputs.forEach(({ name }, index) => graph.output(name, gradients[index]!))
  }
  return graph
}
