/**
 * What is kept of a trajectory to measure it: outcomes and counts and the question's text, no turns, so that a large store can be measured.
 * Made from a stored row, or from a trajectory just scored, and the answer key where there is one. Aggregates nothing.
 */
import { evidenceWindow } from '../systems/window.ts'
import type { AnswerKey, KeyedClip } from '../trajectory/answerKey.ts'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import type { Reward, ScoredTrajectory, StopReason, Usage } from '../types.ts'
import { lenientAnswer } from './lenient.ts'

/** What is read of a trajectory; a stored row has all of it. */
export type Trace = Omit<TrajectoryRow, 'groupId' | 'sample' | 'show' | 'advantage' | 'segmentCount'>

/** Usage of the policy and of its helpers; `others`: frozen roles and further agents; `total` of all. */
export type RoleUsage = Record<'master' | 'grounding' | 'vision' | 'others' | 'total', Usage>

/** Shares and hits are null where they do not apply or the answer key says too little. */
export interface Outcome {
  id: string
  step: number
  qid: string
  question: string
  episodeId: string
  kind: TrajectoryRow['kind']
  /** What a benchmark scores apart; empty where there is nothing. */
  categories: Readonly<Record<string, string>>
  maxTurns: number
  windowClips: number
  /** No reward, and not since the policy wrote too much: it failed outside the policy and counts as wrong. */
  failedOutside: boolean
  /** The failure in one line. */
  failure: string | null
  stopReason: StopReason
  answered: boolean
  correct: boolean
  lenient: boolean | null
  groundedInitial: boolean | null
  groundedFinal: boolean | null
  groundedAny: boolean | null
  /** Windows that grounding showed, and those among them that hold the clip with the evidence. */
  windows: number
  windowHits: number | null
  /** Intersection over union of the window in view at the end and the evidence, on the episode's time. */
  iou: number | null
  turns: number
  wellFormed: number
  grounds: number
  looks: number
  /** Requests to other tools, by name, whoever made them. */
  calls: Readonly<Record<string, number>>
  /** One letter per turn of the policy: g grounds, v looks, c calls, o outputs, a answers, x is malformed. */
  pattern: string
  firstClip: string | null
  goldClip: string | null
  sampledTokens: number
  usage: RoleUsage
  seconds: number
  reward: Reward | null
}

const LETTERS = { ground: 'g', look: 'v', call: 'c', output: 'o', answer: 'a', invalid: 'x' } as const

/** `key`: null where the store has none; lenient accuracy and what needs the right clip's place is then unknown. */
export function outcomeOf(trace: Trace, key: AnswerKey | null): Outcome {
  const { visited, budget, usage } = trace
  const turns = trace.turns.filter(({ frozen }) => frozen !== true)
  const gold = key?.questions[trace.qid] ?? null
  const clips = key?.episodes[trace.episodeId] ?? []
  const windowAt = (clipId: string | null): readonly KeyedClip[] => {
    const centre = clips.find(({ id }) => id === clipId)
    return centre === undefined ? [] : evidenceWindow({ clips }, centre, budget.windowClips, budget.windowWithin)
  }
  const evidence = gold?.clipId ?? null
  const holdsGold = (window: readonly KeyedClip[]) => window.some(({ id }) => id === evidence)
  const grounds = turns.filter(({ action }) => action.kind === 'ground')
  // what grounding showed: an agent that failed, or was asked on the last turn, showed nothing
  const shown = grounds.filter(({ failure, observation }) => failure === null && observation !== null)
  // what was shown first, before turn 1 or by the first grounding
  const first = windowAt(trace.initial?.clipId ?? shown[0]?.clipId ?? visited[0] ?? null)
  const last = windowAt(turns.at(-1)?.clipId ?? null)
  const response = turns.at(-1)?.response
  return {
    id: trace.trajectoryId,
    step: trace.step,
    qid: trace.qid,
    question: trace.question,
    episodeId: trace.episodeId,
    kind: trace.kind,
    categories: trace.categories ?? {},
    maxTurns: budget.turns,
    windowClips: budget.windowClips,
    failedOutside: trace.reward === null && trace.stopReason !== 'token_limit' && trace.stopReason !== 'context_limit',
    failure: trace.failure?.message ?? null,
    stopReason: trace.stopReason,
    answered: trace.stopReason === 'answered',
    correct: trace.correct,
    lenient: gold === null ? null : trace.correct || means(response, trace, gold.answer),
    groundedInitial: evidence === null ? null : holdsGold(first),
    groundedFinal: evidence === null ? null : holdsGold(last),
    groundedAny: gold !== null && evidence === null ? null : trace.grounded,
    windows: shown.length,
    windowHits: evidence === null ? null : shown.filter(({ clipId }) => holdsGold(windowAt(clipId))).length,
    iou: gold === null ? null : windowIou(last, evidenceOn(clips, gold)),
    turns: turns.length,
    wellFormed: turns.filter((turn) => turn.wellFormed).length,
    grounds: grounds.length,
    looks: turns.filter(({ action }) => action.kind === 'look').length,
    calls: countedCalls(trace.turns),
    pattern: turns.map(({ action }) => LETTERS[action.kind]).join(''),
    firstClip: visited[0] ?? null,
    goldClip: evidence,
    sampledTokens: trace.sampledTokens,
    usage: usageOf(usage),
    seconds: trace.seconds,
    reward: trace.reward,
  }
}

/** A trajectory that was scored and not stored, as if it had been. */
export function traceOf({ trajectory, reward, correct, grounded, kind, categories }: ScoredTrajectory): Trace {
  const { id, task, segments, turns, visited, answerText, ...rest } = trajectory
  return {
    ...rest,
    trajectoryId: id,
    episodeId: task.episode.id,
    qid: task.question.qid,
    question: task.question.text,
    options: [...task.question.options],
    kind,
    ...(categories === undefined ? {} : { categories }),
    turns: [...turns],
    visited: [...visited],
    ...(answerText == null ? {} : { answerText }),
    correct,
    grounded,
    reward,
    sampledTokens: segments.some(isOwn) ? sampledIn(segments.filter(isOwn)) : rest.usage.master.completionTokens,
  }
}

function isOwn({ frozen }: ScoredTrajectory['trajectory']['segments'][number]): boolean {
  return frozen !== true
}

function sampledIn(segments: ScoredTrajectory['trajectory']['segments']): number {
  return segments.reduce((sum, { actionMask }) => sum + actionMask.filter((bit) => bit === 1).length, 0)
}

/** Where a run ended in a tool call there is no answer to read, however leniently. */
function means(response: string | undefined, { turns, options, stopReason }: Trace, answer: number): boolean {
  const kind = turns.at(-1)?.action.kind
  if (response === undefined || kind === 'ground' || kind === 'look') return false
  if (stopReason === 'agent_error' || stopReason === 'policy_error' || stopReason === 'cancelled') return false
  return lenientAnswer(response, options) === answer
}

type Span = readonly [start: number, end: number]

/** The evidence on the episode's time, kept inside its clip; null where span or times are unknown. */
function evidenceOn(clips: readonly KeyedClip[], gold: AnswerKey['questions'][string]): Span | null {
  const clip = clips.find(({ id }) => id === gold.clipId)
  if (clip === undefined || clip.end <= clip.start || gold.span === null) return null
  const inside = (time: number) => Math.min(clip.end, clip.start + time)
  return [inside(gold.span[0]), inside(gold.span[1])]
}

/** 0 where no clip is in view; null where the evidence has no place or no length. */
function windowIou(window: readonly KeyedClip[], evidence: Span | null): number | null {
  if (evidence === null || evidence[1] <= evidence[0]) return null
  const [first, last] = [window[0], window.at(-1)]
  if (first === undefined || last === undefined) return 0
  const overlap = Math.max(0, Math.min(last.end, evidence[1]) - Math.max(first.start, evidence[0]))
  return overlap / (last.end - first.start + evidence[1] - evidence[0] - overlap)
}

function countedCalls(turns: Trace['turns']): Record<string, number> {
  const calls: Record<string, number> = {}
  for (const { action } of turns) if (action.kind === 'call') calls[action.tool] = (calls[action.tool] ?? 0) + 1
  return calls
}

function usageOf({ master, grounding, vision, roles = {}, agents = {} }: Trace['usage']): RoleUsage {
  const helpers = [...Object.values(roles).filter(({ frozen }) => frozen), ...Object.values(agents)]
  const others = helpers.reduce(added, nothing)
  return { master, grounding, vision, others, total: [master, grounding, vision, others].reduce(added) }
}

const nothing: Usage = { calls: 0, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0 }

function added(a: Usage, b: Usage): Usage {
  return {
    calls: a.calls + b.calls,
    promptTokens: a.promptTokens + b.promptTokens,
    completionTokens: a.completionTokens + b.completionTokens,
    frames: a.frames + b.frames,
    seconds: a.seconds + b.seconds,
    costUsd: a.costUsd + b.costUsd,
    cached: a.cached + b.cached,
  }
}
