/**
 * What the four LLM roles of Symphony are told, and the structured output that each writes (spec systems.md, section 3.2). Times are whole
 * seconds; options are numbered from 0, so label `a3` in a prompt is number 3 in an output. It asks nobody.
 */
import { z } from 'zod'
import type { Message, Question } from '../../types.ts'
import { askedLines, block, type PromptStyle, prompt } from '../prompts.ts'

const words = z.string().trim()
const some = words.min(1)

/** Start and end in seconds, inside of a video that is `length` seconds long. */
function rangeIn(length: number) {
  return z.tuple([z.number().min(0), z.number()]).refine(([start, end]) => start < end && start < length, {
    message: `expected [start, end] in seconds, the start before the end and before ${length}`,
  })
}

export type Range = readonly [start: number, end: number]

// ---------------------------------------------------------------- planner

/** Where the perception agent has to look, and for what: up to three phrases, as in the released code. */
export interface Instruct {
  /** None: anywhere. */
  ranges: readonly Range[]
  focus: readonly string[]
}

/** An option's number, or the words of an answer to an open-ended question. */
export type Proposal = number | string

export function planSchema(question: Question, length: number) {
  const reason = words
  const instruct = z.object({ ranges: z.array(rangeIn(length)), focus: z.array(some).max(3) })
  return z.discriminatedUnion(
    'agent',
    [
      z.object({ reason, agent: z.literal('grounding') }),
      z.object({ reason, agent: z.literal('subtitle') }),
      z.object({ reason, agent: z.literal('perception'), instruct }),
      finishSchema(question),
    ],
    { error: 'expected the agent grounding, subtitle, perception or finish' },
  )
}

/** A plan that asks an agent. */
export type AgentPlan = Exclude<z.output<ReturnType<typeof planSchema>>, { agent: 'finish' }>

/** A final answer alone, for when no agent may be asked any more. */
export function finishSchema({ options }: Question) {
  const option: z.ZodType<Proposal> = z
    .int()
    .min(0)
    .max(options.length - 1)
  return z.object({ reason: words, agent: z.literal('finish'), answer: options.length === 0 ? some : option })
}

export function plannerPrompt(style: PromptStyle, question: Question, length: number): Message[] {
  const answer = question.options.length === 0 ? '"..."' : '0'
  const instructions = `You lead a team that answers a question about a long video. You see nothing yourself: ask the agents, one at a time, put together what they find, and answer when it suffices.
- grounding finds where in the video the question is decided: moments or stretches with a note on each. Begin with it unless the question says where.
- subtitle reads all that is said and returns the lines that bear on the question.
- perception looks at pictures. Tell it where, as ranges in seconds, and give it up to three phrases of what to look for.
- finish gives the answer${question.options.length === 0 ? '' : ', as the number of the option: 2 for a2'}.
Agents can be wrong or contradict each other: then ask another one, or the same one about another place. Write JSON alone, one of
{"reason": "...", "agent": "grounding"}
{"reason": "...", "agent": "subtitle"}
{"reason": "...", "agent": "perception", "instruct": {"ranges": [[120, 150]], "focus": ["..."]}}
{"reason": "...", "agent": "finish", "answer": ${answer}}`
  return prompt(style, instructions, [...askedLines(question), lasts(length)])
}

/** What the planner is told below the last result, or below why there is none. */
export const ANSWER_NOW = 'no more agents : finish now .'

// ---------------------------------------------------------------- grounding agent

/** Type 0: the question says where; 1: something simple, that looks like its description; 2: anything that has to be understood. */
export const groundingSchema = z.discriminatedUnion(
  'type',
  [
    z.object({ type: z.literal(0), answer: some }),
    z.object({ type: z.literal(1), cue: some }),
    z.object({ type: z.literal(2) }),
  ],
  { error: 'expected the type 0, 1 or 2' },
)

export function groundingPrompt(style: PromptStyle, question: Question, length: number): Message[] {
  return prompt(style, GROUND, [...askedLines(question), lasts(length)])
}

const GROUND = `Decide how to find the place in a video where a question is decided. There are three types of question:
type 0: it names the time itself, or asks about the beginning, the end or all of the video. Say where that is: {"type": 0, "answer": "0 - 60 s"}
type 1: it is about one thing, person or scene that can be recognised in a single picture. Describe it, and the pictures most like it are found: {"type": 1, "cue": "..."}
type 2: anything else: actions, causes, order, several things, or words that nobody would see in a picture. Every stretch of the video is then judged: {"type": 2}
Write that JSON alone.`

// ---------------------------------------------------------------- perception agent

export function perceptionSchema(length: number) {
  const range = rangeIn(length)
  return z.discriminatedUnion(
    'tool',
    [
      z.object({ tool: z.literal('frame_inspect'), question: some, range, cue: some }),
      z.object({ tool: z.literal('interval_summary'), question: some, range }),
      z.object({ tool: z.literal('frame_associate'), question: some, cues: z.array(some).min(1) }),
      reportSchema,
    ],
    { error: 'expected the tool frame_inspect, interval_summary, frame_associate or answer' },
  )
}

/** What was seen, for when nothing more may be looked at. */
export const reportSchema = z.object({ tool: z.literal('answer'), answer: some })

/** `rounds`: outputs that it may write, the answer among them. */
export function perceptionPrompt(
  style: PromptStyle,
  question: Question,
  length: number,
  { ranges, focus }: Instruct,
  rounds: number,
): Message[] {
  const instructions = `Look at a video for somebody who has to answer a question about it. You are told where to look and for what. You see nothing yourself but have three tools; write one call at a time:
{"tool": "frame_inspect", "question": "...", "range": [120, 150], "cue": "..."} looks closely at 5 to 60 seconds; the cue names what pictures of special interest show.
{"tool": "interval_summary", "question": "...", "range": [0, 600]} looks over more than 3 minutes.
{"tool": "frame_associate", "question": "...", "cues": ["...", "..."]} finds pictures of several things anywhere in the video and compares them in the order of time.
A tool knows nothing but the question that you write: put the options in where they matter, and leave times and dialogue out. When you know enough, or at your output number ${rounds} at the latest, report what was seen and what was not: {"tool": "answer", "answer": "..."}. Write JSON alone.`
  return prompt(style, instructions, [
    ...askedLines(question),
    lasts(length),
    block('instruct', instructed({ ranges, focus })),
  ])
}

/** What the perception agent is told below the result before its last output. */
export const REPORT_NOW = 'no more tools : write the answer .'

export function instructed({ ranges, focus }: Instruct): string {
  const where = ranges.length === 0 ? 'anywhere' : ranges.map(([start, end]) => between(start, end)).join(' , ')
  return `${where} : ${focus.join(' , ')}`
}

// ---------------------------------------------------------------- reflection

export const reflectionSchema = z.object({ credible: z.boolean(), comment: words.nullish() })

/** `history`: what the planner chose and what came of it, step by step. */
export function reflectionPrompt(
  style: PromptStyle,
  question: Question,
  history: readonly string[],
  answer: Proposal,
): Message[] {
  return prompt(style, REFLECT, [
    ...askedLines(question),
    block('history', history.join('\n')),
    block('proposed', typeof answer === 'number' ? `a${answer}` : answer),
  ])
}

const REFLECT = `Somebody proposes an answer to a question about a video, after asking agents that looked and listened. Check whether what they found carries the answer: was the right place looked at, does the evidence speak for this option and against the others, does any of it contradict the answer, was something guessed? Be strict, but do not ask for what cannot be found.
Write JSON alone: {"credible": true, "comment": null}, or {"credible": false, "comment": "..."} with what is wrong and what should be asked next.`

// ---------------------------------------------------------------- in common

/** `12 - 17 s`. */
export function between(start: number, end: number): string {
  return `${Math.floor(start)} - ${Math.ceil(end)} s`
}

function lasts(length: number): string {
  return length > 0 ? `length : ${Math.ceil(length)} s` : 'length : unknown'
}
