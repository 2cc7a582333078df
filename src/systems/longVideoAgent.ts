/**
 * LongVideoAgent (arXiv 2512.20618, Algorithm 1): a master reasons for at most K turns; each turn it asks the grounding agent for a
 * clip, asks the vision agent about the clip in view, or answers.
 *
 * Resolutions of what paper and code leave open: spec longvideoagent.md, section 5, rows 1-4, 11-18, 26, 28, 32.
 * It counts no tokens, holds no deadline and sees no gold: the context does the first two, nobody hands it the third.
 */
import type { Clip, Failure, Message, System, SystemContext, SystemOutcome, Turn } from '../types.ts'
import { actionStops, parseAction } from './actions.ts'
import type { SystemsOptions } from './options.ts'
import {
  countdownLines,
  errorObservation,
  firstMessage,
  groundingObservation,
  invalidObservation,
  noClipObservation,
  visionObservation,
} from './transcript.ts'
import { evidenceWindow, findClip } from './window.ts'

export function longVideoAgent(options: SystemsOptions): System {
  return { name: 'longVideoAgent', run: (context) => run(context, options) }
}

async function run(context: SystemContext, options: SystemsOptions): Promise<SystemOutcome> {
  const { task, master, budget } = context
  const visited = new Set<string>()
  const turns: Turn[] = []
  let view: Clip | null = null
  const end = (
    stopReason: SystemOutcome['stopReason'],
    failure: Failure | null = null,
    answer: number | null = null,
  ): SystemOutcome => ({ turns, answer, stopReason, failure, visited: [...visited] })

  let located: string | null = null
  if (options.initialGrounding === 'agent') {
    // Nothing has been sampled yet, so a failure here costs nothing and always ends the run: a start without the promised clip would be another task.
    const effect = await ground(context, view, visited)
    if (effect.failure !== null) return end('agent_error', effect.failure)
    view = effect.view
    located = context.fitObservation(effect.observation)
  }
  const messages: Message[] = [
    {
      role: 'user',
      content: firstMessage(options.prompt, task.question, located, countdownLines(budget.turns, options)),
    },
  ]

  for (let turnsLeft = budget.turns; turnsLeft > 0; turnsLeft--) {
    const said = await master.say(messages, actionStops)
    if (!said.ok) {
      if (said.text !== undefined)
        turns.push({
          response: said.text,
          action: { kind: 'invalid', problem: `cut off: ${said.stopReason}` },
          wellFormed: false,
          ...withoutEffect(view),
        })
      return end(said.stopReason, said.failure)
    }
    const { action, wellFormed, end: actionEnd } = parseAction(said.text)
    const chosen = { response: said.text, action, wellFormed }

    if (action.kind === 'answer') {
      turns.push({ ...chosen, ...withoutEffect(view) })
      return end('answered', null, action.option)
    }
    if (turnsLeft === 1) {
      turns.push({ ...chosen, ...withoutEffect(view) })
      break
    }

    let effect: Effect
    if (action.kind === 'ground') effect = await ground(context, view, visited)
    else if (action.kind === 'look') effect = await look(context, view, action.query)
    else effect = { observation: invalidObservation, view, failure: null, frames: [] }

    view = effect.view
    const observation = [context.fitObservation(effect.observation), ...countdownLines(turnsLeft - 1, options)].join(
      '\n',
    )
    turns.push({ ...chosen, observation, failure: effect.failure, clipId: view?.id ?? null, frames: effect.frames })
    // an agent that answered nonsense was there to be asked again (spec longvideoagent.md, section 5, row 17)
    const outage = effect.failure !== null && effect.failure.kind !== 'bad_response'
    if (outage && options.onAgentFailure === 'stop') return end('agent_error', effect.failure)
    messages.push(
      { role: 'assistant', content: keepThrough(said.text, actionEnd) },
      { role: 'user', content: observation },
    )
  }
  return end('turn_limit')
}

/** What an action did: what the master reads next and the clip in view from now on. */
interface Effect {
  observation: string
  view: Clip | null
  failure: Failure | null
  frames: Turn['frames']
}

/** The rest of a turn after which nothing comes back. */
function withoutEffect(view: Clip | null): Pick<Turn, 'observation' | 'failure' | 'clipId' | 'frames'> {
  return { observation: null, failure: null, clipId: view?.id ?? null, frames: [] }
}

/** Asks for a clip and shows its window. Adds the clips shown to `visited`; on failure the view stays. */
async function ground(
  { task, agents, budget, signal, spend }: SystemContext,
  view: Clip | null,
  visited: Set<string>,
): Promise<Effect> {
  const { episode, question } = task
  const answer = await agents.grounding.ground({ episode, question, visited: [...visited] }, { signal })
  if (!answer.ok)
    return {
      observation: errorObservation('grounding', answer.failure.kind),
      view,
      failure: answer.failure,
      frames: [],
    }
  spend('grounding', answer.value.usage)

  const clip = findClip(episode, answer.value.clipId)
  if (clip === null) {
    const message = `grounding agent ${agents.grounding.name}: expected a clip of episode ${episode.id} for question ${question.qid}, got ${JSON.stringify(answer.value.clipId)}; the view was kept`
    return {
      observation: errorObservation('grounding', 'it named no clip of this episode'),
      view,
      failure: { boundary: 'grounding', kind: 'bad_response', message },
      frames: [],
    }
  }
  const clips = evidenceWindow(episode, clip, budget.windowClips)
  for (const shown of clips) visited.add(shown.id)
  return { observation: groundingObservation(episode, clips), view: clip, failure: null, frames: [] }
}

/** Asks what is to be seen in the window around the clip in view. */
async function look(
  { task, agents, budget, signal, spend }: SystemContext,
  view: Clip | null,
  query: string,
): Promise<Effect> {
  if (view === null) return { observation: noClipObservation, view, failure: null, frames: [] }
  const answer = await agents.vision.look(
    { clips: evidenceWindow(task.episode, view, budget.windowClips), query },
    { signal },
  )
  if (!answer.ok)
    return { observation: errorObservation('vision', answer.failure.kind), view, failure: answer.failure, frames: [] }
  spend('vision', answer.value.usage)
  return { observation: visionObservation(answer.value.text), view, failure: null, frames: answer.value.frames }
}

/** The response up to the executed action: later text (a second action, an observation the policy made up) does not enter the transcript (row 3). */
function keepThrough(response: string, end: number): string {
  return response.slice(end).trim() === '' ? response : response.slice(0, end)
}
