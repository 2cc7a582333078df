/** Every parameter of a request does what it says, on a real model through the `openai` client; what cannot be done is a 400 that names it. */
import type OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { startTiny, type TinyServer } from './tinyServer.ts'

let server: TinyServer
beforeAll(async () => {
  server = await startTiny()
})
afterAll(() => server.close())

/** `<|im_end|>`, which ends messages of the tiny model; its text is special. */
const END = 2
const A = 67

interface Choice {
  index: number
  text: string
  finish_reason: string
  stop_reason: string | number | null
  token_ids: number[]
  prompt_token_ids: number[]
  logprobs: {
    tokens: string[]
    token_logprobs: number[]
    top_logprobs: Record<string, number>[]
    text_offset: number[]
  }
  sampling_cut?: { by: string[]; kept_mass: number[] }
  prompt_logprobs?: (Record<string, { logprob: number; rank: number; decoded_token: string }> | null)[]
}

/** Asks for a continuation of the prompt that transformers continued, with ids and log-probabilities, which the client's types do not know. */
async function complete(body: Record<string, unknown>): Promise<Choice[]> {
  const request = {
    model: 'tiny',
    prompt: server.forward.input_ids[0],
    max_tokens: 20,
    logprobs: 0,
    return_token_ids: true,
    ...body,
  }
  const { choices } = await server.client.completions.create(request as OpenAI.CompletionCreateParamsNonStreaming)
  return choices as unknown as Choice[]
}

describe('what is drawn from', () => {
  test.each([
    ['temperature', { temperature: 0 }, null],
    ['top_k', { top_k: 1, seed: 3 }, 'top_k'],
    ['top_p', { top_p: 0.0001, seed: 3 }, 'top_p'],
    ['min_p', { min_p: 1, seed: 3 }, 'min_p'],
  ])('%s: at its extreme, what transformers continues greedily', async (_, body, cut) => {
    const [choice] = await complete(body)
    expect(choice?.token_ids).toEqual(server.forward.greedy_continuation_of_row_0)
    if (cut === null) expect(choice?.sampling_cut).toBeUndefined()
    else {
      // one token is kept, so its share of the whole distribution is its own probability
      expect(choice?.sampling_cut?.by).toEqual([cut])
      for (const [t, mass] of choice!.sampling_cut!.kept_mass.entries())
        expect(Math.log(mass)).toBeCloseTo(choice!.logprobs.token_logprobs[t]!, 5)
    }
  })

  test('top_k -1 and 0, top_p 1, min_p 0 change nothing', async () => {
    const [plain] = await complete({ seed: 4 })
    for (const body of [{ top_k: -1 }, { top_k: 0 }, { top_p: 1, min_p: 0 }, { repetition_penalty: 1 }])
      expect((await complete({ seed: 4, ...body }))[0]).toEqual(plain)
  })

  test("logit_bias forces a token and bans one; log-probabilities stay the model's own", async () => {
    const [forced] = await complete({ logit_bias: { [A]: 100 }, max_tokens: 3, logprobs: 1 })
    expect(forced).toMatchObject({ text: 'aaa', token_ids: [A, A, A], sampling_cut: { by: ['logit_bias'] } })
    const [first] = forced!.logprobs.token_logprobs
    const [whole] = await complete({ temperature: 0, logprobs: 128, max_tokens: 1 })
    const own = whole!.logprobs.top_logprobs[0]!
    if (own.a !== undefined) expect(first).toBeCloseTo(own.a, 5)
    else expect(first).toBeLessThan(Math.min(...Object.values(own)))
    const greedy = server.forward.greedy_continuation_of_row_0[0]!
    const [banned] = await complete({ logit_bias: { [greedy]: -100 }, temperature: 0, max_tokens: 1 })
    expect(banned?.token_ids).not.toEqual([greedy])
  })

  test('log-probabilities are those of the temperature-scaled distribution', async () => {
    // softmax(log p / T) from the alternatives: the whole vocabulary is 347, so 128 of them leave a little out
    const [warm] = await complete({ temperature: 0.25, seed: 1, max_tokens: 1, logprobs: 128 })
    const [plain] = await complete({ temperature: 1, seed: 1, max_tokens: 1, logprobs: 128 })
    const at = (choice: Choice | undefined) => choice!.logprobs.top_logprobs[0]!
    const names = Object.keys(at(plain)).filter((name) => name in at(warm))
    const [x, y] = [names[0]!, names[5]!]
    expect(at(warm)[x]! - at(warm)[y]!).toBeCloseTo(4 * (at(plain)[x]! - at(plain)[y]!), 4)
  })
})

describe('where it ends', () => {
  const ends = { logit_bias: { [END]: 100 } }

  test('ignore_eos goes on behind the token that ends messages; min_tokens keeps it from being drawn', async () => {
    expect((await complete({ ...ends, max_tokens: 4 }))[0]).toMatchObject({
      text: '',
      token_ids: [END],
      finish_reason: 'stop',
      stop_reason: null,
    })
    expect((await complete({ ...ends, max_tokens: 4, ignore_eos: true }))[0]).toMatchObject({
      token_ids: [END, END, END, END],
      finish_reason: 'length',
    })
    const [later] = await complete({ ...ends, max_tokens: 10, min_tokens: 5 })
    expect(later!.token_ids.indexOf(END)).toBe(5)
  })

  test('skip_special_tokens leaves their text out and keeps their ids', async () => {
    const body = { ...ends, max_tokens: 2, ignore_eos: true }
    expect((await complete(body))[0]?.text).toBe('<|im_end|><|im_end|>')
    expect((await complete({ ...body, skip_special_tokens: true }))[0]).toMatchObject({
      text: '',
      token_ids: [END, END],
    })
  })

  test('stop_token_ids end it; their text comes with include_stop_str_in_output', async () => {
    const body = { logit_bias: { [A]: 100 }, stop_token_ids: [A, 90] }
    expect((await complete(body))[0]).toMatchObject({ text: '', token_ids: [A], stop_reason: A, finish_reason: 'stop' })
    expect((await complete({ ...body, include_stop_str_in_output: true }))[0]).toMatchObject({ text: 'a' })
  })

  test('stop strings across tokens end it: none of them in the text, all of their ids', async () => {
    const text = (await complete({ temperature: 0 }))[0]!.text
    const stop = text.slice(4, 7)
    const [choice] = await complete({ temperature: 0, stop: ['never written', stop] })
    expect(choice).toMatchObject({ text: text.slice(0, text.indexOf(stop)), stop_reason: stop, finish_reason: 'stop' })
    expect(choice!.logprobs.token_logprobs).toHaveLength(choice!.token_ids.length)
    expect(server.forward.greedy_continuation_of_row_0.slice(0, choice!.token_ids.length)).toEqual(choice!.token_ids)
  })

  test('max_tokens and max_completion_tokens', async () => {
    for (const limit of [{ max_tokens: 3 }, { max_completion_tokens: 3 }]) {
      const messages = [{ role: 'user' as const, content: 'hi' }]
      const { usage } = await server.client.chat.completions.create({
        model: 'tiny',
        messages,
        ...limit,
        ...{ ignore_eos: true },
      })
      expect(usage?.completion_tokens).toBe(3)
    }
  })
})

describe('what is told', () => {
  test('prompt_logprobs are those of transformers', async () => {
    for (const [row, prompt] of server.forward.input_ids.entries()) {
      const [choice] = await complete({ prompt, prompt_logprobs: 3, max_tokens: 1 })
      const told = choice!.prompt_logprobs!
      expect(told).toHaveLength(prompt.length)
      expect(told[0]).toBeNull()
      for (const [t, expected] of server.forward.logprobs[row]!.entries()) {
        const entry = told[t + 1]![prompt[t + 1]!]!
        expect(Math.abs(entry.logprob - expected)).toBeLessThan(1e-4)
        const better = Object.values(told[t + 1]!).filter(({ logprob }) => logprob > entry.logprob)
        expect(better.length).toBe(Math.min(3, entry.rank - 1))
      }
    }
  })

  test("an answer's log-probabilities are those that the same tokens have in a prompt", async () => {
    for (const cut of [{}, { top_p: 0.5 }, { top_k: 5 }]) {
      const [choice] = await complete({ seed: 7, ...cut })
      const prompt = [...choice!.prompt_token_ids, ...choice!.token_ids]
      const [again] = await complete({ prompt, prompt_logprobs: 0, max_tokens: 1 })
      const told = again!.prompt_logprobs!.slice(choice!.prompt_token_ids.length)
      for (const [t, id] of choice!.token_ids.entries())
        expect(Math.abs(told[t]![id]!.logprob - choice!.logprobs.token_logprobs[t]!)).toBeLessThan(1e-4)
    }
  })

  test('chat: top_logprobs are ordered, with bytes, and the sampled token has its own', async () => {
    const reply = await server.client.chat.completions.create({
      model: 'tiny',
      messages: [{ role: 'user', content: 'hi' }],
      seed: 2,
      max_tokens: 8,
      logprobs: true,
      top_logprobs: 4,
    })
    const content = reply.choices[0]!.logprobs!.content!
    expect(content.length).toBe(reply.usage!.completion_tokens)
    for (const { logprob, top_logprobs } of content) {
      expect(top_logprobs).toHaveLength(4)
      const values = top_logprobs.map((top) => top.logprob)
      expect(values).toEqual([...values].sort((a, b) => b - a))
      expect(logprob).toBeLessThanOrEqual(values[0]! + 1e-6)
      for (const top of top_logprobs)
        expect(top.bytes === null ? top.token : Buffer.from(top.bytes).toString()).toBe(top.token)
    }
  })

  test('return_tokens_as_token_ids writes ids for text', async () => {
    const [choice] = await complete({ return_tokens_as_token_ids: true, logprobs: 2, max_tokens: 5 })
    expect(choice!.logprobs.tokens).toEqual(choice!.token_ids.map((id) => `token_id:${id}`))
    for (const names of choice!.logprobs.top_logprobs)
      expect(Object.keys(names).every((name) => /^token_id:\d+$/.test(name))).toBe(true)
  })

  test('text_offset is where each token begins in the text', async () => {
    const [choice] = await complete({ temperature: 0 })
    const { tokens, text_offset } = choice!.logprobs
    for (const [t, token] of tokens.entries())
      expect(choice!.text.slice(text_offset[t], text_offset[t]! + token.length)).toBe(token)
  })
})

describe('streams', () => {
  test.each([
    ['plain', {}],
    ['a stop string', { stop: ['e'] }],
    ['special tokens', { ignore_eos: true, logit_bias: { [END]: 6 } }],
    ['two samples', { n: 2 }],
  ])(
    'completions, %s: the same text, ids and log-probabilities as whole, in every chunk and all at the end',
    async (_, body) => {
      const request = { seed: 9, max_tokens: 40, ...body }
      const whole = await complete(request)
      const pieces: (Choice & { all_token_ids?: number[]; all_token_logprobs?: number[] })[] = []
      let usage: OpenAI.CompletionUsage | null | undefined
      const stream = await server.client.completions.create({
        model: 'tiny',
        prompt: server.forward.input_ids[0]!,
        stream: true,
        stream_options: { include_usage: true },
        ...{ logprobs: 0, return_token_ids: true },
        ...request,
      } as OpenAI.CompletionCreateParamsStreaming)
      for await (const chunk of stream) {
        expect(chunk).toMatchObject({ policy_version: 'tiny@0' })
        pieces.push(...(chunk.choices as unknown as typeof pieces))
        usage = chunk.usage
      }
      for (const choice of whole) {
        const own = pieces.filter(({ index }) => index === choice.index)
        expect(own.map(({ text }) => text).join('')).toBe(choice.text)
        const tokens = own.flatMap(({ token_ids, logprobs }) =>
          token_ids.map((id, t) => [id, logprobs.token_logprobs[t]]),
        )
        expect(tokens).toEqual(choice.token_ids.map((id, t) => [id, choice.logprobs.token_logprobs[t]]))
        expect(own.at(-1)).toMatchObject({
          finish_reason: choice.finish_reason,
          stop_reason: choice.stop_reason,
          all_token_ids: choice.token_ids,
          all_token_logprobs: choice.logprobs.token_logprobs,
        })
        // behind the opening: the first token at once, the others as they come
        expect(own[1]?.token_ids).toHaveLength(1)
        expect(own.length).toBeGreaterThan(2)
      }
      const sampled = whole.reduce((sum, { token_ids }) => sum + token_ids.length, 0)
      const prompt = server.forward.input_ids[0]!.length
      expect(usage).toEqual({ prompt_tokens: prompt, completion_tokens: sampled, total_tokens: prompt + sampled })
    },
  )

  test('chat: the client puts the text together as it comes whole', async () => {
    const body = { model: 'tiny', messages: [{ role: 'user' as const, content: 'hi' }], seed: 3, max_tokens: 30 }
    const whole = await server.client.chat.completions.create(body)
    const runner = server.client.chat.completions.stream({ ...body, stream: true })
    const put = await runner.finalChatCompletion()
    expect(put.choices[0]?.message.content).toBe(whole.choices[0]?.message.content)
    expect(put.choices[0]?.finish_reason).toBe(whole.choices[0]?.finish_reason)
  })
})

describe('what an answer looks like', () => {
  const chat = async (body: Record<string, unknown>) =>
    await server.client.chat.completions.create({
      model: 'tiny',
      messages: [{ role: 'user', content: 'hi' }],
      max_tokens: 300,
      ...body,
    } as OpenAI.ChatCompletionCreateParamsNonStreaming)

  test('json_object: what ends is one', async () => {
    const { choices } = await chat({ response_format: { type: 'json_object' }, n: 12, seed: 1 })
    const ended = choices.filter(({ finish_reason }) => finish_reason === 'stop')
    expect(ended.length).toBeGreaterThan(0)
    for (const { message } of ended) expect(JSON.parse(message.content!)).toBeTypeOf('object')
    for (const { message } of choices) expect(message.content).toMatch(/^\s*\{/)
  })

  test.each([
    ['response_format', { response_format: { type: 'regex', regex: '<(look|answer)>[a-e]{1,3}</(look|answer)>' } }],
    [
      'structured_outputs, as TRL sends it',
      { structured_outputs: { regex: '<(look|answer)>[a-e]{1,3}</(look|answer)>' } },
    ],
  ])('a grammar of actions by %s', async (_, body) => {
    const { choices } = await chat({ ...body, n: 6, seed: 1 })
    for (const { message, finish_reason } of choices) {
      expect(message.content).toMatch(/^<(look|answer)>[a-e]{1,3}<\/(look|answer)>$/)
      expect(finish_reason).toBe('stop')
    }
    expect(new Set(choices.map(({ message }) => message.content)).size).toBeGreaterThan(1)
  })

  test('choice, and text', async () => {
    const options = ['ground', 'look at it', 'answer (b)']
    const { choices } = await chat({ response_format: { type: 'choice', choice: options }, n: 12, seed: 2 })
    const said = new Set(choices.map(({ message }) => message.content))
    expect([...said].every((text) => options.includes(text!))).toBe(true)
    expect(said.size).toBeGreaterThan(1)
    const plain = await chat({ seed: 5, max_tokens: 10 })
    expect((await chat({ seed: 5, max_tokens: 10, response_format: { type: 'text' } })).choices).toEqual(plain.choices)
  })

  test("the log-probabilities of a constrained answer are the model's own, and what was kept is told", async () => {
    const [choice] = await complete({ structured_outputs: { choice: ['yes', 'no'] }, seed: 1 })
    expect(choice!.sampling_cut!.by).toEqual(['allowed'])
    const prompt = [...choice!.prompt_token_ids, ...choice!.token_ids]
    const [again] = await complete({ prompt, prompt_logprobs: 0, max_tokens: 1 })
    const told = again!.prompt_logprobs!.slice(choice!.prompt_token_ids.length)
    for (const [t, id] of choice!.token_ids.entries())
      expect(Math.abs(told[t]![id]!.logprob - choice!.logprobs.token_logprobs[t]!)).toBeLessThan(1e-4)
  })
})

describe('tokens', () => {
  test('tokenize and detokenize, of prompts and of messages', async () => {
    const messages = [{ role: 'user', content: 'hi' }]
    const { body } = await server.post('/tokenize', { model: 'tiny', messages })
    const text = '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n'
    const whole = await server.post('/tokenize', { prompt: text, return_token_strs: true })
    expect(body).toMatchObject({ tokens: whole.body.tokens, max_model_len: 1024 })
    expect(body.count).toBe((body.tokens as number[]).length)
    expect((whole.body.token_strs as string[]).join('')).toBe(text)
    expect((await server.post('/detokenize', { tokens: body.tokens })).body).toEqual({ prompt: text })
    const open = await server.post('/tokenize', { messages, add_generation_prompt: false })
    expect((await server.post('/detokenize', { tokens: open.body.tokens })).body.prompt).toBe(
      '<|im_start|>user\nhi<|im_end|>\n',
    )
  })

  test('continue_final_message, chat_template_kwargs', async () => {
    const messages = [
      { role: 'user', content: 'hi' },
      { role: 'assistant', content: 'I see' },
    ]
    const ids = async (body: object) => {
      const { body: answer } = await server.post('/v1/chat/completions', {
        model: 'tiny',
        messages,
        max_tokens: 1,
        return_token_ids: true,
        ...body,
      })
      return (await server.post('/detokenize', { tokens: answer.prompt_token_ids })).body.prompt
    }
    const rendered = '<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nI see'
    expect(await ids({ continue_final_message: true, add_generation_prompt: false })).toBe(rendered)
    expect(await ids({ chat_template_kwargs: { think: true } })).toBe(
      `${rendered}<|im_end|>\n<|im_start|>assistant\n<think>`,
    )
  })
})

describe('what cannot be done is a 400 that names it', () => {
  const hello = { model: 'tiny', messages: [{ role: 'user', content: 'hi' }] }
  test.each([
    ['presence_penalty', { presence_penalty: 0.1 }],
    ['frequency_penalty', { frequency_penalty: 0.1 }],
    ['repetition_penalty', { repetition_penalty: 1.1 }],
    ['use_beam_search', { use_beam_search: true }],
    ['reasoning_effort', { reasoning_effort: 'low' }],
    ['cache_salt', { cache_salt: 'x' }],
    ['truncate_prompt_tokens', { truncate_prompt_tokens: 5 }],
    ['bad_words', { bad_words: ['x'] }],
    ['top_logprobs', { top_logprobs: 3 }],
    ['top_logprobs', { logprobs: true, top_logprobs: 129 }],
    ['min_p', { min_p: 1.5 }],
    ['top_k', { top_k: -2 }],
    ['min_tokens', { min_tokens: 5, max_tokens: 4 }],
    ['logit_bias', { logit_bias: { 347: 1 } }],
    ['logit_bias.a', { logit_bias: { a: 1 } }],
    ['stop_token_ids', { stop_token_ids: [347] }],
    ['prompt_logprobs', { prompt_logprobs: 1, stream: true }],
    ['response_format', { response_format: { type: 'json_schema', json_schema: { name: 'x', schema: {} } } }],
    ['response_format', { response_format: { type: 'regex', regex: '(' } }],
    ['response_format', { response_format: { type: 'regex', regex: 'a(?=b)' } }],
    ['tool_choice', { tool_choice: 'required' }],
    ['chat_template', { chat_template: '{{ messages }}' }],
    ['add_special_tokens', { add_special_tokens: true }],
    ['chat_template_kwargs.messages', { chat_template_kwargs: { messages: [] } }],
    ['chat_template_kwargs.add_generation_prompt', { chat_template_kwargs: { add_generation_prompt: false } }],
    ['continue_final_message', { continue_final_message: true }],
    ['seed', { seed: 1.5 }],
    ['n', { n: 0 }],
  ])('%s %j', async (param, body) => {
    const reply = await server.post('/v1/chat/completions', { ...hello, ...body })
    expect(reply).toMatchObject({ status: 400, body: { error: { type: 'invalid_request_error' } } })
    const { error } = reply.body as unknown as { error: { param: string; message: string } }
    expect(error.param).toMatch(new RegExp(`^${param}(\\.|$)`))
    expect(error.message).toContain(param)
  })

  test.each([
    ['echo', { echo: true }],
    ['best_of', { best_of: 2 }],
    ['suffix', { suffix: 'x' }],
    ['prompt', { prompt: [[1, 347]] }],
    ['prompt', { prompt: [[1, 2], []] }],
    ['logprobs', { logprobs: -1 }],
  ])('completions: %s %j', async (param, body) => {
    const reply = await server.post('/v1/completions', { model: 'tiny', prompt: 'hi', ...body })
    expect(reply.status).toBe(400)
    expect((reply.body as unknown as { error: { param: string } }).error.param).toMatch(new RegExp(`^${param}`))
  })

  test('before a stream has begun', async () => {
    const format = { response_format: { type: 'regex', regex: '(' } }
    const reply = await server.post('/v1/chat/completions', { ...hello, ...format, stream: true })
    expect(reply).toMatchObject({ status: 400, body: { error: { param: 'response_format' } } })
  })

  test('ids that are no tokens, to be detokenized', async () => {
    const reply = await server.post('/detokenize', { tokens: [1, 347] })
    expect(reply).toMatchObject({ status: 400, body: { error: { param: 'tokens' } } })
  })

  test('a text that no context holds, without its being tokenised', async () => {
    const long = 'x'.repeat(64 * 1024 + 1)
    const error = { code: 'context_length_exceeded', message: expect.stringContaining('1024 tokens, which 65537 char') }
    for (const [path, body] of [
      ['/v1/completions', { model: 'tiny', prompt: long }],
      ['/v1/chat/completions', { model: 'tiny', messages: [{ role: 'user', content: long }] }],
      ['/tokenize', { prompt: long }],
    ] as const)
      expect(await server.post(path, body)).toMatchObject({ status: 400, body: { error } })
    const many = { model: 'tiny', messages: Array(1025).fill({ role: 'user', content: '' }) }
    expect(await server.post('/v1/chat/completions', many)).toMatchObject({
      status: 400,
      body: { error: { param: 'messages', message: expect.stringContaining('0 characters in 1025 messages') } },
    })
  })
})
