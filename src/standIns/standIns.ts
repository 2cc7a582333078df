/**
 * What stands in for language models on the miniature data set, so that every system runs and is trained offline: scripts for the roles
 * that are not trained, and teachers of the roles that are. They know the few sentences that miniature stories are told in and nothing
 * else; what they say is no measurement of any model.
 *
 * A script reads its prompt alone, as a model would. Only a teacher is told the answer: it writes what lessons are made of, never rollouts.
 */
import type { Dice } from '../dataset/miniature/story.ts'
import type { GenerateRequest, Gold, Message, Task } from '../types.ts'

/** Answers messages with text; `roleOf` tells which role is asked. */
export type Script = (messages: readonly Message[], request: Pick<GenerateRequest, 'session'>) => string

/** One for each system; the module's default export is the script, so that a configuration may name it for any role. */
export interface StandIns {
  script: Script
  /** By role: what it is taught to write. */
  teachers: Readonly<Record<string, Teacher>>
  /** Words, tags and quoted JSON keys that its prompts and outputs have beyond the vocabulary of the base master. */
  tokens: readonly string[]
}

/** Writes what a role says at one call, in pieces. Pieces end where words end. */
export type Teacher = (asked: { messages: readonly Message[]; task: Task; gold: Gold; dice: Dice }) => readonly Piece[]

export interface Piece {
  text: string
  /** What the role concludes: the lesson `reading` teaches it alone, the lesson `acting` everything. */
  concludes?: true
}

/** The session of a call is `{step}/{qid}/{sample}/{role}`, and the name of the conversation behind it. */
export function roleOf({ session = '' }: Pick<GenerateRequest, 'session'>): string {
  return session.split('/')[3] ?? ''
}
