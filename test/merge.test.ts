/** Merging an adapter into its base, through the command line and back through the engine. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, expect, test } from 'vitest'
import { loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { readSafetensors } from '../src/checkpoint/safetensors.ts'
import { openDevice } from '../src/engine/device.ts'
import { engineOptions } from '../src/engine/options.ts'
import { mergeAdapter } from '../src/merge.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { openWhole } from './policy/whole.ts'

const models = resolve(import.meta.dirname, 'golden/models')
const adapter = join(models, 'llama3-adapter')
const scratch = mkdtempSync(join(tmpdir(), 'merge-'))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

test('the merged model has the logits of PEFT and needs no adapter; by default it is stored as its base was', async () => {
  const out = join(scratch, 'whole')
  expect(await mergeAdapter({ adapter, base: null, out, type: 'float32' })).toEqual({ ok: true, value: out })
  expect(readdirSync(out).sort()).toEqual(['config.json', 'generation_config.json', 'model.safetensors'])
  const merged = await loadCheckpoint(out)
  const expected = await readSafetensors(join(adapter, 'expected.safetensors'))
  if (!merged.ok || !expected.ok) throw new Error('not read')
  const { input_ids: ids } = JSON.parse(readFileSync(join(adapter, 'expected.json'), 'utf8'))
  const device = await openDevice(engineOptions.parse({ threads: 1 }))
  const whole = await openWhole(device, decoderConfig(merged.value.config), merged.value.weights)
  const logits = (await whole.logits(ids)).data as Float32Array
  await device.close()
  const golden = expected.value.get('logits')!.data
  expect(Math.max(...logits.map((value, index) => Math.abs(value - golden[index]!)))).toBeLessThan(2e-5)

  const half = join(scratch, 'half')
  expect(await mergeAdapter({ adapter, base: join(models, 'llama3-float16'), out: half, type: null })).toMatchObject({
    ok: true,
  })
  expect(JSON.parse(readFileSync(join(half, 'config.json'), 'utf8'))).toMatchObject({ torch_dtype: 'float16' })
  const rounded = await readSafetensors(join(half, 'model.safetensors'))
  if (!rounded.ok) throw new Error(rounded.failure.message)
  for (const [name, { data }] of merged.value.weights)
    data.forEach((value, index) => expect(Math.abs(rounded.value.get(name)!.data[index]! - value)).toBeLessThan(1e-3))
})

test('what is no adapter, or the adapter of another model, is a failure that names it', async () => {
  const out = join(scratch, 'none')
  expect(await mergeAdapter({ adapter: join(models, 'qwen2'), base: null, out, type: null })).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('no adapter_config.json') },
  })
  expect(await mergeAdapter({ adapter, base: join(models, 'qwen2'), out, type: null })).toMatchObject({
    ok: false,
    failure: { message: expect.stringMatching(/q_proj\.lora_B\.weight: expected shape \[16,3\], got \[32,3\]/) },
  })
  expect(readdirSync(scratch)).not.toContain('none')
})
