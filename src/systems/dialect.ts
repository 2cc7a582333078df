/**
 * The two dialects in which LongVideoAgent masters are spoken to: the paper's tags, and those of the released code and checkpoints
 * (spec longvideoagent.md, sections 1.1, 1.3 and 1.5, and section 5, row 1). Wording is our own in both. What a master writes is read
 * by `actions.ts` and is the same grammar in both.
 */
import type { Clip, Episode, Question } from '../types.ts'
import { clipLabel, dialogue, neutralise } from './transcript.ts'

/** `brief` for small masters that learnt the format; `instructed` explains the task to a language model. */
export type PromptStyle = 'brief' | 'instructed'

export interface Dialect {
  /** Question and options, a line each. */
  question(style: PromptStyle, question: Question): string[]
  /** The clip that was found before turn 1. */
  located(episode: Episode, clips: readonly Clip[]): string
  /** The clip that a grounding call found. */
  grounded(episode: Episode, clips: readonly Clip[]): string
  seen(text: string): string
  /** Says that an agent failed, so that an outage never looks like something seen or heard. */
  failed(agent: 'grounding' | 'vision', problem: string): string
  noClip: string
  /** Answers a turn without an action. `vision`: visual queries are among the actions. */
  invalid(vision: boolean): string
  /** The task explained, before the question; `options`: how many it has. */
  instructions(vision: boolean, options: number): string
}

export const paper: Dialect = {
  // for a small master each word stands right after its label, where a previous-token head finds it
  question: (style, { text, options }) => [
    `question : ${neutralise(text)}`,
    ...options.map((option, index) => `a${index}${style === 'brief' ? ' ' : ' : '}${neutralise(option)}`),
  ],
  located: blocks,
  grounded: blocks,
  seen: (text) => `<information>${neutralise(text)}</information>`,
  failed: (agent, problem) => `<error>the ${agent} agent failed : ${neutralise(problem)} .</error>`,
  noClip: '<information>no clip is in view .</information>',
  invalid: (vision) =>
    `that was not an action . only ${vision ? 'three' : 'two'} actions are allowed : <request_grounding/> ,${vision ? ' <visual_query> query </visual_query> ,' : ''} <answer> label </answer> .`,
  instructions: (vision, options) =>
    explained(vision, options, {
      ground:
        '<request_grounding/> moves the view to another clip. You get the dialogue of that clip between tags that bear its name. If you know what to look for, write <request_grounding>what you look for</request_grounding> instead.',
      look: '<visual_query>what to look for</visual_query> asks about the pictures of the clip in view. You get what was seen between information tags.',
    }),
}

/** One block per clip: `<label>`, a line per subtitle, `</label>`. */
function blocks(episode: Episode, clips: readonly Clip[]): string {
  return clips
    .map((clip) => {
      const label = clipLabel(episode, clip)
      return [`<${label}>`, ...dialogue(clip), `</${label}>`].join('\n')
    })
    .join('\n')
}

export const released: Dialect = {
  question: (_, { text, options }) => [
    `question: ${neutralise(text)}`,
    ...options.map((option, index) => `a${index}: ${neutralise(option)}`),
  ],
  located: (_, clips) =>
    `<information>subtitles: ${clips.map((clip) => `<${clip.id}>${oneLine(clip)}</${clip.id}>`).join('')}</information>`,
  grounded: (_, clips) => `\n${clips.map((clip) => `<New_clip>${clip.id} + ${oneLine(clip)}</New_clip>`).join('\n')}\n`,
  seen: (text) => `\n<information>visual description: ${neutralise(text)}</information>\n`,
  failed: (agent, problem) => {
    const text = `Error: the ${agent} agent failed: ${neutralise(problem)}`
    return agent === 'grounding' ? `<grounding_info>${text}</grounding_info>` : `<information>${text}</information>`
  },
  noClip: '<information>No clip is in view.</information>',
  invalid: (vision) =>
    `My previous turn had no valid action. I have to ${vision ? 'search inside <search></search>, ' : ''}ask for grounding with <request_grounding></request_grounding>, or answer inside <answer></answer>.`,
  instructions: (vision, options) =>
    explained(vision, options, {
      ground:
        '<request_grounding></request_grounding> moves the view to another clip. You get its name and its dialogue between New_clip tags.',
      look: '<search>what to look for</search> asks about the pictures of the clip in view. You get what was seen between information tags.',
    }),
}

function oneLine(clip: Clip): string {
  return dialogue(clip).join(' <eos> ')
}

export const dialects = { paper, released } as const satisfies Record<string, Dialect>

/** The first user message: what `style` asks for, the clip that was found before turn 1 if any, and the lines that end it. */
export function firstMessage(
  dialect: Dialect,
  { prompt, vision }: { prompt: PromptStyle; vision: boolean },
  question: Question,
  located: string | null,
  countdown: readonly string[],
): string {
  const lines = [...dialect.question(prompt, question), ...(located === null ? [] : [located]), ...countdown]
  return (
    (prompt === 'instructed' ? `${dialect.instructions(vision, question.options.length)}\n\n` : '') + lines.join('\n')
  )
}

/** `a0, a1 or a2` of three. */
export function labelsOf(options: number): string {
  const labels = Array.from({ length: options }, (_, option) => `a${option}`)
  return [labels.slice(0, -1).join(', '), labels.at(-1)].filter(Boolean).join(' or ')
}

function explained(vision: boolean, options: number, actions: { ground: string; look: string }): string {
  const helpers = vision
    ? 'Two assistants work for you: one finds the clip where the answer is likely to be and hands you its dialogue, the other looks at the pictures of the clip in view and tells you what it sees.'
    : 'An assistant works for you: it finds the clip where the answer is likely to be and hands you its dialogue.'
  return [
    `You answer a multiple-choice question about one episode of a series. The episode is long and has been cut into clips; you cannot watch it yourself. ${helpers}`,
    '',
    'You act in turns. In each turn you may first think inside <reasoning>...</reasoning>; then take exactly one of these actions and write nothing after it:',
    `- ${actions.ground}`,
    ...(vision ? [`- ${actions.look}`] : []),
    `- <answer>aN</answer> ends the run with your choice, where aN is ${labelsOf(options)}.`,
    '',
    'Good practice:',
    '- When no clip is in view, request grounding first.',
    '- When the clip in view has nothing to do with the question, request grounding again.',
    ...(vision
      ? [
          '- Ask about the pictures only when the dialogue does not settle the question, and ask one plain thing at a time.',
        ]
      : []),
    '- Rely on what you were told. Do not make up anything you were not shown.',
    '- Between the answer tags write the label alone.',
    '- An action other than an answer in the last turn is not carried out, so answer before your turns run out.',
  ].join('\n')
}
