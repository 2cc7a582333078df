/**
 * Lessons in one role of any system: the system itself runs over told episodes with simulated agents, scripts play its other roles, and a
 * teacher writes what the role says. What the rollout recorded is the lesson, so that a policy is taught on exactly the ids that it will
 * read and write in that role, the end of its message included.
 */
import { Dice } from './dataset/miniature/story.ts'
import type { Lesson, Transcripts } from './lessons.ts'
import { ScriptedPolicy } from './policy/scripted.ts'
import type { TextTokenizer } from './policy/tokenizer.ts'
import { rollout } from './rollout/index.ts'
import { rolloutOptions } from './rollout/options.ts'
import { type GroundingRates, Stories, simulatedAgents, type ToldTask } from './simulation.ts'
import type { Piece, StandIns } from './standIns/standIns.ts'
import type { FrozenRole, GenerateRequest, Generation, Policy, Result, System } from './types.ts'

type Kind = 'reading' | 'acting'

export interface RoleLessonsSettings {
  seed: number
  system: System
  /** The role that is taught. */
  role: string
  /** K; null: the system's own. */
  turns: number | null
  standIns: StandIns
  tokenizer: TextTokenizer
  rates: GroundingRates
}

export class RoleLessons implements Transcripts {
  private readonly stories: Stories
  private readonly dice: Dice
  private readonly waiting: Record<Kind, Lesson[]> = { reading: [], acting: [] }
  private runs = 0

  constructor(private readonly settings: RoleLessonsSettings) {
    const { seed } = settings
    this.stories = new Stories(seed)
    this.dice = new Dice(`lessons/${seed}`)
  }

  async next(kind: Kind): Promise<Lesson> {
    while (this.waiting[kind].length === 0) this.waiting[kind].push(...(await this.run(kind)))
    return this.waiting[kind].shift() as Lesson
  }

  /** One run: a lesson per training sequence of the role. */
  private async run(kind: Kind): Promise<Lesson[]> {
    const { system, role, turns, standIns, rates, tokenizer, seed } = this.settings
    const told = this.stories.next()
    const teacher = new TeacherPolicy(this.settings, told, this.dice)
    const stood: FrozenRole = { policy: new ScriptedPolicy(standIns.script), temperature: 0, maxTokens: 512 }
    const [group] = await rollout([told.task], {
      system,
      policy: teacher,
      roles: Object.fromEntries(system.roles.flatMap((one) => (one === role ? [] : [[one, stood]]))),
      agents: simulatedAgents(told, rates, this.dice),
      options: rolloutOptions.parse({ groupSize: 1, budget: { turns, tokensPerTurn: 1024 } }),
      step: this.runs++,
      runSeed: seed,
    })
    const trajectory = group?.trajectories[0]
    if (trajectory === undefined || trajectory.failure !== null)
      throw new Error(`lessons of ${system.name}: ${trajectory?.failure?.message ?? 'nothing was run'}`)
    const concluding = teacher.concluding()
    return trajectory.segments.map(({ ids, actionMask }) => {
      const unknown = ids.indexOf(tokenizer.idOf('<unk>') as number)
      if (unknown >= 0)
        throw new Error(
          `lessons of ${system.name}, ${role}: a word is in no vocabulary, behind "${tokenizer.decode(ids.slice(Math.max(0, unknown - 12), unknown))}"; name it in the stand-ins' tokens`,
        )
      const weights = actionMask.map((sampled) => {
        if (sampled === 0) return 0
        const concludes = concluding.shift()
        return kind === 'acting' || concludes ? 1 : 0
      })
      return { ids: [...ids], weights, kind }
    })
  }
}

/** Says what the teacher of the role writes, as ids that end a message, and keeps which of them conclude something. */
class TeacherPolicy implements Policy {
  readonly name = 'scripted-teacher'
  readonly version = 'scripted'
  readonly contextLength = null
  readonly tokenizer: TextTokenizer
  /** By conversation, in the order in which they began: the order of the recorded segments. */
  private readonly said = new Map<string, boolean[]>()

  constructor(
    private readonly settings: RoleLessonsSettings,
    private readonly told: ToldTask,
    private readonly dice: Dice,
  ) {
    this.tokenizer = settings.tokenizer
  }

  /** Of every token said: whether it belongs to what the role concluded. */
  concluding(): boolean[] {
    return [...this.said.values()].flat()
  }

  async generate({ messages, session = '' }: GenerateRequest): Promise<Result<Generation>> {
    const { standIns, role } = this.settings
    const { task, gold } = this.told
    const teach = standIns.teachers[role] as StandIns['teachers'][string]
    const pieces = teach({ messages, task, gold, dice: this.dice })
    const tokenIds: number[] = []
    const concludes: boolean[] = []
    const say = (ids: readonly number[], piece: Omit<Piece, 'text'>) => {
      tokenIds.push(...ids)
      concludes.push(...ids.map(() => piece.concludes === true))
    }
    for (const piece of pieces) say(this.tokenizer.encode(piece.text), piece)
    say([this.tokenizer.idOf('<|end|>') as number], {})
    this.said.set(session, [...(this.said.get(session) ?? []), ...concludes])
    const usage = { calls: 1, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0 }
    return {
      ok: true,
      value: {
        text: pieces.map(({ text }) => text).join(' '),
        tokenIds,
        logprobs: tokenIds.map(() => 0),
        finishReason: 'stop',
        version: this.version,
        usage,
      },
    }
  }

  async close(): Promise<void> {}
}
