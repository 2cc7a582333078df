/**
 * The options of each question in another order, the right answer moved along (spec longvideoagent.md, section 5, row 24): a master that
 * learnt a label, or the order of a data set, gains nothing by it. Drawn from seed and qid, so it is the same in every run with that seed.
 */
import type { Gold, Question } from '../types.ts'
import type { Dataset } from './dataset.ts'
import { Dice } from './miniature/story.ts'

/** The same data set with options shuffled. Questions without a published answer are shuffled too. */
export function withShuffledOptions(dataset: Dataset, seed: number): Dataset {
  const orders = new Map(dataset.questions.map((question) => [question.qid, orderOf(question, seed)]))
  const shuffled = (question: Question): Question => ({
    ...question,
    options: (orders.get(question.qid) as number[]).map((place) => question.options[place] as string),
  })
  const moved = (gold: Gold): Gold => ({ ...gold, answer: orders.get(gold.qid)?.indexOf(gold.answer) ?? gold.answer })
  return {
    ...dataset,
    questions: dataset.questions.map(shuffled),
    tasks: () => dataset.tasks().map((task) => ({ ...task, question: shuffled(task.question) })),
    gold: new Map([...dataset.gold].map(([qid, gold]) => [qid, moved(gold)])),
  }
}

/** Which old place each new place takes its option from. */
function orderOf({ qid, options }: Question, seed: number): number[] {
  return new Dice(`options/${seed}/${qid}`).shuffle([...options.keys()])
}
