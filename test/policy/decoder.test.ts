/** A request's tokens and log-probabilities do not depend, in any bit, on what else the decoder does or has done. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { weightShapes } from '../../src/policy/architecture.ts'
import type { DecodeOutcome, DecodeRequest, Decoder } from '../../src/policy/decoder.ts'
import { openDecoder } from '../../src/policy/decoder.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import { residentName, uploadWeights } from '../../src/policy/weights.ts'

const VOCABULARY = 97

/** Inner dimensions beyond the 128 at which products are summed in blocks; keys shared by `heads / groups` queries. */
function shapeOf(heads: number, groups: number): DecoderConfig {
  return decoderConfig({
    model_type: 'qwen2',
    vocab_size: VOCABULARY,
    hidden_size: 144,
    intermediate_size: 300,
    num_hidden_layers: 2,
    num_attention_heads: heads,
    num_key_value_heads: groups,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: 2048,
  })
}

/** Weights that make sharp distributions; the same for the same seed. */
function weightsOf(config: DecoderConfig, seed: number) {
  let state = seed
  const next = () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32 - 0.5
  }
  return new Map(
    [...weightShapes(config)].map(([name, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      const center = name.includes('norm') ? 1 : 0
      return [name, { shape, data: Float32Array.from({ length }, () => center + 0.35 * next()) }]
    }),
  )
}

function prompt(start: number, length: number): number[] {
  return Array.from({ length }, (_, i) => (start * 31 + i * 7 + ((i * i) % 11)) % VOCABULARY)
}

type Finished = Extract<DecodeOutcome, { kind: 'stop' | 'length' }>

describe.each([
  { heads: 6, groups: 2, threads: 1 },
  { heads: 6, groups: 6, threads: 2 },
  { heads: 9, groups: 3, threads: 2 },
])('$heads heads over $groups, $threads threads', ({ heads, groups, threads }) => {
  let device: Device
  let decoder: Decoder
  const config = shapeOf(heads, groups)
  beforeAll(async () => {
    device = await openDevice(engineOptions.parse({ threads }))
    await uploadWeights(device, config, weightsOf(config, 1))
    decoder = await openDecoder(device, config, { rows: 64, cacheTokens: 32_768 })
  })
  afterAll(async () => {
    await decoder.close()
    await device.close()
  })

  const request = (ids: readonly number[], seed: string, more: Partial<DecodeRequest> = {}): DecodeRequest => ({
    ids,
    maxTokens: 10,
    temperature: 1,
    seed,
    isEnd: () => false,
    ...more,
  })
  async function sample(of: DecodeRequest): Promise<{ ids: readonly number[]; logprobs: readonly number[] }> {
    const { ids, logprobs } = (await decoder.generate(of)) as Finished
    return { ids, logprobs }
  }
  /** Alone, with nothing in the cache. */
  async function alone(of: DecodeRequest) {
    decoder.dropCaches()
    const result = await sample(of)
    decoder.dropCaches()
    return result
  }

  test('beside others, of any length', async () => {
    const own = request(prompt(1, 37), 'own')
    const expected = await alone(own)
    for (const count of [1, 2, 7, 40]) {
      const others = Array.from({ length: count }, (_, i) => request(prompt(2 + i, 3 + ((i * 29) % 90)), `other/${i}`))
      const [result] = await Promise.all([own, ...others].map(sample))
      expect(result).toEqual(expected)
      decoder.dropCaches()
    }
  })

  test('joining late, and left by others', async () => {
    const own = request(prompt(1, 37), 'own')
    const expected = await alone(own)
    const others = Array.from({ length: 7 }, (_, i) =>
      sample(request(prompt(2 + i, 20 + 9 * i), `other/${i}`, { maxTokens: 8 + 4 * i })),
    )
    let written = 0
    await new Promise<void>((resolve) => {
      const first = request(prompt(50, 20), 'first', {
        maxTokens: 12,
        onToken: () => {
          written += 1
          if (written === 5) resolve()
        },
      })
      others.push(sample(first))
    })
    expect(await sample(own)).toEqual(expected)
    await Promise.all(others)
  })

  test('in a group with one prompt, and after one', async () => {
    for (const length of [32, 33, 47, 48]) {
      const group = Array.from({ length: 8 }, (_, i) => request(prompt(3, length), `group/${i}`))
      const expected = []
      for (const own of group) expected.push(await alone(own))
      const before = decoder.statistics()
      expect(await Promise.all(group.map(sample))).toEqual(expected)
      const after = decoder.statistics()
      // The prompt once; its last token again for each of the seven others; and nine of the ten sampled tokens of each.
      expect(after.tokens - before.tokens).toBe(length + 7 + 8 * 9)
      expect(after.reusedTokens - before.reusedTokens).toBe(7 * (length - 1))
      expect(await sample(group[0]!)).toEqual(expected[0])
    }
  })

  test('from the cache of the last turn, and when the conversation is read anew', async () => {
    let ids = prompt(4, 30)
    for (let turn = 0; turn < 3; turn++) {
      const fed = decoder.statistics().tokens
      const kept = await sample(request(ids, `turn/${turn}`, { session: 'talk' }))
      // Nine of the ten sampled tokens are fed, and of the prompt what the last turn had not.
      expect(decoder.statistics().tokens - fed).toBe(9 + (turn === 0 ? 30 : 10))
      const other = request(ids, `turn/${turn}`, { weights: 'policy' })
      expect(await sample(other)).toEqual(kept)
      ids = [...ids, ...kept.ids, ...prompt(5 + turn, 9)]
    }
    const last = await sample(request(ids, 'last', { session: 'talk' }))
    expect(await alone(request(ids, 'last'))).toEqual(last)
    decoder.endSession('talk')
  })

  test('in pieces, cut anywhere', async () => {
    const ids = prompt(6, 600)
    const own = request(ids, 'own')
    // 512 and 88.
    const expected = await alone(own)
    for (const known of [17, 300, 528]) {
      await sample(request(ids.slice(0, known), 'begins alike', { maxTokens: 1 }))
      const before = decoder.statistics().reusedTokens
      expect(await sample(own)).toEqual(expected)
      expect(decoder.statistics().reusedTokens - before).toBe(Math.floor(known / 16) * 16)
      decoder.dropCaches()
    }
  })

  test('beside rows of other weights, which have their own', async () => {
    await uploadWeights(device, config, weightsOf(config, 2), 'other')
    const own = request(prompt(1, 37), 'own')
    const expected = await alone(own)
    const first = sample({ ...own, weights: 'other', session: 'a' })
    const [mixed, other, again] = await Promise.all([sample(own), first, sample({ ...own, weights: 'other' })])
    expect(mixed).toEqual(expected)
    expect(other.ids).not.toEqual(expected.ids)
    expect(again).toEqual(other)
    expect(await sample({ ...own, weights: 'other', session: 'a' })).toEqual(other)

    // Weights go when the last row that began with them has ended.
    const last = sample({ ...own, weights: 'other', maxTokens: 30 })
    let retired = false
    const gone = decoder.retire('other').then(() => {
      retired = true
    })
    expect(retired).toBe(false)
    expect((await last).ids.slice(0, 10)).toEqual(other.ids)
    await gone
    await device.remove([...weightShapes(config).keys()].map((name) => residentName('other', name)))
    expect(await sample(own)).toEqual(expected)
  })
})
