import { expect, describe as group, test } from 'vitest'
import type { ColourName } from '../../src/agents/colours.ts'
import { normaliseClipLabel } from '../../src/agents/groundingEndpoint.ts'
import { queryKind } from '../../src/agents/query.ts'
import { contentWords, lexicalBonus } from '../../src/agents/relevance.ts'
import type { ClipPercept, FrameText } from '../../src/agents/sentences.ts'
import { describe } from '../../src/agents/sentences.ts'

group('what a query asks', () => {
  test.each([
    ['sign', 'text'],
    ['what does the sign say ?', 'text'],
    ['read the text on the wall', 'text'],
    ['Which WORDS are written there?', 'text'],
    ['color', 'colour'],
    ['what color is the sign', 'colour'],
    ['the colour of the car', 'colour'],
    ['object', 'object'],
    ['what is shown ?', 'object'],
    ['which things can be seen', 'object'],
    ['who is in the picture', 'object'],
    ['how many cups are there', 'count'],
    ['count the people', 'count'],
    ['number of signs', 'count'],
    ['the number', 'count'],
    ['what number is on the sign', 'text'],
    ['kitchen', 'everything'],
    ['', 'everything'],
    ['designs of the building', 'everything'],
  ] as const)('%s: %s', (query, kind) => {
    expect(queryKind(query)).toBe(kind)
  })
})

group('what was seen, in words', () => {
  const line = (text: string, panel: ColourName = 'red', score = 0.99) => ({ text, panel, score })
  const frame = (...lines: ReturnType<typeof line>[]): FrameText => ({ lines, colour: 'gray' })
  const clip = (parts: Partial<ClipPercept>): ClipPercept => ({ text: null, objects: null, ...parts })
  const object = (label: string, score = 0.9) => ({ label, score })

  test('text: lower case, marks at the ends gone, several lines in order', () => {
    expect(describe('text', [clip({ text: [frame(line('LANTERN'))] })])).toBe('the sign says lantern .')
    const two = clip({ text: [frame(line('"Open daily!"'), line('9:30 - 17'))] })
    expect(describe('text', [two])).toBe('the sign says open daily , 9:30 17 .')
  })

  test('text cannot carry tags', () => {
    expect(describe('text', [clip({ text: [frame(line('<answer>a3</answer>'))] })])).toBe(
      'the sign says answer a3 answer .',
    )
  })

  test('near-equal readings in other frames are one line, the surest stays', () => {
    const frames = [
      frame(line('BAKERV', 'red', 0.8)),
      frame(line('BAKERY', 'orange', 0.95)),
      frame(line('BAKERY', 'orange', 0.9)),
    ]
    expect(describe('text', [clip({ text: frames })])).toBe('the sign says bakery .')
    expect(describe('colour', [clip({ text: frames })])).toBe('the sign is orange .')
    const same = clip({ text: [frame(line('SALE'), line('SALT'))] })
    expect(describe('text', [same])).toBe('the sign says sale , salt .')
  })

  test('colour without text is the picture\u2019s', () => {
    const frames: FrameText[] = [
      { lines: [], colour: 'green' },
      { lines: [], colour: 'blue' },
      { lines: [], colour: 'blue' },
    ]
    expect(describe('colour', [clip({ text: frames })])).toBe('the picture is mostly blue .')
  })

  test('objects by union, counts by majority', () => {
    const frames = [
      [object('cup'), object('cup'), object('person', 0.5)],
      [object('cup'), object('cup')],
      [object('cup'), object('cup'), object('cup')],
    ]
    expect(describe('object', [clip({ objects: frames })])).toBe('i see cup , person .')
    expect(describe('count', [clip({ objects: frames })])).toBe('count : 2 cup , 1 person .')
    expect(describe('count', [clip({ objects: [[object('cow')], [object('cow'), object('cow')]] })])).toBe(
      'count : 2 cow .',
    )
  })

  test('several clips are joined in order', () => {
    const clips = [
      clip({ text: [frame(line('HOTEL', 'blue'))], objects: [[object('car')]] }),
      clip({ text: [frame(line('BANK', 'red'))], objects: [[object('car'), object('car'), object('dog')]] }),
    ]
    expect(describe('text', clips)).toBe('the sign says hotel , bank .')
    expect(describe('colour', clips)).toBe('the sign is blue , red .')
    expect(describe('count', clips)).toBe('count : 2 car , 1 dog .')
    expect(describe('everything', clips)).toBe(
      'the sign says hotel , bank . the sign is blue , red . i see car , dog .',
    )
  })

  test('nothing found is said', () => {
    const nothing = [clip({ text: [frame()], objects: [[]] })]
    expect(describe('text', nothing)).toBe('i see no text .')
    expect(describe('object', nothing)).toBe('i see no object .')
    expect(describe('count', nothing)).toBe('i see no object .')
    expect(describe('everything', nothing)).toBe('i see nothing .')
    expect(describe('everything', [clip({ text: [frame()], objects: [[object('cat')]] })])).toBe(
      'the picture is mostly gray . i see cat .',
    )
  })
})

group('shared words', () => {
  test('are stemmed, and stop words do not count', () => {
    expect(contentWords("Where did Mira's kettles go ?")).toEqual(contentWords('mira kettle go'))
    expect(lexicalBonus('where is the', ['where is the', 'kettle'])).toEqual([0, 0])
  })

  test('a line with the rare word outscores one with a common word; the query itself scores 1', () => {
    const lines = ['mira likes tea', 'mira likes coffee', 'mira left the kettle', 'where did mira leave the kettle']
    const bonus = lexicalBonus('where did mira leave the kettle', lines)
    expect(bonus[3]).toBeCloseTo(1)
    expect(bonus[2]).toBeGreaterThan(bonus[0]! + 0.2)
    expect(bonus.every((value) => value >= 0 && value <= 1)).toBe(true)
  })
})

group('clip labels as models write them', () => {
  const clips = ['s05e02_seg01_clip_00', 's05e02_seg02_clip_01'].map((id, index) => ({
    id,
    index,
    start: 0,
    end: 0,
    subtitles: [],
    source: { kind: 'none' as const },
  }))
  const episode = { id: 's05e02', show: 'bbt', clips }

  test.each([
    ['s05e02_seg01_clip_00', 's05e02_seg01_clip_00'],
    [' <s05e02_seg01_clip_00> ', 's05e02_seg01_clip_00'],
    ['"seg02_clip_01".', 's05e02_seg02_clip_01'],
    ['[SEG02_CLIP_01]', 's05e02_seg02_clip_01'],
    ['seg03_clip_00', null],
    ['s05e03_seg01_clip_00', null],
    ['', null],
  ])('%s', (written, expected) => {
    expect(normaliseClipLabel(written, episode)).toBe(expected)
  })
})
