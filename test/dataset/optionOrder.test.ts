import { expect, test } from 'vitest'
import type { Dataset } from '../../src/dataset/dataset.ts'
import { withShuffledOptions } from '../../src/dataset/optionOrder.ts'
import type { Episode, Gold, Question } from '../../src/types.ts'

const episode: Episode = { id: 'e', show: 's', clips: [] }
const questions = Array.from(
  { length: 60 },
  (_, i): Question => ({ qid: `q${i}`, episodeId: 'e', text: `what ${i}?`, options: ['v', 'w', 'x', 'y', 'z'] }),
)
const dataset: Dataset = {
  name: 'd',
  directory: 'd',
  split: null,
  episodes: new Map([['e', episode]]),
  questions,
  tasks: () => questions.map((question) => ({ episode, question })),
  // the last question has no published answer
  gold: new Map(
    questions
      .slice(0, -1)
      .map((one, i): [string, Gold] => [one.qid, { qid: one.qid, answer: i % 5, clipId: 'c', span: null, kind: null }]),
  ),
  splitOf: new Map(),
  notes: [],
}

test('options are in another order and the right one is still right', () => {
  const shuffled = withShuffledOptions(dataset, 1)
  for (const [i, question] of shuffled.questions.entries()) {
    expect(question.options.toSorted()).toEqual(['v', 'w', 'x', 'y', 'z'])
    const gold = shuffled.gold.get(question.qid)
    if (i < 59) expect(question.options[gold?.answer as number]).toBe(questions[i]?.options[i % 5])
    else expect(gold).toBeUndefined()
  }
  expect(shuffled.tasks().map(({ question }) => question)).toEqual(shuffled.questions)
  // each label is right about as often as any other: 59 questions, 11.8 each
  const labels = [0, 1, 2, 3, 4].map(
    (label) => [...shuffled.gold.values()].filter((one) => one.answer === label).length,
  )
  expect(Math.min(...labels)).toBeGreaterThan(4)
})

test('the order depends on seed and question alone', () => {
  const orders = (seed: number) => withShuffledOptions(dataset, seed).questions.map(({ options }) => options.join(''))
  expect(orders(1)).toEqual(orders(1))
  expect(orders(1)).not.toEqual(orders(2))
  expect(new Set(orders(1)).size).toBeGreaterThan(20)
  const alone = withShuffledOptions({ ...dataset, questions: questions.slice(7, 8) }, 1)
  expect(alone.questions[0]?.options.join('')).toBe(orders(1)[7])
  expect(questions[0]?.options).toEqual(['v', 'w', 'x', 'y', 'z'])
})
