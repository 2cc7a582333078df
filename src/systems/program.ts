/**
 * What a system of several roles is written with: it asks roles and agents, and every request becomes a step of the record. A run that
 * cannot go on (a limit, an outage) is ended from wherever it stands, so that a system reads like the algorithm in its paper and holds
 * no plumbing. It knows no system, and it writes no prompts besides the one that asks for a repaired output.
 */
import type { z } from 'zod'
import type {
  Action,
  Agent,
  AgentCalls,
  AgentKind,
  Failure,
  Message,
  Result,
  SeenFrame,
  StopReason,
  SystemContext,
  SystemOutcome,
  Turn,
} from '../types.ts'
import { readStructured } from './structured.ts'

/** How a run ends that was not cut short: with an option, with the answer to an open-ended question, or, after all rounds, with nothing. */
export type Answer = { option: number } | { text: string } | null

/** Runs a system's program and makes its outcome of what the program answers and recorded. */
export async function runProgram(
  context: SystemContext,
  body: (program: Program) => Promise<Answer>,
): Promise<SystemOutcome> {
  const program = new Program(context)
  const end = await body(program).then(
    (answer): Ended => ({ answer, stopReason: answer === null ? 'turn_limit' : 'answered', failure: null }),
    (error: unknown): Ended => {
      if (error instanceof Ending) return { answer: null, ...error.end }
      throw error
    },
  )
  const { answer, stopReason, failure } = end
  return {
    ...program.record(),
    answer: answer !== null && 'option' in answer ? answer.option : null,
    ...(answer !== null && 'text' in answer ? { answerText: answer.text } : {}),
    stopReason,
    failure,
  }
}

interface Ended {
  answer: Answer
  stopReason: StopReason
  failure: Failure | null
}

/** Unwinds a program; caught by `runProgram` alone. */
class Ending extends Error {
  constructor(readonly end: Omit<Ended, 'answer'>) {
    super(`the run ended: ${end.stopReason}`)
  }
}

export interface AskOptions {
  /** Names the conversation, where a role holds several (see `SystemContext.speaker`). */
  conversation?: string
  /** Further tries after an output that cannot be read; the role is told what is wrong. Default 0. */
  repairs?: number
}

/** What a role wrote, and the messages up to it and with it, to go on from. */
export interface Said {
  text: string
  step: Step
  messages: readonly Message[]
}

/** `problem`: why the last try was no such output. */
export type Asked<T> = (Said & { ok: true; value: T }) | (Said & { ok: false; problem: string })

/** What came of a step. */
export interface Observed {
  frames?: readonly SeenFrame[]
  /** Set when an agent failed and the run goes on. */
  failure?: Failure
  /** Clips that were shown by it; absent: those of the frames. */
  clips?: readonly string[]
}

/** One step of the record, while it may still be added to. */
export class Step {
  constructor(
    readonly turn: Turn,
    private readonly program: Program,
  ) {}

  /** What the output means, where it is more than an output: a call, or an answer. */
  chose(action: Action): this {
    this.turn.action = action
    return this
  }

  /** The output could be read, but breaks a rule of the system: a wrong option, an agent that there is not. */
  malformed(problem: string): this {
    this.turn.action = { kind: 'invalid', problem }
    this.turn.wellFormed = false
    return this
  }

  /** Records what came back, cut to the budget; returns it as it is to be told. */
  observed(text: string, { frames = [], failure, clips = frames.map(({ clipId }) => clipId) }: Observed = {}): string {
    const observation = this.program.context.fitObservation(text)
    Object.assign(this.turn, { observation, frames: [...this.turn.frames, ...frames] })
    if (failure !== undefined) this.turn.failure = failure
    this.program.show(clips)
    return observation
  }
}

export class Program {
  /** Lists of steps, in the order in which they were begun, so that what is asked at the same time is always recorded in one order. */
  private readonly steps: Turn[][] = []
  private readonly visited = new Set<string>()
  private readonly measures: Record<string, number> = {}

  constructor(readonly context: SystemContext) {}

  /** Asks a role for words. Words that a limit cut off are taken as they are. */
  async say(
    role: string,
    messages: readonly Message[],
    { conversation }: { conversation?: string } = {},
  ): Promise<Said> {
    const turns = this.begin()
    const { said } = await this.written(role, messages, conversation, turns)
    return said
  }

  /**
   * Asks a role for structured output, with the tries that `repairs` allows. Every try is a step; one that cannot be read is malformed.
   * What to do when none could be read is for the system to say.
   */
  async ask<T>(
    role: string,
    messages: readonly Message[],
    schema: z.ZodType<T>,
    { conversation, repairs = 0 }: AskOptions = {},
  ): Promise<Asked<T>> {
    const turns = this.begin()
    for (let history = messages, left = repairs; ; left--) {
      const { said, cut } = await this.written(role, history, conversation, turns)
      const { step, text } = said
      const read = cut === null ? readStructured(text, schema) : { ok: false as const, problem: `cut off: ${cut}` }
      if (read.ok) {
        Object.assign(step.turn, { output: read.value, wellFormed: read.wellFormed })
        return { ...said, ok: true, value: read.value }
      }
      step.malformed(read.problem)
      if (left <= 0) return { ...said, ok: false, problem: read.problem }
      const notice = step.observed(`that could not be read : ${read.problem} . write the JSON alone .`)
      history = [...said.messages, { role: 'user', content: notice }]
    }
  }

  /**
   * Asks an agent. One that could not do what was asked (`bad_response`, `missing_file`) is for the system to tell whoever asked; one
   * that cannot be reached ends the run with `agent_error`, which training leaves out.
   */
  async consult<Kind extends AgentKind>(
    kind: Kind,
    request: AgentCalls[Kind]['request'],
  ): Promise<Result<AgentCalls[Kind]['answer']>> {
    // indexing by `kind` makes a union of all agents, which the compiler cannot follow
    const agent = this.context.agents[kind] as
      | Agent<AgentCalls[Kind]['request'], AgentCalls[Kind]['answer']>
      | undefined
    if (agent === undefined) throw new Error(`agent ${kind}: asked by a system that does not name it among its needs`)
    const answer = await agent.ask(request, { signal: this.context.signal })
    if (answer.ok) this.context.spend(kind, answer.value.usage)
    else if (!TOLD.has(answer.failure.kind)) this.end('agent_error', answer.failure)
    return answer
  }

  /** A step that no role took: the program itself asks a tool. */
  call(tool: string, query: string): Step {
    const turn: Turn = {
      role: 'program',
      response: '',
      action: { kind: 'call', tool, query },
      wellFormed: true,
      ...NOTHING,
    }
    this.begin().push(turn)
    return new Step(turn, this)
  }

  /** Waits for all, then returns their values or ends as the first that ended: nothing goes on behind the end of a run. */
  async together<T>(asked: readonly Promise<T>[]): Promise<T[]> {
    await Promise.allSettled(asked)
    return Promise.all(asked)
  }

  /** Counts clips as shown. */
  show(clips: readonly string[]): void {
    for (const clip of clips) this.visited.add(clip)
  }

  /** One of the system's `measures`, from 0 to 1. */
  measure(name: string, value: number): void {
    this.measures[name] = value
  }

  end(stopReason: StopReason, failure: Failure | null = null): never {
    throw new Ending({ stopReason, failure })
  }

  record(): Pick<SystemOutcome, 'turns' | 'visited' | 'measures'> {
    const { measures } = this
    return {
      turns: this.steps.flat(),
      visited: [...this.visited],
      ...(Object.keys(measures).length === 0 ? {} : { measures }),
    }
  }

  private begin(): Turn[] {
    const turns: Turn[] = []
    this.steps.push(turns)
    return turns
  }

  /** One generation of a role, recorded as an output. Ends the run when nothing was written. */
  private async written(
    role: string,
    messages: readonly Message[],
    conversation: string | undefined,
    turns: Turn[],
  ): Promise<{ said: Said; cut: StopReason | null }> {
    const answer = await this.context.speaker(role, conversation).say(messages, [])
    if (!answer.ok && answer.text === undefined) this.end(answer.stopReason, answer.failure)
    const text = answer.text as string
    const turn: Turn = { role, response: text, action: { kind: 'output' }, wellFormed: answer.ok, ...NOTHING }
    turns.push(turn)
    const said = {
      text,
      step: new Step(turn, this),
      messages: [...messages, { role: 'assistant' as const, content: text }],
    }
    return { said, cut: answer.ok ? null : answer.stopReason }
  }
}

/** The agent was there, and could have been asked something else. */
const TOLD: ReadonlySet<Failure['kind']> = new Set<Failure['kind']>(['bad_response', 'missing_file'])

const NOTHING: Pick<Turn, 'observation' | 'failure' | 'clipId' | 'frames'> = {
  observation: null,
  failure: null,
  clipId: null,
  frames: [],
}
