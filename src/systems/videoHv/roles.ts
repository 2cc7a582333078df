/**
 * What the four LLM roles of VideoHV-Agent are told, and the structured output that each writes (spec systems.md, section 3.1). All
 * options are numbered from 0; label `a3` in a prompt is number 3 in an output. It asks nobody.
 */
import { z } from 'zod'
import type { Message, Question } from '../../types.ts'
import { neutralise } from '../transcript.ts'

export type PromptStyle = 'brief' | 'instructed'

const words = z.string().trim()

// ---------------------------------------------------------------- thinker

export interface Hypothesis {
  option: number
  /** What would be seen and heard if the option were right. */
  hypothesis: string
}

/** One or more hypotheses, each of another option; the options that are left out are dropped. */
export function hypothesesSchema({ options }: Question) {
  const hypothesis = z.object({
    option: z
      .int()
      .min(0)
      .max(options.length - 1),
    hypothesis: words.min(1),
  })
  return z.object({
    hypotheses: z
      .array(hypothesis)
      .min(1)
      .refine((all) => new Set(all.map(({ option }) => option)).size === all.length, {
        message: 'expected one hypothesis per option',
      }),
  })
}

/** Why hypotheses are made again: they could not be verified (specificity), or could not be told apart (discriminability). */
export type Doubt = { hypotheses: readonly Hypothesis[] } & (
  | { lack: 'specificity'; trace: Trace }
  | { lack: 'discriminability'; reasons: string }
)

export function thinkerPrompt(style: PromptStyle, question: Question, summary: string, doubt: Doubt | null): Message[] {
  const blocks = [...asked(question), block('summary', summary)]
  if (doubt !== null) blocks.push(block('hypotheses', written(doubt.hypotheses)))
  if (doubt?.lack === 'specificity') blocks.push(block('verification', traced(doubt.trace)))
  if (doubt?.lack === 'discriminability') blocks.push(block('objection', doubt.reasons))
  return message(style, doubt === null ? THINK : doubt.lack === 'specificity' ? THINK_SPECIFIC : THINK_APART, blocks)
}

const THINK_FORMAT =
  'Write JSON alone: {"hypotheses": [{"option": 0, "hypothesis": "..."}]}, with one entry for every option that you keep.'
const THINK = `You are given a multiple-choice question about a video and a summary of that video. Take each option as if it were the right one and write down what the video would have to show or say in that case: who, what, where, in which order. Leave out an option only when the summary rules it out. Do not answer the question.
${THINK_FORMAT}`
const THINK_SPECIFIC = `Your hypotheses about the options of this question were checked against the video, and the check found nothing to go by. Write them anew, more specific: name visible actions, objects and moments that somebody could look up. Drop an option that the check has ruled out.
${THINK_FORMAT}`
const THINK_APART = `Your hypotheses about the options of this question cannot be told apart by looking at the video, for the reason given as the objection. Write them anew so that each says something that is false under the others.
${THINK_FORMAT}`

// ---------------------------------------------------------------- judge

/** `score`: how well the hypotheses can be told apart: up to 0.3 hardly, 0.4 to 0.6 partly, from 0.7 on well. */
export const judgementSchema = z.object({
  score: z.number().min(0).max(1),
  reasons: words,
  clue: words.min(1),
})

export function judgePrompt(
  style: PromptStyle,
  question: Question,
  summary: string,
  hypotheses: readonly Hypothesis[],
): Message[] {
  return message(style, JUDGE, [
    ...asked(question),
    block('summary', summary),
    block('hypotheses', written(hypotheses)),
  ])
}

const JUDGE = `You are given a multiple-choice question about a video, a summary of the video, and one hypothesis for each option that is still possible. Judge how well the hypotheses can be told apart by looking: a score of 0 to 0.3 when they describe the same things, 0.4 to 0.6 when they differ in part, 0.7 to 1 when a look at the right moment decides between them. Then name the one clue that decides best: something to be looked up in the video, in one sentence, without saying which option it speaks for.
Write JSON alone: {"score": 0.0, "reasons": "...", "clue": "..."}.`

// ---------------------------------------------------------------- verifier

export const STATUSES = ['VERIFIED', 'PARTIAL', 'NOT_VERIFIED'] as const

/** What came of a clue. The status is this field and never read out of the words. */
export interface Trace {
  clue: string
  clue_understanding: string
  evidence_found: string
  reasoning: string
  status: (typeof STATUSES)[number]
}

const verdict = z.object({
  action: z.literal('verdict'),
  clue_understanding: words,
  evidence_found: words,
  reasoning: words,
  status: z.enum(STATUSES),
})

/** A verdict alone, for when nothing more may be looked at. */
export const verdictSchema = verdict

/** A verdict, or up to `most` of the `frames` frames to be looked at: "15" or "10-14". */
export function verificationSchema(frames: number, most: number) {
  const look = z.object({
    action: z.literal('caption'),
    frames: z.string().transform((text, context): number[] => {
      const [, first, last = first] = /^\s*(\d+)(?:\s*-\s*(\d+))?\s*$/.exec(text) ?? []
      const from = Number(first)
      const count = Number(last) - from + 1
      if (first !== undefined && count >= 1 && count <= most && Number(last) < frames)
        return Array.from({ length: count }, (_, i) => from + i)
      context.addIssue({
        code: 'custom',
        message: `expected 1 to ${most} of the frames 0 to ${frames - 1}, as "15" or "10-14"`,
      })
      return z.NEVER
    }),
  })
  return z.discriminatedUnion('action', [look, verdict])
}

export function verifierPrompt(
  style: PromptStyle,
  question: Question,
  clue: string,
  timeline: string,
  { looks, most }: { looks: number; most: number },
): Message[] {
  const instructions = `Verify a clue in a video. You are given a question about the video, the clue, and a timeline: captions of numbered frames, and dialogue where there is any. Captions miss things: have frames looked at again, at most ${most} at once and ${looks} times in all, with {"action": "caption", "frames": "10-14"}, or "15" for one of them. When you know enough, write your verdict:
{"action": "verdict", "clue_understanding": "...", "evidence_found": "...", "reasoning": "...", "status": "VERIFIED"}
The status is VERIFIED when the evidence settles the clue, PARTIAL when it settles a part, and NOT_VERIFIED when nothing bears on it. Write JSON alone.`
  const { text } = question
  return message(style, instructions, [
    `question : ${neutralise(text)}`,
    block('clue', clue),
    block('timeline', timeline),
  ])
}

/** What a verifier is told after a verdict of PARTIAL, while it may still look. */
export const VERIFY_FURTHER = 'partial : look for what is missing , then write the verdict again .'
/** What it is told when it may not look any more. */
export const VERDICT_NOW = 'no more frames : write the verdict .'

// ---------------------------------------------------------------- answer

/** `final_answer` is one of the options that are left. */
export function answerSchema(hypotheses: readonly Hypothesis[]) {
  const kept = hypotheses.map(({ option }) => option)
  return z.object({
    reasoning_summary: words,
    conflict_resolution: words,
    final_answer: z.int().refine((option) => kept.includes(option), { message: `expected one of ${kept.join(', ')}` }),
    explanation: words,
  })
}

export function answerPrompt(
  style: PromptStyle,
  question: Question,
  summary: string,
  hypotheses: readonly Hypothesis[],
  trace: Trace,
): Message[] {
  return message(style, ANSWER, [
    ...asked(
      question,
      hypotheses.map(({ option }) => option),
    ),
    block('hypotheses', written(hypotheses)),
    block('summary', summary),
    block('verification', traced(trace)),
  ])
}

const ANSWER = `Answer a multiple-choice question about a video. You are given the options that are left, what each would mean, a summary of the video, and what was found when the deciding clue was looked up. Weigh the evidence: what was looked up counts more than the summary. Say how you resolve what contradicts itself, or leave that empty.
Write JSON alone: {"reasoning_summary": "...", "conflict_resolution": "...", "final_answer": 0, "explanation": "..."}, where final_answer is the number of the option: 2 for a2.`

// ---------------------------------------------------------------- in common

/** The question with all options, or those of them that are left. */
function asked({ text, options }: Question, kept = options.map((_, option) => option)): string[] {
  return [
    `question : ${neutralise(text)}`,
    ...kept.map((option) => `a${option} ${neutralise(options[option] as string)}`),
  ]
}

function written(hypotheses: readonly Hypothesis[]): string {
  return hypotheses.map(({ option, hypothesis }) => `a${option} : ${hypothesis}`).join('\n')
}

function traced({ clue, evidence_found, reasoning, status }: Trace): string {
  return [`clue : ${clue}`, `evidence : ${evidence_found}`, `reasoning : ${reasoning}`, `status : ${status}`].join('\n')
}

/** Nothing in the text can pass for a tag. */
function block(tag: string, text: string): string {
  return `<${tag}>\n${neutralise(text)}\n</${tag}>`
}

/** `brief` has what a role is given and no instructions. */
function message(style: PromptStyle, instructions: string, blocks: readonly string[]): Message[] {
  const content = [...(style === 'instructed' ? [instructions, ''] : []), ...blocks].join('\n')
  return [{ role: 'user', content }]
}
