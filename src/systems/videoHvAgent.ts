/**
 * VideoHV-Agent (arXiv 2603.04977): hypotheses about the options are made first and then verified. A thinker writes one per option, a
 * judge finds the clue that tells them apart, a verifier looks the clue up, and the answer follows from what it found.
 *
 *   watch                                               captions of frames, summary
 *   for round 1 .. K:
 *     hypotheses = thinker                              from round 2 on: more specific, given the failed verification
 *     one left -> answer with its option
 *     clue = judge; score < distinctness:
 *       hypotheses = thinker, to be told apart          one left -> answer with its option
 *       clue = judge
 *     status = verifier, looking again while PARTIAL
 *     answer; stop unless status is NOT_VERIFIED
 *   the last answer stands
 *
 * Where paper and released code differ: spec longvideoagent.md, section 5, row 33. A role whose output cannot be read ends the round
 * without an answer; nothing is ever answered at random. Left out of the summaries: object detections, which no agent here makes.
 */
import type { Message, System } from '../types.ts'
import type { VideoHvAgentOptions } from './options.ts'
import { type Answer, type Program, runProgram } from './program.ts'
import {
  answerPrompt,
  answerSchema,
  type Doubt,
  type Hypothesis,
  hypothesesSchema,
  judgementSchema,
  judgePrompt,
  type Trace,
  thinkerPrompt,
  VERDICT_NOW,
  VERIFY_FURTHER,
  verdictSchema,
  verificationSchema,
  verifierPrompt,
} from './videoHv/roles.ts'
import { type Frame, sampleFrames, type TimelineLine, timelineOf, toldLine } from './videoHv/timeline.ts'

export function videoHvAgent(options: VideoHvAgentOptions): System {
  return {
    name: 'videoHvAgent',
    roles: ['answer', 'thinker', 'judge', 'verifier'],
    turns: 3,
    needs: ['captioner', 'summary', 'frameInspection'],
    measures: ['verifiedClue', 'distinctness'],
    run: (context) => runProgram(context, (program) => solve(program, options)),
  }
}

/** What is known of the videos before any hypothesis. */
interface Watched {
  frames: readonly Frame[]
  timeline: string
  summary: string
}

/** How a round ended. `option` null: without an answer; `final`: there is no further round; else `doubt` is what the next one begins with. */
type Round = { option: number | null } & ({ final: true } | { final: false; doubt: Doubt | null })

async function solve(program: Program, options: VideoHvAgentOptions): Promise<Answer> {
  const { question } = program.context.task
  if (question.options.length === 0) {
    const message = `question ${question.qid}: has no options; VideoHV-Agent makes a hypothesis of each, so give it multiple-choice questions`
    program.end('agent_error', { boundary: 'dataset', kind: 'bad_request', message })
  }
  const watched = await watch(program, options)
  let answer: number | null = null
  let doubt: Doubt | null = null
  for (let round = 0; round < program.context.budget.turns; round++) {
    const end: Round = await playRound(program, options, watched, doubt)
    answer = end.option ?? answer
    if (end.final) break
    doubt = end.doubt
  }
  return answer === null ? null : { option: answer }
}

async function playRound(
  program: Program,
  options: VideoHvAgentOptions,
  watched: Watched,
  doubt: Doubt | null,
): Promise<Round> {
  const { prompt, repairs } = options
  const { question } = program.context.task
  const unread: Round = { option: null, final: false, doubt }

  let thought = await think(program, options, watched, doubt)
  if (thought === null) return unread
  if (thought.only !== null) return { option: thought.only, final: true }

  let judged = await judge(program, options, watched, thought.hypotheses)
  if (judged === null) return unread
  if (judged.score < options.distinctness) {
    const { hypotheses } = thought
    thought = await think(program, options, watched, { lack: 'discriminability', hypotheses, reasons: judged.reasons })
    if (thought === null) return unread
    if (thought.only !== null) return { option: thought.only, final: true }
    judged = await judge(program, options, watched, thought.hypotheses)
    if (judged === null) return unread
  }

  const { hypotheses } = thought
  const trace = await verify(program, options, watched, judged.clue)
  if (trace === null) return unread
  program.measure('verifiedClue', trace.status === 'VERIFIED' ? 1 : 0)

  const messages = answerPrompt(prompt, question, watched.summary, hypotheses, trace)
  const answered = await program.ask('answer', messages, answerSchema(hypotheses), { repairs })
  const option = answered.ok ? answered.value.final_answer : null
  if (option !== null) answered.step.chose({ kind: 'answer', option })
  if (option !== null && trace.status !== 'NOT_VERIFIED') return { option, final: true }
  const failed: Doubt | null = trace.status === 'NOT_VERIFIED' ? { lack: 'specificity', hypotheses, trace } : doubt
  return { option, final: false, doubt: failed }
}

/** Hypotheses, and the option of the only one where there is no other. */
async function think(
  program: Program,
  { prompt, repairs }: VideoHvAgentOptions,
  { summary }: Watched,
  doubt: Doubt | null,
): Promise<{ hypotheses: readonly Hypothesis[]; only: number | null } | null> {
  const { question } = program.context.task
  const messages = thinkerPrompt(prompt, question, summary, doubt)
  const thought = await program.ask('thinker', messages, hypothesesSchema(question), { repairs })
  if (!thought.ok) return null
  const { hypotheses } = thought.value
  const only = hypotheses.length === 1 ? (hypotheses[0] as Hypothesis).option : null
  if (only !== null) thought.step.chose({ kind: 'answer', option: only })
  return { hypotheses, only }
}

async function judge(
  program: Program,
  { prompt, repairs }: VideoHvAgentOptions,
  { summary }: Watched,
  hypotheses: readonly Hypothesis[],
) {
  const messages = judgePrompt(prompt, program.context.task.question, summary, hypotheses)
  const judged = await program.ask('judge', messages, judgementSchema, { repairs })
  if (!judged.ok) return null
  program.measure('distinctness', judged.value.score)
  return judged.value
}

/** The verification-only loop: it goes on while the verifier has frames looked at or settles a part, so many times; then a verdict is demanded. */
async function verify(
  program: Program,
  { prompt, repairs, verifierRounds, framesPerLook }: VideoHvAgentOptions,
  { frames, timeline }: Watched,
  clue: string,
): Promise<Trace | null> {
  const { question } = program.context.task
  const anything = verificationSchema(frames.length, framesPerLook)
  let messages: readonly Message[] = verifierPrompt(prompt, question, clue, timeline, {
    looks: verifierRounds,
    most: framesPerLook,
  })
  for (let left = verifierRounds; left > 0; left--) {
    const said = await program.ask('verifier', messages, anything, { repairs })
    if (!said.ok) return null
    const { value, step } = said
    if (value.action === 'verdict' && value.status !== 'PARTIAL') return { ...value, clue }
    const asWell = left > 1 ? [] : [VERDICT_NOW]
    const told =
      value.action === 'caption'
        ? await look(program, frames, value.frames, clue)
        : { text: VERIFY_FURTHER, frames: [], failure: undefined }
    if (value.action === 'caption')
      step.chose({ kind: 'call', tool: 'caption', query: `${value.frames[0]}-${value.frames.at(-1)}` })
    const { text, ...seen } = told
    const content = step.observed([text, ...asWell].join('\n'), seen)
    messages = [...said.messages, { role: 'user', content }]
  }
  const last = await program.ask('verifier', messages, verdictSchema, { repairs })
  return last.ok ? { ...last.value, clue } : null
}

/** The tool: each frame is looked at with the clue in mind. */
async function look(program: Program, frames: readonly Frame[], numbers: readonly number[], clue: string) {
  const answers = await program.together(
    numbers.map((number) => {
      const { episode, time } = frames[number] as Frame
      return program.consult('frameInspection', { episode, times: [time], question: clue })
    }),
  )
  const said = answers.map((answer, i) => `frame ${numbers[i]} : ${answer.ok ? answer.value.text : 'not seen .'}`)
  const failure = answers.find((answer) => !answer.ok)
  return {
    text: said.join('\n'),
    frames: answers.flatMap((answer) => (answer.ok ? answer.value.frames : [])),
    ...(failure === undefined || failure.ok ? {} : { failure: failure.failure }),
  }
}

/** Captions the frames and summarises the captions with the dialogue: parts of the video, then the whole, with the question in mind. */
async function watch(program: Program, options: VideoHvAgentOptions): Promise<Watched> {
  const { task } = program.context
  const frames = sampleFrames(task, options.frames)
  const captions = new Map<number, string>()
  const captioning = program.call('captioner', `${frames.length} frames`)
  const seen = []
  let failed = {}
  for (const episode of new Set(frames.map((frame) => frame.episode))) {
    const first = frames.findIndex((frame) => frame.episode === episode)
    const times = frames.filter((frame) => frame.episode === episode).map(({ time }) => time)
    const answer = await program.consult('captioner', { episode, times })
    if (answer.ok) {
      for (const { time, text } of answer.value.captions) captions.set(first + times.indexOf(time), text)
      seen.push(...answer.value.frames)
    } else failed = { failure: answer.failure }
  }
  const lines = timelineOf(task, frames, captions, options)
  // a pass over the whole video shows no clip in particular
  const timeline = captioning.observed(lines.map(toldLine).join('\n'), {
    frames: seen,
    clips: [],
    ...failed,
  })
  return { frames, timeline, summary: await summarise(program, options, lines) }
}

async function summarise(
  program: Program,
  { summaryParts, summaryWords }: VideoHvAgentOptions,
  lines: readonly TimelineLine[],
): Promise<string> {
  const { question } = program.context.task
  const step = program.call('summary', question.text)
  const size = Math.ceil(lines.length / summaryParts)
  const parts = Array.from({ length: summaryParts }, (_, part) => lines.slice(part * size, (part + 1) * size))
  const ask = (some: readonly { time: number | null; text: string }[]) =>
    program.consult('summary', { lines: some, focus: question.text, words: summaryWords })
  const answers = await program.together(parts.filter((some) => some.length > 0).map(ask))
  const texts = answers.flatMap((answer) => (answer.ok ? [answer.value.text] : []))
  if (texts.length > 1) {
    const whole = await ask(texts.map((text) => ({ time: null, text })))
    if (whole.ok) texts.unshift(whole.value.text)
  }
  const failure = answers.find((answer) => !answer.ok)
  return step.observed(texts.join('\n'), {
    clips: [],
    ...(failure === undefined || failure.ok ? {} : { failure: failure.failure }),
  })
}
