/** The device thread: named tensors, runs, updates in place, order, errors, and the main thread's freedom meanwhile. */

import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { Graph } from '../../src/engine/graph.ts'
import { graphOps } from '../../src/engine/graph-ops.ts'
import { engineOptions } from '../../src/engine/options.ts'
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
function scaling(): Uint8Array {
  const graph = new Graph()
  const ops = graphOps(graph)
  graph.output('y', ops.multiply(graph.input('x', 'float32', ['N']), graph.input('w', 'float32', ['N'])))
  return graph.build()
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

test('a cache scattered into in place keeps its memory and its other rows', async () => {
  const graph = new Graph()
  const cache = graph.input('cache', 'float32', ['S', 2])
  const row = graph.input('row', 'float32', [1, 2])
  const at = graph.input('at', 'int64', [1, 1])
  graph.output('next', graph.emit('ScatterND', [cache, at, row], 'float32', ['S', 2]))
  graph.output('total', graphOps(graph).sum(graph.emit('Identity', [row], 'float32', [1, 2]), [0, 1], false))
  await device.createSession('scatter', graph.build(), { cache: 'cache' })
  await device.upload(new Map([['cache', { type: 'float32', dims: [3, 2], data: new Float32Array(6) }]]))
  for (const step of [0, 2]) {
    const feeds: Record<string, TensorData> = {
      row: { type: 'float32', dims: [1, 2], data: Float32Array.of(step + 1, step + 2) },
      at: { type: 'int64', dims: [1, 1], data: BigInt64Array.of(BigInt(step)) },
    }
    await device.run({ session: 'scatter', feeds, inPlace: { next: 'cache' }, fetch: ['total'] })
  }
  expect(await download('cache')).toEqual([1, 2, 0, 0, 3, 4])
  await device.releaseSession('scatter')
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
  await expect(device.createSession('broken', Uint8Array.of(1, 2, 3))).rejects.toThrow()
  await device.createSession('scale', scaling(), { w: 'absent' })
  await expect(device.run({ session: 'scale', feeds: { x: vector(1) }, fetch: ['y'] })).rejects.toThrow('absent')
  await device.releaseSession('scale')
  expect(await device.names()).toContain('p')
})

test('the main thread is free while the device computes, and requests keep their order', async () => {
  const size = 700
  const graph = new Graph()
  const ops = graphOps(graph)
  const x = graph.input('x', 'float32', [size, size])
  let y = x
  for (let times = 0; times < 12; times += 1) y = ops.matmul(y, x)
  graph.output('y', y)
  await device.createSession('heavy', graph.build())
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
