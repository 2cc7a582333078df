import { setMaxListeners } from 'node:events'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { engineOptions } from '../../src/engine/options.ts'
import type { EmbeddedPolicy } from '../../src/policy/embedded.ts'
import { openPolicy } from '../../src/policy/embedded.ts'
import { residentName } from '../../src/policy/weights.ts'
import type { GenerateRequest, Generation, Result, Sampling } from '../../src/types.ts'
import { goldenForward, goldenSource, open, scored, smallSource } from './models.ts'

const free: Sampling = { temperature: 1, maxTokens: 12, stop: [] }

function ask(
  policy: EmbeddedPolicy,
  promptIds: readonly number[],
  more: Partial<GenerateRequest> = {},
): Promise<Result<Generation>> {
  return policy.generate({ messages: [], promptIds, sampling: free, seed: 'seed', ...more })
}

async function sample(
  policy: EmbeddedPolicy,
  promptIds: readonly number[],
  more: Partial<GenerateRequest> = {},
): Promise<Generation & { tokenIds: readonly number[]; logprobs: readonly number[] }> {
  const result = await ask(policy, promptIds, more)
  if (!result.ok) throw new Error(result.failure.message)
  return result.value as Generation & { tokenIds: number[]; logprobs: number[] }
}

/** `length` ids that depend on `start`; none of them special. */
function prompt(policy: EmbeddedPolicy, start: number, length: number): number[] {
  const first = policy.tokenizer.encode('what')[0]!
  return Array.from(
    { length },
    (_, i) => first + ((start * 7 + i * 3 + ((i * i) % 5)) % (policy.config.vocabularySize - first)),
  )
}

function expectClose(actual: readonly number[], expected: readonly number[], tolerance: number) {
  expect(actual).toHaveLength(expected.length)
  actual.forEach((value, i) =>
    expect(Math.abs(value - expected[i]!), `entry ${i}: ${value} and ${expected[i]}`).toBeLessThan(tolerance),
  )
}

describe('the golden model', () => {
  let policy: EmbeddedPolicy
  beforeAll(async () => {
    policy = await open(await goldenSource())
  })
  afterAll(() => policy.close())

  test('continues greedily as transformers does', async () => {
    const golden = goldenForward()
    const { tokenIds, logprobs } = await sample(policy, golden.input_ids[0]!, {
      sampling: { temperature: 0, maxTokens: 20, stop: [] },
    })
    expect(tokenIds).toEqual(golden.greedy_continuation_of_row_0)
    const all = [...golden.input_ids[0]!, ...tokenIds]
    expectClose(logprobs, await scored(policy, all, 24, 1), 1e-5)
  })

  test('stops at a stop string that takes several tokens, and keeps it', async () => {
    const golden = goldenForward()
    const { tokenIds } = await sample(policy, golden.input_ids[0]!, {
      sampling: { temperature: 2, maxTokens: 40, stop: [] },
    })
    const text = policy.tokenizer.decode(tokenIds)
    // What this seed writes anyway: four characters out of its middle.
    const stop = text.slice(12, 16)
    const stopped = await sample(policy, golden.input_ids[0]!, {
      sampling: { temperature: 2, maxTokens: 40, stop: ['never written', stop] },
    })
    expect(stopped.finishReason).toBe('stop')
    expect(stopped.text).toContain(stop)
    expect(tokenIds.slice(0, stopped.tokenIds.length)).toEqual(stopped.tokenIds)
    expect(policy.tokenizer.decode(stopped.tokenIds.slice(0, -1))).not.toContain(stop)
  })
})

describe('a small model', () => {
  let policy: EmbeddedPolicy
  beforeAll(async () => {
    policy = await open(smallSource())
  })
  afterAll(() => policy.close())

  test('tells the log-probabilities that scoring finds, at the temperature of sampling', async () => {
    const ids = prompt(policy, 1, 40)
    for (const temperature of [1, 0.6]) {
      const { tokenIds, logprobs } = await sample(policy, ids, { sampling: { ...free, temperature } })
      expectClose(logprobs, await scored(policy, [...ids, ...tokenIds], ids.length, temperature), 1e-5)
    }
  })

  test('the same seed gives the same tokens, whatever else is in the batch', async () => {
    const request = (i: number) =>
      [
        prompt(policy, i, 5 + ((i * 11) % 50)),
        { seed: `seed/${i}`, sampling: { ...free, maxTokens: 3 + (i % 10) } },
      ] as const
    const alone = []
    for (let i = 0; i < 12; i++) alone.push(await sample(policy, ...request(i)))
    const together = await Promise.all(Array.from({ length: 80 }, (_, i) => sample(policy, ...request(i))))
    alone.forEach((generation, i) => {
      expect(together[i]!.tokenIds).toEqual(generation.tokenIds)
      expectClose(together[i]!.logprobs, generation.logprobs, 1e-5)
    })
    // Other seeds, other tokens.
    expect(new Set(together.map((generation) => generation.tokenIds.join())).size).toBeGreaterThan(60)
  })

  test('samples from the distribution that it tells', async () => {
    const ids = prompt(policy, 3, 10)
    const n = 1500
    const drawn = await Promise.all(
      Array.from({ length: n }, (_, i) =>
        sample(policy, ids, { seed: `draw/${i}`, sampling: { ...free, maxTokens: 1 } }),
      ),
    )
    const shares = new Map<number, { count: number; probability: number }>()
    for (const { tokenIds, logprobs } of drawn) {
      const entry = shares.get(tokenIds[0]!) ?? { count: 0, probability: Math.exp(logprobs[0]!) }
      entry.count++
      shares.set(tokenIds[0]!, entry)
    }
    for (const { count, probability } of shares.values()) {
      // Five standard deviations of a binomial share.
      expect(Math.abs(count / n - probability)).toBeLessThan(
        5 * Math.sqrt((probability * (1 - probability)) / n) + 1e-9,
      )
    }
  })

  test('a conversation goes on from its cache as if it had been read anew', async () => {
    let ids = prompt(policy, 5, 30)
    for (let turn = 0; turn < 4; turn++) {
      const before = policy.statistics().tokens
      const kept = await sample(policy, ids, { session: 'talk', seed: `turn/${turn}` })
      const fed = policy.statistics().tokens - before
      const anew = await sample(policy, ids, { seed: `turn/${turn}` })
      expect(kept.tokenIds).toEqual(anew.tokenIds)
      expectClose(kept.logprobs, anew.logprobs, 1e-5)
      if (turn > 0) expect(fed).toBeLessThan(30)
      ids = [...ids, ...kept.tokenIds, ...prompt(policy, 6 + turn, 9)]
    }
    policy.endSession('talk')
  })

  test('a session whose history was rewritten is read again from where it differs', async () => {
    const ids = prompt(policy, 7, 50)
    // Two sessions share the full pages of their common prompt.
    await Promise.all(['a', 'b'].map((session) => sample(policy, ids, { session, seed: session })))
    const changed = [...ids.slice(0, 37), ...prompt(policy, 8, 20)]
    const rewritten = await sample(policy, changed, { session: 'a', seed: 'x' })
    expect(rewritten.tokenIds).toEqual((await sample(policy, changed, { seed: 'x' })).tokenIds)
    const untouched = await sample(policy, [...ids, 30, 31], { session: 'b', seed: 'y' })
    const anew = await sample(policy, [...ids, 30, 31], { seed: 'y' })
    expect(untouched.tokenIds).toEqual(anew.tokenIds)
    expectClose(untouched.logprobs, anew.logprobs, 1e-5)
    policy.endSession('a')
    policy.endSession('b')
    expect(policy.statistics().pagesUsed).toBe(0)
  })

  test('stops behind a tag and keeps it; the end-of-message token is in the ids but not in the text', async () => {
    const ids = prompt(policy, 9, 12)
    const long = await sample(policy, ids, { sampling: { temperature: 3, maxTokens: 100, stop: ['</answer>'] } })
    expect(long.finishReason).toBe('stop')
    const last = long.tokenIds.at(-1)!
    const end = policy.tokenizer.idOf('<|end|>')!
    expect([end, policy.tokenizer.idOf('</answer>')]).toContain(last)
    const generations = await Promise.all(
      Array.from({ length: 40 }, (_, i) =>
        sample(policy, ids, { seed: `stop/${i}`, sampling: { temperature: 3, maxTokens: 100, stop: ['</answer>'] } }),
      ),
    )
    const ends = { tag: 0, message: 0 }
    for (const { tokenIds, text } of generations) {
      if (tokenIds.at(-1) === end) {
        ends.message++
        expect(text).not.toContain('<|end|>')
        expect(text).toBe(policy.tokenizer.decode(tokenIds.slice(0, -1)))
      } else if (text.endsWith('</answer>')) ends.tag++
      expect(tokenIds.slice(0, -1)).not.toContain(end)
    }
    expect(ends.tag).toBeGreaterThan(0)
    expect(ends.message).toBeGreaterThan(0)
  })

  test('never cuts a prompt: too long is a context limit', async () => {
    expect(await ask(policy, prompt(policy, 1, 245))).toMatchObject({
      ok: false,
      failure: { boundary: 'policy', kind: 'context_limit', message: expect.stringContaining('245') },
    })
    expect(await ask(policy, prompt(policy, 1, 244))).toMatchObject({
      ok: true,
      value: { usage: { promptTokens: 244, calls: 1 } },
    })
  })

  test('bad requests are failures', async () => {
    expect(await ask(policy, [])).toMatchObject({ ok: false, failure: { kind: 'bad_request' } })
    expect(await ask(policy, [5, 9999])).toMatchObject({
      ok: false,
      failure: { kind: 'bad_request', message: expect.stringContaining('9999') },
    })
    expect(await ask(policy, [5], { sampling: { ...free, maxTokens: 0 } })).toMatchObject({
      ok: false,
      failure: { kind: 'bad_request' },
    })
  })

  test('renders messages when no ids are given', async () => {
    const messages = [{ role: 'user' as const, content: 'what colour is the sign?' }]
    const result = await policy.generate({ messages, sampling: free, seed: 's' })
    const byIds = await sample(policy, policy.tokenizer.encodePrompt(messages), { seed: 's' })
    expect(result).toMatchObject({ ok: true, value: { text: byIds.text, tokenIds: byIds.tokenIds } })
  })

  test('an aborted request ends at once and frees its place', async () => {
    const controller = new AbortController()
    setMaxListeners(0, controller.signal)
    const long = { sampling: { temperature: 0, maxTokens: 200, stop: [] }, signal: controller.signal }
    const running = Array.from({ length: 70 }, (_, i) =>
      ask(policy, prompt(policy, 100 + i, 20), { ...long, seed: String(i) }),
    )
    const other = sample(policy, prompt(policy, 1, 20), { seed: 'other' })
    setTimeout(() => controller.abort(), 15)
    const kinds = (await Promise.all(running)).map((result) => (result.ok ? 'done' : result.failure.kind))
    expect(kinds.filter((kind) => kind === 'cancelled').length).toBeGreaterThan(10)
    expect((await other).tokenIds).toEqual((await sample(policy, prompt(policy, 1, 20), { seed: 'other' })).tokenIds)
    expect(policy.statistics().pagesUsed).toBe(0)
    expect(await ask(policy, prompt(policy, 1, 5), { signal: AbortSignal.abort() })).toMatchObject({
      ok: false,
      failure: { kind: 'cancelled' },
    })
  })

  test('new weights: the version changes and kept caches are dropped', async () => {
    const own = await open(smallSource(), { name: 'run', step: 3 })
    const ids = prompt(own, 5, 30)
    const first = await sample(own, ids, { session: 'talk' })
    expect(first.version).toBe('run@3')
    // Other weights in the same place, as an optimizer step leaves them.
    const name = residentName('policy', 'model.layers.0.self_attn.v_proj.weight')
    const [tensor] = await own.device.download([name])
    await own.device.upload(new Map([[name, { ...tensor!, data: (tensor!.data as Float32Array).map((x) => -2 * x) }]]))
    own.bumpVersion(4)
    const next = [...ids, ...first.tokenIds, 30, 31]
    const kept = await sample(own, next, { session: 'talk', seed: 'z' })
    expect(kept.version).toBe('run@4')
    expectClose(kept.logprobs, await scored(own, [...next, ...kept.tokenIds], next.length, 1), 1e-5)
    await own.close()
  })

  test('weights that give no numbers fail the generation, and good ones work again', async () => {
    const own = await open(smallSource())
    const ids = prompt(own, 5, 30)
    const name = residentName('policy', 'model.layers.0.mlp.down_proj.weight')
    const [tensor] = await own.device.download([name])
    const broken = (tensor!.data as Float32Array).slice().fill(Number.NaN, 0, 5)
    await own.device.upload(new Map([[name, { ...tensor!, data: broken }]]))
    expect(await ask(own, ids, { session: 's' })).toMatchObject({
      ok: false,
      failure: { kind: 'bad_response', message: expect.stringContaining('not finite') },
    })
    await own.device.upload(new Map([[name, tensor!]]))
    own.bumpVersion(1)
    // Shorter than before, so that what the broken weights left in the cache lies behind its end.
    expect(await ask(own, ids.slice(0, 20), { session: 's' })).toMatchObject({ ok: true })
    await own.close()
  })

  test('a small cache makes conversations wait or be read again, but changes nothing', async () => {
    const tight = await open(smallSource(), { rows: 3, cacheTokens: 256 })
    const both = async (i: number, of: EmbeddedPolicy) => {
      const ids = prompt(of, i, 40)
      const first = await sample(of, ids, { session: `c/${i}`, seed: `1/${i}` })
      const second = await sample(of, [...ids, ...first.tokenIds, 30], { session: `c/${i}`, seed: `2/${i}` })
      return [first.tokenIds, second.tokenIds]
    }
    const indices = Array.from({ length: 10 }, (_, i) => i)
    const inTight = await Promise.all(indices.map((i) => both(i, tight)))
    expect(inTight).toEqual(await Promise.all(indices.map((i) => both(i, policy))))
    expect(tight.statistics().pages).toBeLessThanOrEqual(17)
    await tight.close()
    indices.forEach((i) => policy.endSession(`c/${i}`))
  })

  test('a prompt longer than one run is read in pieces', async () => {
    const source = smallSource()
    const long = await open({ ...source, config: { ...source.config, max_position_embeddings: 2048 } })
    const ids = prompt(long, 2, 1100)
    const { tokenIds, logprobs } = await sample(long, ids, { sampling: { ...free, maxTokens: 4 } })
    expectClose(logprobs, await scored(long, [...ids, ...tokenIds], ids.length, 1), 1e-4)
    await long.close()
  })
})

describe('settings of sampling', () => {
  let policy: EmbeddedPolicy
  beforeAll(async () => {
    policy = await open(smallSource())
  })
  afterAll(() => policy.close())
  const long = { ...free, maxTokens: 30 }

  test('cuts are recorded, and log-probabilities are those of the whole distribution', async () => {
    const ids = prompt(policy, 1, 20)
    const cut = { ...long, temperature: 0.8, topP: 0.9, topK: 7, minP: 0.01 }
    const generation = await sample(policy, ids, { sampling: cut })
    expect(generation.cut?.by).toEqual(['top_p', 'top_k', 'min_p'])
    const { keptMass } = generation.cut!
    expectClose(generation.logprobs, await scored(policy, [...ids, ...generation.tokenIds], ids.length, 0.8), 1e-5)
    expect(keptMass).toHaveLength(30)
    for (const [t, mass] of keptMass.entries()) {
      expect(mass).toBeLessThanOrEqual(1 + 1e-9)
      // The token was among what was kept.
      expect(Math.exp(generation.logprobs[t]!)).toBeLessThanOrEqual(mass + 1e-9)
    }
    expect((await sample(policy, ids)).cut).toBeUndefined()
  })

  test('the likeliest tokens beside each sampled one', async () => {
    const ids = prompt(policy, 2, 20)
    const plain = await sample(policy, ids, { sampling: long })
    const told = await sample(policy, ids, { sampling: long, tellSampled: 3 })
    expect(told.tokenIds).toEqual(plain.tokenIds)
    expectClose(told.logprobs, plain.logprobs, 1e-6)
    expect(told.cut).toBeUndefined()
    expect(told.told).toHaveLength(30)
    for (const [t, { id, logprob, alternatives, rank }] of told.told!.entries()) {
      expect({ id, logprob }).toEqual({ id: told.tokenIds[t], logprob: told.logprobs[t] })
      expect(alternatives).toHaveLength(3)
      if (rank <= 3) expect(alternatives[rank - 1]).toEqual({ id, logprob })
      else expect(logprob).toBeLessThanOrEqual(alternatives[2]!.logprob)
    }
    const greedy = await sample(policy, ids, { sampling: { ...long, temperature: 0 }, tellSampled: 0 })
    expect(greedy.told!.map(({ rank, alternatives }) => [rank, alternatives.length])).toEqual(Array(30).fill([1, 0]))
  })

  test("the prompt's log-probabilities, whatever is cached of it", async () => {
    const ids = prompt(policy, 3, 70)
    const expected = await scored(policy, ids, 1, 1)
    const plain = await sample(policy, ids)
    const [told, beside] = await Promise.all([
      sample(policy, ids, { sampling: { ...free, temperature: 0.7 }, tellPrompt: 2 }),
      sample(policy, ids),
    ])
    expect(told.toldPrompt![0]).toBeNull()
    expect(told.toldPrompt!.slice(1).map((token) => token!.id)).toEqual(ids.slice(1))
    expectClose(
      told.toldPrompt!.slice(1).map((token) => token!.logprob),
      expected,
      1e-5,
    )
    expect(told.toldPrompt![5]!.alternatives).toHaveLength(2)
    expect(beside.tokenIds).toEqual(plain.tokenIds)
    expect((await sample(policy, [5], { tellPrompt: 0 })).toldPrompt).toEqual([null])
  })

  test('a bias, and what a constraint allows', async () => {
    const ids = prompt(policy, 4, 20)
    const biased = await sample(policy, ids, { sampling: { ...long, logitBias: new Map([[30, 100]]) } })
    expect(new Set(biased.tokenIds)).toEqual(new Set([30]))
    expect(biased.cut?.by).toEqual(['logit_bias'])
    const seen: number[] = []
    const constrain = (sampled: readonly number[]) => {
      seen.push(sampled.length)
      const allowed = new Uint8Array(policy.config.vocabularySize)
      if (sampled.length >= 6) return allowed.fill(1)
      allowed[25 + sampled.length] = 1
      allowed[35] = 1
      return allowed
    }
    const constrained = await sample(policy, ids, {
      sampling: { ...free, maxTokens: 8, allowed: constrain },
    })
    expect(seen).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    constrained.tokenIds.slice(0, 6).forEach((id, t) => expect([25 + t, 35]).toContain(id))
    expect(constrained.cut?.by).toEqual(['allowed'])
    expectClose(constrained.cut!.keptMass.slice(6), [1, 1], 1e-9)
    expectClose(constrained.logprobs, await scored(policy, [...ids, ...constrained.tokenIds], 20, 1), 1e-5)
    const nothing = () => new Uint8Array(policy.config.vocabularySize)
    expect(await ask(policy, ids, { sampling: { ...free, allowed: nothing } })).toMatchObject({
      ok: false,
      failure: { kind: 'bad_request', message: expect.stringContaining('allows no token') },
    })
  })

  test('stop ids, stop strings and the least number of tokens', async () => {
    const ids = prompt(policy, 5, 20)
    const tail = { ...free, maxTokens: 60, ignoreEnd: true }
    const plain = await sample(policy, ids, { sampling: tail })
    expect(plain).toMatchObject({ finishReason: 'length', stopReason: null })
    expect(plain.tokenIds).toHaveLength(60)
    const id = plain.tokenIds[9]!
    const at = plain.tokenIds.indexOf(id)
    const stopped = await sample(policy, ids, { sampling: { ...tail, stopIds: [id] } })
    expect(stopped).toMatchObject({ finishReason: 'stop', stopReason: id, tokenIds: plain.tokenIds.slice(0, at + 1) })
    const later = await sample(policy, ids, { sampling: { ...tail, stopIds: [id], minTokens: 20 } })
    expect(later.tokenIds.slice(0, 20)).not.toContain(id)
    expect(later.cut?.by).toEqual(['min_tokens'])

    const word = policy.tokenizer.decode([plain.tokenIds[4]!])
    const byText = await sample(policy, ids, { sampling: { ...tail, stop: [word] } })
    expect(byText).toMatchObject({ finishReason: 'stop', stopReason: word })
    const notYet = await sample(policy, ids, { sampling: { ...tail, stop: [word], minTokens: 40 } })
    expect(notYet.tokenIds.length).toBeGreaterThanOrEqual(40)
    // Stop strings may be written before; only ids are kept from being drawn.
    expect(notYet.tokenIds.slice(0, 40)).toEqual(plain.tokenIds.slice(0, 40))
  })

  test('end tokens end, unless they are ignored', async () => {
    const ids = prompt(policy, 6, 12)
    const ends = [...policy.tokenizer.endIds]
    const pushed = { ...free, maxTokens: 5, logitBias: new Map(ends.map((id) => [id, 50])) }
    const ended = await sample(policy, ids, { sampling: pushed })
    expect(ended).toMatchObject({ finishReason: 'stop', stopReason: null, text: '' })
    expect(ended.tokenIds).toHaveLength(1)
    const ignored = await sample(policy, ids, { sampling: { ...pushed, ignoreEnd: true } })
    expect(ignored).toMatchObject({ finishReason: 'length', tokenIds: [ends[0], ends[0], ends[0], ends[0], ends[0]] })
    expect(ignored.text).not.toBe('')
  })

  test('tells tokens as they come', async () => {
    const ids = prompt(policy, 7, 12)
    const told: number[] = []
    const { tokenIds, logprobs } = await sample(policy, ids, {
      onToken: ({ id, logprob, alternatives }) => {
        told.push(id)
        expect(logprob).toBeLessThan(0)
        expect(alternatives).toHaveLength(1)
      },
      tellSampled: 1,
    })
    expect(told).toEqual(tokenIds)
    expect(logprobs).toHaveLength(told.length)
  })

  test.each([
    [{ topP: 0 }, 'topP 0'],
    [{ topP: 1.5 }, 'topP 1.5'],
    [{ topK: -1 }, 'topK -1'],
    [{ minP: -1 }, 'minP -1'],
    [{ logitBias: new Map([[9999, 1]]) }, '9999'],
    [{ logitBias: new Map([[1, Number.NaN]]) }, 'logitBias NaN'],
    [{ stopIds: [-1] }, '-1'],
    [{ minTokens: 13 }, 'minTokens 13'],
    [{ temperature: Number.NaN }, 'temperature NaN'],
  ])('%o is refused', async (setting, words) => {
    expect(await ask(policy, [5], { sampling: { ...free, ...setting } })).toMatchObject({
      ok: false,
      failure: { kind: 'bad_request', message: expect.stringContaining(words) },
    })
  })
})

test('closing cancels what runs', async () => {
  const policy = await open(smallSource())
  const running = Array.from({ length: 60 }, (_, i) =>
    ask(policy, prompt(policy, i, 20), { seed: String(i), sampling: { temperature: 1, maxTokens: 200, stop: [] } }),
  )
  await new Promise((resolve) => setTimeout(resolve, 10))
  await policy.close()
  const kinds = (await Promise.all(running)).map((result) => (result.ok ? 'done' : result.failure.kind))
  expect(kinds.filter((kind) => kind === 'cancelled').length).toBeGreaterThan(0)
})

test('a model that is not whole or not supported is a failure that names what is wrong', async () => {
  const engine = engineOptions.parse({ threads: 1 })
  const settings = { name: 'checkpoints/x', rows: 4, cacheTokens: 1024 }
  const source = smallSource()
  const weights = new Map(source.weights)
  weights.delete('model.norm.weight')
  expect(await openPolicy({ ...source, weights }, engine, settings)).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file', message: expect.stringMatching(/checkpoints\/x.*model\.norm\.weight/) },
  })
  expect(
    await openPolicy({ ...source, config: { ...source.config, model_type: 'gpt2' } }, engine, settings),
  ).toMatchObject({ ok: false, failure: { message: expect.stringContaining('model_type') } })
  expect(await openPolicy({ ...source, config: { ...source.config, vocab_size: 5 } }, engine, settings)).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('vocab_size') },
  })
  expect(await openPolicy({ ...source, tokenizer: null }, engine, settings)).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('tokenizer.json') },
  })
})
