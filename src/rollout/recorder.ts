/**
 * One conversation of a role as a system sees it, over a policy: messages go in, text comes out, and what was really sampled is kept as training
 * segments. Tokens in, tokens out: a sampled id is never decoded and encoded again; only new messages are tokenised, alone, and
 * appended (spec pitfalls.md, rows 1-5, 19).
 *
 *   say([u1])            segment 1: encodePrompt([u1])                     + sampled a1
 *   say([u1, a1, u2])    segment 1: ... a1 + encodeContinuation([u2])      + sampled a2
 *   say([u1, a1', u2'])  segment 2: encodePrompt([u1, a1', u2'])           + sampled a2     (a1' is not what was sampled)
 *
 * A segment also ends when the policy's version changes; the next one then starts from the same ids. So `segments.length - 1` counts
 * the breaks. Policies that do not tell token ids give no segments. It knows nothing of actions, agents or rewards.
 */

import { beginSegment, type GrowingSegment, growSegment } from '../trajectory/growing.ts'
import type { Budget, Failure, Generation, Message, Policy, Segment, Speaker, SpeakerResult, Usage } from '../types.ts'
import type { Cutoff } from './cutoff.ts'
import { addUsage, noUsage } from './usage.ts'

export interface Recording {
  segments: readonly Segment[]
  usage: Usage
  /** What the policy called itself at the first generation. */
  policyVersion: string
}

export interface Recorder extends Speaker {
  recording(): Recording
  /** Tokens after the first prompts, written and observed. */
  tokens(): number
}

export interface RecorderSettings {
  /** Names the conversation for the policy's cache. */
  session: string
  /** Call n is sampled with the seed `{seed}/{n}`. */
  seed: string
  temperature: number
  budget: Budget
  /** What other conversations have used of `budget.tokensPerTrajectory`; absent: there are none. */
  tokensElsewhere?: () => number
  cutoff: Cutoff
}

/** Ids to send; `continues`: they begin with the whole last segment. */
interface Prompt {
  ids: number[]
  continues: boolean
}

type Limit = 'token_limit' | 'context_limit'

export function createRecorder(
  policy: Policy,
  { session, seed, temperature, budget, tokensElsewhere = () => 0, cutoff }: RecorderSettings,
): Recorder {
  const segments: GrowingSegment[] = []
  /** The conversation that the last segment holds, the policy's own last message included. */
  let spoken: readonly Message[] = []
  let firstPromptTokens: number | null = null
  let lastTokens = 0
  let calls = 0
  let usage = noUsage
  let policyVersion = policy.version

  /** Ids to send, and whether they continue the last segment; null for policies that work in messages. */
  function promptFor(messages: readonly Message[]): Prompt | null {
    if (policy.tokenizer === undefined) return null
    const last = segments.at(-1)
    if (last === undefined || !prefixHolds(messages, spoken))
      return { ids: policy.tokenizer.encodePrompt(messages), continues: false }
    const added = policy.tokenizer.encodeContinuation(messages.slice(spoken.length))
    // A policy that sampled its own end-of-message token has already written what the continuation begins with.
    if (added.length > 0 && added[0] === last.ids.at(-1)) added.shift()
    return { ids: last.ids.concat(added), continues: true }
  }

  /** How much may be written now, and which limit that is. */
  function roomFor(prompt: Prompt | null): { tokens: number; limit: Limit } {
    let tokens = budget.tokensPerTurn
    let limit: Limit = 'token_limit'
    if (budget.tokensPerTrajectory !== null)
      tokens = Math.min(tokens, budget.tokensPerTrajectory - tokensElsewhere() - tokensUsed(prompt))
    if (policy.contextLength !== null && prompt !== null && policy.contextLength - prompt.ids.length < tokens) {
      tokens = policy.contextLength - prompt.ids.length
      limit = 'context_limit'
    }
    return { tokens, limit }
  }

  /** Tokens after the first prompt, written and observed, counting an observation that is about to be appended (null: none is). */
  function tokensUsed(prompt: Prompt | null): number {
    if (policy.tokenizer === undefined) return firstPromptTokens === null ? 0 : lastTokens - firstPromptTokens
    const recorded = segments.reduce((sum, segment) => sum + segment.ids.length - segment.promptLength, 0)
    const observed = prompt?.continues ? prompt.ids.length - (segments.at(-1)?.ids.length ?? 0) : 0
    return recorded + observed
  }

  function record(messages: readonly Message[], prompt: Prompt | null, generation: Generation): void {
    if (calls === 0) policyVersion = generation.version
    calls += 1
    usage = addUsage(usage, generation.usage)
    firstPromptTokens ??= generation.usage.promptTokens
    lastTokens = generation.usage.promptTokens + generation.usage.completionTokens
    if (prompt === null || generation.tokenIds === null || generation.logprobs === null) return

    const call = {
      promptIds: prompt.ids,
      tokenIds: generation.tokenIds,
      logprobs: generation.logprobs,
      policyVersion: generation.version,
    }
    let segment = segments.at(-1)
    if (segment === undefined || !prompt.continues || segment.policyVersion !== generation.version) {
      segment = beginSegment(call)
      segments.push(segment)
    }
    growSegment(segment, call)
    spoken = [...messages, { role: 'assistant', content: generation.text }]
  }

  return {
    async say(messages, stop): Promise<SpeakerResult> {
      const prompt = promptFor(messages)
      const room = roomFor(prompt)
      if (room.tokens <= 0) return { ok: false, stopReason: room.limit, failure: null }

      const generated = await cutoff.race('policy', `policy ${policy.name}`, () =>
        policy.generate({
          messages,
          ...(prompt === null ? {} : { promptIds: prompt.ids }),
          sampling: { temperature, maxTokens: room.tokens, stop },
          seed: `${seed}/${calls}`,
          session,
          signal: cutoff.signal,
        }),
      )
      if (cutoff.reason !== null) return { ok: false, stopReason: cutoff.reason, failure: cutoff.failure }
      if (!generated.ok)
        return {
          ok: false,
          stopReason: generated.failure.kind === 'context_limit' ? 'context_limit' : 'policy_error',
          failure: generated.failure,
        }

      const generation = generated.value
      const problem =
        problemOf(generation, room.tokens) ??
        (segments.length > 0 && generation.tokenIds === null ? 'gave token ids before and none now' : null)
      if (problem !== null)
        return { ok: false, stopReason: 'policy_error', failure: badGeneration(policy, session, problem) }

      record(messages, prompt, generation)
      if (generation.finishReason === 'length')
        return { ok: false, stopReason: room.limit, failure: null, text: generation.text }
      return { ok: true, text: generation.text }
    },
    recording: () => ({ segments, usage, policyVersion }),
    tokens: () => tokensUsed(null),
  }
}

function prefixHolds(messages: readonly Message[], spoken: readonly Message[]): boolean {
  return (
    messages.length > spoken.length &&
    spoken.every(({ role, content }, index) => messages[index]?.role === role && messages[index]?.content === content)
  )
}

/** What is wrong with a generation; null when nothing is. Wrong ids or log-probabilities must never reach training. */
function problemOf({ tokenIds, logprobs }: Generation, maxTokens: number): string | null {
  if (tokenIds === null) return null
  if (logprobs === null) return `gave ${tokenIds.length} token ids without log-probabilities`
  if (tokenIds.length !== logprobs.length)
    return `gave ${tokenIds.length} token ids and ${logprobs.length} log-probabilities`
  if (tokenIds.length > maxTokens) return `wrote ${tokenIds.length} tokens where ${maxTokens} were allowed`
  const badId = tokenIds.find((id) => !Number.isInteger(id) || id < 0)
  if (badId !== undefined) return `gave the token id ${badId}`
  const badLogprob = logprobs.findIndex((logprob) => !Number.isFinite(logprob))
  return badLogprob < 0
    ? null
    : `gave the log-probability ${logprobs[badLogprob]} for token ${badLogprob} of ${logprobs.length}`
}

function badGeneration(policy: Policy, session: string, problem: string): Failure {
  return {
    boundary: 'policy',
    kind: 'bad_response',
    message: `policy ${policy.name} ${policy.version}, trajectory ${session}: ${problem}; expected one non-negative id and one finite log-probability per sampled token`,
  }
}
