import { describe, expect, test } from 'vitest'
import { heldOutWords } from '../src/dataset/miniature/words.ts'
import { type Lesson, Lessons, SPECIAL_TOKENS, VOCABULARY } from '../src/lessons.ts'
import { openTokenizer, type TextTokenizer } from '../src/policy/tokenizer.ts'
import { buildWordTokenizer } from '../src/policy/wordTokenizer.ts'
import { longVideoAgent } from '../src/systems/longVideoAgent.ts'
import { longVideoAgentOptions } from '../src/systems/options.ts'

const files = buildWordTokenizer(VOCABULARY, SPECIAL_TOKENS)
const opened = openTokenizer(
  {
    tokenizer: files.tokenizerJson,
    tokenizerConfig: files.tokenizerConfig,
    chatTemplate: files.chatTemplate,
    generationConfig: null,
    config: {},
  },
  'base',
)
if (!opened.ok) throw new Error(opened.failure.message)
const tokenizer: TextTokenizer = opened.value
const vocabulary = new Map(Object.entries((files.tokenizerJson.model as { vocab: Record<string, number> }).vocab))
const tokens: string[] = []
for (const [token, id] of vocabulary) tokens[id] = token
const text = (lesson: Lesson) => lesson.ids.map((id) => tokens[id]).join(' ')

const newLessons = (seed = 1) =>
  new Lessons(seed, vocabulary, longVideoAgent(longVideoAgentOptions.parse({ initialGrounding: 'none' }), 'training'), {
    firstGroundingRate: 0.6,
    nextGroundingRate: 0.95,
    rightQueryRate: 0.75,
  })

describe('lessons', () => {
  test('are tokenised as the master will read them, and teach something', async () => {
    const lessons = newLessons()
    for (const kind of ['lookup', 'sentence', 'binding', 'reading', 'acting'] as const) {
      for (let i = 0; i < 20; i++) {
        const lesson = await lessons[kind]()
        expect(tokenizer.encode(text(lesson))).toEqual(lesson.ids)
        expect(lesson.weights).toHaveLength(lesson.ids.length)
        expect(lesson.weights.some((weight) => weight > 0)).toBe(true)
      }
    }
  })

  test('an acting transcript is the conversation that the chat template renders', async () => {
    const lesson = await newLessons().acting()
    const written = text(lesson)
    expect(written.startsWith('<|user|> question : ')).toBe(true)
    const turns = written.split('<|end|>')
    const roles = turns.map((turn) => turn.trim().split(' ')[0])
    expect(roles).toEqual(turns.map((_, i) => (i % 2 === 0 ? '<|user|>' : '<|assistant|>')))
  })

  test('the same seed gives the same lessons, another seed others', async () => {
    const first = await newLessons(3).reading()
    expect(await newLessons(3).reading()).toEqual(first)
    expect(await newLessons(4).reading()).not.toEqual(first)
  })

  test('no held-out word is an option in an episode', async () => {
    const lessons = newLessons()
    const held = new Set(
      (['name', 'place', 'goods', 'price', 'sign', 'color', 'object'] as const).flatMap((c) => [...heldOutWords(c)]),
    )
    for (let i = 0; i < 200; i++) {
      const words = text(await lessons.acting()).split(' ')
      expect(words.filter((word) => held.has(word))).toEqual([])
    }
  })

  test('the reasoning is elsewhere, here or a label, once per turn', async () => {
    const lessons = newLessons()
    const seen = new Set<string>()
    for (let i = 0; i < 100; i++) {
      const lesson = await lessons.reading()
      lesson.ids.forEach((id, t) => {
        if (tokens[lesson.ids[t - 1] as number] !== '<reasoning>') return
        expect(lesson.weights[t]).toBe(1)
        seen.add(tokens[id] as string)
      })
    }
    expect([...seen].sort()).toEqual(['a0', 'a1', 'a2', 'a3', 'a4', 'elsewhere', 'here'])
  })
})
