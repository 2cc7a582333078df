/**
 * One run of a system on a task: puts recorders over the policies, the cut-off over the agents, and collects what happened.
 * Does not schedule, score or store.
 */
import type {
  Agent,
  AgentAnswer,
  Agents,
  Budget,
  GroundingAgent,
  Policy,
  System,
  Task,
  Trajectory,
  Turn,
  Usage,
} from '../types.ts'
import type { Cutoff } from './cutoff.ts'
import { fitObservation } from './fit.ts'
import { type FrozenRoles, openSpeakers } from './speakers.ts'
import { addUsage, noUsage } from './usage.ts'

export interface TrajectoryRun {
  task: Task
  system: System
  policy: Policy
  roles: FrozenRoles
  agents: Agents
  budget: Budget
  temperature: number
  step: number
  sample: number
  /** `{step}/{qid}/{sample}`. */
  id: string
  seed: string
  cutoff: Cutoff
}

/** Always resolves to a trajectory when policy and agents misbehave; rejects only when the system itself is defective. */
export async function runTrajectory(run: TrajectoryRun): Promise<Trajectory> {
  const { task, system, policy, roles, budget, temperature, step, sample, id, seed, cutoff } = run
  const started = performance.now()
  const speakers = openSpeakers({ system, policy, frozen: roles, id, seed, temperature, budget, cutoff })
  const spent: Record<string, Usage> = {}
  try {
    const outcome = await system.run({
      task,
      speaker: speakers.speaker,
      agents: behindCutoff(run.agents, cutoff),
      budget,
      signal: cutoff.signal,
      fitObservation: (text) => fitObservation(text, budget.tokensPerObservation, (part) => countTokens(policy, part)),
      spend: (agent, usage) => {
        spent[agent] = addUsage(spent[agent] ?? noUsage, usage)
      },
    })
    const { segments, usage, policyVersion } = speakers.recording()
    const { grounding = noUsage, vision = noUsage, ...further } = spent
    return {
      id,
      system: system.name,
      step,
      sample,
      seed,
      task,
      budget,
      turns: outcome.turns.map((turn) => (isFrozen(turn, roles) ? { ...turn, frozen: true } : turn)),
      segments,
      answer: outcome.answer,
      ...(outcome.answerText == null ? {} : { answerText: outcome.answerText }),
      // A system sees a cut-off only as a failed call; that the run was cut off is what ended it.
      stopReason: cutoff.reason ?? outcome.stopReason,
      failure: cutoff.failure ?? outcome.failure,
      initial: outcome.initial ?? null,
      visited: outcome.visited,
      policyVersion,
      usage: { ...usage, grounding, vision, ...(Object.keys(further).length === 0 ? {} : { agents: further }) },
      ...(outcome.measures === undefined ? {} : { measures: outcome.measures }),
      seconds: (performance.now() - started) / 1000,
    }
  } finally {
    cutoff.dispose()
    speakers.end()
  }
}

/** Whether somebody else than the policy wrote it, or nobody did. */
function isFrozen({ role }: Turn, frozen: FrozenRoles): boolean {
  return role !== undefined && (role === 'program' || role in frozen)
}

function behindCutoff({ grounding, vision, groundingCache, ...further }: Agents, cutoff: Cutoff): Agents {
  const { signal } = cutoff
  const asked = Object.entries(further as Record<string, Agent<unknown, AgentAnswer> | undefined>).flatMap(
    ([kind, agent]) => {
      if (typeof agent?.ask !== 'function') return []
      const guarded: Agent<unknown, AgentAnswer> = {
        name: agent.name,
        ask: (request) => cutoff.race('agent', `${kind} agent ${agent.name}`, () => agent.ask(request, { signal })),
      }
      return [[kind, guarded] as const]
    },
  )
  const guarded = (agent: GroundingAgent): GroundingAgent => ({
    name: agent.name,
    ground: (request) =>
      cutoff.race('grounding', `grounding agent ${agent.name}`, () => agent.ground(request, { signal })),
  })
  return {
    ...Object.fromEntries(asked),
    grounding: guarded(grounding),
    ...(groundingCache === undefined ? {} : { groundingCache: guarded(groundingCache) }),
    vision: {
      name: vision.name,
      look: (request) => cutoff.race('vision', `vision agent ${vision.name}`, () => vision.look(request, { signal })),
    },
  }
}

/** Tokens of a text; where the policy has no tokenizer, four characters count as one. */
function countTokens(policy: Policy, text: string): number {
  return policy.tokenizer === undefined ? Math.ceil(text.length / 4) : policy.tokenizer.encode(text).length
}
