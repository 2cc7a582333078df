/** The device thread: named tensors, runs, updates in place, order, errors, and the main thread's freedom meanwhile. */

import type { Worker } from 'node:worker_threads'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { Program } from '../../src/engine/program.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import type { TensorData } from '../../src/engine/protocol.ts'

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

const vector = (...values: number[]): TensorData => ({
  type: 'float32',
  dims: [values.length],
  data: Float32Array.from(values),
})
const download = async (name: string) => [...(await device.download([name]))[0]!.data].map(Number)

/** y = x * w */
function scaling(): Program {
  const program = new ProgramBuilder()
  const [x, w] = [program.input('x', 'float32', ['N']), program.input('w', 'float32', ['N'])]
  program.output('y', program.ops.multiply(x, w))
  return program.build()
}

test('resident tensors: bound, kept, accumulated, copied, removed', async () => {
  await device.upload(new Map([['w', vector(2, 3)]]))
  await device.createSession('scale', scaling(), { w: 'w' })
  const first = await device.run({ session: 'scale', feeds: { x: vector(1, 10) }, fetch: ['y'], keep: { y: 'kept' } })
  expect([...first.y!.data]).toEqual([2, 30])
  expect(await download('kept')).toEqual([2, 30])

  await device.run({ session: 'scale', bind: { x: 'kept' }, accumulate: { y: 'sum' } })
  await device.run({ session: 'scale', bind: { x: 'kept' }, accumulate: { y: 'sum' } })
  expect(await download('sum')).toEqual([8, 180])

  await device.copy('kept', 'copy')
  await device.upload(new Map([['w', vector(0, 1)]]))
  await device.run({ session: 'scale', bind: { x: 'kept' }, keep: { y: 'kept' } })
  expect(await download('kept')).toEqual([0, 30])
  expect(await download('copy')).toEqual([2, 30])

  await device.remove(['kept', 'copy', 'sum', 'never there'])
  expect(await device.names()).toEqual(['w'])
  await device.releaseSession('scale')
})

test('an output in place of a bound input replaces its content', async () => {
  const program = new ProgramBuilder()
  const [cache, change] = [program.input('cache', 'float32', [3]), program.input('change', 'float32', [3])]
  program.output('next', program.ops.add(cache, change))
  program.output('total', program.ops.sum(change, [0], false))
  await device.createSession('add', program.build(), { cache: 'cache' })
  await device.upload(new Map([['cache', vector(1, 2, 3)]]))
  for (const change of [vector(1, 0, 0), vector(0, 0, 2)]) {
    const { total } = await device.run({
      session: 'add',
      feeds: { change },
      inPlace: { next: 'cache' },
      fetch: ['total'],
    })
    expect(total!.data[0]).toBe(change.data[0] === 1 ? 1 : 2)
  }
  expect(await download('cache')).toEqual([2, 2, 5])
  await device.releaseSession('add')
  await device.remove(['cache'])
})

test('rows of an output are scattered into a named tensor; -1 is dropped', async () => {
  const program = new ProgramBuilder()
  program.output('twice', program.ops.add(program.input('x', 'float32', ['B', 'T', 2]), program.ops.scalar(1)))
  await device.createSession('scatter', program.build())
  await device.upload(new Map([['cache', { type: 'float32', dims: [3, 2], data: new Float32Array(6) }]]))
  const x: TensorData = { type: 'float32', dims: [1, 3, 2], data: Float32Array.of(0, 1, 2, 3, 4, 5) }
  await device.run({
    session: 'scatter',
    feeds: { x },
    scatter: { twice: { into: 'cache', rows: Int32Array.of(2, -1, 0) } },
  })
  expect(await download('cache')).toEqual([5, 6, 0, 0, 1, 2])
  await device.releaseSession('scatter')
  await device.remove(['cache'])
})

test('AdamW by hand: two steps of one weight, with decay', async () => {
  await device.upload(
    new Map([
      ['p', vector(1)],
      ['g', vector(0.5)],
    ]),
  )
  const update = (step: number) =>
    device.adamw({
      tensors: [{ parameter: 'p', gradient: 'g', first: 'm', second: 'v', weightDecay: 0.1 }],
      learningRate: 0.1,
      beta1: 0.9,
      beta2: 0.99,
      epsilon: 0,
      step,
      gradientScale: 0.5,
    })
  await update(1)
  // m = 0.1 * 0.25, v = 0.01 * 0.0625; both corrected: 0.25 and 0.0625, so the step is one learning rate.
  expect((await download('p'))[0]).toBeCloseTo(1 * (1 - 0.01) - 0.1, 6)
  await update(2)
  expect((await download('p'))[0]).toBeCloseTo(0.89 * 0.99 - 0.1, 6)
  expect((await download('m'))[0]).toBeCloseTo(0.9 * 0.025 + 0.025, 6)
  expect(await device.squaredNorms(['g'])).toEqual([0.25])
})

test('errors name what is missing and leave the device usable', async () => {
  await expect(device.download(['nobody'])).rejects.toThrow('No tensor named nobody on the device')
  await expect(device.run({ session: 'none' })).rejects.toThrow('No session named none')
  const broken = { ...scaling(), outputs: [{ name: 'y', value: 99 }] }
  await expect(device.createSession('broken', broken)).rejects.toThrow()
  const refused = {
    ...scaling(),
    instructions: scaling().instructions.map((one) => ({ ...one, operation: 'cos' as const })),
  }
  refused.inputs = refused.inputs.map((input) => ({ ...input, type: 'bool' as const }))
  await expect(device.createSession('refused', refused)).rejects.toThrow('ONNX Runtime refuses the session refused: ')
  await device.createSession('scale', scaling(), { w: 'absent' })
  await expect(device.run({ session: 'scale', feeds: { x: vector(1) }, fetch: ['y'] })).rejects.toThrow('absent')
  await device.releaseSession('scale')
  expect(await device.names()).toContain('p')
})

test('the main thread is free while the device computes, and requests keep their order', async () => {
  const size = 700
  const program = new ProgramBuilder()
  const x = program.input('x', 'float32', [size, size])
  let y = x
  for (let times = 0; times < 12; times += 1) y = program.ops.matmul(y, x)
  program.output('y', y)
  await device.createSession('heavy', program.build())
  let longestGap = 0
  let last = performance.now()
  const tick = () => {
    longestGap = Math.max(longestGap, performance.now() - last)
    last = performance.now()
  }
  const timer = setInterval(tick, 1)
  const start = performance.now()
  const order: string[] = []
  const run = device
    .run({
      session: 'heavy',
      feeds: { x: { type: 'float32', dims: [size, size], data: new Float32Array(size * size) } },
      keep: { y: 'heavy' },
    })
    .then(() => order.push('run'))
  const after = device.download(['heavy']).then(() => order.push('download'))
  await Promise.all([run, after])
  tick()
  clearInterval(timer)
  expect(order).toEqual(['run', 'download'])
  expect(performance.now() - start).toBeGreaterThan(20)
  expect(longestGap).toBeLessThan((performance.now() - start) * 0.9)
  await device.releaseSession('heavy')
})

test('close finishes what was asked for; later requests fail', async () => {
  const other = await openDevice(engineOptions.parse({ threads: 1 }))
  const upload = other.upload(new Map([['x', vector(1, 2)]]))
  const names = other.names()
  await other.close()
  await upload
  expect(await names).toEqual(['x'])
  await expect(other.names()).rejects.toThrow('closed')
  await other.close()
})

test('a session of an earlier name is replaced', async () => {
  const plus = new ProgramBuilder()
  plus.output('y', plus.ops.add(plus.input('x', 'float32', ['N']), plus.ops.scalar(1)))
  await device.createSession('one', scaling())
  await device.createSession('one', plus.build())
  const { y } = await device.run({ session: 'one', feeds: { x: vector(1) }, fetch: ['y'] })
  expect([...y!.data]).toEqual([2])
  await device.releaseSession('one')
  await expect(device.run({ session: 'one' })).rejects.toThrow('No session named one')
})

test('a thread that dies fails what waits and what comes, and closing is no trouble', async () => {
  let thread: Worker | null = null
  process.once('worker', (worker) => {
    thread = worker
  })
  const doomed = await openDevice(engineOptions.parse({ threads: 1 }))
  // Idle, so that it is safe.
  await thread!.terminate()
  await expect(doomed.names()).rejects.toThrow('ended unexpectedly')
  await doomed.close()
})

test('what cannot be sent is refused at once', async () => {
  const unsendable = { type: 'float32', dims: [1], data: () => 0 } as unknown as TensorData
  await expect(device.upload(new Map([['x', unsendable]]))).rejects.toThrow('could not be cloned')
  expect(await device.names()).not.toContain('x')
})
