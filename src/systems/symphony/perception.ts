/**
 * Symphony's visual perception agent: a role that calls three tools until it reports, at most so many times (spec systems.md, section 3.2).
 * A tool chooses moments and asks the frame inspection agent about them; it is told the question that the role writes and no other.
 */
import type { Episode, Message, Stretch } from '../../types.ts'
import type { SymphonyOptions } from '../options.ts'
import type { Observed, Program } from '../program.ts'
import { neutralise } from '../transcript.ts'
import { type Instruct, perceptionPrompt, perceptionSchema, type Range, REPORT_NOW, reportSchema } from './roles.ts'
import { lengthOf, spread, told } from './timeline.ts'

/** What the agent reports; what it wrote last, as in the released code, where that cannot be read. */
export async function perceive(
  program: Program,
  options: SymphonyOptions,
  instruct: Instruct,
): Promise<{ text: string }> {
  const { episode, question } = program.context.task
  const { prompt, perceptionRounds, repairs } = options
  const length = lengthOf(episode)
  const anything = perceptionSchema(length)
  let messages: readonly Message[] = perceptionPrompt(prompt, question, length, instruct, perceptionRounds)
  for (let left = perceptionRounds - 1; left > 0; left--) {
    const said = await program.ask('perception', messages, anything, { repairs })
    if (!said.ok) return { text: neutralise(said.text) }
    const call = said.value
    if (call.tool === 'answer') return { text: neutralise(call.answer) }
    said.step.chose({ kind: 'call', tool: call.tool, query: call.question })
    const { text, ...observed } = await use(program, options, call)
    const content = [said.step.observed(text, observed), ...(left > 1 ? [] : [REPORT_NOW])].join('\n')
    messages = [...said.messages, { role: 'user', content }]
  }
  const report = await program.ask('perception', messages, reportSchema, { repairs })
  return { text: neutralise(report.ok ? report.value.answer : report.text) }
}

type Call =
  | { tool: 'frame_inspect'; question: string; range: Range; cue: string }
  | { tool: 'interval_summary'; question: string; range: Range }
  | { tool: 'frame_associate'; question: string; cues: readonly string[] }

type Used = { text: string } & Observed

async function use(program: Program, options: SymphonyOptions, call: Call): Promise<Used> {
  const { episode } = program.context.task
  const { prompt, inspectFrames, inspectRetrieved, summaryFrames, associateFrames } = options
  const found = new Set<number>()
  let failed: Pick<Used, 'failure'> = {}
  const retrieve = async (query: string, stretch: Stretch | null, count: number) => {
    const answer = await program.consult('frameRetrieval', { episode, stretch, query, count })
    if (!answer.ok) failed = { failure: answer.failure }
    else for (const { time } of answer.value.hits) found.add(time)
  }
  switch (call.tool) {
    case 'frame_inspect': {
      const stretch = stretchOf(call.range, episode)
      const seconds = Math.ceil(stretch.end - stretch.start)
      for (const time of spread(stretch, Math.min(inspectFrames, seconds))) found.add(time)
      await retrieve(call.cue, stretch, inspectRetrieved)
      break
    }
    case 'interval_summary':
      for (const time of spread(stretchOf(call.range, episode), summaryFrames)) found.add(time)
      break
    case 'frame_associate':
      await program.together(call.cues.map((cue) => retrieve(cue, null, associateFrames)))
  }
  const times = [...found].sort((a, b) => a - b)
  if (times.length === 0) return { text: 'there are no such pictures .', ...failed }
  const answer = await program.consult('frameInspection', { episode, times, question: call.question })
  if (!answer.ok) return { text: 'nothing could be seen .', failure: answer.failure }
  return { text: told(answer.value.text, answer.value.caveat, prompt), frames: answer.value.frames, ...failed }
}

function stretchOf([start, end]: Range, episode: Episode): Stretch {
  return { start, end: Math.min(end, lengthOf(episode)) }
}
