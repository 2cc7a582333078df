/**
 * Symphony step by step: scripted roles speak in the order that the algorithm asks them in, scripted agents keep what they were asked. First
 * the algorithm as a whole, then every way out of it in one table, then each agent and each tool.
 */
import { describe, expect, test } from 'vitest'
import { symphonyOptions } from '../../src/systems/options.ts'
import { symphony } from '../../src/systems/symphony.ts'
import type {
  Agent,
  AgentAnswer,
  AgentCalls,
  Agents,
  Failure,
  Message,
  Relevance,
  Result,
  SpeakerResult,
  SystemOutcome,
  Task,
} from '../../src/types.ts'
import { failure, scriptedAgents, tinyTask, usageOf } from '../rollout/scripted.ts'

// ---------------------------------------------------------------- what roles write

type Role = 'planner' | 'grounding' | 'perception' | 'reflection'
/** Who speaks next, and what. */
type Line = readonly [role: Role, text: string | SpeakerResult]

const plan = (agent: string, more: object = {}): Line => [
  'planner',
  JSON.stringify({ reason: `for ${agent}`, agent, ...more }),
]
const look = (ranges: number[][] = [[10, 20]], focus = ['a mug']) => plan('perception', { instruct: { ranges, focus } })
const finish = (answer: number | string) => plan('finish', { answer })
const grounds = (decision: object): Line => ['grounding', JSON.stringify(decision)]
const tool = (name: string, args: object): Line => [
  'perception',
  JSON.stringify({ tool: name, question: 'a mug ?', ...args }),
]
const inspect = (range = [10, 20]) => tool('frame_inspect', { range, cue: 'mug' })
const reports = (answer = 'she holds a mug'): Line => ['perception', JSON.stringify({ tool: 'answer', answer })]
const reflects = (credible: boolean, comment: string | null = null): Line => [
  'reflection',
  JSON.stringify({ credible, comment }),
]
const unreadable = (role: Role): Line[] => Array.from({ length: 6 }, () => [role, 'well'])

// ---------------------------------------------------------------- a world of scripts

type Kind = 'subtitles' | 'segmentScoring' | 'frameRetrieval' | 'frameInspection'
type Replies = { [K in Kind]: Omit<AgentCalls[K]['answer'], keyof AgentAnswer> & Partial<AgentAnswer> }

interface World {
  task?: Task
  options?: object
  turns?: number
  replies?: Partial<Replies>
  fails?: Partial<Record<Kind, Failure>>
  fitObservation?: (text: string) => string
}

interface Played extends SystemOutcome {
  /** Roles and agents, in the order of the calls. */
  order: string[]
  /** What each role read. */
  read: { role: string; messages: readonly Message[] }[]
  asked: { [K in Kind]: AgentCalls[K]['request'][] }
  spent: string[]
  /** Lines that nobody asked for. */
  left: number
}

/** 100 seconds in ten clips. */
const task = () => tinyTask('q1', 10)
const frame = { clipId: 'e1_seg01_clip_01', time: 5 }

async function play(lines: readonly Line[], world: World = {}): Promise<Played> {
  const script = [...lines]
  const order: string[] = []
  const read: Played['read'] = []
  const spent: string[] = []
  const asked: Played['asked'] = { subtitles: [], segmentScoring: [], frameRetrieval: [], frameInspection: [] }
  const replies: Replies = {
    subtitles: {
      available: true,
      lines: [{ clipId: 'e1_seg01_clip_03', start: 31.2, end: 33.8, speaker: 'Ann', text: 'my <mug> !' }],
      entities: ['Ann', 'the mug'],
      topic: 'a kitchen',
    },
    segmentScoring: {
      scores: ([2, 1, 4, 3] as Relevance[]).map((relevance) => ({
        relevance,
        caption: `sight ${relevance}`,
        reasoning: relevance === 1 ? null : 'why',
      })),
    },
    frameRetrieval: { hits: [12, 71.6].map((time) => ({ time, score: 1 })), frames: [frame] },
    frameInspection: { text: 'a red mug', frames: [frame] },
    ...world.replies,
  }
  const agent = <K extends Kind>(kind: K): Agent<AgentCalls[K]['request'], AgentCalls[K]['answer']> => ({
    name: 'scripted',
    async ask(request) {
      order.push(kind)
      ;(asked[kind] as unknown[]).push(request)
      const failed = world.fails?.[kind]
      if (failed !== undefined) return { ok: false, failure: failed } as Result<never>
      const nothing: AgentAnswer = { usage: usageOf(), frames: [], caveat: null }
      return { ok: true, value: { ...nothing, ...replies[kind] } as AgentCalls[K]['answer'] }
    },
  })
  const agents: Agents = {
    ...scriptedAgents().agents,
    subtitles: agent('subtitles'),
    segmentScoring: agent('segmentScoring'),
    frameRetrieval: agent('frameRetrieval'),
    frameInspection: agent('frameInspection'),
  }
  const options = symphonyOptions.parse({ name: 'symphony', prompt: 'brief', ...world.options })
  const outcome = await symphony(options).run({
    task: world.task ?? task(),
    speaker: (role) => ({
      async say(messages) {
        order.push(role)
        read.push({ role, messages })
        const [expected, text] = script.shift() ?? ['nobody', '']
        if (expected !== role) throw new Error(`call ${order.length} went to ${role}, expected ${expected}`)
        return typeof text === 'string' ? { ok: true, text } : text
      },
    }),
    agents,
    budget: {
      turns: world.turns ?? 17,
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
  return { ...outcome, order, read, asked, spent, left: script.length }
}

/** What a role read last before its n-th output. */
const told = ({ read }: Played, role: Role, n: number) =>
  read.filter((one) => one.role === role)[n]?.messages.at(-1)?.content ?? ''

// ---------------------------------------------------------------- the algorithm

test('plans, results, a reflection that is not content, and the second answer', async () => {
  const lines = [
    plan('grounding'),
    grounds({ type: 2 }),
    plan('subtitle'),
    look(),
    inspect(),
    reports(),
    finish(0),
    reflects(false, 'nobody looked at <the> end'),
    look([[60, 90]], []),
    tool('interval_summary', { range: [60, 90] }),
    reports('nothing there'),
    finish(1),
  ]
  const played = await play(lines)
  expect(played).toMatchObject({ answer: 1, stopReason: 'answered', failure: null, measures: { credible: 0 }, left: 0 })
  expect(played.order).toEqual([
    ...['planner', 'grounding', 'segmentScoring'],
    ...['planner', 'subtitles'],
    ...['planner', 'perception', 'frameRetrieval', 'frameInspection', 'perception'],
    ...['planner', 'reflection'],
    ...['planner', 'perception', 'frameInspection', 'perception'],
    'planner',
  ])
  expect(played.spent).toEqual(['segmentScoring', 'subtitles', 'frameRetrieval', 'frameInspection', 'frameInspection'])

  // one conversation of the planner, with each result below its plan
  const last = played.read.at(-1)?.messages ?? []
  expect(last.map(({ role }) => role)).toEqual([
    'user',
    ...Array.from({ length: 5 }, () => ['assistant', 'user']).flat(),
  ])
  expect(last[0]?.content).toBe(
    'question : what does Ann hold ?\na0 a cup\na1 a mug\na2 a hat\na3 a key\na4 a map\nlength : 100 s',
  )
  const quoted = '31 - 34 s Ann : my [mug] !\nwho and what : Ann , the mug\ntopic : a kitchen'
  const segments =
    '0 - 30 s relevance 2 : sight 2 why\n60 - 90 s relevance 4 : sight 4 why\n90 - 100 s relevance 3 : sight 3 why'
  expect(
    last
      .filter(({ role }) => role === 'user')
      .map(({ content }) => content)
      .slice(1),
  ).toEqual([segments, quoted, 'she holds a mug', 'not credible : nobody looked at [the] end', 'nothing there'])

  // the agents know the question; perception what it is to look for as well, reflection everything
  expect(told(played, 'grounding', 0)).toBe(last[0]?.content)
  expect(told(played, 'perception', 0)).toBe(`${last[0]?.content}\n<instruct>\n10 - 20 s : a mug\n</instruct>`)
  expect(told(played, 'perception', 1)).toBe('a red mug')
  expect(told(played, 'perception', 2)).toContain('<instruct>\n60 - 90 s : \n</instruct>')
  expect(told(played, 'reflection', 0)).toBe(
    [
      'question : what does Ann hold ?\na0 a cup\na1 a mug\na2 a hat\na3 a key\na4 a map\n<history>',
      `{"reason":"for grounding","agent":"grounding"}\n${segments}`,
      `{"reason":"for subtitle","agent":"subtitle"}\n${quoted}`,
      '{"reason":"for perception","agent":"perception","instruct":{"ranges":[[10,20]],"focus":["a mug"]}}\nshe holds a mug',
      '</history>\n<proposed>\na0\n</proposed>',
    ].join('\n'),
  )

  // the record: a plan's result stands with it, before the steps that it led to
  expect(played.turns.map(({ role, action }) => [role, action.kind === 'call' ? action.tool : action.kind])).toEqual([
    ['planner', 'grounding'],
    ['grounding', 'localize'],
    ['planner', 'subtitle'],
    ['planner', 'perception'],
    ['perception', 'frame_inspect'],
    ['perception', 'output'],
    ['planner', 'answer'],
    ['reflection', 'output'],
    ['planner', 'perception'],
    ['perception', 'interval_summary'],
    ['perception', 'output'],
    ['planner', 'answer'],
  ])
  for (const turn of played.turns) expect(turn.wellFormed).toBe(true)
  expect(played.turns[3]).toMatchObject({ action: { query: '10 - 20 s : a mug' }, observation: 'she holds a mug' })
  expect(played.turns[4]).toMatchObject({ observation: 'a red mug', frames: [frame] })
  // dialogue that was read and pictures that were looked at; where to look is nothing shown
  expect(played.visited).toEqual(['e1_seg01_clip_03', 'e1_seg01_clip_01'])
})

test('the constants of the released code', async () => {
  const { roles, turns, needs } = symphony(symphonyOptions.parse({ name: 'symphony' }))
  expect(turns).toBe(17)
  expect(roles).toEqual(['planner', 'grounding', 'perception', 'reflection'])
  expect(needs).toEqual(['subtitles', 'segmentScoring', 'frameRetrieval', 'frameInspection'])
  expect(symphonyOptions.parse({ name: 'symphony' })).toEqual({
    name: 'symphony',
    prompt: 'instructed',
    reflections: 1,
    segmentSeconds: 30,
    framesPerSegment: 15,
    leastRelevance: 2,
    retrievedFrames: 15,
    subtitleLines: 40,
    perceptionRounds: 6,
    inspectFrames: 70,
    inspectRetrieved: 20,
    summaryFrames: 30,
    associateFrames: 10,
    repairs: 5,
  })
})

// ---------------------------------------------------------------- exits

describe('every exit', () => {
  const answered = { stopReason: 'answered', failure: null } as const
  const open: Task = { ...task(), question: { ...task().question, options: [] } }
  const exits: [name: string, lines: Line[], outcome: Partial<SystemOutcome>, world?: World][] = [
    ['credible at once', [finish(1), reflects(true)], { answer: 1, ...answered, measures: { credible: 1 } }],
    [
      'not credible, and the same answer again: it stands unreflected',
      [finish(1), reflects(false, 'hm'), finish(1)],
      { answer: 1, ...answered, measures: { credible: 0 } },
    ],
    [
      'a reflection that cannot be read is content',
      [finish(2), ...unreadable('reflection')],
      { answer: 2, ...answered, measures: { credible: 1 } },
    ],
    ['no reflections', [finish(3)], { answer: 3, ...answered }, { options: { reflections: 0 } }],
    [
      'two reflections',
      [finish(3), reflects(false, 'a'), finish(2), reflects(false, 'b'), finish(0)],
      { answer: 0, ...answered },
      { options: { reflections: 2 } },
    ],
    // ---- out of cycles
    [
      'seventeen cycles, then the answer is demanded and not reflected on',
      [...Array.from({ length: 17 }, () => plan('subtitle')), finish(4)],
      { answer: 4, ...answered },
    ],
    [
      'an answer that is not credible in the last cycle',
      [plan('subtitle'), finish(1), reflects(false, 'guessed'), finish(2)],
      { answer: 2, ...answered },
      { turns: 2 },
    ],
    [
      'instead of the answer that is demanded, another plan, then the answer',
      [plan('subtitle'), plan('subtitle'), finish(2)],
      { answer: 2, ...answered },
      { turns: 1 },
    ],
    [
      'no answer though it was demanded: nothing is answered at random',
      [plan('subtitle'), ...unreadable('planner')],
      { answer: null, stopReason: 'turn_limit', failure: null },
      { turns: 1 },
    ],
    // ---- outputs that cannot be read
    [
      'a plan that is read at its sixth try',
      [...unreadable('planner').slice(1), finish(1), reflects(true)],
      { answer: 1 },
    ],
    [
      'a plan that cannot be read uses up a cycle',
      [...unreadable('planner'), ...unreadable('planner'), finish(1)],
      { answer: 1, ...answered },
      { turns: 2 },
    ],
    ['an agent that there is not', [plan('oracle'), finish(1), reflects(true)], { answer: 1, ...answered }],
    ['an option that there is not', [finish(5), finish(0), reflects(true)], { answer: 0, ...answered }],
    [
      'words of a grounding agent without a decision are its result',
      [plan('grounding'), ...unreadable('grounding'), finish(1), reflects(true)],
      { answer: 1, ...answered },
    ],
    [
      'so are those of a perception agent',
      [look(), ...unreadable('perception'), finish(1), reflects(true)],
      { answer: 1, ...answered },
    ],
    [
      'and of one whose report is demanded',
      [look(), inspect(), ...unreadable('perception'), finish(1), reflects(true)],
      { answer: 1, ...answered },
      { options: { perceptionRounds: 2 } },
    ],
    // ---- open-ended
    [
      'an open-ended question is answered in words',
      [finish('a red mug'), reflects(true)],
      { answer: null, answerText: 'a red mug', ...answered },
      { task: open },
    ],
    [
      'also when that is demanded',
      [plan('subtitle'), finish('a red mug')],
      { answer: null, answerText: 'a red mug', ...answered },
      { task: open, turns: 1 },
    ],
    // ---- failures and limits are values
    [
      'agents that were there and could not: the run goes on',
      [
        plan('subtitle'),
        ...[plan('grounding'), grounds({ type: 1, cue: 'mug' })],
        ...[plan('grounding'), grounds({ type: 2 })],
        ...[look(), inspect(), reports()],
        ...[finish(1), reflects(true)],
      ],
      { answer: 1, ...answered },
      {
        fails: {
          subtitles: failure('agent', 'bad_response'),
          frameRetrieval: failure('agent', 'missing_file'),
          segmentScoring: failure('agent', 'bad_response'),
          frameInspection: failure('agent', 'missing_file'),
        },
      },
    ],
    ...(['subtitles', 'segmentScoring', 'frameRetrieval', 'frameInspection'] as const).map(
      (kind): [string, Line[], Partial<SystemOutcome>, World] => [
        `${kind} that cannot be reached`,
        {
          subtitles: [plan('subtitle')],
          segmentScoring: [plan('grounding'), grounds({ type: 2 })],
          frameRetrieval: [plan('grounding'), grounds({ type: 1, cue: 'mug' })],
          frameInspection: [look(), inspect()],
        }[kind],
        { answer: null, stopReason: 'agent_error', failure: failure('agent', 'unreachable') },
        { fails: { [kind]: failure('agent', 'unreachable') } },
      ],
    ),
    [
      'a planner that a limit cut off',
      [['planner', { ok: false, stopReason: 'deadline', failure: null }]],
      { answer: null, stopReason: 'deadline', failure: null },
    ],
    [
      'several videos',
      [],
      {
        answer: null,
        stopReason: 'agent_error',
        failure: {
          boundary: 'dataset',
          kind: 'bad_request',
          message: 'question q1: is about 2 videos; Symphony watches one, so give it questions about one video',
        },
      },
      {
        task: {
          ...task(),
          videos: ['A', 'B'].map((id) => ({ id, role: null, episode: task().episode })),
        },
      },
    ],
  ]
  test.each(exits)('%s', async (_, lines, outcome, world) => {
    const played = await play(lines, world)
    expect(played).toMatchObject(outcome)
    expect(played.left).toBe(0)
  })
})

test('what is demanded is said below the last result, and only then', async () => {
  const played = await play([plan('subtitle'), ...unreadable('planner'), finish(1)], { turns: 2 })
  expect(told(played, 'planner', 1)).not.toContain('no more agents')
  expect(told(played, 'planner', 7)).toBe('that could not be read : there is no JSON .\nno more agents : finish now .')
})

test.each([
  [plan('oracle'), 'agent: expected the agent grounding, subtitle, perception or finish'],
  [plan('perception'), /^instruct: /],
  [look([[20, 10]]), 'instruct.ranges.0: expected [start, end] in seconds, the start before the end and before 100'],
  [look([[100, 110]]), /^instruct.ranges.0: expected/],
  [look([], ['a', 'b', 'c', 'd']), /^instruct.focus: /],
  [finish(5), /^answer: /],
  [finish('a mug'), /^answer: /],
  [plan('finish'), /^answer: /],
] as const)('the plan %s is refused with what was expected', async ([, text], problem) => {
  const { turns } = await play([['planner', text], finish(1), reflects(true)])
  const action = turns[0]?.action
  expect(action?.kind === 'invalid' && action.problem).toEqual(
    typeof problem === 'string' ? problem : expect.stringMatching(problem),
  )
  expect(turns[0]?.wellFormed).toBe(false)
})

// ---------------------------------------------------------------- grounding and subtitles

const afterwards = [finish(1), reflects(true)]

describe('grounding', () => {
  const ground = (decision: object, world?: World) => play([plan('grounding'), grounds(decision), ...afterwards], world)

  test('type 0: what the question says', async () => {
    const played = await ground({ type: 0, answer: '<from> 0 to 10 s' })
    expect(told(played, 'planner', 1)).toBe('[from] 0 to 10 s')
    expect(played.order).toEqual(['planner', 'grounding', 'planner', 'reflection'])
  })

  test('type 1: the 15 frames of the whole video most like a cue, best first', async () => {
    const played = await ground({ type: 1, cue: 'a mug' })
    const { episode } = task()
    expect(played.asked.frameRetrieval).toEqual([{ episode, stretch: null, query: 'a mug', count: 15 }])
    expect(told(played, 'planner', 1)).toBe('pictures like it at : 12 s , 71 s')
    expect(played.turns[1]).toMatchObject({
      action: { kind: 'call', tool: 'retrieve', query: 'a mug' },
      observation: 'pictures like it at : 12 s , 71 s',
      frames: [frame],
    })
    expect(played.visited).toEqual([])
  })

  test('type 1 without frames', async () => {
    const played = await ground({ type: 1, cue: 'a mug' }, { replies: { frameRetrieval: { hits: [] } } })
    expect(told(played, 'planner', 1)).toBe('there are no such pictures .')
  })

  test('type 2: segments of 30 seconds, 15 frames each; those of relevance 1 are left out', async () => {
    const played = await ground({ type: 2 })
    const { episode, question } = task()
    const segments = [
      { start: 0, end: 30 },
      { start: 30, end: 60 },
      { start: 60, end: 90 },
      { start: 90, end: 100 },
    ]
    expect(played.asked.segmentScoring).toEqual([{ episode, question, segments, framesPerSegment: 15 }])
    expect(told(played, 'planner', 1)).not.toContain('30 - 60 s')
  })

  test('type 2 with a higher bound, and with nothing above it', async () => {
    const higher = await ground({ type: 2 }, { options: { leastRelevance: 4 } })
    expect(told(higher, 'planner', 1)).toBe('60 - 90 s relevance 4 : sight 4 why')
    const scores = [1, 1, 1, 1].map(() => ({ relevance: 1 as const, caption: '', reasoning: null }))
    const none = await ground({ type: 2 }, { replies: { segmentScoring: { scores } } })
    expect(told(none, 'planner', 1)).toBe('no part of the video bears on the question .')
  })

  test('a video whose length is unknown has no segments', async () => {
    const { episode, question } = task()
    const clips = episode.clips.map((clip) => ({ ...clip, start: 0, end: 0 }))
    const played = await ground({ type: 2 }, { task: { episode: { ...episode, clips }, question } })
    expect(played.asked.segmentScoring[0]?.segments).toEqual([])
    expect(told(played, 'planner', 0)).toMatch(/length : unknown$/)
    expect(told(played, 'planner', 1)).toBe('no part of the video bears on the question .')
  })

  test('failures are told, and recorded where they happened', async () => {
    const failed = failure('agent', 'bad_response')
    const played = await ground({ type: 2 }, { fails: { segmentScoring: failed } })
    expect(told(played, 'planner', 1)).toBe('the video could not be searched .')
    expect(played.turns.map(({ failure }) => failure)).toEqual([null, failed, null, null])
  })

  test('a decision is asked for six times', async () => {
    const played = await play([plan('grounding'), ...unreadable('grounding'), ...afterwards])
    expect(told(played, 'planner', 1)).toBe('well')
    expect(played.turns.filter(({ role, wellFormed }) => role === 'grounding' && !wellFormed)).toHaveLength(6)
  })
})

describe('subtitles', () => {
  test('all of them, for the question; clips of quoted lines count as shown', async () => {
    const played = await play([plan('subtitle'), ...afterwards])
    const { episode, question } = task()
    expect(played.asked.subtitles).toEqual([{ episode, stretch: null, query: question.text, count: 40 }])
    expect(played.visited).toEqual(['e1_seg01_clip_03'])
  })

  const line = { clipId: 'e1_seg01_clip_03', start: null, end: null, speaker: null, text: 'my mug !' }
  test.each([
    [{ available: false, lines: [], entities: [], topic: '' }, 'there are no subtitles .'],
    [{ available: true, lines: [], entities: [], topic: '' }, 'no line bears on the question .'],
    [{ available: true, lines: [line], entities: [], topic: '' }, 'my mug !'],
    [{ available: true, lines: [{ ...line, start: 3.9 }], entities: [], topic: '' }, '3 s my mug !'],
  ])('%#', async (subtitles, text) => {
    expect(told(await play([plan('subtitle'), ...afterwards], { replies: { subtitles } }), 'planner', 1)).toBe(text)
  })
})

// ---------------------------------------------------------------- perception

describe('perception', () => {
  const perceive = (calls: Line[], world?: World) => play([look(), ...calls, reports(), ...afterwards], world)

  test('frame_inspect: a frame a second, and the 20 frames of the range most like the cue', async () => {
    const hits = [12.5, 13.7].map((time) => ({ time, score: 1 }))
    const { asked } = await perceive([inspect([10, 15])], { replies: { frameRetrieval: { hits } } })
    const { episode } = task()
    const stretch = { start: 10, end: 15 }
    expect(asked.frameRetrieval).toEqual([{ episode, stretch, query: 'mug', count: 20 }])
    // a frame that is found both ways is looked at once
    const times = [10.5, 11.5, 12.5, 13.5, 13.7, 14.5]
    expect(asked.frameInspection).toEqual([{ episode, times, question: 'a mug ?' }])
  })

  test('frame_inspect of a long range: at most 70 and those', async () => {
    const { asked } = await perceive([inspect([0, 100])])
    const times = asked.frameInspection[0]?.times ?? []
    expect(times).toHaveLength(72)
    expect(times[0]).toBeCloseTo(50 / 70, 12)
    expect(times).toEqual([...times].sort((a, b) => a - b))
  })

  test('frame_inspect ends where the video does', async () => {
    const { asked } = await perceive([inspect([98, 158])])
    expect(asked.frameRetrieval[0]?.stretch).toEqual({ start: 98, end: 100 })
    expect(asked.frameInspection[0]?.times).toEqual([12, 71.6, 98.5, 99.5])
  })

  test('interval_summary: 30 frames, evenly spaced', async () => {
    const { asked } = await perceive([tool('interval_summary', { range: [0, 90] })])
    expect(asked.frameRetrieval).toEqual([])
    expect(asked.frameInspection[0]?.times).toEqual(Array.from({ length: 30 }, (_, i) => 1.5 + 3 * i))
  })

  test('frame_associate: the 10 frames of the whole video most like each cue, in order of time, each once', async () => {
    const { asked } = await perceive([tool('frame_associate', { cues: ['mug', 'hat'] })])
    const { episode } = task()
    expect(asked.frameRetrieval).toEqual(['mug', 'hat'].map((query) => ({ episode, stretch: null, query, count: 10 })))
    expect(asked.frameInspection[0]?.times).toEqual([12, 71.6])
  })

  test('frame_associate without frames asks nobody to look', async () => {
    const played = await perceive([tool('frame_associate', { cues: ['mug'] })], {
      replies: { frameRetrieval: { hits: [] } },
    })
    expect(played.asked.frameInspection).toEqual([])
    expect(told(played, 'perception', 1)).toBe('there are no such pictures .')
  })

  test('frames that cannot be retrieved leave the others', async () => {
    const failed = failure('agent', 'bad_response')
    const played = await perceive([inspect([10, 12])], { fails: { frameRetrieval: failed } })
    expect(played.asked.frameInspection[0]?.times).toEqual([10.5, 11.5])
    expect(played.turns[1]).toMatchObject({ observation: 'a red mug', failure: failed })
  })

  test('at most six outputs: the report is demanded before the last, and only then', async () => {
    const played = await perceive(Array.from({ length: 5 }, () => inspect()))
    expect(played.order.filter((one) => one === 'perception')).toHaveLength(6)
    const results = [1, 2, 3, 4, 5].map((n) => told(played, 'perception', n))
    expect(results).toEqual([
      ...Array.from({ length: 4 }, () => 'a red mug'),
      'a red mug\nno more tools : write the answer .',
    ])
    const sixth = await play([look(), ...Array.from({ length: 6 }, () => inspect()), reports('late'), ...afterwards])
    // a sixth call is no report: it is asked for again
    expect(sixth.asked.frameInspection).toHaveLength(5)
    expect(told(sixth, 'planner', 1)).toBe('late')
  })

  test('one output: the report is demanded at once', async () => {
    const played = await play([look(), reports('nothing'), ...afterwards], { options: { perceptionRounds: 1 } })
    expect(told(played, 'planner', 1)).toBe('nothing')
  })

  test.each([
    [inspect([20, 10]), /^range: expected/],
    [inspect([100, 130]), /^range: expected/],
    [tool('frame_inspect', { range: [10, 20] }), /^cue: /],
    [tool('frame_associate', { cues: [] }), /^cues: /],
    [tool('zoom', {}), /^tool: expected the tool frame_inspect, interval_summary, frame_associate or answer/],
  ])('%s is refused', async (call, problem) => {
    const { turns, asked } = await perceive([call])
    const action = turns[1]?.action
    expect(action?.kind === 'invalid' && action.problem).toMatch(problem)
    expect(asked.frameInspection).toEqual([])
  })
})

// ---------------------------------------------------------------- prompts

test('instructions come before what a role is given and name its format; what an agent could not do is told with them', async () => {
  const world: World = {
    options: { prompt: 'instructed' },
    replies: { frameInspection: { text: 'a red mug', caveat: 'actions are not seen .' } },
  }
  const played = await play(
    [plan('grounding'), grounds({ type: 2 }), look(), inspect(), reports(), ...afterwards],
    world,
  )
  const named: Record<Role, string[]> = {
    planner: ['"agent": "finish"', '"ranges"', '"focus"', 'three phrases'],
    grounding: ['"type": 0', '"type": 1', '"type": 2'],
    perception: ['frame_inspect', '5 to 60 seconds', 'interval_summary', '3 minutes', 'frame_associate', 'number 6'],
    reflection: ['"credible": true', '"comment"'],
  }
  for (const [role, words] of Object.entries(named)) {
    const first = played.read.find((one) => one.role === role)?.messages[0]?.content ?? ''
    const [instructions, ...rest] = first.split('\n\nquestion : ')
    for (const word of words) expect(instructions).toContain(word)
    expect(rest).toHaveLength(1)
  }
  expect(told(played, 'perception', 1)).toBe('a red mug ( actions are not seen . )')
  expect(
    (await play([look(), inspect(), reports(), ...afterwards], { ...world, options: {} })).turns[1]?.observation,
  ).toBe('a red mug')
})

test('results are cut to the budget', async () => {
  const played = await play([plan('subtitle'), ...afterwards], { fitObservation: (text) => text.slice(0, 10) })
  expect(told(played, 'planner', 1)).toBe('31 - 34 s ')
  expect(told(played, 'reflection', 0)).toContain('"agent":"subtitle"}\n31 - 34 s \n</history>')
})
