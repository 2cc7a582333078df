/** Runs a program in TensorFlow.js: its instructions one after another, and its gradients by automatic differentiation of the same. */

import * as tf from '@tensorflow/tfjs'
import { type Program, replay } from '../program.ts'
import { tfjsOps } from './ops.ts'
import { Sizes } from './sizes.ts'

/**
 * The outputs in `wanted`, in that order; the caller disposes of them. Gradients are computed when one is wanted. `inputs` are by name.
 */
export function interpret(
  program: Program,
  inputs: ReadonlyMap<string, tf.Tensor>,
  wanted: readonly string[],
): tf.Tensor[] {
  const sizes = new Sizes()
  const given = new Map<number, tf.Tensor>()
  for (const { name, value, shape } of program.inputs) {
    const tensor = inputs.get(name)
    if (tensor === undefined) throw new Error(`Input ${name} is missing`)
    sizes.measure(`Input ${name}`, shape, tensor.shape)
    given.set(value, tensor)
  }
  const ops = tfjsOps(sizes)
  const results = new Map<string, tf.Tensor>()
  /** Instructions with these inputs in place of those given. Outputs are kept beyond the scope in which they are made. */
  const run = (replaced: ReadonlyMap<number, tf.Tensor>): Map<number, tf.Tensor> => {
    const values = new Map([...given, ...replaced])
    replay(program.instructions, ops, values)
    for (const { name, value } of program.outputs)
      if (wanted.includes(name)) results.set(name, tf.keep(tf.clone(values.get(value)!)))
    return values
  }

  try {
    tf.tidy(() => {
      const { gradients } = program
      if (gradients === null || !gradients.outputs.some(({ name }) => wanted.includes(name))) {
        run(new Map())
        return
      }
      const { of, outputs } = gradients
      const loss = (...replaced: tf.Tensor[]) =>
        run(new Map(outputs.map(({ input }, index) => [input, replaced[index]!]))).get(of) as tf.Scalar
      const { grads } = tf.valueAndGrads(loss)(outputs.map(({ input }) => given.get(input)!))
      outputs.forEach(({ name }, index) => {
        if (wanted.includes(name)) results.set(name, tf.keep(grads[index]!))
      })
    })
    const missing = wanted.find((name) => !results.has(name))
    if (missing !== undefined) throw new Error(`The program has no output ${missing}`)
  } catch (error) {
    tf.dispose([...results.values()])
    throw error
  }
  return wanted.map((name) => results.get(name)!)
}
