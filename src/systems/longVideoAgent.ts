/**
 * LongVideoAgent (arXiv 2512.20618, Algorithm 1): a master reasons for at most K turns; each turn it asks the grounding agent for a
 * clip, asks the vision agent about the clip in view, or answers.
 *
 * Resolutions of what paper and code leave open: spec longvideoagent.md, section 5, rows 1-4, 11-18, 26, 28, 32.
 * It counts no tokens, holds no deadline and sees no gold: the context does the first two, nobody hands it the third.
 */
import type {
  Action,
  Failure,
  GroundingAgent,
  InitialGrounding,
  Message,
  Result,
  System,
  SystemContext,
  SystemOutcome,
  Turn,
} from '../types.ts'
import { actionStops, type MasterAction, type ParsedAction, parseAction } from './actions.ts'
import { type Dialect, dialects, firstMessage } from './dialect.ts'
import { clipsInView, emptyView, ground, look, showClip, type View } from './evidence.ts'
import type { LongVideoAgentOptions, Purpose } from './options.ts'
import { countdownLines, withTurn } from './transcript.ts'
import { randomClip } from './window.ts'

export function longVideoAgent(options: LongVideoAgentOptions, purpose: Purpose): System {
  const training = purpose === 'training'
  const { forceAnswerNotice: when, extraGeneration, onInvalid } = options
  const settings: Settings = {
    ...options,
    notice: when === 'always' || (when === 'evaluation' && !training),
    extraTurns: extraGeneration === 'training' && training ? 1 : 0,
    endAtInvalid: onInvalid === 'endInTraining' && training,
  }
  return { name: 'longVideoAgent', roles: ['master'], turns: 5, run: (context) => run(context, settings) }
}

/** The options as they hold for what the run is for. */
interface Settings extends LongVideoAgentOptions {
  /** The master is told on its last turn to answer now. */
  notice: boolean
  /** Generations beyond K. */
  extraTurns: number
  endAtInvalid: boolean
}

async function run(context: SystemContext, options: Settings): Promise<SystemOutcome> {
  const { task, budget } = context
  const master = context.speaker('master')
  const dialect = dialects[options.dialect]
  const view = emptyView()
  const turns: Turn[] = []
  let initial: InitialGrounding | null = null
  const end = (
    stopReason: SystemOutcome['stopReason'],
    failure: Failure | null = null,
    answer: number | null = null,
  ): SystemOutcome => ({ turns, answer, stopReason, failure, initial, visited: [...view.visited] })

  let located: string | null = null
  if (options.initialGrounding !== 'none') {
    const found = await findFirst(context, view, options)
    // an outage ends the run, whatever onAgentFailure says: nothing was sampled yet, and a start without the clip is another task
    if (!found.ok && found.failure.kind !== 'bad_response') return end('agent_error', found.failure)
    if (found.ok) initial = found.value
    located = context.fitObservation(
      found.ok ? dialect.located(task.episode, clipsInView(context, view)) : dialect.failed('grounding', NO_CLIP_NAMED),
    )
  }
  const most = budget.turns + options.extraTurns
  let messages: readonly Message[] = [
    { role: 'user', content: firstMessage(dialect, options, task.question, located, countdownLines(most, options)) },
  ]

  for (let turnsLeft = most; turnsLeft > 0; turnsLeft--) {
    const said = await master.say(messages, options.stopAtAction ? actionStops : [])
    if (!said.ok) {
      if (said.text !== undefined) {
        const action: Action = { kind: 'invalid', problem: `cut off: ${said.stopReason}` }
        turns.push({ response: said.text, action, wellFormed: false, ...withoutEffect(view) })
      }
      return end(said.stopReason, said.failure)
    }
    const { action, wellFormed, end: actionEnd } = read(said.text, options, task.question.options.length)
    const chosen = { response: said.text, action, wellFormed }

    if (action.kind === 'answer') {
      turns.push({ ...chosen, ...withoutEffect(view) })
      return end('answered', null, action.option)
    }
    if (action.kind === 'invalid' && options.endAtInvalid) {
      turns.push({ ...chosen, ...withoutEffect(view) })
      return end('invalid_action')
    }
    if (turnsLeft === 1) {
      turns.push({ ...chosen, ...withoutEffect(view) })
      break
    }

    const effect = await carryOut(action, context, view, dialect, options)
    const observation = [context.fitObservation(effect.observation), ...countdownLines(turnsLeft - 1, options)].join(
      '\n',
    )
    turns.push({
      ...chosen,
      observation,
      failure: effect.failure,
      clipId: view.clip?.id ?? null,
      frames: effect.frames,
    })
    // an agent that answered nonsense was there to be asked again (row 17)
    const outage = effect.failure !== null && effect.failure.kind !== 'bad_response'
    if (outage && options.onAgentFailure === 'stop') return end('agent_error', effect.failure)
    messages = withTurn(messages, keepThrough(said.text, actionEnd), observation, options.transcript)
  }
  return end('turn_limit')
}

/** The action of a turn; a visual query is none where there is no vision. */
function read(text: string, { actionChoice, vision }: Settings, options: number): ParsedAction {
  const parsed = parseAction(text, actionChoice, options)
  if (vision || parsed.action.kind !== 'look') return parsed
  return {
    ...parsed,
    action: { kind: 'invalid', problem: 'visual queries are not among the actions' },
    wellFormed: false,
  }
}

const NO_CLIP_NAMED = 'it named no clip of this episode'

/** The rest of a turn after which nothing comes back. */
function withoutEffect({ clip }: View): Pick<Turn, 'observation' | 'failure' | 'clipId' | 'frames'> {
  return { observation: null, failure: null, clipId: clip?.id ?? null, frames: [] }
}

/** What the master reads next, and what stands behind it. */
type Effect = { observation: string } & Pick<Turn, 'failure' | 'frames'>

async function carryOut(
  action: Exclude<MasterAction, { kind: 'answer' }>,
  context: SystemContext,
  view: View,
  dialect: Dialect,
  { vision }: Settings,
): Promise<Effect> {
  const failed = (agent: 'grounding' | 'vision', failure: Failure): Effect => {
    const lost = agent === 'grounding' && failure.kind === 'bad_response'
    const problem = lost ? NO_CLIP_NAMED : failure.kind
    return { observation: dialect.failed(agent, problem), failure, frames: [] }
  }
  const told = (observation: string): Effect => ({ observation, failure: null, frames: [] })
  if (action.kind === 'ground') {
    const found = await ground(context, view, context.agents.grounding, action.query)
    if (!found.ok) return failed('grounding', found.failure)
    return told(dialect.grounded(context.task.episode, clipsInView(context, view)))
  }
  if (action.kind === 'invalid') return told(dialect.invalid(vision))
  if (view.clip === null) return told(dialect.noClip)
  const seen = await look(context, clipsInView(context, view), action.query)
  if (!seen.ok) return failed('vision', seen.failure)
  return { observation: dialect.seen(seen.value.text), failure: null, frames: seen.value.frames }
}

/** Finds the clip of the first message and moves the view to it (row 11). Fails like `ground`. */
async function findFirst(
  context: SystemContext,
  view: View,
  { initialGrounding, onCacheMiss }: Settings,
): Promise<Result<InitialGrounding>> {
  const { agents, task } = context
  const asked = async (from: 'agent' | 'cache', agent: GroundingAgent): Promise<Result<InitialGrounding>> => {
    const found = await ground(context, view, agent)
    return found.ok ? { ok: true, value: { from, clipId: view.clip?.id as string } } : found
  }
  let from = initialGrounding
  if (from === 'cache') {
    const { groundingCache } = agents
    if (groundingCache === undefined) {
      const message =
        'system.initialGrounding is cache and agents.groundingCache names no file; make one with showrunner ground'
      return { ok: false, failure: { boundary: 'grounding', kind: 'missing_file', message } }
    }
    const found = await asked('cache', groundingCache)
    if (found.ok || found.failure.kind !== 'bad_response') return found
    from = onCacheMiss
  }
  const clip = from === 'random' ? randomClip(task.episode, task.question.qid) : null
  if (clip === null) return asked('agent', agents.grounding)
  showClip(context, view, clip)
  return { ok: true, value: { from: 'random', clipId: clip.id } }
}

/** The response up to the executed action: later text (a second action, an observation the policy made up) does not enter the transcript (row 3). */
function keepThrough(response: string, end: number): string {
  return response.slice(end).trim() === '' ? response : response.slice(0, end)
}
