/**
 * What a LongVideoAgent master reads: its first message and what comes back each turn. Training and evaluation use this one
 * builder (spec longvideoagent.md, section 5, row 26). It only writes text: it calls nobody and keeps no state.
 *
 * Text that others wrote (questions, options, subtitles, agents' answers) is neutralised: nothing in it can pass for a tag (row 32).
 */
import type { Clip, Episode, Question } from '../types.ts'

/** `brief` for small masters that learnt the format; `instructed` explains the task to a language model. */
export type PromptStyle = 'brief' | 'instructed'

/** Turns whatever looks like a tag (`<answer>`, `</seg01_clip_00>`, `<|im_end|>`) into the same words in square brackets. */
export function neutralise(text: string): string {
  return text.replace(/<(\s*\/?\s*[a-z|!][^<>]*)>/gi, '[$1]')
}

/** The clip's name inside its episode: `s05e02_seg01_clip_03` becomes `seg01_clip_03`. */
export function clipLabel(episode: Episode, clip: Clip): string {
  const prefix = `${episode.id}_`
  return clip.id.startsWith(prefix) ? clip.id.slice(prefix.length) : clip.id
}

/** The first user message. `located` is the observation of a grounding made before turn 1, if any. */
export function firstMessage(
  style: PromptStyle,
  question: Question,
  located: string | null,
  countdown: readonly string[],
): string {
  const lines = [
    `question : ${neutralise(question.text)}`,
    // for a small master each word stands right after its label, where a previous-token head finds it
    ...question.options.map((option, index) => `a${index}${style === 'brief' ? ' ' : ' : '}${neutralise(option)}`),
    ...(located === null ? [] : [located]),
    ...countdown,
  ]
  return (style === 'instructed' ? `${instructions}\n\n` : '') + lines.join('\n')
}

/** The lines that end every message to the master: a notice on the last turn if wanted, and how many turns are left. */
export function countdownLines(
  turnsLeft: number,
  options: { showTurnsLeft: boolean; forceAnswerNotice: boolean },
): string[] {
  return [
    ...(options.forceAnswerNotice && turnsLeft === 1 ? ['this is the last turn : answer now .'] : []),
    ...(options.showTurnsLeft ? [`<turns_left_${turnsLeft}>`] : []),
  ]
}

/** One block per clip of the window: `<label>`, a line per subtitle, `</label>`. */
export function groundingObservation(episode: Episode, clips: readonly Clip[]): string {
  return clips
    .map((clip) => {
      const label = clipLabel(episode, clip)
      const lines = clip.subtitles.map(({ speaker, text }) => neutralise(speaker ? `${speaker} : ${text}` : text))
      return [`<${label}>`, ...lines, `</${label}>`].join('\n')
    })
    .join('\n')
}

export function visionObservation(text: string): string {
  return `<information>${neutralise(text)}</information>`
}

export const noClipObservation = '<information>no clip is in view .</information>'

/** Says that an agent failed, so that an outage never looks like something seen or heard. */
export function errorObservation(agent: 'grounding' | 'vision', problem: string): string {
  return `<error>the ${agent} agent failed : ${neutralise(problem)} .</error>`
}

export const invalidObservation =
  'that was not an action . only three actions are allowed : <request_grounding/> , <visual_query> query </visual_query> , <answer> label </answer> .'

const instructions = `You answer a multiple-choice question about one episode of a series. The episode is long and has been cut into clips; you cannot watch it yourself. Two assistants work for you: one finds the clip where the answer is likely to be and hands you its dialogue, the other looks at the pictures of the clip in view and tells you what it sees.

You act in turns. In each turn you may first think inside <reasoning>...</reasoning>; then take exactly one of these actions and write nothing after it:
- <request_grounding/> moves the view to another clip. You get the dialogue of that clip between tags that bear its name.
- <visual_query>what to look for</visual_query> asks about the pictures of the clip in view. You get what was seen between information tags.
- <answer>aN</answer> ends the run with your choice, where aN is a0, a1, a2, a3 or a4.

Good practice:
- When no clip is in view, request grounding first.
- When the clip in view has nothing to do with the question, request grounding again.
- Ask about the pictures only when the dialogue does not settle the question, and ask one plain thing at a time.
- Rely on what you were told. Do not make up anything you were not shown.
- Between the answer tags write the label alone.
- An action other than an answer in the last turn is not carried out, so answer before your turns run out.`
