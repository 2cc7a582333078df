import { describe, expect, test } from 'vitest'
import type { Acceptor, State } from '../../../src/serve/constraint/acceptor.ts'
import { jsonObject } from '../../../src/serve/constraint/json.ts'
import { choiceAcceptor, regexAcceptor } from '../../../src/serve/constraint/regex.ts'
import { ConstraintCursor, TokenConstraint } from '../../../src/serve/constraint/tokens.ts'
import { TokenTexts } from '../../../src/serve/constraint/vocabulary.ts'
import { goldenTokenizer, smallTokenizerSource, tokenizerFrom } from '../../policy/models.ts'

/** Whether the whole text is accepted, and whether it can still become so. */
function read(acceptor: Acceptor, text: string): 'accepted' | 'begun' | 'refused' {
  let state: State | null = acceptor.start
  for (const character of text) {
    state = acceptor.step(state, character.codePointAt(0) as number)
    if (state === null) return 'refused'
  }
  return acceptor.isFinal(state) ? 'accepted' : 'begun'
}

describe('regular expressions', () => {
  const actions = '<request_grounding/>|<visual_query>[^<]{1,60}</visual_query>|<answer>a[0-4]</answer>'
  test.each([
    ['<answer>a3</answer>', 'accepted'],
    ['<answer>a5</answer>', 'refused'],
    ['<answer>a3', 'begun'],
    ['<visual_query>what is it?</visual_query>', 'accepted'],
    ['<visual_query></visual_query>', 'refused'],
    [`<visual_query>${'x'.repeat(61)}`, 'refused'],
    ['<request_grounding/>', 'accepted'],
    ['<request_grounding/> ', 'refused'],
  ])('action grammar: %s is %s', (text, expected) => {
    expect(read(regexAcceptor(actions), text)).toBe(expected)
  })

  test('agree with the engine of the language', () => {
    const sources = ['(ab|a)*b', '[^x]y?', '\\d{2,3}(\\.\\d+)?', '😀+', 'a|b|', '^yes$', '[\\u0041-\\u0043]']
    const texts = ['', 'b', 'abab', 'abb', 'z', 'zy', '12', '123.5', '12.', '😀😀', 'yes', 'B', 'D']
    for (const source of sources)
      for (const text of texts)
        expect(read(regexAcceptor(source), text) === 'accepted', `${source} ${text}`).toBe(
          new RegExp(`^(?:${source})$`, 'u').test(text),
        )
  })

  test.each([
    ['(', /Unterminated group/],
    ['a(?=b)', /Assertions are not supported/],
    ['(?:a|b)*a(?:a|b){14}', /more than 5000 states/],
    ['[]', /nothing matches/],
    ['a{100000}', /more than 5000 states/],
  ])('%s is refused', (source, message) => {
    expect(() => regexAcceptor(source)).toThrow(message)
  })

  test('choices are taken literally', () => {
    const acceptor = choiceAcceptor(['a.b', 'c|d', '(x)'])
    expect(['a.b', 'c|d', '(x)', 'axb', 'c', 'x'].map((text) => read(acceptor, text))).toEqual([
      'accepted',
      'accepted',
      'accepted',
      'refused',
      'begun',
      'refused',
    ])
  })
})

describe('JSON objects', () => {
  const good = [
    '{}',
    '{ "a" : [ ] , "b":{"c":[1,-2.5e+3,0,0.25,1E9]}}',
    '{"t":true,"f":false,"n":null}',
    '{"\\u00e9\\"":"x\\n\\\\"}',
    '{"a":[[],[{}]],\n\t"":"😀"}',
  ]
  const bad = [
    '[]',
    '1',
    '{"a":01}',
    '{"a":1.}',
    '{"a":+1}',
    '{a:1}',
    '{"a":1,}',
    '{"a":[1,]}',
    '{"a" 1}',
    '{"a":"\n"}',
    '{"a":tru}',
    '{} ',
    '{"a":"\\x"}',
    '{"a":"\\u12g4"}',
    '{"a":-}',
    '{"a":1e}',
    '{"a":]}',
  ]
  test.each(good)('%s', (text) => {
    expect(JSON.parse(text)).toBeTypeOf('object')
    expect(read(jsonObject, text)).toBe('accepted')
    for (let length = 0; length < text.length - 1; length++)
      if (!/[\ud800-\udbff]$/.test(text.slice(0, length))) expect(read(jsonObject, text.slice(0, length))).toBe('begun')
  })
  test.each(bad)('not %s', (text) => expect(read(jsonObject, text)).toBe('refused'))

  test('depth and white space are bounded', () => {
    expect(read(jsonObject, `{"a":${'['.repeat(23)}`)).toBe('begun')
    expect(read(jsonObject, `{"a":${'['.repeat(24)}`)).toBe('refused')
    expect(read(jsonObject, `{${' '.repeat(25)}`)).toBe('refused')
  })
})

describe('tokens', () => {
  const tokenizers = { byte: goldenTokenizer(), words: tokenizerFrom(smallTokenizerSource()) }
  /** Takes the n-th allowed token each time, n from a fixed sequence. */
  const write = (kind: keyof typeof tokenizers, acceptor: Acceptor, seed: number, most = 200) => {
    const tokenizer = tokenizers[kind]
    const constraint = new TokenConstraint(acceptor, new TokenTexts(tokenizer), tokenizer)
    const cursor = new ConstraintCursor(constraint)
    const ids: number[] = []
    for (let n = 0; n < most; n++) {
      const allowed = [...cursor.allowed()].flatMap((flag, id) => (flag ? [id] : []))
      expect(allowed.length).toBeGreaterThan(0)
      const id = allowed[(seed * 31 + n * 17) % allowed.length] as number
      if (tokenizer.endIds.has(id)) return { text: tokenizer.decode(ids), ended: true }
      cursor.advance(id)
      ids.push(id)
    }
    return { text: tokenizer.decode(ids), ended: false }
  }

  test.each(['byte', 'words'] as const)('whatever is chosen among them matches (%s tokenizer)', (kind) => {
    const source = '<answer>a[01]</answer>|<visual_query>[a-z ?]{1,40}</visual_query>'
    const texts = Array.from({ length: 30 }, (_, seed) => write(kind, regexAcceptor(source), seed))
    for (const { text, ended } of texts) {
      expect(ended).toBe(true)
      expect(text).toMatch(new RegExp(`^(?:${source})$`))
    }
    expect(new Set(texts.map(({ text }) => text)).size).toBeGreaterThan(5)
  })

  test('JSON that ends can be parsed', () => {
    const ended = Array.from({ length: 60 }, (_, seed) => write('byte', jsonObject, seed)).filter((one) => one.ended)
    expect(ended.length).toBeGreaterThan(0)
    for (const { text } of ended) JSON.parse(text)
  })

  test('a token that was not allowed is an error', () => {
    const tokenizer = tokenizers.byte
    const constraint = new TokenConstraint(choiceAcceptor(['yes']), new TokenTexts(tokenizer), tokenizer)
    const cursor = new ConstraintCursor(constraint)
    expect(() => cursor.advance(tokenizer.encode('n')[0] as number)).toThrow(/leaves the constraint/)
  })
})
