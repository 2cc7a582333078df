/**
 * Symphony on the miniature data set: the planner has the dialogue read, then the pictures beside the line that the question is about looked
 * at, and answers with the option that either names; the grounding agent judges segments where something has to be seen, and searches pictures
 * for the thing that is talked about elsewhere, which is no use; the perception agent looks once; the reflection wants the answer to have been
 * named. The planner is also taught.
 */
import type { Message, Question } from '../types.ts'
import { roleOf, type Script, type StandIns, type Teacher } from './standIns.ts'
import { keyOf } from './videoHvAgent.ts'

const play: Script = (messages, request) => {
  const prompt = messages[0]?.content ?? ''
  const question = questionIn(prompt)
  switch (roleOf(request)) {
    case 'grounding':
      return JSON.stringify(focusOf(question) === null ? { type: 1, cue: keyOf(question) } : { type: 2 })
    case 'perception': {
      const report = messages.length > 1 ? messages.at(-1)?.content : undefined
      if (report !== undefined) return JSON.stringify({ tool: 'answer', answer: report })
      const [, start, end, focus] = /<instruct>\n(?:(\d+) - (\d+) s|anywhere) : (.*)\n/.exec(prompt) ?? []
      if (start === undefined) return JSON.stringify({ tool: 'answer', answer: 'nothing in view .' })
      const looked = focus === '' ? 'everything' : focus
      const range = [Number(start), Number(end)]
      return JSON.stringify({ tool: 'frame_inspect', question: looked, range, cue: looked })
    }
    case 'reflection': {
      const [, history = '', label] = /<history>\n([\s\S]*)\n<\/history>\n<proposed>\na(\d)/.exec(prompt) ?? []
      const option = new RegExp(`^a${label} (.*)$`, 'm').exec(prompt)?.[1] ?? ''
      const credible = history.split(/\s+/).includes(option)
      return JSON.stringify({ credible, comment: credible ? null : 'nobody told that' })
    }
    default:
      return JSON.stringify(decide(messages, question, optionsIn(prompt)))
  }
}

function decide(messages: readonly Message[], question: string, options: readonly string[]): object {
  const read = readResults(messages, question)
  const focus = focusOf(question)
  const evidence = focus === null ? read.naming : read.seen
  const answer = options.findIndex((option) => evidence?.split(' ').includes(option))
  if (answer >= 0) return { reason: `a${answer}`, agent: 'finish', answer }
  if (messages.length === 1) return { reason: ELSEWHERE, agent: 'subtitle' }
  if (focus !== null && read.range !== null && read.seen === null)
    return { reason: HERE, agent: 'perception', instruct: { ranges: [read.range], focus: [focus] } }
  return { reason: ELSEWHERE, agent: 'finish', answer: 0 }
}

interface Read {
  /** The line that names what the question is about. */
  naming: string | null
  /** When it is said, in seconds. */
  range: readonly [number, number] | null
  /** What was seen then. */
  seen: string | null
}

/** What the results in a planner's conversation tell. */
function readResults(messages: readonly Message[], question: string): Read {
  const results = messages.flatMap(({ role, content }, i) =>
    role === 'user' && i > 0 ? [{ plan: messages[i - 1]?.content ?? '', lines: content.split('\n') }] : [],
  )
  const key = keyOf(question)
  const naming =
    results
      .flatMap(({ lines }) => lines)
      .find((line) => line.split(' ').includes(key) && !/ tell me about the | what is at /.test(line)) ?? null
  const [, start, end] = /^(\d+) - (\d+) s /.exec(naming ?? '') ?? []
  if (naming === null || start === undefined) return { naming, range: null, seen: null }
  const range = [Number(start), Number(end)] as const
  const looked = results.findLast(({ plan }) => new RegExp(`"perception".*\\[ ?${start} ?, ?${end} ?\\]`).test(plan))
  const described = / relevance \d /.test(naming) ? naming : null
  return { naming, range, seen: looked?.lines[0] ?? described }
}

/**
 * Says what the results name: an option; that it is here, and when; or that it is elsewhere. Then asks any agent, or answers: with that
 * option, or with any while none was named.
 */
const planner: Teacher = ({ messages, task, gold, dice }) => {
  const { question } = task
  const { naming, range, seen } = readResults(messages, question.text)
  const focus = focusOf(question.text)
  const evidence = focus === null ? naming : seen
  const known = evidence?.split(' ').includes(question.options[gold.answer] as string) === true
  const forced = messages.at(-1)?.content.endsWith('finish now .') === true
  const agent = forced ? 'finish' : dice.pick(AGENTS)
  const more = {
    grounding: [{ text: '}' }],
    subtitle: [{ text: '}' }],
    perception: [
      { text: ', "instruct" : { "ranges" : [' },
      ...(range === null ? [] : [{ text: `[ ${range[0]} , ${range[1]} ]`, concludes: true as const }]),
      { text: '] , "focus" : [ "' },
      ...(focus === null ? [{ text: dice.pick(LOOKS) }] : [{ text: focus, concludes: true as const }]),
      { text: '" ] } }' },
    ],
    finish: [
      { text: ', "answer" :' },
      known
        ? { text: String(gold.answer), concludes: true as const }
        : { text: String(dice.below(question.options.length)) },
      { text: '}' },
    ],
  }
  return [
    { text: '{ "reason" : "' },
    { text: known ? `a${gold.answer}` : naming === null ? ELSEWHERE : HERE, concludes: true },
    { text: `" , "agent" : "${agent}"` },
    ...more[agent],
  ]
}

const AGENTS = ['grounding', 'subtitle', 'perception', 'finish'] as const
const LOOKS = ['sign', 'color', 'object'] as const
/** Words that the base master knows: the evidence is not in what was told, or it is and was not yet seen. */
const ELSEWHERE = 'elsewhere'
const HERE = 'here'

/** What has to be looked at; null for dialogue. */
function focusOf(question: Question['text']): (typeof LOOKS)[number] | null {
  if (question.startsWith('what does the sign say')) return 'sign'
  if (question.startsWith('what color is the sign')) return 'color'
  return question.startsWith('what object') ? 'object' : null
}

function questionIn(prompt: string): string {
  return /^question : (.*)$/m.exec(prompt)?.[1] ?? ''
}

function optionsIn(prompt: string): string[] {
  return [...prompt.matchAll(/^a\d (.*)$/gm)].map(([, text = '']) => text)
}

export const symphony: StandIns = {
  script: play,
  teachers: { planner },
  tokens: [
    ...['reason', 'agent', 'instruct', 'ranges', 'focus', 'answer', ...AGENTS].map((word) => `"${word}"`),
    ...'{ } [ ] " - length s relevance closest pictures like bears on part video line subtitles there are such'.split(
      ' ',
    ),
    ...'more agents finish not credible could searched seen be read'.split(' '),
    // seconds
    ...Array.from({ length: 61 }, (_, second) => String(second)),
  ],
}

export default play
