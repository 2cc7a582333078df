import iconv from 'iconv-lite'
import { expect, test } from 'vitest'
import { parseClipText, parsePreprocessed, parseSrt } from '../../src/dataset/subtitles.ts'
import { decodeText } from '../../src/dataset/text.ts'
import { failure, value } from './folder.ts'

test('clip-level text: speakers, UNKNAME, sentences with a colon', () => {
  expect(parseClipText('Leonard : Hi , Penny . <eos> UNKNAME : Psst ! <eos> Sheldon counts: one, two. <eos> ')).toEqual(
    [{ speaker: 'Leonard', text: 'Hi , Penny .' }, { text: 'Psst !' }, { text: 'Sheldon counts: one, two.' }],
  )
  expect(parseClipText('')).toEqual([])
})

test('srt: times in seconds, speakers, several voices in one cue, markup', () => {
  const text =
    '1\r\n00:00:01,500 --> 00:00:02,750\r\n(Penny:)<i>Hi</i>\r\nthere.\r\n\r\n2\r\n00:01:00,000 --> 00:01:02,000\r\n(Leonard:)Hello. (UNKNAME:)Bye.\r\n'
  expect(value(parseSrt(text, 'x.srt'))).toEqual([
    { speaker: 'Penny', text: 'Hi there.', start: 1.5, end: 2.75 },
    { speaker: 'Leonard', text: 'Hello.', start: 60, end: 62 },
    { text: 'Bye.', start: 60, end: 62 },
  ])
})

test('an srt without any subtitle is a failure that shows what came', () => {
  expect(failure(parseSrt('WEBVTT nothing here', 'sub/x.srt')).message).toMatch(
    /^sub\/x\.srt: no subtitle found.*WEBVTT/,
  )
})

test('preprocessed TVQA lines', () => {
  expect(parsePreprocessed([{ text: '(House:)No.', start: 1, end: 2 }])).toEqual([
    { speaker: 'House', text: 'No.', start: 1, end: 2 },
  ])
  expect(parsePreprocessed([{ text: 'no times' }])).toBeNull()
})

const french = '1\n00:00:01,000 --> 00:00:02,000\n(Céline:)Déjà vu, c’est la vie; garçon, un café à côté.\n'.replace(
  '’',
  "'",
)

test.each(['utf8', 'iso-8859-1', 'windows-1252', 'utf16le'])('%s text is read as it was written', (encoding) => {
  const bytes = iconv.encode(french, encoding, { addBOM: encoding === 'utf16le' })
  const decoded = value(decodeText(bytes, 'x.srt'))
  expect(decoded.text.replace(/^\uFEFF/, '')).toBe(french)
  expect(value(parseSrt(decoded.text, 'x.srt'))[0]?.speaker).toBe('Céline')
})

test('Cyrillic and Japanese text is not taken for Western European', () => {
  const russian = 'Добрый вечер, доктор. Я не понимаю, почему вы пришли так поздно.'
  expect(value(decodeText(iconv.encode(russian, 'windows-1251'), 'x')).text).toBe(russian)
  const japanese = 'これは日本語の字幕です。お元気ですか。私は元気です。'
  expect(value(decodeText(iconv.encode(japanese, 'shift_jis'), 'x')).text).toBe(japanese)
})
