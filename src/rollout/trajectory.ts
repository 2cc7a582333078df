/**
 * One run of a system on a task: puts a recorder over the policy, the cut-off over the agents, and collects what happened.
 * Does not schedule, score or store.
 */
import type { Agents, Budget, GroundingAgent, Policy, System, Task, Trajectory } from '../types.ts'
import type { Cutoff } from './cutoff.ts'
import { fitObservation } from './fit.ts'
import { createRecorder } from './recorder.ts'
import { addUsage, noUsage } from './usage.ts'

export interface TrajectoryRun {
  task: Task
  system: System
  policy: Policy
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
  const { task, system, policy, budget, step, sample, id, seed, cutoff } = run
  const started = performance.now()
  const recorder = createRecorder(policy, { session: id, seed, temperature: run.temperature, budget, cutoff })
  const spent = { grounding: noUsage, vision: noUsage }
  try {
    const outcome = await system.run({
      task,
      master: recorder,
      agents: behindCutoff(run.agents, cutoff),
      budget,
      signal: cutoff.signal,
      fitObservation: (text) => fitObservation(text, budget.tokensPerObservation, (part) => countTokens(policy, part)),
      spend: (role, usage) => {
        spent[role] = addUsage(spent[role], usage)
      },
    })
    const { segments, usage, policyVersion } = recorder.recording()
    return {
      id,
      system: system.name,
      step,
      sample,
      seed,
      task,
      budget,
      turns: outcome.turns,
      segments,
      answer: outcome.answer,
      // A system sees a cut-off only as a failed call; that the run was cut off is what ended it.
      stopReason: cutoff.reason ?? outcome.stopReason,
      failure: cutoff.failure ?? outcome.failure,
      initial: outcome.initial ?? null,
      visited: outcome.visited,
      policyVersion,
      usage: { master: usage, ...spent },
      seconds: (performance.now() - started) / 1000,
    }
  } finally {
    cutoff.dispose()
    policy.endSession?.(id)
  }
}

function behindCutoff({ grounding, vision, groundingCache }: Agents, cutoff: Cutoff): Agents {
  const { signal } = cutoff
  const guarded = (agent: GroundingAgent): GroundingAgent => ({
    name: agent.name,
    ground: (request) =>
      cutoff.race('grounding', `grounding agent ${agent.name}`, () => agent.ground(request, { signal })),
  })
  return {
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
