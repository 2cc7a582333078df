/** What an opened data set is: questions, the episodes they are about, and the gold apart. Opening one is `open.ts`. */
import type { Episode, Gold, Question, Task } from '../types.ts'

export interface Dataset {
  /** The folder's name. */
  name: string
  directory: string
  /** null when the questions of every split were read. */
  split: string | null
  /** Episodes with questions, by id, in order of show, season and number. */
  episodes: ReadonlyMap<string, Episode>
  /** In file order. Public. */
  questions: readonly Question[]
  /** An episode with one of its questions, in the order of `questions`. Plain JSON, public. */
  tasks(): Task[]
  /** By qid; questions without a published answer have none. */
  gold: ReadonlyMap<string, Gold>
  /** Which split each question came from, by qid. */
  splitOf: ReadonlyMap<string, string>
  /** What was tolerated or counted while reading, one sentence each. */
  notes: readonly string[]
}

export interface OpenOptions {
  /** `train`, `val`, ...: what the question file's name says. All splits when absent. */
  split?: string
}
