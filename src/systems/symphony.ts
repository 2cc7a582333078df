/**
 * Symphony (arXiv 2603.17307): a planner asks a grounding agent, a subtitle agent and a visual perception agent, and its answer is
 * reflected on before it stands.
 *
 *   for cycle 1 .. K:                                   K = 17
 *     plan = planner                                    given all plans and results so far
 *     grounding    type 0 its own words; type 1 frames like a cue; type 2 segments of relevance 2 to 4
 *     subtitle     lines that bear on the question
 *     perception   up to six outputs with three tools   symphony/perception.ts
 *     finish       credible, or reflected on before -> answer; else the planner is told why not
 *   planner, finish alone -> answer
 *
 * Where paper and released code differ: spec longvideoagent.md, section 5, row 34. Unlike in the released code, a planner whose output
 * cannot be read, or that wants an agent that there is not, has used up a cycle and no more. The planner's history is its conversation.
 */
import type { Failure, Message, System } from '../types.ts'
import type { SymphonyOptions } from './options.ts'
import { type Answer, type Observed, type Program, runProgram, type Step } from './program.ts'
import { perceive } from './symphony/perception.ts'
import {
  type AgentPlan,
  ANSWER_NOW,
  finishSchema,
  groundingPrompt,
  groundingSchema,
  instructed,
  type Proposal,
  plannerPrompt,
  planSchema,
  reflectionPrompt,
  reflectionSchema,
} from './symphony/roles.ts'
import { lengthOf, quoted, retrieved, scored, segmentsOf, told } from './symphony/timeline.ts'
import { neutralise } from './transcript.ts'

export function symphony(options: SymphonyOptions): System {
  return {
    name: 'symphony',
    roles: ['planner', 'grounding', 'perception', 'reflection'],
    turns: 17,
    needs: ['subtitles', 'segmentScoring', 'frameRetrieval', 'frameInspection'],
    measures: ['credible'],
    run: (context) => runProgram(context, (program) => solve(program, options)),
  }
}

async function solve(program: Program, options: SymphonyOptions): Promise<Answer> {
  const { task, budget } = program.context
  const { episode, question, videos = [] } = task
  if (videos.length > 1) {
    const message = `question ${question.qid}: is about ${videos.length} videos; Symphony watches one, so give it questions about one video`
    program.end('agent_error', { boundary: 'dataset', kind: 'bad_request', message })
  }
  const { prompt, repairs } = options
  const schema = planSchema(question, lengthOf(episode))
  let messages: readonly Message[] = plannerPrompt(prompt, question, lengthOf(episode))
  const history: string[] = []
  let reflections = 0
  for (let left = budget.turns; left > 0; left--) {
    const planned = await program.ask('planner', messages, schema, { repairs })
    let found: Found
    if (!planned.ok) found = { text: `that could not be read : ${planned.problem} .` }
    else if (planned.value.agent === 'finish') {
      const { answer } = planned.value
      propose(planned.step, answer)
      const reflected = reflections++ < options.reflections
      const objection = reflected ? await reflect(program, options, history, answer) : null
      if (objection === null) return answerOf(answer)
      found = { text: objection }
    } else {
      const plan = planned.value
      const query = plan.agent === 'perception' ? instructed(plan.instruct) : question.text
      planned.step.chose({ kind: 'call', tool: plan.agent, query })
      found = await askAgent(program, options, plan)
    }
    const { text, ...observed } = found
    const result = planned.step.observed(text, observed)
    if (planned.ok) history.push(`${JSON.stringify(planned.value)}\n${result}`)
    const content = left > 1 ? result : `${result}\n${ANSWER_NOW}`
    messages = [...planned.messages, { role: 'user', content }]
  }
  const forced = await program.ask('planner', messages, finishSchema(question), { repairs })
  if (!forced.ok) return null
  propose(forced.step, forced.value.answer)
  return answerOf(forced.value.answer)
}

/** What came back, as the planner is told it. */
type Found = { text: string } & Observed

function askAgent(program: Program, options: SymphonyOptions, plan: AgentPlan): Promise<Found> {
  switch (plan.agent) {
    case 'grounding':
      return ground(program, options)
    case 'subtitle':
      return readSubtitles(program, options)
    case 'perception':
      return perceive(program, options, plan.instruct)
  }
}

/** One decision, carried out: the agent's own words, moments, or segments. Nothing counts as shown by it: it says where to look. */
async function ground(program: Program, options: SymphonyOptions): Promise<Found> {
  const { episode, question } = program.context.task
  const { prompt, repairs, retrievedFrames, segmentSeconds, framesPerSegment, leastRelevance } = options
  const messages = groundingPrompt(prompt, question, lengthOf(episode))
  const decided = await program.ask('grounding', messages, groundingSchema, { repairs })
  if (!decided.ok) return { text: neutralise(decided.text) }
  const { value, step } = decided
  switch (value.type) {
    case 0:
      return { text: neutralise(value.answer) }
    case 1: {
      step.chose({ kind: 'call', tool: 'retrieve', query: value.cue })
      const request = { episode, stretch: null, query: value.cue, count: retrievedFrames }
      const answer = await program.consult('frameRetrieval', request)
      if (!answer.ok) return failedStep(step, answer.failure)
      const { frames, caveat } = answer.value
      return { text: step.observed(told(retrieved(answer.value), caveat, prompt), { frames, clips: [] }) }
    }
    case 2: {
      step.chose({ kind: 'call', tool: 'localize', query: question.text })
      const segments = segmentsOf(episode, segmentSeconds)
      const answer = await program.consult('segmentScoring', { episode, question, segments, framesPerSegment })
      if (!answer.ok) return failedStep(step, answer.failure)
      const { frames, caveat } = answer.value
      const text = told(scored(segments, answer.value, leastRelevance), caveat, prompt)
      return { text: step.observed(text, { frames, clips: [] }) }
    }
  }
}

function failedStep(step: Step, failure: Failure): Found {
  return { text: step.observed('the video could not be searched .', { failure }) }
}

async function readSubtitles(program: Program, { prompt, subtitleLines }: SymphonyOptions): Promise<Found> {
  const { episode, question } = program.context.task
  const request = { episode, stretch: null, query: question.text, count: subtitleLines }
  const answer = await program.consult('subtitles', request)
  if (!answer.ok) return { text: 'the subtitles could not be read .', failure: answer.failure }
  const { lines, caveat } = answer.value
  return { text: told(quoted(answer.value), caveat, prompt), clips: lines.map(({ clipId }) => clipId) }
}

/** What speaks against the answer; null: nothing, or nothing that can be read. */
async function reflect(
  program: Program,
  { prompt, repairs }: SymphonyOptions,
  history: readonly string[],
  answer: Proposal,
): Promise<string | null> {
  const messages = reflectionPrompt(prompt, program.context.task.question, history, answer)
  const reflected = await program.ask('reflection', messages, reflectionSchema, { repairs })
  const credible = !reflected.ok || reflected.value.credible
  program.measure('credible', credible ? 1 : 0)
  return credible ? null : `not credible : ${neutralise(reflected.value.comment ?? '')}`
}

/** An answer in words is an output. */
function propose(step: Step, answer: Proposal): void {
  if (typeof answer === 'number') step.chose({ kind: 'answer', option: answer })
}

function answerOf(answer: Proposal): Answer {
  return typeof answer === 'number' ? { option: answer } : { text: answer }
}
