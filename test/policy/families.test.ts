/** Qwen2, Qwen3 and Llama: logits against those of transformers (test/golden/models), gradients, cached decoding, and what is refused. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadCheckpoint, saveCheckpoint } from '../../src/checkpoint/checkpoint.ts'
import { readSafetensors } from '../../src/checkpoint/safetensors.ts'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import { rotaryFrequencies } from '../../src/policy/rotary.ts'
import { downloadTrained, uploadWeights } from '../../src/policy/weights.ts'
import { open, scored, smallTokenizerSource, tokenizerFrom } from './models.ts'
import { gradientError, openWhole, randomWeights } from './whole.ts'

const models = resolve(import.meta.dirname, '../golden/models')

let device: Device
beforeAll(async () => {
  device = await openDevice(engineOptions.parse({ threads: 1 }))
})
afterAll(() => device.close())

async function load(name: string) {
  const loaded = await loadCheckpoint(`${models}/${name}`)
  if (!loaded.ok) throw new Error(loaded.failure.message)
  const expected = await readSafetensors(`${models}/${name}/expected.safetensors`)
  if (!expected.ok) throw new Error(expected.failure.message)
  const { input_ids: ids } = JSON.parse(readFileSync(`${models}/${name}/expected.json`, 'utf8')) as {
    input_ids: number[][]
  }
  return { files: loaded.value, ids, logits: expected.value.get('logits')!.data }
}

test.each([
  ['qwen2', 'float32'],
  ['qwen3-bfloat16-sharded', 'float32'],
  ['llama3-float16', 'float32'],
  // What was float16 on disk loses nothing when it is kept so.
  ['llama3-float16', 'float16'],
  ['llama-biases', 'float32'],
] as const)('%s, kept as %s: the logits of transformers', async (name, matrixType) => {
  const { files, ids, logits } = await load(name)
  const whole = await openWhole(device, { ...decoderConfig(files.config), matrixType }, files.weights)
  const { data } = await whole.logits(ids)
  expect(data).toHaveLength(logits.length)
  const worst = (data as Float32Array).reduce((most, value, i) => Math.max(most, Math.abs(value - logits[i]!)), 0)
  expect(worst).toBeLessThan(1e-5)
  await whole.release()
})

test('a bfloat16 model kept as float16 is rounded, and a number that does not fit is refused', async () => {
  const { files, ids, logits } = await load('qwen3-bfloat16-sharded')
  const config = { ...decoderConfig(files.config), matrixType: 'float16' as const }
  const whole = await openWhole(device, config, files.weights)
  const { data } = await whole.logits(ids)
  const worst = (data as Float32Array).reduce((most, value, i) => Math.max(most, Math.abs(value - logits[i]!)), 0)
  expect(worst).toBeLessThan(1e-5)
  const weights = new Map(files.weights)
  const { shape, data: values } = weights.get('lm_head.weight')!
  weights.set('lm_head.weight', { shape, data: values.with(7, -70_000) })
  await expect(openWhole(device, config, weights)).rejects.toThrow(/lm_head\.weight holds -70000.*policy\.frozenType/)
  await whole.release()
})

test('what is put on the device and not trained is saved with the same bits', async () => {
  const { files } = await load('qwen2')
  const config = decoderConfig(files.config)
  await uploadWeights(device, config, files.weights, 'policy')
  const out = mkdtempSync(join(tmpdir(), 'families-'))
  const saved = await saveCheckpoint(out, { ...files, weights: await downloadTrained(device, config) })
  expect(saved).toEqual({ ok: true, value: undefined })
  const back = await loadCheckpoint(out)
  if (!back.ok) throw new Error(back.failure.message)
  expect([...back.value.weights.keys()].sort()).toEqual([...files.weights.keys()].sort())
  for (const [name, { shape, data }] of files.weights) {
    const again = back.value.weights.get(name)!
    expect(again.shape).toEqual(shape)
    expect(new Uint32Array(again.data.buffer)).toEqual(new Uint32Array(data.buffer))
  }
  expect(back.value.generationConfig).toEqual(files.generationConfig)
  rmSync(out, { recursive: true })
})

/** Small enough to be checked entry by entry. */
const small = {
  vocab_size: 23,
  hidden_size: 16,
  intermediate_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  max_position_embeddings: 64,
}
const qwen3 = { ...small, model_type: 'qwen3', head_dim: 6, tie_word_embeddings: true }
const llama = {
  ...small,
  model_type: 'llama',
  attention_bias: true,
  mlp_bias: true,
  head_dim: 8,
  rope_scaling: {
    rope_type: 'llama3',
    factor: 4,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 16,
  },
}

test.each([
  ['Qwen3', qwen3],
  ['Llama with biases', llama],
])('%s: gradients equal central differences in float64', async (_, json) => {
  const config = decoderConfig(json)
  const weights = randomWeights(config, 'gradients')
  const whole = await openWhole(device, config, weights, 'float64')
  const ids = [
    [1, 5, 9, 2, 20, 7],
    [3, 3, 11, 0, 8, 14],
  ]
  for (const [name, error] of Object.entries(await gradientError(whole, weights, ids)))
    expect(error, name).toBeLessThan(1e-5)
  await whole.release()
})

test.each([
  ['Qwen3', qwen3],
  ['Llama with biases', llama],
])('%s: what is sampled from the cache has the log-probabilities of the whole forward pass', async (_, json) => {
  const tokenizer = smallTokenizerSource()
  const config = { ...json, vocab_size: tokenizerFrom(tokenizer).vocabularySize }
  const weights = randomWeights(decoderConfig(config), 'sampling')
  const policy = await open({ ...tokenizer, config, weights })
  const ids = [4, 9, 2, 17, 5, 11, 3]
  const result = await policy.generate({
    messages: [],
    promptIds: ids,
    sampling: { temperature: 1, maxTokens: 30, stop: [] },
    seed: 'a',
  })
  if (!result.ok) throw new Error(result.failure.message)
  const { tokenIds, logprobs } = result.value
  const again = await scored(policy, [...ids, ...tokenIds!], ids.length, 1)
  again.forEach((logprob, index) => expect(Math.abs(logprob - logprobs![index]!)).toBeLessThan(1e-5))
  await policy.close()
})

test('Llama 3 frequencies: low ones divided, high ones kept, those between blended', () => {
  const scaling = { factor: 8, lowFrequencyFactor: 1, highFrequencyFactor: 4, originalContextLength: 8192 }
  const plain = rotaryFrequencies({ headSize: 64, ropeTheta: 500_000, ropeScaling: null })
  const scaled = rotaryFrequencies({ headSize: 64, ropeTheta: 500_000, ropeScaling: scaling })
  // 2 pi / 8192 and 4 times that are where the blend ends and begins.
  plain.forEach((frequency, i) => {
    const periods = (8192 * frequency) / (2 * Math.PI)
    const blend = Math.min(1, Math.max(0, (periods - 1) / 3))
    expect(scaled[i]! / frequency).toBeCloseTo(blend + (1 - blend) / 8, 5)
  })
  expect(new Set(scaled.map((value, i) => value / plain[i]!)).size).toBeGreaterThan(3)
})

describe('configurations', () => {
  test('old and new keys of rotary positions mean the same; defaults are those of transformers', () => {
    const theta = (extra: object) => decoderConfig({ ...small, model_type: 'llama', ...extra })
    expect(theta({ rope_theta: 500, rope_scaling: null })).toEqual(theta({ rope_parameters: { rope_theta: 500 } }))
    const { rope_scaling: scaling, ...rest } = llama
    expect(decoderConfig({ ...rest, rope_parameters: { ...scaling, rope_theta: 7 } })).toEqual(
      decoderConfig({ ...llama, rope_theta: 7 }),
    )
    expect(theta({})).toMatchObject({ ropeTheta: 10_000, headSize: 4, qkvBias: false, qkNorm: false, tiedHead: false })
    expect(decoderConfig({ ...small, model_type: 'qwen3' })).toMatchObject({ headSize: 128, qkNorm: true })
    expect(decoderConfig({ ...small, model_type: 'qwen2' })).toMatchObject({ qkvBias: true, outputBias: false })
    expect(
      decoderConfig({ ...small, model_type: 'qwen2', use_sliding_window: false, sliding_window: 4096 }).layers,
    ).toBe(2)
    expect(
      decoderConfig({ ...small, model_type: 'llama', attention_dropout: 0.1, num_key_value_heads: null }).keyValueHeads,
    ).toBe(4)
  })

  test.each([
    [{ model_type: 'gemma3' }, /model_type is "gemma3"; supported: qwen2, qwen3, llama/],
    [{ model_type: 'qwen3_moe' }, /model_type is "qwen3_moe"/],
    [{ architectures: ['Qwen2ForSequenceClassification'] }, /architectures is \["Qwen2ForSeq/],
    [{ hidden_act: 'gelu' }, /hidden_act is "gelu"; supported: silu/],
    [{ quantization_config: { quant_method: 'gptq' } }, /quantization_config is .*gptq/],
    [{ num_local_experts: 8 }, /num_local_experts is 8/],
    [{ use_sliding_window: true, sliding_window: 128, max_window_layers: 1 }, /use_sliding_window is true/],
    [{ use_sliding_window: true, max_window_layers: 0 }, /use_sliding_window is true/],
    [{ partial_rotary_factor: 0.5 }, /partial_rotary_factor is 0\.5; supported: 1/],
    [{ layer_types: ['full_attention', 'sliding_attention'] }, /layer_types is "sliding_attention"/],
    [{ rope_scaling: { type: 'yarn', factor: 4 } }, /rope_scaling\.rope_type is "yarn"; supported: default, llama3/],
    [{ rope_parameters: { rope_type: 'linear', factor: 2 } }, /rope_parameters\.rope_type is "linear"/],
    [{ rope_parameters: { rope_theta: 1e4, partial_rotary_factor: 0.5 } }, /partial_rotary_factor is 0\.5/],
    [{ rope_scaling: { rope_type: 'llama3', factor: 8 } }, /rope_scaling\.low_freq_factor is missing/],
    [{ num_key_value_heads: 3 }, /num_attention_heads is 4; supported: a multiple of num_key_value_heads 3/],
    [{ hidden_size: 18 }, /num_attention_heads is 4; supported: a divisor of hidden_size 18/],
    [{ head_dim: 5 }, /head_dim is 5; supported: an even size/],
    [{ rms_norm_eps: undefined }, /rms_norm_eps: .*expected number/],
  ])('%j is refused by the key that stands in the way', (change, message) => {
    expect(() => decoderConfig({ ...small, model_type: 'qwen2', ...change })).toThrow(message)
  })
})
