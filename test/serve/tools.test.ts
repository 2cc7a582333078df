/** Tools: rendered by the chat template, called in the answer, and given back. The ids stay what was sampled. */
import type OpenAI from 'openai'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { parseToolCalls } from '../../src/serve/toolCalls.ts'
import { startTiny, type TinyServer } from './tinyServer.ts'

let server: TinyServer
beforeAll(async () => {
  server = await startTiny()
})
afterAll(() => server.close())

const tools: OpenAI.ChatCompletionFunctionTool[] = [
  {
    type: 'function',
    function: {
      name: 'look',
      description: 'Looks at the clip.',
      parameters: { type: 'object', properties: { query: { type: 'string' } } },
    },
  },
]
const hello = { model: 'tiny', messages: [{ role: 'user' as const, content: 'hi' }], tools }
/** The random model would not call anything by itself: a grammar makes it. */
const calling = {
  response_format: {
    type: 'regex',
    regex: 'so <tool_call>\\{"name": "look", "arguments": \\{"query": "[ab]{2}"\\}\\}</tool_call>',
  },
  max_tokens: 120,
  seed: 4,
  return_token_ids: true,
}
const create = (body: object) =>
  server.client.chat.completions.create(body as OpenAI.ChatCompletionCreateParamsNonStreaming)

async function promptOf(body: object): Promise<string> {
  const { body: tokens } = await server.post('/tokenize', body)
  return String((await server.post('/detokenize', { tokens: tokens.tokens })).body.prompt)
}

test('the template writes the tools, and a call and its result as they are given back', async () => {
  const call = { id: 'call_1', type: 'function', function: { name: 'look', arguments: '{"query": "sign"}' } }
  const messages = [
    ...hello.messages,
    { role: 'assistant', content: null, tool_calls: [call] },
    { role: 'tool', tool_call_id: 'call_1', content: 'a red sign' },
  ]
  const prompt = await promptOf({ messages, tools })
  expect(prompt).toContain('Tools:\n{"type": "function", "function": {"name": "look"')
  expect(prompt).toContain('<tool_call>{"name": "look", "arguments": {"query": "sign"}}</tool_call><|im_end|>')
  expect(prompt).toContain('<|im_start|>tool\na red sign<|im_end|>')
  expect(await promptOf({ messages })).not.toContain('Tools:')
})

test('a call is taken out of the text; its ids stay; it can be given back', async () => {
  const reply = await create({ ...hello, ...calling })
  const [choice] = reply.choices
  expect(choice).toMatchObject({
    finish_reason: 'tool_calls',
    message: { content: 'so', tool_calls: [{ type: 'function', function: { name: 'look' } }] },
  })
  const [call] = choice!.message.tool_calls as OpenAI.ChatCompletionMessageFunctionToolCall[]
  expect(JSON.parse(call!.function.arguments)).toEqual({ query: expect.stringMatching(/^[ab]{2}$/) })
  const { token_ids: ids } = choice as unknown as { token_ids: number[] }
  const { body } = await server.post('/detokenize', { tokens: ids.slice(0, -1) })
  expect(body.prompt).toMatch(/^so <tool_call>.*<\/tool_call>$/)
  const messages = [...hello.messages, choice!.message, { role: 'tool', tool_call_id: call!.id, content: 'a sign' }]
  const next = await create({ ...hello, messages, max_tokens: 2 })
  expect(next.choices[0]?.finish_reason).not.toBe('tool_calls')
})

test('streamed: the client puts the same call together, and the ids come as they are sampled', async () => {
  const whole = await create({ ...hello, ...calling })
  const pieces: { token_ids: number[]; delta: object; all_token_ids?: number[] }[] = []
  const stream = server.client.chat.completions.stream({ ...hello, ...calling, stream: true } as never)
  stream.on('chunk', (chunk) => pieces.push(...(chunk.choices as unknown as typeof pieces)))
  const put = await stream.finalChatCompletion()
  expect(put.choices[0]?.finish_reason).toBe('tool_calls')
  const call = ({ choices: [choice] }: OpenAI.ChatCompletion) => {
    const [first] = choice!.message.tool_calls as OpenAI.ChatCompletionMessageFunctionToolCall[]
    return first!.function
  }
  expect(call(put)).toMatchObject({ name: call(whole).name, arguments: call(whole).arguments })
  expect(put.choices[0]?.message.content).toBe('so')
  const { token_ids: ids } = whole.choices[0] as unknown as { token_ids: number[] }
  expect(pieces.flatMap(({ token_ids = [] }) => token_ids)).toEqual(ids)
  expect(pieces.at(-1)?.all_token_ids).toEqual(ids)
})

test('tool_choice none leaves calls in the text', async () => {
  const { choices } = await create({ ...hello, ...calling, tool_choice: 'none' })
  expect(choices[0]).toMatchObject({
    finish_reason: 'stop',
    message: { content: expect.stringMatching(/^so <tool_call>/) },
  })
})

test('what is not well formed stays text', () => {
  for (const text of [
    '<tool_call>{"name": "look"}</tool_call>',
    '<tool_call>look</tool_call>',
    '<tool_call>{"name": "look", "arguments": {}}',
    '<tool_call>null</tool_call>',
  ])
    expect(parseToolCalls(text, 'hermes', 's')).toEqual({ content: text, calls: [] })
  const two = parseToolCalls(
    '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": {"x": 1}}</tool_call>',
    'hermes',
    's',
  )
  expect(two.content).toBeNull()
  expect(two.calls.map((call) => call.function)).toEqual([
    { name: 'a', arguments: '{}' },
    { name: 'b', arguments: '{"x":1}' },
  ])
  expect(new Set(two.calls.map(({ id }) => id)).size).toBe(2)
  expect(parseToolCalls('{"name": "a", "parameters": {"x": 1}}', 'llama3', 's')).toMatchObject({
    content: null,
    calls: [{ function: { name: 'a', arguments: '{"x":1}' } }],
  })
})
