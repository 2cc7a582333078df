/** Training an adapter: what moves, what does not, and what the reference is. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import { supervisedOptions } from '../../src/grpo/options.ts'
import { superviseBatch } from '../../src/grpo/supervised.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { trainedWeights, weightShapes } from '../../src/policy/architecture.ts'
import { LORA_TARGETS } from '../../src/policy/options.ts'
import { residentName, uploadWeights } from '../../src/policy/weights.ts'
import { randomWeights, smallDecoder } from './fixture.ts'

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

const rows = [
  { ids: [3, 7, 1, 9, 4, 2], positions: [2, 3, 5] },
  { ids: [5, 5, 8, 0], positions: [1, 3] },
]
const taught = rows.map(({ ids, positions }) => ({ ids, weights: ids.map((_, t) => (positions.includes(t) ? 1 : 0)) }))
const options = supervisedOptions.parse({ learningRate: 0.01 })
const at = { microBatchTokens: 100, temperature: 1 }

test.each(['float32', 'float16'] as const)(
  'only the adapter moves, over a base kept as %s, and the base is the reference',
  async (matrixType) => {
    const config: DecoderConfig = {
      ...smallDecoder(),
      matrixType,
      lora: { rank: 2, scale: 2, targets: LORA_TARGETS },
    }
    const weights = randomWeights(config, 'lora')
    // As a new adapter begins: B is zero.
    for (const [name, { data }] of weights) if (name.includes('lora_B')) data.fill(0)
    await uploadWeights(device, config, weights)
    const residents = [...weightShapes(config).keys()].map((name) => residentName('policy', name))
    const before = await device.download(residents)
    const trainer = await openTrainer(device, config)
    await trainer.keepReference()
    const start = await trainer.score(rows, { ...at, weights: 'policy' })
    const reference = await trainer.score(rows, { ...at, weights: 'reference' })
    start
      .flatMap((row) => [...row])
      .forEach((value, index) =>
        expect(Math.abs(value - reference.flatMap((row) => [...row])[index]!)).toBeLessThan(1e-6),
      )

    const losses: number[] = []
    for (let step = 0; step < 20; step += 1)
      losses.push((await superviseBatch(trainer, taught, options, { totalSteps: 20 })).loss)
    expect(losses.at(-1)! / losses[0]!).toBeLessThan(0.8)
    expect(await trainer.score(rows, { ...at, weights: 'reference' })).toEqual(reference)
    const after = await device.download(residents)
    ;[...weightShapes(config).keys()].forEach((name, index) => {
      const moved = !Buffer.from(after[index]!.data.buffer).equals(Buffer.from(before[index]!.data.buffer))
      expect(moved, name).toBe(name.includes('lora_'))
    })

    const saved = await trainer.save()
    expect([...saved.weights.keys()]).toEqual(trainedWeights(config))
    expect(saved.optimizer.size).toBe(2 * saved.weights.size)
    expect((await device.names()).filter((name) => name.startsWith('first/')).length).toBe(saved.weights.size)
    // Nothing but the adapter is needed to go on from there.
    const next = await superviseBatch(trainer, taught, options, { totalSteps: 20 })
    const moved = await trainer.save()
    await trainer.load(saved)
    expect(await superviseBatch(trainer, taught, options, { totalSteps: 20 })).toEqual(next)
    expect(await trainer.save()).toEqual(moved)
    await trainer.close()
  },
)
