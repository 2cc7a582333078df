/**
 * How prompts of roles with structured output are put together: instructions, the question, and tagged blocks of what others wrote.
 * It has no words of any system.
 */
import type { Message, Question } from '../types.ts'
import { neutralise } from './transcript.ts'

/** `instructed` explains task and format first, `brief` has what a role is given only (small policies that learnt the format). */
export type PromptStyle = 'brief' | 'instructed'

/** The question and its options, each with its label: `a0 a mug`. */
export function askedLines({ text, options }: Question): string[] {
  return [`question : ${neutralise(text)}`, ...options.map((option, i) => `a${i} ${neutralise(option)}`)]
}

/** Nothing in the text can pass for a tag. */
export function block(tag: string, text: string): string {
  return `<${tag}>\n${neutralise(text)}\n</${tag}>`
}

export function prompt(style: PromptStyle, instructions: string, lines: readonly string[]): Message[] {
  const content = [...(style === 'instructed' ? [instructions, ''] : []), ...lines].join('\n')
  return [{ role: 'user', content }]
}
