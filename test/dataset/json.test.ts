import { expect, test } from 'vitest'
import { parseJsonFile } from '../../src/dataset/json.ts'
import { failure, value } from './folder.ts'

const parse = (text: string) => parseJsonFile(text, 'rows.jsonl')

test('array, object and lines are told apart by content', () => {
  expect(value(parse('[{"a":1},{"a":2}]'))).toEqual({ form: 'array', rows: [{ a: 1 }, { a: 2 }] })
  expect(value(parse('{"x": {"a": 1},\n "y": 2}'))).toEqual({ form: 'object', value: { x: { a: 1 }, y: 2 } })
  expect(value(parse('{"a":1}\n\n{"a":2}\r\n'))).toEqual({ form: 'lines', rows: [{ a: 1 }, { a: 2 }], lines: [1, 3] })
})

test("Python's bare NaN is null, and stays a word in strings", () => {
  expect(value(parse('[{"ts": [NaN, 3], "q": "is it [NaN, or \\"NaN\\"?"}]'))).toEqual({
    form: 'array',
    rows: [{ ts: [null, 3], q: 'is it [NaN, or "NaN"?' }],
  })
})

test.each([
  ['[{"a":1},', 1, 10, 'ends too early'],
  ['{"a":}', 1, 6, 'expected value, got }'],
  ['[1,\n 2] x', 2, 5, 'expected comma or end'],
  ['[\n {"a": "never closed}\n]', 2, 8, 'a string that is not closed'],
  ['{"a" 1}', 1, 6, 'expected colon'],
  ['{"a":1,}', 1, 8, 'expected key, got }'],
  ['[01]', 1, 3, 'expected comma or end'],
])('an error has a place: %s', (text, line, column, what) => {
  const { kind, message } = failure(parse(text))
  expect(kind).toBe('bad_file')
  expect(message).toContain(`rows.jsonl: not JSON at line ${line}, column ${column}: `)
  expect(message).toContain(what)
})

test('a broken line of JSON Lines is named', () => {
  expect(failure(parse('{"a":1}\n{"a":2}\n{"a":')).message).toContain('line 3')
})

test('empty and scalar files', () => {
  expect(failure(parse(' \n ')).message).toContain('empty')
  expect(failure(parse('42')).message).toContain('a single number')
})
