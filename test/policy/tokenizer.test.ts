import { describe, expect, test } from 'vitest'
import type { TextTokenizer, TokenizerSource } from '../../src/policy/tokenizer.ts'
import { openTokenizer } from '../../src/policy/tokenizer.ts'
import { buildWordTokenizer } from '../../src/policy/wordTokenizer.ts'
import type { Message } from '../../src/types.ts'
import { goldenForward, goldenTokenizer, smallTokenizerSource, tokenizerFrom } from './models.ts'

const conversation: Message[] = [
  { role: 'system', content: 'what is the sign' },
  { role: 'user', content: 'Question: what colour is the mug?' },
  { role: 'assistant', content: '<visual_query>red mug</visual_query>' },
  { role: 'user', content: "the mug's red. <turns_left_3>" },
  { role: 'assistant', content: '<request_grounding/>' },
  { role: 'user', content: '<seg01_clip_00> what is the sign' },
  { role: 'assistant', content: '<answer>a0</answer>' },
]

/** Prompt, then what was sampled, then each continuation: as the loop grows a sequence. */
function grown(tokenizer: TextTokenizer, messages: readonly Message[]): number[] {
  const first = messages.findIndex((message) => message.role === 'assistant')
  const ids = tokenizer.encodePrompt(messages.slice(0, first))
  for (let at = first; at < messages.length; at++) {
    const message = messages[at]!
    ids.push(
      ...(message.role === 'assistant' ? tokenizer.encode(message.content) : tokenizer.encodeContinuation([message])),
    )
  }
  return ids
}

function wholeRendering(tokenizer: TextTokenizer): number[] {
  // What follows the last assistant text is the template's and comes with the next continuation.
  const last = conversation.at(-1)!.content
  const text = tokenizer.render(conversation, false)
  return tokenizer.encode(text.slice(0, text.lastIndexOf(last) + last.length))
}

describe('the golden model', () => {
  test('gives the ids of transformers', () => {
    const golden = goldenForward()
    expect(goldenTokenizer().encode(golden.tokenizer.text)).toEqual(golden.tokenizer.ids)
    expect(goldenTokenizer().decode(golden.tokenizer.ids)).toBe(golden.tokenizer.text)
  })

  test('renders the chat as transformers does', () => {
    const { chat } = goldenForward()
    expect(goldenTokenizer().render(chat.messages, true)).toBe(chat.rendered)
    expect(goldenTokenizer().encodePrompt(chat.messages)).toEqual(chat.ids)
    expect(goldenTokenizer().endIds).toEqual(new Set([2]))
  })

  test('a conversation grown turn by turn equals the whole one rendered', () => {
    expect(grown(goldenTokenizer(), conversation)).toEqual(wholeRendering(goldenTokenizer()))
  })
})

describe('a tokenizer of whole words', () => {
  const tokenizer = tokenizerFrom(smallTokenizerSource())

  test('a conversation grown turn by turn equals the whole one rendered', () => {
    expect(grown(tokenizer, conversation)).toEqual(wholeRendering(tokenizer))
  })

  test('several messages can follow in one continuation', () => {
    const two: Message[] = [
      { role: 'user', content: 'red' },
      { role: 'system', content: 'sign' },
    ]
    expect(tokenizer.decode(tokenizer.encodeContinuation(two))).toBe(
      '<|end|><|user|>red<|end|><|system|>sign<|end|><|assistant|>',
    )
  })

  // The right-hand sides are also what transformers 5 gives for the same files (checked by hand with its Python package).
  test.each([
    ['What  colour is the Mug?', 'what colour is the mug ?'],
    ['<visual_query>Red signs</visual_query>', '<visual_query>red signs</visual_query>'],
    [
      '<visual_query>zebra sign zebra</visual_query>\n<answer>a0</answer>',
      '<visual_query><unk> sign <unk></visual_query><answer>a0</answer>',
    ],
    ['café is < the > sign', 'cafe is < the > sign'],
    ["<seg01_clip_00> question:what's<turns_left_3><|end|>", "<seg01_clip_00>question : what ' s<turns_left_3><|end|>"],
    [' ', ''],
  ])('%j is read as %j', (text, decoded) => {
    expect(tokenizer.decode(tokenizer.encode(text))).toBe(decoded)
  })

  test('every tag is one token, and what is decoded is read back as the same ids', () => {
    const ids = tokenizer.encode('<visual_query>red sign</visual_query>')
    expect(ids).toHaveLength(4)
    expect(tokenizer.encode(tokenizer.decode(ids))).toEqual(ids)
    expect(tokenizer.endIds).toEqual(new Set([tokenizer.idOf('<|end|>')]))
  })

  test('ids are dense, in the order given, and do not change with the order of calls', () => {
    const { tokenizerJson } = buildWordTokenizer(['b', 'a', 'b'], ['<answer>', '<|user|>'])
    expect((tokenizerJson.model as { vocab: object }).vocab).toEqual({
      '<|pad|>': 0,
      '<unk>': 1,
      '<|system|>': 2,
      '<|user|>': 3,
      '<|assistant|>': 4,
      '<|end|>': 5,
      '<answer>': 6,
      b: 7,
      a: 8,
    })
    expect(() => buildWordTokenizer([], ['no tag'])).toThrow('no tag')
  })

  test('reads at least 500 observations per second', () => {
    const begin = performance.now()
    for (let i = 0; i < 500; i++) {
      tokenizer.encodeContinuation([
        {
          role: 'user',
          content: `subtitle ${i} : what colour is the red sign ? options ${i * 7} a0 a1 cafe <turns_left_3>`,
        },
      ])
    }
    // 17,000 per second when measured alone; the bound leaves room for neighbours.
    expect(performance.now() - begin).toBeLessThan(1000)
  })
})

test('a directory without tokenizer or template, or with one that nobody understands, is a failure', () => {
  const whole = smallTokenizerSource()
  const failing = (source: typeof whole) => openTokenizer(source, 'checkpoints/x')
  expect(failing({ ...whole, tokenizer: null })).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file', message: expect.stringContaining('checkpoints/x: no tokenizer.json') },
  })
  expect(failing({ ...whole, chatTemplate: null })).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining('no chat template') },
  })
  expect(failing({ ...whole, chatTemplate: '{% for m in %}' })).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file' },
  })
  expect(failing({ ...whole, tokenizer: { version: '1.0' } })).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file' },
  })
  const inConfig = {
    ...whole,
    chatTemplate: null,
    tokenizerConfig: { ...whole.tokenizerConfig, chat_template: whole.chatTemplate },
  }
  expect(failing(inConfig)).toMatchObject({ ok: true })
})

describe('what ends a turn', () => {
  const whole = smallTokenizerSource()
  /** A tokenizer with these special tokens and the header of Llama 3, whose base models declare only the end of the text. */
  const withTokens = (chatTemplate: string, generationConfig: Record<string, unknown> | null): TokenizerSource => {
    const names = ['<|begin_of_text|>', '<|end_of_text|>', '<|eot_id|>', '<|start_header_id|>', '<|end_header_id|>']
    const first = tokenizerFrom(whole).vocabularySize
    const added = names.map((content, index) => ({
      id: first + index,
      content,
      special: true,
      single_word: false,
      lstrip: false,
      rstrip: false,
      normalized: false,
    }))
    const tokenizer = whole.tokenizer as { added_tokens: object[] }
    return {
      ...whole,
      tokenizer: { ...tokenizer, added_tokens: [...tokenizer.added_tokens, ...added] },
      tokenizerConfig: { bos_token: '<|begin_of_text|>', eos_token: { content: '<|end_of_text|>' } },
      chatTemplate,
      generationConfig,
    }
  }
  // In the manner of Llama 3's, with a date as its later versions have one.
  const llama =
    "{{ bos_token }}{% if not date_string is defined %}{% set date_string = strftime_now('%d %b %Y') %}{% endif %}{{ date_string }}" +
    "{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}" +
    '{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}'

  test('the token that the template closes a message with counts, besides all that are declared', () => {
    const tokenizer = tokenizerFrom(withTokens(llama, null))
    const id = (token: string) => tokenizer.idOf(token)!
    expect([...tokenizer.endIds].sort()).toEqual([id('<|end_of_text|>'), id('<|eot_id|>')].sort())
    const listed = tokenizerFrom(
      withTokens('{% for m in messages %}{{ m.content }} {% endfor %}', { eos_token_id: [3, 4] }),
    )
    expect([...listed.endIds].sort()).toEqual([3, 4, id('<|end_of_text|>')].sort())
  })

  test('prompts and continuations keep the special tokens whole, and no prompt depends on the date', () => {
    const tokenizer = tokenizerFrom(withTokens(llama, null))
    const rendered = tokenizer.render([{ role: 'user', content: 'what colour' }], true)
    expect(rendered).toBe(
      '<|begin_of_text|>26 Jul 2024<|start_header_id|>user<|end_header_id|>\n\nwhat colour<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n',
    )
    const ids = tokenizer.encodePrompt([{ role: 'user', content: 'what colour' }])
    expect(ids[0]).toBe(tokenizer.idOf('<|begin_of_text|>'))
    expect(ids.filter((id) => id === tokenizer.idOf('<|start_header_id|>'))).toHaveLength(2)
    expect(tokenizer.encodeContinuation([{ role: 'user', content: 'red' }])[0]).toBe(tokenizer.idOf('<|eot_id|>'))
  })

  test('of several templates in tokenizer_config.json the default one is taken', () => {
    const chat_template = [
      { name: 'tool_use', template: 'tools' },
      { name: 'default', template: '{% for m in messages %}[{{ m.content }}]{% endfor %}' },
    ]
    const source = { ...whole, chatTemplate: null, tokenizerConfig: { ...whole.tokenizerConfig, chat_template } }
    expect(tokenizerFrom(source).render([{ role: 'user', content: 'x' }], false)).toBe('[x]')
  })
})
