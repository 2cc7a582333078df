/**
 * VideoHV-Agent step by step: scripted roles speak in the order that the algorithm asks them in, and every way out of it is in one table.
 * Then the same program over real captions of EgoSchema, and the scripts that stand in for models on the miniature data set.
 */
import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { describe, expect, test } from 'vitest'
import { openCaptionerStored } from '../../src/agents/captionerStored.ts'
import { videoHvAgentOptions } from '../../src/systems/options.ts'
import { videoHvAgent } from '../../src/systems/videoHvAgent.ts'
import type {
  Agent,
  AgentAnswer,
  Agents,
  CaptionRequest,
  Failure,
  InspectionRequest,
  Message,
  Result,
  SpeakerResult,
  SummaryRequest,
  SystemOutcome,
  Task,
} from '../../src/types.ts'
import { failure, scriptedAgents, tinyTask, usageOf } from '../rollout/scripted.ts'

// ---------------------------------------------------------------- what roles write

const hypotheses = (...options: number[]) =>
  JSON.stringify({ hypotheses: options.map((option) => ({ option, hypothesis: `sight ${option}` })) })
const judged = (score: number, clue = 'what the hand holds') => JSON.stringify({ score, reasons: 'alike', clue })
const looks = (frames: string) => JSON.stringify({ action: 'caption', frames })
const verdict = (status: string, reasoning = 'so it is') =>
  JSON.stringify({ action: 'verdict', clue_understanding: 'a hand', evidence_found: 'a mug', reasoning, status })
const answers = (final_answer: number) =>
  JSON.stringify({ reasoning_summary: 'a mug', conflict_resolution: '', final_answer, explanation: 'seen' })

/** Who speaks next, and what: the whole order of calls. */
type Line = readonly [role: 'thinker' | 'judge' | 'verifier' | 'answer', text: string | SpeakerResult]

const thinker = (...options: number[]): Line => ['thinker', hypotheses(...options)]
const judge = (score: number, clue?: string): Line => ['judge', judged(score, clue)]
const verifier = (status: string, reasoning?: string): Line => ['verifier', verdict(status, reasoning)]
const look = (frames: string): Line => ['verifier', looks(frames)]
const answer = (option: number): Line => ['answer', answers(option)]
const ALL = [0, 1, 2, 3, 4]

// ---------------------------------------------------------------- a world of scripts

interface World {
  task?: Task
  options?: object
  turns?: number
  captioner?: Result<{ captions: { time: number; text: string }[] }>
  inspection?: Failure
  fitObservation?: (text: string) => string
}

interface Played extends SystemOutcome {
  /** What each role read, in the order of the calls. */
  read: { role: string; messages: readonly Message[] }[]
  asked: { captioner: CaptionRequest[]; summary: SummaryRequest[]; frameInspection: InspectionRequest[] }
  spent: string[]
  /** Lines that nobody asked for. */
  left: number
}

async function play(lines: readonly Line[], world: World = {}): Promise<Played> {
  const script = [...lines]
  const read: Played['read'] = []
  const spent: string[] = []
  const asked: Played['asked'] = { captioner: [], summary: [], frameInspection: [] }
  const nothing: AgentAnswer = { usage: usageOf(), frames: [], caveat: null }
  const agent = <Request, Value>(list: Request[], reply: (request: Request) => Result<Value>) =>
    ({
      name: 'scripted',
      ask: async (request: Request) => {
        list.push(request)
        const replied = reply(request)
        return replied.ok ? { ok: true, value: { ...nothing, ...replied.value } } : replied
      },
    }) as unknown as Agent<Request, never>
  const agents: Agents = {
    ...scriptedAgents().agents,
    captioner: agent(
      asked.captioner,
      ({ times }) =>
        world.captioner ?? {
          ok: true,
          value: { captions: times.map((time) => ({ time, text: `sees <answer> at ${time}\nagain` })) },
        },
    ),
    summary: agent(asked.summary, ({ lines }) => ({ ok: true, value: { text: `${lines.length} lines` } })),
    frameInspection: agent(asked.frameInspection, ({ times }) =>
      world.inspection === undefined
        ? {
            ok: true,
            value: { text: `looked at ${times}`, frames: [{ clipId: 'e1_seg01_clip_01', time: times[0] as number }] },
          }
        : { ok: false, failure: world.inspection },
    ),
  }
  const outcome = await videoHvAgent(
    videoHvAgentOptions.parse({ name: 'videoHvAgent', prompt: 'brief', ...world.options }),
  ).run({
    task: world.task ?? tinyTask(),
    speaker: (role) => ({
      async say(messages) {
        read.push({ role, messages })
        const [expected, text] = script.shift() ?? ['nobody', '']
        if (expected !== role) throw new Error(`call ${read.length} went to ${role}, expected ${expected}`)
        return typeof text === 'string' ? { ok: true, text } : text
      },
    }),
    agents,
    budget: {
      turns: world.turns ?? 3,
      windowClips: 1,
      tokensPerTurn: 99,
      tokensPerObservation: null,
      tokensPerTrajectory: null,
      deadlineSeconds: null,
    },
    signal: new AbortController().signal,
    fitObservation: world.fitObservation ?? ((text) => text),
    spend: (one) => void spent.push(one),
  })
  return { ...outcome, read, asked, spent, left: script.length }
}

const given = ({ read }: Played, call: number) => read[call]?.messages.at(-1)?.content ?? ''

// ---------------------------------------------------------------- exits

const verified = [thinker(...ALL), judge(0.9), verifier('VERIFIED'), answer(1)]
const notVerified = (option: number) => [thinker(...ALL), judge(0.9), verifier('NOT_VERIFIED'), answer(option)]
const unreadable = (role: Line[0]): Line[] => [
  [role, 'well'],
  [role, 'well'],
]

describe('every exit', () => {
  const answered = { stopReason: 'answered', failure: null } as const
  const exits: [name: string, lines: Line[], outcome: Partial<SystemOutcome>, world?: World][] = [
    ['verified', verified, { answer: 1, ...answered, measures: { distinctness: 0.9, verifiedClue: 1 } }],
    // ---- the verification-only loop
    [
      'PARTIAL, then verified',
      [thinker(0, 1), judge(0.9), verifier('PARTIAL'), verifier('VERIFIED'), answer(1)],
      { answer: 1, ...answered, measures: { distinctness: 0.9, verifiedClue: 1 } },
    ],
    [
      'PARTIAL, then not verified: the outer loop goes on',
      [thinker(0, 1), judge(0.9), verifier('PARTIAL'), verifier('NOT_VERIFIED'), answer(0), ...verified],
      { answer: 1, ...answered },
    ],
    [
      'PARTIAL three times: the third was demanded, and it ends the outer loop',
      [thinker(0, 1), judge(0.9), verifier('PARTIAL'), verifier('PARTIAL'), verifier('PARTIAL'), answer(0)],
      { answer: 0, ...answered, measures: { distinctness: 0.9, verifiedClue: 0 } },
    ],
    [
      'two looks, then the verdict is demanded',
      [thinker(0, 1), judge(0.9), look('3'), look('5-9'), verifier('VERIFIED'), answer(0)],
      { answer: 0, ...answered, visited: ['e1_seg01_clip_01'] },
    ],
    [
      'a look counts as much as PARTIAL',
      [thinker(0, 1), judge(0.9), look('3'), verifier('PARTIAL'), verifier('PARTIAL'), answer(0)],
      { answer: 0, ...answered },
    ],
    [
      'without rounds of the verifier its verdict is demanded at once',
      [thinker(0, 1), judge(0.9), verifier('PARTIAL'), answer(0)],
      { answer: 0, ...answered },
      { options: { verifierRounds: 0 } },
    ],
    // ---- the outer loop
    ['not verified, then verified', [...notVerified(4), ...verified], { answer: 1, ...answered }],
    [
      'never verified: the last answer stands after three rounds',
      [...notVerified(4), ...notVerified(2), ...notVerified(3)],
      { answer: 3, ...answered, measures: { distinctness: 0.9, verifiedClue: 0 } },
    ],
    ['one round only', notVerified(4), { answer: 4, ...answered }, { turns: 1 }],
    [
      'words that look like a status are no status',
      [thinker(...ALL), judge(0.9), verifier('VERIFIED', 'at first it was not_verified, NOT_VERIFIED'), answer(2)],
      { answer: 2, ...answered },
    ],
    // ---- one hypothesis
    ['one hypothesis: the number of its option', [thinker(3)], { answer: 3, ...answered }],
    ['one hypothesis after specificity', [...notVerified(4), thinker(2)], { answer: 2, ...answered }],
    [
      'one hypothesis after discriminability',
      [thinker(1, 2), judge(0.4), thinker(1)],
      { answer: 1, ...answered, measures: { distinctness: 0.4 } },
    ],
    // ---- discriminability
    [
      'a low score: made again once, and judged again, whatever the second score',
      [thinker(...ALL), judge(0.4), thinker(0, 1), judge(0.1), verifier('VERIFIED'), answer(1)],
      { answer: 1, ...answered, measures: { distinctness: 0.1, verifiedClue: 1 } },
    ],
    [
      'the threshold itself is no low score',
      [thinker(0, 1), judge(0.5), verifier('VERIFIED'), answer(0)],
      { answer: 0 },
    ],
    // ---- outputs that cannot be read
    ['one that is read at its second try', [['thinker', 'hm'], ...verified], { answer: 1, ...answered }],
    [
      'an answer that was dropped is no answer',
      [thinker(0, 1), judge(0.9), verifier('VERIFIED'), answer(4), answer(0)],
      { answer: 0, ...answered },
    ],
    [
      'a thinker that cannot be read ends the round, the next begins',
      [...unreadable('thinker'), ...verified],
      { answer: 1, ...answered },
    ],
    ['as does a judge', [thinker(0, 1), ...unreadable('judge'), ...verified], { answer: 1, ...answered }],
    [
      'and a verifier, also when its verdict is demanded',
      [
        thinker(0, 1),
        judge(0.9),
        ...unreadable('verifier'),
        thinker(0, 1),
        judge(0.9),
        look('1'),
        look('2'),
        look('3'),
        look('4'),
        ...verified,
      ],
      { answer: 1, ...answered },
    ],
    [
      'and the answer, though the clue was verified',
      [thinker(0, 1), judge(0.9), verifier('VERIFIED'), ...unreadable('answer'), ...verified],
      { answer: 1, ...answered },
    ],
    [
      'an answer of an earlier round stands when later ones cannot be read',
      [...notVerified(2), ...unreadable('thinker'), ...unreadable('thinker')],
      { answer: 2, ...answered },
    ],
    [
      'nothing is answered at random',
      [...unreadable('thinker'), ...unreadable('thinker'), ...unreadable('thinker')],
      { answer: null, stopReason: 'turn_limit', failure: null },
    ],
    // ---- failures and limits are values
    [
      'a captioner that cannot be reached',
      [],
      { answer: null, stopReason: 'agent_error', failure: failure('agent', 'unreachable') },
      { captioner: { ok: false, failure: failure('agent', 'unreachable') } },
    ],
    [
      'a captioner that was there and could not: the dialogue is left',
      verified,
      { answer: 1, ...answered },
      { captioner: { ok: false, failure: failure('agent', 'missing_file') } },
    ],
    [
      'frames that cannot be looked at',
      [thinker(0, 1), judge(0.9), look('3'), verifier('NOT_VERIFIED'), answer(0)],
      { answer: 0, ...answered },
      { turns: 1, inspection: failure('agent', 'bad_response') },
    ],
    [
      'frames that cannot be looked at since nobody answers',
      [thinker(0, 1), judge(0.9), look('3')],
      { answer: null, stopReason: 'agent_error' },
      { inspection: failure('agent', 'timeout') },
    ],
    [
      'a role that a limit cut off',
      [thinker(0, 1), ['judge', { ok: false, stopReason: 'deadline', failure: null }]],
      { answer: null, stopReason: 'deadline', failure: null },
    ],
    [
      'a question without options',
      [],
      {
        answer: null,
        stopReason: 'agent_error',
        failure: {
          boundary: 'dataset',
          kind: 'bad_request',
          message:
            'question q1: has no options; VideoHV-Agent makes a hypothesis of each, so give it multiple-choice questions',
        },
      },
      { task: { ...tinyTask(), question: { ...tinyTask().question, options: [] } } },
    ],
  ]
  test.each(exits)('%s', async (_, lines, outcome, world) => {
    const played = await play(lines, world)
    expect(played).toMatchObject(outcome)
    expect(played.left).toBe(0)
  })
})

// ---------------------------------------------------------------- what is told

test('the constants of the paper and its code', () => {
  expect(videoHvAgentOptions.parse({ name: 'videoHvAgent' })).toMatchObject({
    frames: 180,
    distinctness: 0.5,
    verifierRounds: 2,
    framesPerLook: 5,
    summaryParts: 4,
  })
  const { roles, turns, needs } = videoHvAgent(videoHvAgentOptions.parse({ name: 'videoHvAgent' }))
  expect(turns).toBe(3)
  expect(roles).toEqual(['answer', 'thinker', 'judge', 'verifier'])
  expect(needs).toEqual(['captioner', 'summary', 'frameInspection'])
})

test('captions of one frame a second and dialogue by time; four parts are summarised, then the whole, for the question', async () => {
  const { asked, turns, spent } = await play(verified)
  // 40 seconds, so 40 frames and not 180
  expect(asked.captioner.map(({ times }) => times)).toEqual([Array.from({ length: 40 }, (_, i) => i + 0.5)])
  // 40 captions and 4 lines of dialogue in four parts
  expect(asked.summary.map(({ lines, focus, words }) => [lines.length, focus, words])).toEqual([
    ...Array.from({ length: 4 }, () => [11, 'what does Ann hold ?', 100]),
    [4, 'what does Ann hold ?', 100],
  ])
  expect(asked.summary[1]?.lines.slice(0, 2)).toMatchObject([
    { time: 10, text: 'Ann : line 1' },
    { time: 10.5, text: 'sees [answer] at 10.5 again' },
  ])
  expect(turns.map(({ role, action }) => [role, action])).toEqual([
    ['program', { kind: 'call', tool: 'captioner', query: '40 frames' }],
    ['program', { kind: 'call', tool: 'summary', query: 'what does Ann hold ?' }],
    ['thinker', { kind: 'output' }],
    ['judge', { kind: 'output' }],
    ['verifier', { kind: 'output' }],
    ['answer', { kind: 'answer', option: 1 }],
  ])
  expect(turns[1]?.observation).toBe('4 lines\n11 lines\n11 lines\n11 lines\n11 lines')
  expect(spent).toEqual(['captioner', ...Array.from({ length: 5 }, () => 'summary')])
})

test('videos of unknown durations have dialogue alone, in order', async () => {
  const { episode, question } = tinyTask()
  const clips = episode.clips.map((clip) => ({ ...clip, start: 0, end: 0 }))
  const { asked, turns } = await play(verified, { task: { episode: { ...episode, clips }, question } })
  expect(asked.captioner).toEqual([])
  expect(turns[0]?.observation).toBe('Ann : line 0\nAnn : line 1\nAnn : line 2\nAnn : line 3')
})

test('several videos share the frames, which are numbered on', async () => {
  const { episode, question } = tinyTask()
  const second = { ...episode, id: 'e2' }
  const task: Task = {
    episode,
    question,
    videos: [
      { id: 'A', role: 'reference', episode },
      { id: 'B', role: null, episode: second },
    ],
  }
  const options = { frames: 8, subtitles: false }
  const { asked, turns } = await play([thinker(0, 1), judge(0.9), look('3-4'), verifier('VERIFIED'), answer(0)], {
    task,
    options,
  })
  expect(asked.captioner.map(({ episode, times }) => [episode.id, times])).toEqual([
    ['e1', [5, 15, 25, 35]],
    ['e2', [5, 15, 25, 35]],
  ])
  const line = (number: number, time: number) => `${time} s frame ${number} : sees [answer] at ${time} again`
  expect(turns[0]?.observation?.split('\n')).toEqual([
    'video A :',
    ...[5, 15, 25, 35].map((time, i) => line(i, time)),
    'video B :',
    ...[5, 15, 25, 35].map((time, i) => line(4 + i, time)),
  ])
  expect(asked.frameInspection.map(({ episode, times, question }) => [episode.id, times, question])).toEqual([
    ['e1', [35], 'what the hand holds'],
    ['e2', [5], 'what the hand holds'],
  ])
})

test('what each role reads: hypotheses of the kept options, the clue of the second judgement, the failed verification', async () => {
  const played = await play([
    thinker(...ALL),
    judge(0.2, 'a first clue'),
    thinker(1, 3),
    judge(0.8, 'a second clue'),
    verifier('NOT_VERIFIED'),
    answer(3),
    ...verified,
  ])
  const question = 'question : what does Ann hold ?'
  expect(given(played, 0)).toBe(
    `${question}\na0 a cup\na1 a mug\na2 a hat\na3 a key\na4 a map\n<summary>\n4 lines\n11 lines\n11 lines\n11 lines\n11 lines\n</summary>`,
  )
  expect(given(played, 1)).toContain('<hypotheses>\na0 : sight 0\na1 : sight 1')
  // discriminability: the objection and what it is about
  expect(given(played, 2)).toContain('<hypotheses>\na0 : sight 0')
  expect(given(played, 2)).toMatch(/<objection>\nalike\n<\/objection>$/)
  expect(given(played, 3)).toContain('<hypotheses>\na1 : sight 1\na3 : sight 3\n</hypotheses>')
  expect(given(played, 4)).toContain(
    '<clue>\na second clue\n</clue>\n<timeline>\n0 s Ann : line 0\n0.5 s frame 0 : sees',
  )
  // the verifier is not shown what would be right
  expect(given(played, 4)).not.toContain('a mug')
  expect(given(played, 5)).toMatch(new RegExp(`^${question.replace('?', '\\?')}\na1 a mug\na3 a key\n<hypotheses>`))
  expect(given(played, 5)).toMatch(
    /<verification>\nclue : a second clue\nevidence : a mug\nreasoning : so it is\nstatus : NOT_VERIFIED\n<\/verification>$/,
  )
  // specificity: the hypotheses that were verified, and how that ended
  expect(given(played, 6)).toContain('<hypotheses>\na1 : sight 1\na3 : sight 3\n</hypotheses>')
  expect(given(played, 6)).toMatch(/status : NOT_VERIFIED\n<\/verification>$/)
})

test('a verifier that looks is shown each frame, and told when it may look no more', async () => {
  const lines = [thinker(0, 1), judge(0.9), look('3'), verifier('PARTIAL'), verifier('VERIFIED'), answer(0)]
  const played = await play(lines)
  expect(given(played, 3)).toBe('frame 3 : looked at 3.5')
  expect(given(played, 4)).toBe(
    'partial : look for what is missing , then write the verdict again .\nno more frames : write the verdict .',
  )
  // one conversation
  expect(played.read[4]?.messages.map(({ role }) => role)).toEqual(['user', 'assistant', 'user', 'assistant', 'user'])
  expect(played.turns.filter(({ role }) => role === 'verifier').map(({ action }) => action)).toEqual([
    { kind: 'call', tool: 'caption', query: '3-3' },
    { kind: 'output' },
    { kind: 'output' },
  ])
})

test.each([
  ['1-6', 'frames: expected 1 to 5 of the frames 0 to 39, as "15" or "10-14"'],
  ['38-40', 'frames: expected 1 to 5 of the frames 0 to 39, as "15" or "10-14"'],
  ['all', 'frames: expected 1 to 5 of the frames 0 to 39, as "15" or "10-14"'],
])('frames "%s" are refused with what was expected, and asked for again', async (frames, problem) => {
  const { turns, asked } = await play([
    thinker(0, 1),
    judge(0.9),
    look(frames),
    look('7'),
    verifier('VERIFIED'),
    answer(0),
  ])
  expect(turns.find(({ action }) => action.kind === 'invalid')?.action).toEqual({ kind: 'invalid', problem })
  expect(asked.frameInspection.map(({ times }) => times)).toEqual([[7.5]])
})

test.each([
  [hypotheses(), /hypotheses/],
  [hypotheses(1, 1), /expected one hypothesis per option/],
  [hypotheses(1, 5), /hypotheses\.1\.option/],
])('hypotheses %s are refused', async (text, problem) => {
  const { turns } = await play([['thinker', text], thinker(2)])
  const { action } = turns[2] as SystemOutcome['turns'][number]
  expect(action.kind === 'invalid' && action.problem).toMatch(problem)
})

test('instructions come before what a role is given, and name the format', async () => {
  const { read } = await play(verified, { options: { prompt: 'instructed' } })
  const keys = ['"hypotheses"', '"clue"', '"status"', '"final_answer"']
  for (const [i, key] of keys.entries()) {
    const [instructions, ...rest] = (read[i]?.messages[0]?.content ?? '').split('\n\nquestion : ')
    expect(instructions).toContain(key)
    expect(rest).toHaveLength(1)
  }
})

// ---------------------------------------------------------------- real text

const benchmarks = resolve(import.meta.dirname, '../../../shared/data/benchmarks')
const there = existsSync(benchmarks)
if (!there) console.log(`skipped: the captions of EgoSchema are not at ${benchmarks}`)

describe.skipIf(!there)('captions of EgoSchema', () => {
  type Row = { q_uid: string; question: string } & Record<`option ${number}`, string>
  const read = <T>(name: string) => JSON.parse(readFileSync(join(benchmarks, name), 'utf8')) as T
  const rows = there ? Object.values(read<Record<string, Row>>('egoschema_subset.part.json')) : []
  const captions = there ? read<Record<string, string[]>>('egoschema_captions.part.json') : {}

  /** Three minutes, a caption a second, no dialogue. */
  const taskOf = ({ q_uid, question, ...row }: Row): Task => ({
    episode: {
      id: q_uid,
      show: 'egoschema',
      clips: [{ id: `${q_uid}_seg01_clip_00`, index: 0, start: 0, end: 180, subtitles: [], source: { kind: 'none' } }],
    },
    question: {
      qid: q_uid,
      episodeId: q_uid,
      text: question,
      options: [0, 1, 2, 3, 4].map((i) => row[`option ${i}`] as string),
    },
  })
  const wordsOf = (text: string) => new Set(text.toLowerCase().match(/[a-z]{4,}/g))

  /** Each says what follows from the words that it reads; none of them is a model. */
  const say = (role: string, messages: readonly Message[]): string => {
    const prompt = messages[0]?.content ?? ''
    const options = [...prompt.matchAll(/^a(\d) (?!: )(.*)$/gm)]
    const overlap = (text: string) => {
      const there = wordsOf(/<summary>[\s\S]*/.exec(prompt)?.[0] ?? '')
      return [...wordsOf(text)].filter((word) => there.has(word)).length
    }
    switch (role) {
      case 'thinker':
        return JSON.stringify({
          hypotheses: options.map(([, i, text]) => ({ option: Number(i), hypothesis: `the captions tell of ${text}` })),
        })
      case 'judge':
        return judged(0.8, 'what is done most')
      case 'verifier':
        if (messages.length === 1) return looks('88-92')
        return JSON.stringify({
          action: 'verdict',
          clue_understanding: '',
          evidence_found: messages.at(-1)?.content,
          reasoning: '',
          status: 'VERIFIED',
        })
      default:
        return answers(
          Number(options.reduce((best, one) => (overlap(one[2] ?? '') > overlap(best[2] ?? '') ? one : best))[1]),
        )
    }
  }

  test('run from the first caption to an answer, each frame with its own', async () => {
    expect(rows.length).toBeGreaterThan(0)
    const path = join(benchmarks, 'egoschema_captions.part.json')
    const captioner = openCaptionerStored({ path, secondsPerCaption: 1 })
    for (const row of rows) {
      const task = taskOf(row)
      const own = captions[row.q_uid] as string[]
      const at = (time: number) => own[Math.floor(time)] as string
      const nothing: AgentAnswer = { usage: usageOf(), frames: [], caveat: null }
      const outcome = await videoHvAgent(videoHvAgentOptions.parse({ name: 'videoHvAgent' })).run({
        task,
        speaker: (role) => ({ say: async (messages) => ({ ok: true, text: say(role, messages) }) }),
        agents: {
          ...scriptedAgents().agents,
          captioner,
          summary: {
            name: 'beginning',
            ask: async ({ lines, words }) => {
              const text = lines.map(({ text }) => text).join(' ')
              return { ok: true, value: { ...nothing, text: text.split(' ').slice(0, words).join(' ') } }
            },
          },
          frameInspection: {
            name: 'stored',
            ask: async ({ times }) => ({ ok: true, value: { ...nothing, text: times.map(at).join(' ') } }),
          },
        },
        budget: {
          turns: 3,
          windowClips: 1,
          tokensPerTurn: 512,
          tokensPerObservation: null,
          tokensPerTrajectory: null,
          deadlineSeconds: null,
        },
        signal: new AbortController().signal,
        fitObservation: (text) => text,
        spend: () => {},
      })
      expect(outcome).toMatchObject({ stopReason: 'answered', measures: { verifiedClue: 1 } })
      const [captioned, summarised, thinker, , , verifier] = outcome.turns
      const lines = captioned?.observation?.split('\n') ?? []
      const plain = (text: string) => text.trim().replace(/\s+/g, ' ')
      expect(lines).toEqual(own.map((text, i) => `${i + 0.5} s frame ${i} : ${plain(text)}`))
      // four parts of 100 words at most, and the whole
      expect(summarised?.observation?.split('\n')).toHaveLength(5)
      expect(thinker?.output).toMatchObject({ hypotheses: [{ option: 0 }, {}, {}, {}, { option: 4 }] })
      expect(verifier?.output).toHaveProperty(
        'evidence_found',
        [88, 89, 90, 91, 92]
          .map((i) => `frame ${i} : ${own[i]}`)
          .join('\n')
          .trim(),
      )
    }
  })
})
