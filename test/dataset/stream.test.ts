import { open } from 'node:fs/promises'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { readItemAt, readItems } from '../../src/dataset/stream.ts'
import { failure, folder, value } from './folder.ts'

async function itemsOf(content: string | Buffer) {
  const path = join(folder({ x: content }), 'x')
  const items = []
  for await (const item of readItems(path)) items.push(value(item))
  return { path, items }
}

async function failureOf(content: string | Buffer) {
  const path = join(folder({ x: content }), 'x')
  for await (const item of readItems(path)) if (!item.ok) return failure(item)
  throw new Error('expected a failure')
}

test('array, object and lines by content, each item with its place', async () => {
  const places = async (content: string) =>
    (await itemsOf(content)).items.map(({ key, value, place }) => [key, value, place])
  expect(await places('[{"a":1},\n 2, "]"]')).toEqual([
    [null, { a: 1 }, 'row 1'],
    [null, 2, 'row 2'],
    [null, ']', 'row 3'],
  ])
  expect(await places('{"x": {"a": [1,{}]},\n "y,": "}\\""}')).toEqual([
    ['x', { a: [1, {}] }, 'entry "x"'],
    ['y,', '}"', 'entry "y,"'],
  ])
  expect(await places('{"a":1}\n\n{"a":2}\r\n{"a":3}')).toEqual([
    [null, { a: 1 }, 'line 1'],
    [null, { a: 2 }, 'line 3'],
    [null, { a: 3 }, 'line 4'],
  ])
  expect(await places('[]')).toEqual([])
  expect(await places(' {} ')).toEqual([])
})

test('byte order mark, bare NaN, Latin-1 bytes', async () => {
  expect((await itemsOf('\ufeff[NaN, "NaN"]')).items.map((item) => item.value)).toEqual([null, 'NaN'])
  const latin = Buffer.from('{"q":"Zo\xe9"}\n{"q":"caf\xe9"}\n', 'latin1')
  expect((await itemsOf(latin)).items.map((item) => item.value)).toEqual([{ q: 'Zoé' }, { q: 'café' }])
})

test.each(['array', 'object', 'lines'])('items across chunks, and read again where they stand: %s', async (form) => {
  // values of 1 to 300,000 bytes, with brackets and quotes in them, over several chunks of 256 KiB
  const values = Array.from({ length: 40 }, (_, i) => ({ i, text: `é"]},{[\\ ${'x'.repeat((i * 7919) % 30_000)}` }))
  values.push({ i: 40, text: '"'.repeat(300_000) })
  const content =
    form === 'array'
      ? JSON.stringify(values)
      : form === 'object'
        ? JSON.stringify(Object.fromEntries(values.map((one) => [`k${one.i}`, one])))
        : values.map((one) => JSON.stringify(one)).join('\n')
  const { path, items } = await itemsOf(content)
  expect(items.map((item) => item.value)).toEqual(values)
  const file = await open(path)
  for (const item of [items[3]!, items[40]!, items[17]!]) {
    expect(await readItemAt(file, form as 'array', item)).toEqual(item.value)
  }
  await file.close()
})

test.each([
  ['[{"a":1},', 'line 1, column 1: the file ends too early'],
  ['[{"a":1},\n {"a":2', 'line 2, column 2: the file ends inside the last value'],
  ['[\n 1,\n {"a":}]', 'line 3, column 7: expected value, got }'],
  ['{"a": 1,\n "b": [1 2]}', 'line 2, column 10: expected comma or end, got 2'],
  ['{"a": x}', 'line 1, column 7: expected value'],
  ['[1,,2]', 'line 1, column 4: expected a value, got ","'],
  ['[1,]', 'line 1, column 4: expected a value, got "]"'],
  ['[1}', 'line 1, column 3: expected ], got "}"'],
  ['[1] x', 'line 1, column 5: expected the end of the file, got "x"'],
  ['{"a":1}\n{"a":', 'line 2, column 6: the file ends too early'],
  ['  ', 'the file is empty'],
  ['hello', 'expected a JSON array, object or one object per line, got "hello"'],
])('an error has a place: %j', async (content, message) => {
  const { kind, message: got } = await failureOf(content)
  expect(kind).toBe('bad_file')
  expect(got).toContain(message)
})

test('UTF-16 and a missing file are named', async () => {
  expect((await failureOf(Buffer.from('\ufeff[1]', 'utf16le'))).message).toContain('UTF-16')
  for await (const item of readItems('/nowhere/x.json')) expect(failure(item).kind).toBe('missing_file')
})
