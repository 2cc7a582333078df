/**
 * The roles of a system while one trajectory runs: who plays each, and what every conversation recorded. The policy plays the roles that
 * nobody else does; what it says is bound by the trajectory's budget, in all its conversations together. Frozen roles have bounds of
 * their own, and what they say is kept in segments that no loss reads.
 */
import type {
  Budget,
  FrozenRole,
  Policy,
  Segment,
  Speaker,
  SpeakerResult,
  System,
  TrajectoryUsage,
  Usage,
} from '../types.ts'
import type { Cutoff } from './cutoff.ts'
import { createRecorder, type Recorder } from './recorder.ts'
import { addUsage, noUsage } from './usage.ts'

/** Who plays the roles that the policy does not play. */
export type FrozenRoles = Readonly<Record<string, FrozenRole>>

export interface SpeakersSettings {
  system: Pick<System, 'name' | 'roles'>
  policy: Policy
  frozen: FrozenRoles
  /** Of the trajectory. */
  id: string
  seed: string
  temperature: number
  budget: Budget
  cutoff: Cutoff
}

export interface Speakers {
  /** As `SystemContext.speaker`. Throws for a role that the system does not have. */
  speaker(role: string, conversation?: string): Speaker
  recording(): { segments: readonly Segment[]; usage: Pick<TrajectoryUsage, 'master' | 'roles'>; policyVersion: string }
  /** Forgets what policies kept of the conversations. */
  end(): void
}

interface Conversation {
  role: string
  policy: Policy
  frozen: boolean
  session: string
  recorder: Recorder
  speaker: Speaker
}

export function openSpeakers(settings: SpeakersSettings): Speakers {
  const { system, policy, frozen, budget, cutoff } = settings
  const several = system.roles.length > 1
  const conversations = new Map<string, Conversation>()

  /** Tokens that the policy wrote and read in conversations other than this one, first prompts apart. */
  const elsewhere = (name: string): number =>
    [...conversations].reduce(
      (sum, [other, one]) => sum + (other === name || one.frozen ? 0 : one.recorder.tokens()),
      0,
    )

  const begin = (role: string, name: string): Conversation => {
    if (!system.roles.includes(role))
      throw new Error(`system ${system.name}: asked for the role ${role}; it has ${system.roles.join(', ')}`)
    const player = frozen[role]
    // one role and one conversation: named as the trajectory itself
    const coordinates = (of: string): string => (several || name !== role ? `${of}/${name}` : of)
    const session = coordinates(settings.id)
    const recorder = createRecorder(player?.policy ?? policy, {
      session,
      seed: coordinates(settings.seed),
      temperature: player?.temperature ?? settings.temperature,
      budget: player === undefined ? budget : { ...budget, tokensPerTurn: player.maxTokens, tokensPerTrajectory: null },
      tokensElsewhere: () => elsewhere(name),
      cutoff,
    })
    const speaker = oneAtATime(session, player === undefined ? recorder : asHelper(recorder))
    return { role, policy: player?.policy ?? policy, frozen: player !== undefined, session, recorder, speaker }
  }

  return {
    speaker(role, conversation) {
      const name = conversation === undefined ? role : `${role}/${conversation}`
      const open = conversations.get(name) ?? begin(role, name)
      conversations.set(name, open)
      return open.speaker
    },
    recording() {
      const all = [...conversations.values()].map((one) => ({ ...one, ...one.recorder.recording() }))
      const own = all.filter((one) => !one.frozen)
      const used = (some: readonly { usage: Usage }[]) => some.reduce((sum, { usage }) => addUsage(sum, usage), noUsage)
      const roles = system.roles.map((role) => {
        const usage = used(all.filter((one) => one.role === role))
        return [role, { ...usage, frozen: role in frozen }] as const
      })
      return {
        segments: all.flatMap(({ segments, role, frozen }) =>
          segments.map(
            (segment): Segment => ({ ...segment, ...(several ? { role } : {}), ...(frozen ? { frozen: true } : {}) }),
          ),
        ),
        usage: { master: used(own), ...(several ? { roles: Object.fromEntries(roles) } : {}) },
        policyVersion: own[0]?.policyVersion ?? policy.version,
      }
    },
    end() {
      for (const { policy, session } of conversations.values()) policy.endSession?.(session)
    },
  }
}

/** A frozen role that cannot be asked is a helper that failed; only the policy's own failures are the policy's. */
function asHelper(speaker: Speaker): Speaker {
  return {
    async say(messages, stop): Promise<SpeakerResult> {
      const said = await speaker.say(messages, stop)
      return !said.ok && said.stopReason === 'policy_error' ? { ...said, stopReason: 'agent_error' } : said
    },
  }
}

/** Throws when a conversation is gone on with before its last answer has come: what was sampled could not be put in order. */
function oneAtATime(session: string, speaker: Speaker): Speaker {
  let speaking = false
  return {
    async say(messages, stop) {
      if (speaking)
        throw new Error(`conversation ${session}: asked again before it answered; name another conversation`)
      speaking = true
      try {
        return await speaker.say(messages, stop)
      } finally {
        speaking = false
      }
    },
  }
}
