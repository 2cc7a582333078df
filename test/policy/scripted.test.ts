import { expect, test } from 'vitest'
import { policyOptions } from '../../src/policy/options.ts'
import { ScriptedPolicy } from '../../src/policy/scripted.ts'
import type { GenerateRequest } from '../../src/types.ts'
import { smallTokenizerSource, tokenizerFrom } from './models.ts'

const request: GenerateRequest = {
  messages: [{ role: 'user', content: 'red sign' }],
  sampling: { temperature: 1, maxTokens: 20, stop: ['</answer>'] },
  seed: 's',
}

test('says what the script says, up to the stop string, with ids when there is a tokenizer', async () => {
  const tokenizer = tokenizerFrom(smallTokenizerSource())
  const script = (messages: GenerateRequest['messages']) => `<answer>a${messages.length}</answer> and more`
  expect(await new ScriptedPolicy(script).generate(request)).toMatchObject({
    ok: true,
    value: { text: '<answer>a1</answer>', tokenIds: null, logprobs: null, finishReason: 'stop' },
  })
  const withIds = await new ScriptedPolicy(script, { tokenizer }).generate(request)
  expect(withIds).toMatchObject({
    ok: true,
    value: {
      tokenIds: tokenizer.encode('<answer>a1</answer>'),
      logprobs: [0, 0, 0],
      usage: { promptTokens: 5, completionTokens: 3 },
    },
  })
})

test('is cut at maxTokens as a real policy is', async () => {
  const tokenizer = tokenizerFrom(smallTokenizerSource())
  const policy = new ScriptedPolicy(() => 'what colour is the red sign', { tokenizer })
  expect(await policy.generate({ ...request, sampling: { ...request.sampling, maxTokens: 2 } })).toMatchObject({
    ok: true,
    value: { text: 'what colour', finishReason: 'length' },
  })
  expect(await policy.generate({ ...request, signal: AbortSignal.abort() })).toMatchObject({
    ok: false,
    failure: { kind: 'cancelled' },
  })
})

test('options have their defaults here and refuse unknown keys', () => {
  expect(policyOptions.parse({ type: 'checkpoint', path: 'checkpoints/base' })).toEqual({
    type: 'checkpoint',
    path: 'checkpoints/base',
    adapter: null,
    lora: null,
    frozenType: 'float32',
    rows: 128,
    cacheTokens: 65_536,
  })
  expect(
    policyOptions.safeParse({ type: 'endpoint', baseUrl: 'http://127.0.0.1:8000/v1', model: 'm', temperature: 1 })
      .success,
  ).toBe(false)
  expect(policyOptions.safeParse({ type: 'endpoint', baseUrl: 'not a url', model: 'm' }).success).toBe(false)
})
