/** Execution providers that are not there: what is said, and what is done instead. Those that are here run the same small model. */

import { expect, test } from 'vitest'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { ProgramBuilder } from '../../src/engine/program.ts'
import { describeEngine } from '../../src/engine/protocol.ts'

const providers = ['cuda', 'webgpu', 'coreml', 'dml'] as const
const HINT = { cuda: 'cuda12', webgpu: 'Vulkan', coreml: 'macOS', dml: 'windows' }

test.each(providers)('%s runs, or says why not and what to do', async (provider) => {
  const opened = openDevice(engineOptions.parse({ executionProviders: [provider] }))
  const device = await opened.catch((error: Error) => {
    expect(error.message).toMatch(new RegExp(`^engine\\.executionProviders: ${provider} does not start here: \\w`))
    expect(error.message).toContain(HINT[provider])
    expect(error.message).toContain('engine.fallback')
    expect(error.message).not.toContain('\n')
    return null
  })
  expect(device === null || device.inUse.backend === provider).toBe(true)
  await device?.close()
})

test('with fallback the CPU does it, and that is recorded', async () => {
  const elsewhere = process.platform === 'darwin' ? 'dml' : 'coreml'
  const device = await openDevice(engineOptions.parse({ executionProviders: [elsewhere], fallback: true }))
  expect(device.inUse).toMatchObject({ engine: 'onnxruntime', backend: 'cpu' })
  expect(device.inUse.note).toContain(`${elsewhere} does not start here`)
  expect(describeEngine(device.inUse)).toMatch(/^engine: onnxruntime \d+\.\d+\.\d+ on cpu \(/)
  const program = new ProgramBuilder()
  program.output('y', program.ops.exp(program.input('x', 'float32', [1])))
  await device.createSession('exp', program.build())
  const feeds = { x: { type: 'float32' as const, dims: [1], data: Float32Array.of(0) } }
  expect((await device.run({ session: 'exp', feeds, fetch: ['y'] })).y!.data[0]).toBe(1)
  await device.close()
})

test('one that starts stays beside one that does not', async () => {
  const elsewhere = process.platform === 'darwin' ? 'dml' : 'coreml'
  await expect(openDevice(engineOptions.parse({ executionProviders: ['cpu', elsewhere] }))).rejects.toThrow(elsewhere)
  const device = await openDevice(engineOptions.parse({ executionProviders: ['cpu', elsewhere], fallback: true }))
  expect(device.inUse.backend).toBe('cpu')
  await device.close()
})

test('the options: short form, default, and keys of the other engine', () => {
  expect(engineOptions.parse('tfjs')).toEqual({ type: 'tfjs' })
  expect(engineOptions.parse({})).toMatchObject({ type: 'onnxruntime', executionProviders: ['cpu'], fallback: false })
  expect(engineOptions.safeParse({ type: 'tfjs', threads: 2 }).success).toBe(false)
  expect(engineOptions.safeParse({ executionProviders: ['gpu'] }).success).toBe(false)
})
