/** Structured output as roles write it: what is well formed, what can still be read, and what is wrong with the rest. */
import { expect, test } from 'vitest'
import { z } from 'zod'
import { readStructured } from '../../src/systems/structured.ts'

const schema = z.strictObject({ score: z.number().min(0).max(1), clue: z.string() })

test.each([
  ['the JSON alone', '{"score": 0.5, "clue": "x"}'],
  ['white space', ' \n{"score": 0.5,\n "clue": "x"}\n'],
  ['after reasoning', '<reasoning>{"score": 9}</reasoning> {"score": 0.5, "clue": "x"}'],
  ['after thinking', '<think>\nhm {\n</think>\n{"score": 0.5, "clue": "x"}'],
])('%s is well formed', (_, text) => {
  expect(readStructured(text, schema)).toEqual({ ok: true, value: { score: 0.5, clue: 'x' }, wellFormed: true })
})

test.each([
  ['a fence', '```json\n{"score": 0.5, "clue": "x"}\n```'],
  ['words around it', 'Here it is: {"score": 0.5, "clue": "x"} .'],
])('%s is read and not well formed', (_, text) => {
  expect(readStructured(text, schema)).toEqual({ ok: true, value: { score: 0.5, clue: 'x' }, wellFormed: false })
})

test.each([
  ['', /nothing was written/],
  ['<reasoning>so</reasoning>', /nothing was written/],
  ['the clue is x', /there is no JSON/],
  ['{"score": 0.5, "clue": "x"', /cannot be read/],
  ['{"score": 1} or {"score": 2}', /cannot be read/],
  ['{"score": 2, "clue": "x"}', /^score: /],
  ['{"score": 0.5}', /^clue: /],
  ['{"score": 0.5, "clue": "x", "more": 1}', /more/],
  ['0.5', /expected object/],
])('%j is none', (text, problem) => {
  const read = readStructured(text, schema)
  expect(!read.ok && read.problem).toMatch(problem)
})
