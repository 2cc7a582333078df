/** LoRA: PEFT's logits from PEFT's files (test/golden/models), gradients of all seven projections, sampling unmerged, and what is refused. */
import { readFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { f16round } from '@petamoriken/float16'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadCheckpoint } from '../../src/checkpoint/checkpoint.ts'
import { readSafetensors } from '../../src/checkpoint/safetensors.ts'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { adaptedConfig, loraFromPeft, newAdapter, trainedOf, withTrained } from '../../src/policy/adapter.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { trainedWeights, weightShapes } from '../../src/policy/architecture.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import { LORA_TARGETS } from '../../src/policy/options.ts'
import { open, scored, smallSource } from './models.ts'
import { gradientError, openWhole, randomWeights } from './whole.ts'

const golden = resolve(import.meta.dirname, '../golden/models/llama3-adapter')

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

const small = {
  model_type: 'llama',
  vocab_size: 23,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 64,
}
const everywhere = { rank: 3, alpha: 6, targets: [...LORA_TARGETS] }
const adaptedSmall: DecoderConfig = {
  ...decoderConfig(small),
  lora: { rank: 3, scale: 2, targets: LORA_TARGETS },
}
const ids = [
  [1, 5, 9, 2, 20, 7],
  [3, 3, 11, 0, 8, 14],
]

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  let most = 0
  for (let i = 0; i < a.length; i += 1) most = Math.max(most, Math.abs(a[i]! - b[i]!))
  return most
}

test.each(['float32', 'float16'] as const)(
  'an adapter that PEFT wrote, on a base kept as %s: the logits of PEFT',
  async (matrixType) => {
    const loaded = await loadCheckpoint(golden)
    if (!loaded.ok) throw new Error(loaded.failure.message)
    const expected = await readSafetensors(`${golden}/expected.safetensors`)
    if (!expected.ok) throw new Error(expected.failure.message)
    const { input_ids: batch } = JSON.parse(readFileSync(`${golden}/expected.json`, 'utf8')) as {
      input_ids: number[][]
    }
    const config = { ...adaptedConfig(loaded.value), matrixType }
    expect(config.lora).toMatchObject({ rank: 3, scale: 2 })
    const trained = trainedOf(loaded.value)
    const source = { get: (name: string) => trained.get(name) ?? loaded.value.weights.get(name) }
    const whole = await openWhole(device, config, source)
    expect(
      largestDifference((await whole.logits(batch)).data as Float32Array, expected.value.get('logits')!.data),
    ).toBeLessThan(1e-5)
    await whole.release()
    // Without its adapter the base is another model: the test can fail.
    const base = await openWhole(device, { ...config, lora: null }, loaded.value.weights)
    expect(
      largestDifference((await base.logits(batch)).data as Float32Array, expected.value.get('logits')!.data),
    ).toBeGreaterThan(0.1)
    await base.release()
  },
)

test('gradients of the pairs of all seven projections equal central differences in float64, and no other weight has one', async () => {
  const weights = randomWeights(adaptedSmall, 'lora')
  const whole = await openWhole(device, adaptedSmall, weights, 'float64')
  const errors = await gradientError(whole, weights, ids)
  expect(Object.keys(errors)).toHaveLength(2 * 7 * adaptedSmall.layers)
  expect(Object.keys(errors).every((name) => /lora_[AB]\.weight$/.test(name))).toBe(true)
  for (const [name, error] of Object.entries(errors)) expect(error, name).toBeLessThan(1e-5)
  await whole.release()
})

test('gradients in float32 over a base kept as float16 are those over the same numbers in float32', async () => {
  const weights = randomWeights(adaptedSmall, 'lora')
  const half = await openWhole(device, { ...adaptedSmall, matrixType: 'float16' }, weights)
  const actual = await half.gradients(ids)
  await half.release()
  const rounded = new Map(
    [...weights].map(([name, { shape, data }]) => {
      const isMatrix = shape.length === 2 && !name.includes('lora')
      return [name, { shape, data: isMatrix ? data.map((value) => f16round(value)) : data }]
    }),
  )
  const exact = await openWhole(device, adaptedSmall, rounded)
  const expected = await exact.gradients(ids)
  await exact.release()
  for (const name of trainedWeights(adaptedSmall)) {
    const [a, b] = [actual[name]!.data as Float32Array, expected[name]!.data as Float32Array]
    expect(largestDifference(a, b) / Math.max(...b.map(Math.abs)), name).toBeLessThan(1e-5)
  }
})

test('a new adapter changes nothing, has the spread of PEFT, and comes from its seed', async () => {
  const config = decoderConfig(small)
  const adapter = newAdapter(small, 'some/base', { ...everywhere, rank: 8 }, 3)
  expect(adapter.config).toMatchObject({ peft_type: 'LORA', base_model_name_or_path: 'some/base', r: 8, lora_alpha: 6 })
  expect(newAdapter(small, 'some/base', { ...everywhere, rank: 8 }, 3)).toEqual(adapter)
  expect(newAdapter(small, 'some/base', { ...everywhere, rank: 8 }, 4).weights).not.toEqual(adapter.weights)
  const a = adapter.weights.get('base_model.model.model.layers.1.mlp.down_proj.lora_A.weight')!
  expect(a.shape).toEqual([8, 24])
  // Uniform in ±1/sqrt(24): standard deviation 1/sqrt(72).
  expect(Math.max(...a.data.map(Math.abs))).toBeLessThanOrEqual(1 / Math.sqrt(24))
  const deviation = Math.sqrt(a.data.reduce((sum, x) => sum + x * x, 0) / a.data.length)
  expect(Math.abs(deviation * Math.sqrt(72) - 1)).toBeLessThan(0.15)

  const weights = randomWeights(config, 'base')
  const model = { config: small, weights, adapter }
  const base = await openWhole(device, config, weights)
  const expected = (await base.logits(ids)).data as Float32Array
  await base.release()
  const trained = trainedOf(model)
  const adapted = await openWhole(device, adaptedConfig(model), {
    get: (name) => trained.get(name) ?? weights.get(name),
  })
  expect(largestDifference((await adapted.logits(ids)).data as Float32Array, expected)).toBeLessThan(1e-6)
  await adapted.release()
  expect(withTrained(model, trained).adapter.weights).toEqual(adapter.weights)
})

test('targets choose the projections', () => {
  const adapter = newAdapter(small, 'base', { rank: 2, alpha: 2, targets: ['v_proj', 'gate_proj'] }, 1)
  const config = adaptedConfig({ config: small, weights: new Map(), adapter })
  expect(trainedWeights(config).map((name) => name.replace('model.layers.', ''))).toEqual(
    [0, 1].flatMap((layer) =>
      ['self_attn.v_proj', 'mlp.gate_proj'].flatMap((part) =>
        ['A', 'B'].map((side) => `${layer}.${part}.lora_${side}.weight`),
      ),
    ),
  )
  expect(weightShapes(config).get('model.layers.0.mlp.gate_proj.lora_B.weight')).toEqual([24, 2])
})

test('sampling with an adapter, unmerged, has the log-probabilities of the whole forward pass', async () => {
  const source = smallSource()
  const adapter = newAdapter(source.config, 'base', everywhere, 1)
  const noisy = randomWeights(adaptedConfig({ ...source, adapter }), 'noise')
  const moved = withTrained(
    { ...source, adapter },
    new Map([...trainedOf({ ...source, adapter })].map(([name]) => [name, noisy.get(name)!])),
  )
  const policy = await open(moved)
  const prompt = [4, 9, 2, 17, 5, 11, 3]
  const sampling = { temperature: 1, maxTokens: 30, stop: [] }
  const result = await policy.generate({ messages: [], promptIds: prompt, sampling, seed: 'a' })
  if (!result.ok) throw new Error(result.failure.message)
  const { tokenIds, logprobs } = result.value
  const again = await scored(policy, [...prompt, ...tokenIds!], prompt.length, 1)
  again.forEach((logprob, index) => expect(Math.abs(logprob - logprobs![index]!)).toBeLessThan(1e-5))
  await policy.close()
})

const peft = {
  peft_type: 'LORA',
  task_type: 'CAUSAL_LM',
  r: 4,
  lora_alpha: 8,
  target_modules: ['q_proj'],
  bias: 'none',
  lora_dropout: 0.05,
  modules_to_save: null,
  rank_pattern: {},
}

test('scaling is alpha / rank, or alpha / sqrt(rank) for rank-stabilised adapters', () => {
  expect(loraFromPeft(peft)).toEqual({ rank: 4, scale: 2, targets: ['q_proj'] })
  expect(loraFromPeft({ ...peft, use_rslora: true }).scale).toBe(4)
})

test.each([
  [{ peft_type: 'IA3' }, /peft_type/],
  [{ target_modules: ['lm_head'] }, /target_modules/],
  [{ target_modules: 'all-linear' }, /target_modules/],
  [{ bias: 'all' }, /bias is "all"; supported: null, "none"/],
  [{ use_dora: true }, /use_dora is true/],
  [{ modules_to_save: ['lm_head'] }, /modules_to_save is \["lm_head"\]/],
  [{ rank_pattern: { q_proj: 8 } }, /rank_pattern/],
  [{ layers_to_transform: [0] }, /layers_to_transform/],
  [{ init_lora_weights: 'pissa' }, /init_lora_weights is "pissa"/],
])('an adapter with %j is refused by that key', (change, message) => {
  expect(() => loraFromPeft({ ...peft, ...change })).toThrow(message)
})

test('an adapter whose tensors are not those that it describes is a failure that names one', async () => {
  const source = smallSource()
  const adapter = newAdapter(source.config, 'base', everywhere, 1)
  const engine = engineOptions.parse({ threads: 1 })
  const settings = { name: 'x', rows: 4, cacheTokens: 1024 }
  const [first, ...rest] = [...adapter.weights]
  expect(
    await openPolicy({ ...source, adapter: { ...adapter, weights: new Map(rest) } }, engine, settings),
  ).toMatchObject({
    ok: false,
    failure: {
      kind: 'bad_file',
      message: expect.stringContaining('lack model.layers.0.self_attn.q_proj.lora_A.weight'),
    },
  })
  const extra = new Map([...adapter.weights, ['base_model.model.lm_head.lora_A.weight', first![1]]])
  expect(await openPolicy({ ...source, adapter: { ...adapter, weights: extra } }, engine, settings)).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('tensor base_model.model.lm_head.lora_A.weight') },
  })
})
