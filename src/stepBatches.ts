/**
 * The tasks of a training step: a batch, and where groups of equal rewards are to be made up for, further ones (dynamic sampling of
 * DAPO, arXiv 2503.14476, section 3.2; spec longvideoagent.md, section 5, row 9). Depends on the run's seed and the step alone, so a
 * resumed run equals an uninterrupted one. Runs nothing.
 */
import type { RunConfig } from './config.ts'
import { Dice } from './dataset/miniature/story.ts'
import { scoredGroupAdvantages } from './grpo/advantage.ts'
import type { ScoredGroup, Task } from './types.ts'

type Batching = Pick<RunConfig, 'seed' | 'training'>

/** The tasks of a step: the data set is shuffled anew for each pass, by seed, and cut into whole batches. */
export function batch(tasks: readonly Task[], config: Batching, step: number): Task[] {
  const size = config.training.tasksPerStep
  const perPass = Math.floor(tasks.length / size)
  const pass = Math.floor(step / perPass)
  const order = new Dice(`batches/${config.seed}/${pass}`).shuffle(tasks)
  const first = (step % perPass) * size
  return order.slice(first, first + size)
}

/**
 * What is rolled out next in a step that has rolled out `batches` of tasks, which came out as `scored`: as many tasks as there are groups
 * missing that teach something, none of them twice; empty when there are enough, no more tasks, or `mostBatches` were had.
 */
export function furtherBatch(
  tasks: readonly Task[],
  config: Batching,
  step: number,
  batches: number,
  scored: readonly ScoredGroup[],
): Task[] {
  const { tasksPerStep, mostBatches } = config.training
  if (batches >= mostBatches) return []
  const outcomes = scoredGroupAdvantages(scored, { advantageBaseline: 'group_mean', advantageScale: 'none' })
  const missing = tasksPerStep - outcomes.filter(({ zeroVariance }) => !zeroVariance).length
  const used = new Set(scored.map(({ group }) => group.task.question.qid))
  const others = tasks.filter(({ question }) => !used.has(question.qid))
  return new Dice(`batches/${config.seed}/${step}/${batches}`).shuffle(others).slice(0, missing)
}
