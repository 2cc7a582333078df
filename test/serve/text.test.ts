/** Text of an answer as it comes, against the whole text cut at its first stop string. The tokenizer here has one token for each byte. */
import { expect, test } from 'vitest'
import { AnswerText, textOf } from '../../src/serve/text.ts'
import type { ChatTokenizer } from '../../src/types.ts'

const bytes = {
  encode: (text: string) => [...Buffer.from(text)],
  decode: (ids: readonly number[]) => Buffer.from(ids).toString(),
} as unknown as ChatTokenizer

const settings = { stopIds: [], includeStop: false, ignoreEnd: false, skipSpecial: false }

function piecesOf(text: string, stop: string[], includeStop = false) {
  const answer = new AnswerText(bytes, { ...settings, stop, includeStop })
  const pieces = bytes.encode(text).map((id) => answer.push(id))
  return { pieces: [...pieces, answer.finish()], stopReason: answer.stopReason }
}

test('characters of several bytes come whole', () => {
  const { pieces } = piecesOf('a\u00e9\u6f22\u{1f600}b', [])
  expect(pieces).toEqual(['a', '', '\u00e9', '', '', '\u6f22', '', '', '', '\u{1f600}', 'b', ''])
})

test('a character that the answer ends in the middle of is told at the end', () => {
  const answer = new AnswerText(bytes, { ...settings, stop: [] })
  expect([...Buffer.from('a\u6f22')].slice(0, 3).map((id) => answer.push(id))).toEqual(['a', '', ''])
  expect(answer.finish()).toBe('\ufffd')
})

test('what may begin a stop string is held back until it does not', () => {
  expect(piecesOf('abaac', ['aac']).pieces).toEqual(['', 'ab', '', '', '', ''])
  expect(piecesOf('abaab', ['aac']).pieces).toEqual(['', 'ab', '', '', 'aab', ''])
  expect(piecesOf('aba', ['aac']).pieces).toEqual(['', 'ab', '', 'a'])
})

test('pieces together are the text up to the first stop string, however they overlap', () => {
  const words = ['ab', 'ba', 'aab', 'bb\u6f22', 'a\u6f22b', 'aaaa']
  let checked = 0
  for (let number = 0; number < 3 ** 7; number++) {
    const text = number.toString(3).replaceAll('0', 'a').replaceAll('1', 'b').replaceAll('2', '\u6f22')
    const stop = words.filter((_, index) => (number >> index) % 2 === 0)
    // the earliest end of a stop string decides: nothing is sampled behind it
    const ends = stop.filter((word) => text.includes(word)).map((word) => ({ word, at: text.indexOf(word) }))
    const end = Math.min(...ends.map(({ word, at }) => at + word.length))
    const [first] = ends.filter(({ word, at }) => at + word.length === end).sort((a, b) => a.at - b.at)
    for (const includeStop of [false, true]) {
      const { pieces, stopReason } = piecesOf(text, stop, includeStop)
      const cut = first && (includeStop ? end : first.at)
      expect([pieces.join(''), stopReason], `${text} ${stop}`).toEqual([text.slice(0, cut), first?.word ?? null])
      checked++
    }
    const whole = textOf(bytes, bytes.encode(text), { ...settings, stop })
    expect(whole.text).toBe(piecesOf(text, stop).pieces.join(''))
  }
  expect(checked).toBe(2 * 3 ** 7)
})
