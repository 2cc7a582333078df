/**
 * Nothing secret reaches a policy or an agent, for every preset and every system.
 *
 * Two data sets that differ in every secret (right option, clip, span, boxes) and in nothing else are imported from files and run from a
 * configuration, with a recorder around the policy and each agent, and one on the wire behind them. What they were given has to be the
 * same, to the byte: then none of it depends on a secret. Runs that do leak, planted ones and the one that `agents.oracleBoxes` asks for,
 * are caught by the same comparison.
 */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import sharp from 'sharp'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { loadConfig, type RunConfig, runConfig } from '../src/config.ts'
import { presetNames } from '../src/configFile.ts'
import { importDataset } from '../src/dataset/index.ts'
import { importOptions } from '../src/dataset/options.ts'
import { goldFor, openRun } from '../src/open.ts'
import { silentProgress } from '../src/progress.ts'
import { rollout } from '../src/rollout/index.ts'
import { type Purpose, systemNames } from '../src/systems/index.ts'
import { systemsOptions } from '../src/systems/options.ts'
import type { Agents, GroundingAgent, Policy, System, Task } from '../src/types.ts'
import { type ChatServer, type ReceivedBody, says, startChatServer } from './agents/server.ts'
import { row, value } from './dataset/folder.ts'
import { tinyMaster } from './tinyMaster.ts'

const CLIPS = ['s05e02_seg02_clip_00', 's05e02_seg02_clip_01', 's05e02_seg02_clip_02']
const SECONDS = 4
const QUESTIONS = 3

/** Two of everything that is secret. */
const secrets = [0, 1].map((world) => ({
  answer: ['a0', 'a3'][world],
  occur_clip: CLIPS[world * 2],
  ts: [
    [0.25, 1.5],
    [1.75, 3.5],
  ][world],
  bbox: {
    '5': [{ img_id: 5, top: 10 + world, left: 20, width: 30, height: 40, label: ['kettle', 'lamp'][world] }],
  },
}))

const probe = () => Promise.reject(new Error('there are no videos'))

let root: string
let server: ChatServer
/** Folders of the two data sets. */
let worlds: string[]

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'showrunner-leaks-'))
  server = await startChatServer()
  await tinyMaster(join(root, 'master'))
  await frames(join(root, 'bbt_frames'))
  const rows = CLIPS.map((clip, i) => JSON.stringify({ qid: String(i), status: 'ok', clip, reason: '', agent: 'g' }))
  writeFileSync(join(root, 'grounding.jsonl'), rows.join('\n'))
  worlds = []
  for (const [world, secret] of secrets.entries()) {
    const raw = join(root, `raw${world}`)
    mkdirSync(raw)
    const questions = Array.from({ length: QUESTIONS }, (_, qid) => row(qid, secret))
    writeFileSync(join(raw, 'LongTVQA_plus_val.json'), JSON.stringify(questions))
    writeFileSync(
      join(raw, 'subtitles.json'),
      JSON.stringify(Object.fromEntries(CLIPS.map((clip, i) => [clip, `Penny : Line ${i} . <eos> Raj : Go on .`]))),
    )
    const out = join(root, `data${world}`)
    value(await importDataset({ ...importOptions.parse({ inputs: [raw, join(root, 'bbt_frames')], out }), probe }))
    worlds.push(out)
  }
}, 60_000)
afterAll(async () => {
  await server.close()
  rmSync(root, { recursive: true })
})

/** Pictures of each clip, 3 per second. */
async function frames(directory: string): Promise<void> {
  for (const [index, clip] of CLIPS.entries()) {
    const to = join(directory, clip)
    mkdirSync(to, { recursive: true })
    const first = join(to, '00001.jpg')
    const background = { r: index * 60, g: 9, b: 9 }
    await sharp({ create: { width: 64, height: 36, channels: 3, background } })
      .jpeg()
      .toFile(first)
    for (let n = 2; n <= SECONDS * 3; n++) copyFileSync(first, join(to, `${String(n).padStart(5, '0')}.jpg`))
  }
}

/** A master that tries everything, and agents that answer the same whatever they are asked. */
const lines = [
  '<visual_query>what stands on the table</visual_query>',
  '<request_grounding>a kitchen</request_grounding>',
  '<search>a kettle</search>',
  'well',
  '<request_grounding></request_grounding>',
  '<answer>a2</answer>',
]
function replies(): void {
  let said = 0
  let grounded = 0
  const text = ({ model }: ReceivedBody): string => {
    if (model === 'grounder') return `<clip>${CLIPS[grounded++ % CLIPS.length]}</clip>`
    return model === 'viewer' ? 'a white thing' : (lines[said++ % lines.length] as string)
  }
  server.script((response, body, request) => says(text(body))(response, body, request))
}

const endpoints = (): Record<string, unknown> => ({
  policy: { type: 'endpoint', baseUrl: server.baseUrl, model: 'master', apiKeyEnv: null },
  'agents.grounding': { type: 'endpoint', baseUrl: server.baseUrl, model: 'grounder', apiKeyEnv: null },
  'agents.vision': { type: 'endpoint', baseUrl: server.baseUrl, model: 'viewer', apiKeyEnv: null, framesPerLook: 3 },
  'agents.groundingCache': join(root, 'grounding.jsonl'),
  'agents.cacheDirectory': null,
  'agents.video.cacheDirectory': null,
  'rollout.concurrency': 1,
  'rollout.groupSize': 2,
  'reward.alpha': 0.1,
})

async function presetConfig(name: string, world: string): Promise<RunConfig> {
  const set = Object.entries({ ...endpoints(), 'dataset.path': world })
  return value(
    await loadConfig(
      name,
      set.map(([key, one]) => `${key}=${JSON.stringify(one)}`),
    ),
  )
}

async function systemConfig(system: object, world: string): Promise<RunConfig> {
  return runConfig.parse({ ...(await presetConfig('paper', world)), system })
}

interface Planted {
  purpose?: Purpose
  /** Stands in for the system of the configuration; it is told where the gold is. */
  system?: (system: System, goldOf: (task: Task) => unknown) => System
  task?: (task: Task, gold: unknown) => Task
}

/** Everything that policy and agents were given in a run of all questions, in order, without the folder of the data set. */
async function givenIn(config: RunConfig, { purpose, system, task }: Planted = {}): Promise<string[]> {
  replies()
  const run = value(await openRun(config, silentProgress, new AbortController().signal, purpose))
  const given: string[] = []
  const note = (who: string, what: unknown): void => {
    given.push(`${who} ${JSON.stringify(what, (_, one) => (one instanceof AbortSignal ? undefined : one))}`)
  }
  const goldOf = (one: Task) => goldFor(run.dataset, one)
  try {
    const groups = await rollout(
      run.dataset.tasks().map((one) => task?.(one, goldOf(one)) ?? one),
      {
        system: system?.(run.system, goldOf) ?? run.system,
        policy: recorded('policy', run.policy, note),
        roles: Object.fromEntries(
          Object.entries(run.roles).map(([role, player]) => [
            role,
            { ...player, policy: recorded(`role:${role}`, player.policy, note) },
          ]),
        ),
        agents: recordedAgents(run.agents, note),
        options: config.rollout,
        step: 0,
        runSeed: 1,
      },
    )
    // a run that breaks before anything is asked would prove nothing
    const failures = groups.flatMap(({ trajectories }) => trajectories.flatMap(({ failure }) => failure?.message ?? []))
    expect(failures).toEqual([])
  } finally {
    await run.close()
  }
  for (const body of server.received) note('wire', body)
  return given.map((one) => one.replaceAll(config.dataset.path, 'DATA'))
}

function recorded(who: string, policy: Policy, note: (who: string, what: unknown) => void): Policy {
  return {
    name: policy.name,
    version: policy.version,
    contextLength: policy.contextLength,
    ...(policy.tokenizer === undefined ? {} : { tokenizer: policy.tokenizer }),
    generate(request) {
      note(who, request)
      return policy.generate(request)
    },
    close: () => policy.close(),
  }
}

/** Notes what every agent is asked, whatever its kind and its method. */
function recordedAgents(agents: Agents, note: (who: string, what: unknown) => void): Agents {
  const one = (kind: string, agent: object) =>
    new Proxy(agent, {
      get(target, key) {
        const member: unknown = Reflect.get(target, key)
        if (typeof member !== 'function') return member
        return (request: unknown, ...rest: unknown[]) => {
          note(kind, request)
          return member.call(target, request, ...rest)
        }
      },
    })
  const open = Object.entries(agents).filter(([, agent]) => typeof agent === 'object')
  return Object.fromEntries(open.map(([kind, agent]) => [kind, one(kind, agent as object)])) as unknown as Agents
}

/** What was given in each of the two worlds. */
async function inBoth(config: (world: string) => Promise<RunConfig>, planted: Planted = {}): Promise<string[][]> {
  const both: string[][] = []
  for (const world of worlds) both.push(await givenIn(await config(world), planted))
  return both
}

const asked = (given: readonly string[] | undefined) => new Set(given?.map((one) => one.split(' ')[0]))

describe.each(await presetNames())('preset %s', (name) => {
  test.each(['training', 'evaluation'] as const)('in %s', async (purpose) => {
    const [first, second] = await inBoth((world) => presetConfig(name, world), { purpose })
    expect(asked(first)).toEqual(asked(second))
    expect([...asked(first)]).toEqual(expect.arrayContaining(['policy', 'grounding', 'vision', 'wire']))
    expect(second).toEqual(first)
  })
})

describe('system', () => {
  test.each(systemNames)('%s', async (name) => {
    const [first, second] = await inBoth((world) => systemConfig(systemsOptions.parse({ name }), world))
    expect(first?.length).toBeGreaterThan(0)
    expect(second).toEqual(first)
  })

  test.each(['none', 'agent', 'cache', 'random'])('longVideoAgent with the first clip from: %s', async (source) => {
    const system = { name: 'longVideoAgent', prompt: 'instructed', initialGrounding: source }
    const [first, second] = await inBoth((world) => systemConfig(system, world))
    expect(asked(first).has('groundingCache')).toBe(source === 'cache')
    expect(second).toEqual(first)
  })

  test('the baseline that is shown pictures', async () => {
    const [first, second] = await inBoth((world) => systemConfig({ name: 'wholeEpisode', clipsSeen: 2 }, world))
    expect(asked(first).has('vision')).toBe(true)
    expect(second).toEqual(first)
  })

  test('videoHvAgent, when every role writes what goes on', async () => {
    const path = join(root, 'hypotheses.mjs')
    writeFileSync(
      path,
      `const written = {
  thinker: () => ({ hypotheses: [{ option: 0, hypothesis: 'a' }, { option: 3, hypothesis: 'b' }] }),
  judge: () => ({ score: 0.9, reasons: '', clue: 'what stands on the table' }),
  verifier: ({ length }) => length === 1 ? { action: 'caption', frames: '0-2' }
    : { action: 'verdict', clue_understanding: '', evidence_found: '', reasoning: '', status: 'NOT_VERIFIED' },
  answer: () => ({ reasoning_summary: '', conflict_resolution: '', final_answer: 3, explanation: '' }),
}
export default (messages, { session }) => JSON.stringify(written[session.split('/')[3]](messages))\n`,
    )
    const [first, second] = await inBoth(async (world) => {
      const config = await systemConfig({ name: 'videoHvAgent' }, world)
      const roles = Object.fromEntries(
        ['answer', 'thinker', 'judge', 'verifier'].map((role) => [role, { type: 'scripted', path }]),
      )
      return runConfig.parse({ ...config, roles })
    })
    expect([...asked(first)].sort()).toEqual(
      ['captioner', 'frameInspection', 'role:answer', 'role:judge', 'role:thinker', 'role:verifier', 'summary'].sort(),
    )
    expect(second).toEqual(first)
  })

  test('symphony, when it asks every agent with every tool', async () => {
    const path = join(root, 'plans.mjs')
    writeFileSync(
      path,
      `const instruct = { ranges: [[0, 4]], focus: ['a table'] }
const plans = ['grounding', 'grounding', 'subtitle', 'perception', 'finish', 'finish']
let decisions = 0
const looks = [
  { tool: 'frame_inspect', question: 'what ?', range: [0, 4], cue: 'a table' },
  { tool: 'interval_summary', question: 'what ?', range: [0, 9] },
  { tool: 'frame_associate', question: 'what ?', cues: ['a table', 'a lamp'] },
  { tool: 'answer', answer: 'a white thing' },
]
const written = {
  planner: (said) => ({ agent: plans[said], reason: '', instruct, answer: 3 }),
  grounding: () => decisions++ % 2 === 0 ? { type: 1, cue: 'a table' } : { type: 2 },
  perception: (said) => looks[said],
  reflection: () => ({ credible: false, comment: 'look again' }),
}
export default (messages, { session }) =>
  JSON.stringify(written[session.split('/')[3]](messages.filter(({ role }) => role === 'assistant').length))\n`,
    )
    const [first, second] = await inBoth(async (world) => {
      const few = { framesPerSegment: 1, inspectFrames: 1, inspectRetrieved: 1, summaryFrames: 2, associateFrames: 1 }
      const config = await systemConfig({ name: 'symphony', segmentSeconds: 8, ...few }, world)
      const scripted = { type: 'scripted', path }
      return runConfig.parse({
        ...config,
        agents: { ...config.agents, frameRetrieval: { type: 'embedded', secondsPerFrame: 6 } },
        roles: { planner: scripted, grounding: scripted, perception: scripted, reflection: scripted },
      })
    })
    const agents = ['frameInspection', 'frameRetrieval', 'segmentScoring', 'subtitles']
    const roles = ['role:grounding', 'role:perception', 'role:planner', 'role:reflection']
    expect([...asked(first)].sort()).toEqual([...agents, ...roles].sort())
    expect(second).toEqual(first)
  })

  test('with a role that the policy does not play', async () => {
    const [first, second] = await inBoth(async (world) => {
      const config = await systemConfig({ name: 'longVideoAgent', initialGrounding: 'none' }, world)
      const master = { type: 'endpoint', baseUrl: server.baseUrl, model: 'master' }
      return runConfig.parse({ ...config, roles: { master } })
    })
    expect([...asked(first)]).toEqual(expect.arrayContaining(['role:master', 'grounding', 'vision']))
    expect(second).toEqual(first)
  })

  test('with a master that is given token ids', async () => {
    const policy = { type: 'checkpoint', path: join(root, 'master') }
    const [first, second] = await inBoth(async (world) =>
      runConfig.parse({
        ...(await systemConfig({ initialGrounding: 'cache', forceAnswerNotice: 'never' }, world)),
        policy,
        rollout: { groupSize: 2, concurrency: 1, budget: { tokensPerTurn: 4, turns: 2 } },
      }),
    )
    expect(first?.some((one) => one.includes('"promptIds":['))).toBe(true)
    expect(second).toEqual(first)
  })
})

describe('what leaks is caught', () => {
  const paper = (world: string) => presetConfig('paper', world)

  test('a system that hints at the answer', async () => {
    const system: Planted['system'] = ({ run, ...rest }, goldOf) => ({
      ...rest,
      run: (context) =>
        run({
          ...context,
          speaker: (role) => ({
            say: (messages, stop) =>
              context
                .speaker(role)
                .say([...messages, { role: 'user', content: JSON.stringify(goldOf(context.task)) }], stop),
          }),
        }),
    })
    const [first, second] = await inBoth(paper, { system })
    expect(second).not.toEqual(first)
  })

  test('a system that tells the grounding agent the right clip', async () => {
    const system: Planted['system'] = ({ run, ...rest }, goldOf) => ({
      ...rest,
      run(context) {
        const { clipId } = goldOf(context.task) as { clipId: string }
        const { grounding } = context.agents
        const told: GroundingAgent = {
          ...grounding,
          ground: (request, options) => grounding.ground({ ...request, visited: [clipId] }, options),
        }
        return run({ ...context, agents: { ...context.agents, grounding: told } })
      },
    })
    const [first, second] = await inBoth(paper, { system })
    expect(second).not.toEqual(first)
  })

  test.each(['answer', 'clipId', 'span'])('a task that carries the %s', async (key) => {
    const task: Planted['task'] = ({ episode, question }, gold) => ({
      episode,
      question: { ...question, [key]: (gold as Record<string, unknown>)[key] },
    })
    const [first, second] = await inBoth(paper, { task })
    expect(second).not.toEqual(first)
  })

  test('boxes, where the configuration asks for that oracle', async () => {
    const [first, second] = await inBoth(async (world) => {
      const config = await systemConfig({ initialGrounding: 'agent' }, world)
      return { ...config, agents: { ...config.agents, oracleBoxes: true } }
    })
    expect(second).not.toEqual(first)
    expect(first?.some((one) => one.startsWith('policy') && one.includes('kettle at 20 10 30 40'))).toBe(true)
  })
})
