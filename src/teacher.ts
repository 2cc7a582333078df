/**
 * Scripted masters that know the gold answer: the oracle (the ceiling that a budget curve is held against) and the teachers whose
 * traces the base master learns to read and write from. They are models of nothing: no result counts as learnt that comes from here.
 *
 * Works on the miniature data set only, since it tells from a question's words what has to be looked at.
 */
import { type Script, ScriptedPolicy } from './policy/scripted.ts'
import type { Gold, Message, Policy, Question } from './types.ts'

/** What a scripted master can tell from the conversation so far. */
export interface Situation {
  turnsLeft: number
  /** The clip in view has the evidence. */
  atGold: boolean
  /** The evidence has been shown. */
  seen: boolean
  /** A clip is in view. */
  anyClip: boolean
}

/** What has to be looked at, in the vision agent's words; null when the question is about dialogue. */
export function rightQuery(question: Question): 'sign' | 'color' | 'object' | null {
  if (question.text.startsWith('what does the sign say')) return 'sign'
  if (question.text.startsWith('what color is the sign')) return 'color'
  if (question.text.startsWith('what object')) return 'object'
  return null
}

/** Reads the user messages of a transcript against the gold answer. */
export function readSituation(messages: readonly Message[], question: Question, gold: Gold): Situation {
  const goldTag = `<${gold.clipId?.slice(question.episodeId.length + 1)}>`
  const needsLook = rightQuery(question) !== null
  const right = question.options[gold.answer] as string
  const situation: Situation = { turnsLeft: 0, atGold: false, seen: false, anyClip: false }
  for (const { role, content } of messages) {
    if (role !== 'user') continue
    const clip = /<(seg\d+_clip_\d+)>/.exec(content)
    if (clip !== null) {
      situation.anyClip = true
      situation.atGold = content.includes(goldTag)
      if (situation.atGold && !needsLook) situation.seen = true
    } else if (situation.atGold && needsLook && content.includes('<information>')) {
      if (content.split(/\s+/).includes(right)) situation.seen = true
    }
    const left = /<turns_left_(\d+)>/.exec(content)
    if (left !== null) situation.turnsLeft = Number(left[1])
  }
  return situation
}

export const ACTIONS = {
  ground: '<request_grounding/>',
  look: (query: string) => `<visual_query>${query}</visual_query>`,
  answer: (option: number) => `<answer>a${option}</answer>`,
} as const

/** What a master that knows where the evidence is would do next; guesses `guess` when time runs out before it was shown. */
export function oracleAction(situation: Situation, question: Question, gold: Gold, guess: number): string {
  if (situation.seen) return ACTIONS.answer(gold.answer)
  if (situation.turnsLeft <= 1) return ACTIONS.answer(guess)
  const query = rightQuery(question)
  return situation.atGold && query !== null ? ACTIONS.look(query) : ACTIONS.ground
}

/**
 * The oracle as a policy: the highest accuracy that the agents allow at a turn budget. It reads the qid from the session name
 * `{step}/{qid}/{sample}` and guesses option `qid mod 5` when the evidence was never shown.
 */
export function oraclePolicy(questions: ReadonlyMap<string, Question>, gold: ReadonlyMap<string, Gold>): Policy {
  const script: Script = (messages, { session = '' }) => {
    const qid = session.split('/')[1] ?? ''
    const question = questions.get(qid)
    const answer = gold.get(qid)
    if (question === undefined || answer === undefined) {
      throw new Error(`scripted oracle: session "${session}" names no question with a gold answer`)
    }
    const guess = Number(qid) % question.options.length
    return oracleAction(readSituation(messages, question, answer), question, answer, guess)
  }
  return new ScriptedPolicy(script, { name: 'scripted-oracle' })
}
