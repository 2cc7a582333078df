import { expect, test } from 'vitest'
import { fitObservation } from '../../src/rollout/fit.ts'

/** Tags and words are one token each. */
const count = (text: string): number => text.match(/<[^<>\s]+>|[^\s<]+/g)?.length ?? 0

test('a text within the limit, or without one, is left as it is', () => {
  expect(fitObservation('<information>a b</information>', 4, count)).toBe('<information>a b</information>')
  expect(fitObservation('a b c', null, count)).toBe('a b c')
})

test('a longer one keeps its head and its closing tag', () => {
  expect(fitObservation('<information>a b c d e f</information>', 5, count)).toBe('<information>a b c</information>')
})

test('a cut inside the second block closes that block, on its own line', () => {
  const text = '<c1>\nAnn : hi\n</c1>\n<c2>\nBob : a b c d\n</c2>'
  expect(fitObservation(text, 10, count)).toBe('<c1>\nAnn : hi\n</c1>\n<c2>\nBob : a\n</c2>')
  expect(fitObservation(text, 4, count)).toBe('<c1>\nAnn :\n</c1>')
})

test('one endless word can be cut too, and never exceeds the limit', () => {
  const letters = (text: string): number => text.replace(/\s/g, '').length
  const cut = fitObservation(`<information>${'x'.repeat(5000)}</information>`, 100, letters)
  expect(cut).toMatch(/^<information>x{60,}<\/information>$/)
  expect(cut.length).toBeLessThanOrEqual(100)
})
