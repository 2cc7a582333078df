/**
 * Asking the agents, for any system: where to look, checked against the episode, and what is to be seen in the window around that
 * place. Keeps which clips were shown and counts what calls used. It writes no text for a master, and an agent's failure stays one.
 */
import type { Clip, GroundingAgent, Result, SystemContext, VisionAnswer } from '../types.ts'
import { evidenceWindow, findClip } from './window.ts'

/** Where a run is. `visited` is in order of first showing. */
export interface View {
  clip: Clip | null
  visited: Set<string>
}

export function emptyView(): View {
  return { clip: null, visited: new Set() }
}

/** The clips around the one in view, in order; none when there is none. */
export function clipsInView({ task, budget }: SystemContext, { clip }: View): readonly Clip[] {
  return clip === null ? [] : evidenceWindow(task.episode, clip, budget.windowClips, budget.windowWithin)
}

/** Moves the view to a clip and counts its window as shown. */
export function showClip(context: SystemContext, view: View, clip: Clip): void {
  view.clip = clip
  for (const { id } of clipsInView(context, view)) view.visited.add(id)
}

/**
 * Asks a grounding agent and moves the view. Fails, and leaves the view, when the agent fails or (`bad_response`) names no clip of this
 * episode (spec longvideoagent.md, section 5, rows 17, 18).
 */
export async function ground(
  context: SystemContext,
  view: View,
  agent: GroundingAgent,
  query?: string,
): Promise<Result<void>> {
  const { episode, question } = context.task
  const request = { episode, question, visited: [...view.visited], ...(query === undefined ? {} : { query }) }
  const answer = await agent.ground(request, { signal: context.signal })
  if (!answer.ok) return answer
  context.spend('grounding', answer.value.usage)
  const clip = findClip(episode, answer.value.clipId)
  if (clip === null) {
    const message = `grounding agent ${agent.name}: expected a clip of episode ${episode.id} for question ${question.qid}, got ${JSON.stringify(answer.value.clipId)}; the view was kept`
    return { ok: false, failure: { boundary: 'grounding', kind: 'bad_response', message } }
  }
  showClip(context, view, clip)
  return { ok: true, value: undefined }
}

/** Asks the vision agent about clips. */
export async function look(
  { agents, signal, spend }: SystemContext,
  clips: readonly Clip[],
  query: string,
): Promise<Result<VisionAnswer>> {
  const answer = await agents.vision.look({ clips, query }, { signal })
  if (answer.ok) spend('vision', answer.value.usage)
  return answer
}
