/**
 * The baselines without agents' turns (spec longvideoagent.md, section 1.12): the master reads the subtitles of the whole episode, and
 * the pictures of evenly spaced clips where `clipsSeen` asks for them, and answers in one call. Neither grounds, so no clip counts as
 * visited.
 *
 * Unlike in the published baseline, pictures reach the master as the vision agent's account of them, as they do in every system here.
 */
import type { System, SystemContext, SystemOutcome } from '../types.ts'
import { actionStops, parseAction } from './actions.ts'
import { labelsOf, paper } from './dialect.ts'
import { look } from './evidence.ts'
import type { WholeEpisodeOptions } from './options.ts'
import { spacedClips } from './window.ts'

export function wholeEpisode(options: WholeEpisodeOptions): System {
  return { name: 'wholeEpisode', roles: ['master'], turns: 1, run: (context) => run(context, options) }
}

async function run(context: SystemContext, { clipsSeen }: WholeEpisodeOptions): Promise<SystemOutcome> {
  const { episode, question } = context.task
  const lines = [
    instructions(question.options.length),
    '',
    ...paper.question('instructed', question),
    paper.grounded(episode, episode.clips),
  ]
  const nothing = { turns: [], answer: null, visited: [] }
  let frames: SystemOutcome['turns'][number]['frames'] = []
  if (clipsSeen > 0) {
    const seen = await look(context, spacedClips(episode, clipsSeen), question.text)
    if (!seen.ok) return { ...nothing, stopReason: 'agent_error', failure: seen.failure }
    lines.push(context.fitObservation(paper.seen(seen.value.text)))
    frames = seen.value.frames
  }
  const said = await context.speaker('master').say([{ role: 'user', content: lines.join('\n') }], actionStops)
  const response = said.text
  const { action, wellFormed } = parseAction(response ?? '', 'earliest', question.options.length)
  const turns = [
    { response: response ?? '', action, wellFormed, observation: null, failure: null, clipId: null, frames },
  ]
  const written = { turns: response === undefined ? [] : turns, visited: [] }
  if (!said.ok) return { ...written, answer: null, stopReason: said.stopReason, failure: said.failure }
  if (action.kind !== 'answer') return { ...written, answer: null, stopReason: 'invalid_action', failure: null }
  return { ...written, answer: action.option, stopReason: 'answered', failure: null }
}

const instructions = (
  options: number,
) => `You answer a multiple-choice question about one episode of a series. You are given the dialogue of the whole episode, clip by clip, each between tags that bear its name, and where someone looked at pictures of some clips, what was seen between information tags.

You may first think inside <reasoning>...</reasoning>; then write <answer>aN</answer>, where aN is ${labelsOf(options)}, and nothing after it.`
