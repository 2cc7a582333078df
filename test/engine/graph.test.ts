/** Operations by hand-computed values, and each one's gradient against central differences in float64. */

import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { lowerToOnnx } from '../../src/engine/onnx/lower.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'
import { broadcastShape, product } from '../../src/engine/shape.ts'
import { caseProgram, cases, type Inputs, type Model } from './cases.ts'

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

const float64 = ({ dims, values }: { dims: number[]; values: number[] }): TensorData => ({
  type: 'float64',
  dims,
  data: Float64Array.from(values),
})

/** What the device makes of a case, and its gradients by central differences. */
async function evaluate(model: Model, inputs: Inputs) {
  const names = Object.keys(inputs)
  await device.createSession('program', caseProgram(model, inputs, 'float64'))
  const run = (changed: Inputs) =>
    device.run({
      session: 'program',
      feeds: Object.fromEntries(Object.entries(changed).map(([name, input]) => [name, float64(input)])),
      fetch: ['result', 'scalar', ...names.map((name) => `d${name}`)],
    })
  const numbers = (tensor: TensorData | undefined) => [...(tensor!.data as Float64Array)]
  const outputs = await run(inputs)
  const numeric: Record<string, number[]> = {}
  for (const name of names) {
    numeric[name] = []
    for (let index = 0; index < inputs[name]!.values.length; index += 1) {
      const at = async (delta: number) => {
        const values = inputs[name]!.values.with(index, inputs[name]!.values[index]! + delta)
        return numbers((await run({ ...inputs, [name]: { ...inputs[name]!, values } })).scalar)[0]!
      }
      numeric[name].push(((await at(1e-5)) - (await at(-1e-5))) / 2e-5)
    }
  }
  const gradients = Object.fromEntries(names.map((name) => [name, numbers(outputs[`d${name}`])]))
  return { result: numbers(outputs.result), gradients, numeric, release: () => device.releaseSession('program') }
}

describe.each(Object.entries(cases))('%s', (_, { model, inputs, result }) => {
  test('value and gradient', async () => {
    const evaluated = await evaluate(model, inputs)
    result?.forEach((expected, index) => expect(evaluated.result[index]).toBeCloseTo(expected, 10))
    for (const [name, numeric] of Object.entries(evaluated.numeric)) {
      numeric.forEach((expected, index) =>
        expect(evaluated.gradients[name]![index], `d${name}[${index}]`).toBeCloseTo(expected, 6),
      )
    }
    await evaluated.release()
  })
})

test('attention: head h reads key head floor(h K / H), and position t nothing after t', async () => {
  const { result, release } = await evaluate((ops, { q, k, v }) => ops.attention(q!, k!, v!, ops.causalBias(2), 1), {
    q: { dims: [1, 2, 2, 1], values: [0, 0, 0, Math.log(3)] },
    k: { dims: [1, 1, 2, 1], values: [0, 1] },
    v: { dims: [1, 1, 2, 1], values: [1, 5] },
  })
  // First head: 1, then the mean of 1 and 5. Second head: 1, then weights 1/4 and 3/4.
  ;[1, 3, 1, 4].forEach((expected, index) => expect(result[index]).toBeCloseTo(expected, 10))
  await release()
})

test('entropy, in nats', async () => {
  const program = new ProgramBuilder('float64')
  program.output('entropy', program.ops.entropy(program.input('x', 'float64', [2, 4])))
  await device.createSession('entropy', program.build())
  const x = float64({ dims: [2, 4], values: [7, 7, 7, 7, 0, 0, Math.log(2), -800] })
  const { entropy } = await device.run({ session: 'entropy', feeds: { x }, fetch: ['entropy'] })
  // A quarter each; a quarter, a quarter, a half and nothing.
  expect(entropy!.data[0]).toBeCloseTo(Math.log(4), 12)
  expect(entropy!.data[1]).toBeCloseTo(1.5 * Math.log(2), 12)
  await device.releaseSession('entropy')
})

test('float32: a rotation by tables per row, which a fused operator does, equals the plain one', async () => {
  const results = await Promise.all(
    (['float32', 'float64'] as const).map(async (float) => {
      const program = new ProgramBuilder(float)
      const { ops } = program
      const x = program.input('x', float, ['B', 2, 'T', 6])
      const starts = ops.multiply(ops.reshape(ops.range('B'), ['B', 1, 1, 1]), ops.scalar(5))
      const positions = ops.add(starts, ops.reshape(ops.range('T'), ['T', 1]))
      const angles = ops.multiply(positions, ops.vector([1, 0.3, 0.01]))
      program.output('y', ops.rotate(x, ops.cos(angles), ops.sin(angles)))
      await device.createSession(`rotate ${float}`, program.build())
      const values = Array.from({ length: 3 * 2 * 4 * 6 }, (_, index) => Math.sin(0.3 + 0.9 * index))
      const data = float === 'float32' ? Float32Array.from(values) : Float64Array.from(values)
      const feeds = { x: { type: float, dims: [3, 2, 4, 6], data } }
      const { y } = await device.run({ session: `rotate ${float}`, feeds, fetch: ['y'] })
      await device.releaseSession(`rotate ${float}`)
      return [...(y!.data as Float32Array)]
    }),
  )
  results[0]!.forEach((value, index) => expect(value).toBeCloseTo(results[1]![index]!, 5))
})

test('a gradient stops at stopGradient and adds up over uses', async () => {
  const { gradients, release } = await evaluate((ops, { x }) => ops.add(ops.multiply(x!, ops.stopGradient(x!)), x!), {
    x: { dims: [1], values: [3] },
  })
  expect(gradients.x).toEqual([4])
  await release()
})

test('named sizes are known only when the graph runs', async () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const x = program.input('x', 'float32', ['B', 'T', 4])
  program.output('y', ops.transpose(ops.reshape(x, ['B', 'T', 2, 2]), [0, 2, 1, 3]))
  program.output('flat', ops.reshape(ops.range('B*T'), ['B', 'T']))
  await device.createSession('sizes', program.build())
  for (const [batch, time] of [
    [1, 3],
    [2, 5],
  ] as const) {
    const feeds = { x: { type: 'float32' as const, dims: [batch, time, 4], data: new Float32Array(batch * time * 4) } }
    const { y, flat } = await device.run({ session: 'sizes', feeds, fetch: ['y', 'flat'] })
    expect(y!.dims).toEqual([batch, 2, time, 2])
    expect(flat!.dims).toEqual([batch, time])
    expect(flat!.data.at(-1)).toBe(batch * time - 1)
  }
  await device.releaseSession('sizes')
})

test('shapes that do not fit are refused while building', () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const [a, b] = [program.input('a', 'float32', [2, 3]), program.input('b', 'float32', [2, 4])]
  expect(() => ops.add(a, b)).toThrow('[2,3] and [2,4]')
  expect(() => ops.linear(a, b)).toThrow('[2,4]')
  program.output('sizes', ops.range('T'))
  expect(() => lowerToOnnx(program.build())).toThrow('T')
  expect(product('T', 2, 'B', 3)).toBe('6*B*T')
  expect(broadcastShape(['B', 1, 3], ['T', 1])).toEqual(['B', 'T', 3])
})

test('a scalar that does not depend on a value has no gradient for it', () => {
  const program = new ProgramBuilder()
  const { ops } = program
  const [a, b] = [program.input('a', 'float32', [2]), program.input('b', 'float32', [2])]
  program.gradients(ops.sum(a, [0], false), new Map([['db', b]]))
  expect(() => lowerToOnnx(program.build())).toThrow('does not depend on b')
})
