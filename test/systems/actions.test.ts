import { describe, expect, test } from 'vitest'
import { actionStops, parseAction } from '../../src/systems/actions.ts'

const ground = { kind: 'ground' }
const look = (query: string) => ({ kind: 'look', query })
const answer = (option: number) => ({ kind: 'answer', option })

describe('well-formed turns', () => {
  test.each([
    ['<request_grounding/>', ground],
    ['<request_grounding />', ground],
    ['<request_grounding>', ground],
    ['  <request_grounding>\n', ground],
    ['<request_grounding></request_grounding>', ground],
    ['<request_grounding>the kitchen</request_grounding>', { kind: 'ground', query: 'the kitchen' }],
    ['<visual_query>a mug?</visual_query>', look('a mug?')],
    ['<visual_query> the\nsign </visual_query>', look('the\nsign')],
    ['<search>a mug</search>', look('a mug')],
    ['<answer>a3</answer>', answer(3)],
    ['<answer> a3 </answer>', answer(3)],
    ['<answer>A0</answer>', answer(0)],
    ['<answer>4</answer>', answer(4)],
    ['<answer>a2: in the kitchen</answer>', answer(2)],
    ['<answer> a2 : in the kitchen </answer>', answer(2)],
    ['<reasoning>think</reasoning><answer>a1</answer>', answer(1)],
    ['<reasoning>maybe <answer>a0</answer> or <request_grounding/></reasoning>\n<answer>a1</answer>', answer(1)],
  ])('%j', (text, action) => {
    expect(parseAction(text)).toEqual({ action, wellFormed: true, end: expect.any(Number) })
  })
})

describe('executed, but not well formed', () => {
  test.each([
    ['I think <answer>a1</answer>', answer(1)],
    ['<answer>a1</answer> because', answer(1)],
    ['<answer>a1</answer><answer>a2</answer>', answer(1)],
    ['<answer>a1</answer><request_grounding/>', answer(1)],
    ['<visual_query>x</visual_query><answer>a1</answer>', look('x')],
    ['<visual_query>never closed <answer>a1</answer>', answer(1)],
    ['<visual_query>x <answer>a1</answer></visual_query>', answer(1)],
    ['<request_grounding> <answer>a1</answer>', answer(1)],
    ['<answer>a1</answer><information>a mug</information>', answer(1)],
    ['<reasoning>a</reasoning><reasoning>b</reasoning><answer>a1</answer>', answer(1)],
    ['<reasoning><reasoning>b</reasoning><answer>a1</answer>', answer(1)],
    ['<answer>a1</answer><reasoning>late</reasoning>', answer(1)],
    ['words <reasoning>x</reasoning><answer>a1</answer>', answer(1)],
    ['</answer><answer>a1</answer>', answer(1)],
    ['<reasoning>a</reasoning></reasoning><answer>a1</answer>', answer(1)],
  ])('%j', (text, action) => {
    expect(parseAction(text)).toMatchObject({ action, wellFormed: false })
  })
})

describe('invalid, with the problem named', () => {
  test.each([
    ['', /empty/],
    [' \n', /empty/],
    ['a1', /no action tag/],
    ['<answer></answer>', /answer is empty/],
    ['<answer>  </answer>', /answer is empty/],
    ['<answer>a1 a2</answer>', /not one of the labels/],
    ['<answer>a1 or a2</answer>', /not one of the labels/],
    ['<answer>a1: a mug a2: a hat</answer>', /not one of the labels/],
    ['<answer>a5</answer>', /not one of the labels/],
    ['<answer>a11</answer>', /not one of the labels/],
    ['<answer>the mug</answer>', /not one of the labels/],
    ['<answer>a1\na2</answer>', /not one of the labels/],
    ['<answer>purple</answer><answer>a1</answer>', /not one of the labels/],
    ['<answer>a1', /not part of a complete action/],
    ['a1</answer>', /not part of a complete action/],
    ['<visual_query>x</search>', /not part of a complete action/],
    ['<visual_query> </visual_query>', /query is empty/],
    ['<request_grounding> please', /not part of a complete action/],
    ['<ANSWER>a1</ANSWER>', /no action tag/],
    ['<answer id="1">a1</answer>', /not part of a complete action/],
    ['<reasoning>so <answer>a1</answer>', /reasoning is not closed/],
    ['<reasoning>so <answer>a1</answer></reasoning>', /inside the reasoning/],
  ])('%j', (text, problem) => {
    const parsed = parseAction(text)
    expect(parsed.wellFormed).toBe(false)
    expect(parsed.action).toEqual({ kind: 'invalid', problem: expect.stringMatching(problem) })
  })
})

describe('by priority, as the released code reads', () => {
  test.each([
    ['<answer>a1</answer><search>x</search>', look('x')],
    ['<answer>a1</answer><request_grounding/>', ground],
    ['<request_grounding></request_grounding><visual_query>x</visual_query>', look('x')],
    ['<answer>a1</answer><answer>a2</answer>', answer(1)],
    ['<search>x <answer>a1</answer></search>', look('x <answer>a1</answer>')],
    ['<search>never closed <answer>a1</answer>', answer(1)],
    ['<reasoning>or <search>x</search></reasoning><answer>a1</answer>', look('x')],
    ['so I ask <request_grounding>', ground],
    ['<answer>purple</answer>', { kind: 'invalid', problem: 'the answer is not one of the labels a0 to a4' }],
    ['nothing', { kind: 'invalid', problem: 'there is no action tag' }],
  ])('%j', (text, action) => {
    expect(parseAction(text, 'priority').action).toEqual(action)
  })
  test('one action and nothing else is well formed in either reading', () => {
    const text = '<reasoning>x</reasoning><answer>a1</answer>'
    expect(parseAction(text, 'priority')).toEqual(parseAction(text))
  })
})

test('the end of the executed action is where the transcript may be cut', () => {
  const text = '<visual_query>x</visual_query><information>made up</information>'
  expect(text.slice(0, parseAction(text).end)).toBe('<visual_query>x</visual_query>')
})

test('labels are those of the question, however many options it has', () => {
  const option = (content: string, options: number) =>
    parseAction(`<answer>${content}</answer>`, 'earliest', options).action
  expect(option('a11', 12)).toEqual({ kind: 'answer', option: 11 })
  expect(option('9', 10)).toEqual({ kind: 'answer', option: 9 })
  expect(option('a1: not a7', 5)).toEqual({ kind: 'answer', option: 1 })
  for (const [content, options] of [
    ['a4', 4],
    ['a12', 12],
    ['a01', 5],
    ['a1: not a7', 8],
  ] as const)
    expect(option(content, options)).toEqual({
      kind: 'invalid',
      problem: `the answer is not one of the labels a0 to a${options - 1}`,
    })
})

test('stopping at any stop string leaves a complete action', () => {
  const written = {
    '</visual_query>': '<visual_query>x',
    '</search>': '<search>x',
    '</answer>': '<answer>a1',
    '<request_grounding/>': '',
    '</request_grounding>': '<request_grounding>',
  }
  expect(new Set(actionStops)).toEqual(new Set(Object.keys(written)))
  for (const [stop, start] of Object.entries(written)) expect(parseAction(start + stop).wellFormed).toBe(true)
})

test('a long hostile text is read in linear time', () => {
  const started = performance.now()
  const hostile = '<answer>'.repeat(20_000) + '<reasoning>'.repeat(20_000) + '<'.repeat(100_000)
  for (const choice of ['earliest', 'priority'] as const) parseAction(hostile, choice)
  expect(performance.now() - started).toBeLessThan(500)
})
