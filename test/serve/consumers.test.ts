/**
 * Raw requests as RL trainers, gateways and agent frameworks send them, and what they read of the answers (spec/endpoint.md, 3.4): from
 * TRL's clients, skyrl-tx, Agent-lightning's proxy, rLLM's gateway and verifiers. Behind them is a real model.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTiny, type TinyServer } from './tinyServer.ts'

let server: TinyServer
beforeAll(async () => {
  server = await startTiny()
})
afterAll(() => server.close())

interface Answered {
  model: string
  weight_version: string
  prompt_token_ids?: number[]
  choices: {
    index: number
    finish_reason: string
    token_ids: number[]
    prompt_token_ids?: number[]
    message?: { content: string }
    logprobs: {
      tokens: string[]
      token_logprobs: number[]
      top_logprobs: Record<string, number>[]
      content: { token: string; logprob: number; top_logprobs: unknown[] }[]
    }
  }[]
}
const answered = ({ status, body }: Awaited<ReturnType<TinyServer['post']>>) => {
  expect([status, body]).toMatchObject([200, {}])
  return body as unknown as Answered
}

describe('TRL', () => {
  test('VLLMClient: waits for health, takes the first model, posts lists of ids, reads them prompt-major', async () => {
    expect((await fetch(`${server.url}/health`)).status).toBe(200)
    const models = (await (await fetch(`${server.url}/v1/models`)).json()) as {
      data: { id: string; max_model_len: number }[]
    }
    expect(models.data[0]).toMatchObject({ id: 'tiny', max_model_len: 1024 })
    const prompts = server.forward.input_ids.map((ids, row) => ids.slice(0, 8 + row))
    const body = {
      model: models.data[0]!.id,
      prompt: prompts,
      return_token_ids: true,
      return_tokens_as_token_ids: true,
      n: 3,
      repetition_penalty: 1.0,
      temperature: 1.0,
      top_p: 1.0,
      top_k: 0,
      min_p: 0.0,
      max_tokens: 6,
      logprobs: 2,
    }
    const { choices } = answered(await server.post('/v1/completions', body))
    expect(choices).toHaveLength(6)
    expect(choices.filter((_, i) => i % 3 === 0).map(({ prompt_token_ids }) => prompt_token_ids)).toEqual(prompts)
    for (const [index, { index: told, token_ids, logprobs }] of choices.entries()) {
      expect(told).toBe(index)
      expect(logprobs.tokens.map((token) => Number(token.replace('token_id:', '')))).toEqual(token_ids)
      expect(logprobs.token_logprobs).toHaveLength(token_ids.length)
      for (const [t, top] of logprobs.top_logprobs.entries()) {
        const own = logprobs.token_logprobs[t]!
        const merged = Object.entries({ [logprobs.tokens[t]!]: own, ...top })
        // its own and two others, or two when it is among them
        expect(merged.length).toBeGreaterThanOrEqual(2)
        expect(merged.length).toBeLessThanOrEqual(3)
        for (const [name, logprob] of merged) {
          expect(name).toMatch(/^token_id:\d+$/)
          expect(Number.isFinite(logprob)).toBe(true)
        }
      }
    }
  })

  test('VLLMClient with a grammar, and logprobs null', async () => {
    const body = {
      model: 'tiny',
      prompt: ['look'],
      return_token_ids: true,
      return_tokens_as_token_ids: true,
      n: 1,
      repetition_penalty: 1.0,
      temperature: 1.0,
      top_p: 1.0,
      top_k: 0,
      min_p: 0.0,
      max_tokens: 16,
      logprobs: null,
      structured_outputs: { regex: 'a[bc]' },
    }
    const { choices } = answered(await server.post('/v1/completions', body))
    expect(choices[0]).toMatchObject({ logprobs: null, text: expect.stringMatching(/^a[bc]$/) })
  })

  test('the async worker: one prompt of ids, logprobs 0', async () => {
    const prompt = server.forward.input_ids[0]!
    const body = {
      model: 'tiny',
      prompt,
      max_tokens: 8,
      temperature: 1.0,
      top_p: 1.0,
      top_k: 0,
      repetition_penalty: 1.0,
      n: 1,
      return_token_ids: true,
      logprobs: 0,
    }
    const [choice] = answered(await server.post('/v1/completions', body)).choices
    expect(choice!.token_ids.length).toBe(choice!.logprobs.token_logprobs.length)
    expect(choice!.token_ids.length).toBeGreaterThan(0)
  })
})

test('skyrl-tx: model@step, logprobs true, a session, reads ids and log-probabilities of n samples', async () => {
  const body = {
    model: 'tiny@0',
    prompt: server.forward.input_ids[0],
    n: 4,
    seed: 17,
    max_tokens: 5,
    temperature: 0.7,
    top_p: 1.0,
    top_k: -1,
    logprobs: true,
    return_token_ids: true,
  }
  const reply = await server.post('/v1/completions', body, { 'x-session-id': 'sampling-1' })
  const { choices } = answered(reply)
  expect(choices).toHaveLength(4)
  for (const { token_ids, logprobs, finish_reason } of choices) {
    expect(['stop', 'length']).toContain(finish_reason)
    expect(logprobs.token_logprobs).toHaveLength(token_ids.length)
    expect(logprobs.token_logprobs.every((logprob) => Number.isFinite(logprob) && logprob <= 0)).toBe(true)
  }
  expect(reply.headers.get('x-policy-version')).toBe('tiny@0')
})

test('Agent-lightning: a chat with forced temperature, ids and log-probabilities, none of them null', async () => {
  const body = {
    model: 'tiny',
    messages: [{ role: 'user', content: 'what colour is the mug?' }],
    temperature: 1.0,
    logprobs: true,
    return_token_ids: true,
    max_tokens: 10,
    stream: false,
  }
  const reply = answered(await server.post('/v1/chat/completions', body))
  expect(reply.prompt_token_ids!.length).toBeGreaterThan(5)
  const [choice] = reply.choices
  const values = choice!.logprobs.content.map(({ logprob }) => logprob)
  expect(values).toHaveLength(choice!.token_ids.length)
  expect(values.every((value) => Number.isFinite(value))).toBe(true)
})

test("rLLM's gateway: prompt ids at the root, log-probabilities without gaps, the version of the weights", async () => {
  const body = {
    model: 'tiny',
    messages: [
      { role: 'system', content: 'You answer.' },
      { role: 'user', content: 'hi' },
    ],
    max_tokens: 6,
    logprobs: true,
    top_logprobs: 1,
    return_token_ids: true,
  }
  const reply = answered(await server.post('/v1/chat/completions', body))
  expect(reply.weight_version).toBe('tiny@0')
  expect(reply.prompt_token_ids).toBeDefined()
  expect(reply.choices[0]!.logprobs.content.every(({ logprob }) => logprob !== null)).toBe(true)
})

describe('verifiers', () => {
  const sampling = { max_completion_tokens: 8, logprobs: true, return_token_ids: true, temperature: 1, top_p: 1 }

  test('a first turn, and a later one whose ids are stitched from /tokenize', async () => {
    const messages = [{ role: 'user', content: 'hi' }]
    const first = answered(
      await server.post('/v1/chat/completions', { model: 'tiny', messages, tools: null, ...sampling }),
    )
    const { token_ids } = first.choices[0]!
    const dummy = { role: 'assistant', content: 'x' }
    const tool = { role: 'user', content: 'and now?' }
    const full = await server.post('/tokenize', { model: 'tiny', messages: [dummy, tool], tools: null })
    const base = await server.post('/tokenize', {
      model: 'tiny',
      messages: [dummy],
      tools: null,
      add_generation_prompt: false,
    })
    const [longer, shorter] = [full.body.tokens as number[], base.body.tokens as number[]]
    expect(longer.slice(0, shorter.length)).toEqual(shorter)
    const prompt = [...first.prompt_token_ids!, ...token_ids, ...longer.slice(shorter.length)]
    const { choices } = answered(
      await server.post('/v1/completions', { model: 'tiny', prompt, max_tokens: 2, return_token_ids: true }),
    )
    expect(choices[0]?.prompt_token_ids).toEqual(prompt)
  })

  test('an answer comes back with the empty fields that clients add', async () => {
    const messages = [
      { role: 'user', content: 'hi' },
      {
        role: 'assistant',
        content: 'yes?',
        refusal: null,
        annotations: null,
        audio: null,
        function_call: null,
        tool_calls: null,
        reasoning_content: null,
      },
      { role: 'user', content: 'go on' },
    ]
    answered(await server.post('/v1/chat/completions', { model: 'tiny', messages, ...sampling }))
  })

  test('knows an overlong prompt by its error', async () => {
    const messages = [{ role: 'user', content: 'x'.repeat(3000) }]
    const { status, body } = await server.post('/v1/chat/completions', { model: 'tiny', messages, ...sampling })
    expect(status).toBe(400)
    expect(JSON.stringify(body).toLowerCase()).toContain("this model's maximum context length is 1024 tokens")
  })
})
