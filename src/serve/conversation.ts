/**
 * A captured session while it goes on: its calls become turns and training segments, and in the end a trajectory. A call whose prompt begins
 * with everything of an earlier segment goes on in that segment, token for token; any other begins a new one. Stores nothing, and knows no
 * questions: actions and answers are the client's.
 */
import { beginSegment, continues, type GrowingSegment, growSegment } from '../trajectory/growing.ts'
import type { ChatMessage, Trajectory, Turn, Usage } from '../types.ts'

/** One answer of a call: ids of its prompt, and what was sampled. */
export interface CapturedAnswer {
  promptIds: readonly number[]
  tokenIds: readonly number[]
  logprobs: readonly number[]
  version: string
  text: string
  finishReason: string
}

export interface CapturedCall {
  /** The prompt as text, where it is known. */
  promptText: string
  /** The conversation so far, for chats. */
  messages: readonly ChatMessage[] | null
  seed: string
  maxTokens: number
  seconds: number
  answers: readonly CapturedAnswer[]
}

export interface Conversation {
  segments: GrowingSegment[]
  turns: Turn[]
  promptText: string
  seed: string
  maxTokens: number
  usage: Usage
  version: string
  /** Finish reason of the last answer. */
  ended: string
  /** Of the last chat call: what was said, the answer included, and the segment that holds it. */
  spoken: { messages: readonly ChatMessage[]; segment: GrowingSegment } | null
  /** Milliseconds since 1970, as is `heard`: when it was last heard of. */
  began: number
  heard: number
}

const nothing: Usage = { calls: 0, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0 }

export function beginConversation(began: number): Conversation {
  return {
    segments: [],
    turns: [],
    promptText: '',
    seed: '',
    maxTokens: 1,
    usage: { ...nothing },
    version: '',
    ended: 'stop',
    spoken: null,
    began,
    heard: began,
  }
}

export function addCall(conversation: Conversation, call: CapturedCall): void {
  const { usage } = conversation
  if (usage.calls === 0) {
    conversation.promptText = call.promptText
    conversation.seed = call.seed
  }
  const prompts = new Set<string>()
  // of several answers the client may go on with any
  conversation.spoken = null
  for (const answer of call.answers) {
    const segment = segmentFor(conversation, answer)
    if (conversation.version === '') conversation.version = answer.version
    conversation.ended = answer.finishReason
    conversation.turns.push(turnOf(answer.text))
    usage.completionTokens += answer.tokenIds.length
    const prompt = answer.promptIds.join()
    if (!prompts.has(prompt)) usage.promptTokens += answer.promptIds.length
    prompts.add(prompt)
    if (call.messages !== null && call.answers.length === 1)
      conversation.spoken = { messages: [...call.messages, { role: 'assistant', content: answer.text }], segment }
  }
  conversation.maxTokens = Math.max(conversation.maxTokens, call.maxTokens)
  usage.calls += 1
  usage.seconds += call.seconds
}

/**
 * The ids of the last segment and the messages after it, when the messages before are what was said there; else null. A prompt made of both
 * goes on from the sampled ids, where rendering and tokenising the whole conversation again might give others (spec/pitfalls.md, rows 1-5).
 */
export function continuationOf(conversation: Conversation | undefined, messages: readonly ChatMessage[]) {
  const spoken = conversation?.spoken ?? null
  if (spoken === null || messages.length <= spoken.messages.length) return null
  if (!spoken.messages.every((said, index) => sameMessage(said, messages[index] as ChatMessage))) return null
  return { ids: spoken.segment.ids as readonly number[], added: messages.slice(spoken.messages.length) }
}

/** `rewarded`: whether the client said how it went; a trajectory without that is not one that was answered. */
export function trajectoryOf(conversation: Conversation, qid: string, rewarded: boolean): Trajectory {
  const { usage } = conversation
  return {
    id: qid,
    system: 'captured',
    step: 0,
    sample: 0,
    seed: conversation.seed,
    task: {
      episode: { id: qid, show: 'captured', clips: [] },
      question: { qid, episodeId: qid, text: conversation.promptText, options: [] },
    },
    budget: {
      turns: conversation.turns.length,
      windowClips: 0,
      tokensPerTurn: conversation.maxTokens,
      tokensPerObservation: null,
      tokensPerTrajectory: null,
      deadlineSeconds: null,
    },
    turns: conversation.turns,
    segments: conversation.segments,
    answer: null,
    stopReason: rewarded ? (conversation.ended === 'length' ? 'token_limit' : 'answered') : 'cancelled',
    failure: null,
    visited: [],
    policyVersion: conversation.version,
    usage: { master: usage, grounding: nothing, vision: nothing },
    seconds: (conversation.heard - conversation.began) / 1000,
  }
}

/** The longest segment that the prompt begins with, or a new one, with the answer in it. */
function segmentFor(conversation: Conversation, answer: CapturedAnswer): GrowingSegment {
  const sampled = { ...answer, policyVersion: answer.version }
  const going = conversation.segments.filter((segment) => continues(segment, sampled))
  const segment = going.sort((a, b) => b.ids.length - a.ids.length)[0] ?? beginSegment(sampled)
  if (going.length === 0) conversation.segments.push(segment)
  growSegment(segment, sampled)
  return segment
}

function sameMessage(said: ChatMessage, now: ChatMessage): boolean {
  return (
    said.role === now.role &&
    said.content === now.content &&
    (now.tool_calls?.length ?? 0) === (said.tool_calls?.length ?? 0)
  )
}

/** The client's own actions are not known here. */
function turnOf(response: string): Turn {
  return {
    response,
    action: { kind: 'invalid', problem: 'captured: not read as an action' },
    wellFormed: false,
    observation: null,
    failure: null,
    clipId: null,
    frames: [],
  }
}
