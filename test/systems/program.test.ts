/** What systems of several roles are written with: the record that they leave, repairs, and how a run ends from wherever it stands. */
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type Program, runProgram } from '../../src/systems/program.ts'
import type { Agents, Message, Result, SpeakerResult, SummaryAnswer, SystemContext } from '../../src/types.ts'
import { scriptedAgents, tinyTask, usageOf } from '../rollout/scripted.ts'

const schema = z.strictObject({ option: z.number() })

/** Runs `body` with roles that say their lines in order; keeps what they read. */
async function run(
  lines: Record<string, (string | SpeakerResult)[]>,
  body: (program: Program) => Promise<{ option: number } | { text: string } | null>,
  further: Partial<Agents> = {},
) {
  const read: Record<string, (readonly Message[])[]> = {}
  const spent: string[] = []
  const context: SystemContext = {
    task: tinyTask(),
    speaker: (role, conversation) => ({
      async say(messages) {
        const name = conversation === undefined ? role : `${role}/${conversation}`
        read[name] = [...(read[name] ?? []), messages]
        const line = lines[name]?.shift()
        if (line === undefined) throw new Error(`${name} was asked more often than it has lines`)
        return typeof line === 'string' ? { ok: true, text: line } : line
      },
    }),
    agents: { ...scriptedAgents().agents, ...further },
    budget: {
      turns: 3,
      windowClips: 1,
      tokensPerTurn: 9,
      tokensPerObservation: null,
      tokensPerTrajectory: null,
      deadlineSeconds: null,
    },
    signal: new AbortController().signal,
    fitObservation: (text) => text.slice(0, 40),
    spend: (agent) => void spent.push(agent),
  }
  return { ...(await runProgram(context, body)), read, spent }
}

const ask: Message[] = [{ role: 'user', content: 'which ?' }]

function summary(result: Result<SummaryAnswer>): Partial<Agents> {
  return { summary: { name: 's', ask: async () => result } }
}

test('an output that can be read is a step with what it holds; an answer ends the run', async () => {
  const outcome = await run({ judge: ['{"option": 2}'] }, async (program) => {
    const asked = await program.ask('judge', ask, schema)
    if (!asked.ok) return null
    asked.step.chose({ kind: 'answer', option: asked.value.option })
    program.measure('sure', 1)
    return asked.value
  })
  expect(outcome).toMatchObject({
    answer: 2,
    stopReason: 'answered',
    failure: null,
    measures: { sure: 1 },
    visited: [],
  })
  expect(outcome.turns).toEqual([
    {
      role: 'judge',
      response: '{"option": 2}',
      action: { kind: 'answer', option: 2 },
      wellFormed: true,
      output: { option: 2 },
      observation: null,
      failure: null,
      clipId: null,
      frames: [],
    },
  ])
})

test('repairs: each try is a malformed step, the role is told what was wrong and goes on in its conversation', async () => {
  const outcome = await run({ 'judge/b': ['hm', '{"option": 1}'] }, async (program) => {
    const asked = await program.ask('judge', ask, schema, { conversation: 'b', repairs: 2 })
    return asked.ok ? asked.value : null
  })
  expect(outcome.answer).toBe(1)
  expect(outcome.turns.map(({ action, wellFormed }) => [action.kind, wellFormed])).toEqual([
    ['invalid', false],
    ['output', true],
  ])
  expect(outcome.read['judge/b']?.[1]).toEqual([
    ...ask,
    { role: 'assistant', content: 'hm' },
    // cut to the budget, as recorded
    { role: 'user', content: outcome.turns[0]?.observation },
  ])
  expect(outcome.turns[0]?.observation).toHaveLength(40)
})

test('without repairs the system decides; a program that returns nothing used up its rounds', async () => {
  const outcome = await run({ judge: ['hm'] }, async (program) => {
    const asked = await program.ask('judge', ask, schema)
    expect(!asked.ok && asked.problem).toBe('there is no JSON')
    return null
  })
  expect(outcome).toMatchObject({ answer: null, stopReason: 'turn_limit' })
})

test('an output that was cut off is malformed, and the run goes on; with nothing written it ends', async () => {
  const cut: SpeakerResult = { ok: false, stopReason: 'token_limit', failure: null, text: '{"opt' }
  const full: SpeakerResult = { ok: false, stopReason: 'context_limit', failure: null }
  const outcome = await run({ judge: [cut, full] }, async (program) => {
    const asked = await program.ask('judge', ask, schema)
    expect(!asked.ok && asked.problem).toBe('cut off: token_limit')
    await program.say('judge', ask)
    throw new Error('the run has ended')
  })
  expect(outcome).toMatchObject({ answer: null, stopReason: 'context_limit', failure: null })
  expect(outcome.turns).toHaveLength(1)
})

test('calls and what came of them: frames, clips shown, and a step that no role took', async () => {
  const frames = [{ clipId: 'e1_seg01_clip_01', time: 2 }]
  const outcome = await run({ planner: ['look at clip 1'] }, async (program) => {
    const { step } = await program.say('planner', ask)
    const told = step.chose({ kind: 'call', tool: 'reader', query: 'a mug' }).observed('x'.repeat(50), { frames })
    expect(told).toHaveLength(40)
    program.call('subtitles', 'mug').observed('Ann : mug', { clips: ['e1_seg01_clip_02'] })
    return { text: 'a mug' }
  })
  expect(outcome).toMatchObject({ answer: null, answerText: 'a mug', stopReason: 'answered' })
  expect(outcome.visited).toEqual(['e1_seg01_clip_01', 'e1_seg01_clip_02'])
  expect(outcome.turns.map(({ role, action, frames }) => [role, action, frames.length])).toEqual([
    ['planner', { kind: 'call', tool: 'reader', query: 'a mug' }, 1],
    ['program', { kind: 'call', tool: 'subtitles', query: 'mug' }, 0],
  ])
})

describe('agents', () => {
  const request = { lines: [], focus: null, words: 5 }

  test('what they used is counted', async () => {
    const value = { text: 'short', usage: usageOf(), frames: [], caveat: null }
    const outcome = await run(
      {},
      async (program) => {
        const answer = await program.consult('summary', request)
        return answer.ok ? { text: answer.value.text } : null
      },
      summary({ ok: true, value }),
    )
    expect(outcome).toMatchObject({ answerText: 'short', spent: ['summary'] })
  })

  test.each([
    ['bad_response', 'answered'],
    ['missing_file', 'answered'],
    ['unreachable', 'agent_error'],
  ] as const)('a failure of kind %s: %s', async (kind, stopReason) => {
    const failure = { boundary: 'agent', kind, message: 'no' } as const
    const outcome = await run(
      {},
      async (program) => {
        const answer = await program.consult('summary', request)
        return answer.ok ? null : { text: 'nothing found' }
      },
      summary({ ok: false, failure }),
    )
    expect(outcome).toMatchObject({ stopReason, failure: stopReason === 'answered' ? null : failure })
  })

  test('one that the system did not name among its needs is a defect', async () => {
    await expect(run({}, async (program) => (await program.consult('summary', request)) && null)).rejects.toThrow(
      /agent summary: asked by a system that does not name it/,
    )
  })
})

test('what is asked at the same time is recorded in the order of asking, and no call outlives the run', async () => {
  const slow: Record<string, number> = { a: 20, b: 1 }
  const outcome = await run({ 'team/a': ['A'], 'team/b': ['B'] }, async (program) => {
    const { speaker } = program.context
    const delayed: SystemContext['speaker'] = (role, name) => ({
      async say(messages, stop) {
        await new Promise((wake) => setTimeout(wake, slow[name as string]))
        return speaker(role, name).say(messages, stop)
      },
    })
    Object.assign(program.context, { speaker: delayed })
    const said = await program.together(['a', 'b'].map((conversation) => program.say('team', ask, { conversation })))
    return { text: said.map(({ text }) => text).join('') }
  })
  expect(outcome.answerText).toBe('AB')
  expect(outcome.turns.map(({ response }) => response)).toEqual(['A', 'B'])
})
