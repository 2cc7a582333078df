/**
 * The comparisons of configs/experiments, as their commands run them: on rendered videos with a master that runs here, and on rows of
 * LongTVQA+ with everything behind a scripted endpoint, whose numbers are known beforehand.
 */
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import sharp from 'sharp'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest'
import { compare } from '../src/compare.ts'
import { importDataset } from '../src/dataset/index.ts'
import { importOptions } from '../src/dataset/options.ts'
import { silentProgress } from '../src/progress.ts'
import type { Comparison } from '../src/report/comparison.ts'
import type { MetricKey } from '../src/report/metrics.ts'
import type { Sweep } from '../src/report/sweep.ts'
import { type ChatServer, type ReceivedBody, says, startChatServer } from './agents/server.ts'
import { value } from './dataset/folder.ts'

const experiments = readdirSync('configs/experiments')
  .map((file) => file.replace('.yaml', ''))
  .filter((name) => name !== 'longtvqa-plus')
const cellsOf: Record<string, string[]> = {
  agents: ['agents=none', 'agents=grounding', 'agents=grounding and vision'],
  turns: ['maxTurns=2', 'maxTurns=5', 'maxTurns=10'],
  windows: ['window=1', 'window=2', 'window=3'],
  'vision-models': ['vision=Qwen3-VL-235B', 'vision=GPT-4o'],
  baselines: ['method=subtitles', 'method=subtitles and frames', 'method=LongVideoAgent'],
}

const root = process.cwd()
const base = resolve('checkpoints/base')
const configs = resolve('configs/experiments')
let folder: string
let server: ChatServer

beforeAll(async () => {
  server = await startChatServer()
  folder = mkdtempSync(join(tmpdir(), 'showrunner-experiments-'))
  process.chdir(folder)
})
afterAll(async () => {
  process.chdir(root)
  await server.close()
  rmSync(folder, { recursive: true })
})
beforeEach(() => server.script((response, body, request) => says(replyOf(body))(response, body, request)))

/** Grounds, looks where it may, then answers a0; the agents name the first clip and see a kettle. */
function replyOf({ messages }: ReceivedBody): string {
  const texts = messages.map(({ content }) => (typeof content === 'string' ? content : ''))
  if (texts[0]?.startsWith('You look at still pictures')) return 'a kettle'
  if (texts[0]?.startsWith('You find the place'))
    return `<clip>${/Clips:\n<([^>]+)>/.exec(texts[1] as string)?.[1]}</clip>`
  const tools = texts[0]?.includes('<request_grounding/>')
  const vision = texts[0]?.includes('<visual_query>')
  if (tools && messages.length === 1) return '<request_grounding/>'
  return vision && messages.length === 3 ? '<visual_query>a kettle</visual_query>' : '<answer>a0</answer>'
}

async function run(name: string, sets: Record<string, unknown>): Promise<{ comparison: Comparison; sweep: Sweep }> {
  const overrides = Object.entries(sets).map(([key, one]) => `${key}=${JSON.stringify(one)}`)
  const request = { config: join(configs, `${name}.yaml`), overrides, vary: [], policies: [], baseline: null }
  const comparison = value(await compare(request, silentProgress, new AbortController().signal))
  const sweep = JSON.parse(readFileSync(join('rollouts', comparison.name, 'sweep.json'), 'utf8')) as Sweep
  return { comparison, sweep }
}

const metric = ({ cells }: Comparison, key: MetricKey) => cells.map(({ metrics }) => metrics?.[key]?.value)

function expectWhole({ comparison, sweep }: { comparison: Comparison; sweep: Sweep }, name: string, questions: number) {
  expect(comparison.cells.map(({ label, missing, failed }) => [label, missing, failed])).toEqual(
    cellsOf[name]?.map((label) => [label, 0, []]),
  )
  expect(comparison.questions).toBe(questions)
  expect(sweep.questions.qids).toHaveLength(questions)
  expect(sweep.questions.of).toBeGreaterThan(questions)
  // every other cell is held against the first, on the same questions
  expect(comparison.differences.map(({ cell, n }) => [cell, n])).toEqual(
    cellsOf[name]?.slice(1).map((label) => [label, questions]),
  )
}

/** Keys are left out, and vision models are at the scripted endpoint. */
const scripted = (name: string): Record<string, unknown> => {
  const model = { type: 'endpoint', baseUrl: server.baseUrl, apiKeyEnv: null }
  const vary = { 'Qwen3-VL-235B': { 'agents.vision.model': 'qwen3-vl-235b-a22b-instruct' }, 'GPT-4o': {} }
  return {
    'agents.vision': { ...model, model: 'gpt-4o', width: 64 },
    'agents.cacheDirectory': null,
    ...(name === 'vision-models' ? { 'evaluation.vary': [{ vision: vary }] } : {}),
  }
}

test('every experiment is known here', () => expect(experiments.toSorted()).toEqual(Object.keys(cellsOf).toSorted()))

test.each(experiments)(
  '%s on rendered videos with a master that runs here',
  async (name) => {
    const found = await run(name, {
      ...scripted(name),
      dataset: { path: 'miniature', split: null, miniature: { seed: 5, episodes: 2, questionsPerEpisode: 4 } },
      policy: { type: 'checkpoint', path: base },
      'agents.grounding': { type: 'embedded' },
      // the base master was taught short messages
      'system.prompt': 'brief',
      'system.showTurnsLeft': true,
      'rollout.budget.tokensPerTurn': 12,
      'evaluation.questions': 4,
    })
    expectWhole(found, name, 4)
  },
  60_000,
)

const data = new URL('../../shared/data/', import.meta.url).pathname
const there = existsSync(data)
if (!there) console.warn('skipped: rows of LongTVQA+ are compared on where ../shared/data exists')

interface Row {
  qid: number
  answer: string
  occur_clip: string
  episode_name: string
}

describe.skipIf(!there)('rows of LongTVQA+', () => {
  const QUESTIONS = 24
  let rows: Map<string, Row>
  /** Clips of each episode, in order. */
  const clips = new Map<string, string[]>()

  beforeAll(async () => {
    const files = [
      'longtvqa_plus/LongTVQA_plus_val.json',
      'longtvqa_plus/LongTVQA_plus_subtitle_clip_level.json',
      'tvr',
    ]
    const read = JSON.parse(readFileSync(join(data, files[0] as string), 'utf8')) as Row[]
    rows = new Map(read.map((one) => [String(one.qid), one]))
    const durations = JSON.parse(readFileSync(join(data, 'tvr/tvr_video2dur_idx.part.json'), 'utf8')) as object
    const known = new Set(read.map((one) => one.episode_name))
    for (const clip of Object.values(durations).flatMap(Object.keys).sort()) {
      const episode = clip.slice(0, 6)
      if (!known.has(episode) || !/^s\d\de\d\d_/.test(clip)) continue
      clips.set(episode, [...(clips.get(episode) ?? []), clip])
      mkdirSync(join('bbt_frames', clip), { recursive: true })
    }
    const picture = await sharp({ create: { width: 64, height: 36, channels: 3, background: 'white' } })
      .jpeg()
      .toBuffer()
    await Promise.all(
      [...clips.values()].flat().map((clip) => sharp(picture).toFile(join('bbt_frames', clip, '00001.jpg'))),
    )
    const inputs = [...files.map((file) => join(data, file)), 'bbt_frames']
    const probe = () => Promise.reject(new Error('there are no videos'))
    value(await importDataset({ ...importOptions.parse({ inputs, out: 'longtvqa_plus' }), probe }))
  }, 60_000)

  const compared = (name: string, sets: Record<string, unknown> = {}) =>
    run(name, {
      ...scripted(name),
      name: `rows-${name}`,
      dataset: { path: 'longtvqa_plus', split: 'val' },
      policy: { type: 'endpoint', baseUrl: server.baseUrl, model: 'master' },
      'agents.grounding': { type: 'endpoint', baseUrl: server.baseUrl, model: 'grounder', apiKeyEnv: null },
      'evaluation.questions': QUESTIONS,
      ...sets,
    })

  const share = (qids: readonly string[], holds: (row: Row) => boolean) =>
    qids.filter((qid) => holds(rows.get(qid) as Row)).length / qids.length

  test.each(experiments)(
    '%s: the numbers that the rows say',
    async (name) => {
      const found = await compared(name)
      expectWhole(found, name, QUESTIONS)
      const { comparison, sweep } = found
      const right = share(sweep.questions.qids, ({ answer }) => answer === 'a0')
      const inFirst = (n: number) =>
        share(sweep.questions.qids, ({ occur_clip, episode_name }) =>
          (clips.get(episode_name) as string[]).slice(0, n).includes(occur_clip),
        )
      // K = 2 ends before the answer
      const answered = name === 'turns' ? [0, right, right] : comparison.cells.map(() => right)
      expect(metric(comparison, 'accuracy')).toEqual(answered.map((one) => expect.closeTo(one, 9)))
      const hits: Record<string, number[]> = {
        agents: [0, inFirst(1), inFirst(1)],
        turns: Array(3).fill(inFirst(1)),
        // three clips around the first are two: there is none before it
        windows: [inFirst(1), inFirst(2), inFirst(2)],
        'vision-models': Array(2).fill(inFirst(1)),
        baselines: [0, 0, inFirst(1)],
      }
      expect(metric(comparison, 'groundingAnyVisited')).toEqual(hits[name]?.map((one) => expect.closeTo(one, 9)))
      const looked: Record<string, number[]> = {
        agents: [0, 0, 1],
        turns: [0, 1, 1],
        windows: [1, 2, 2],
        'vision-models': [1, 1],
        // one of each of 16 clips
        baselines: [0, 16, 1],
      }
      expect(metric(comparison, 'frames')).toEqual(looked[name])
      const models = new Set(server.received.map(({ model }) => model))
      expect(models.has('qwen3-vl-235b-a22b-instruct')).toBe(name === 'vision-models')
    },
    60_000,
  )

  test('the questions depend on the seed alone, and the clips are where they were', async () => {
    const qids = async (name: string, seed: number) =>
      (await compared('turns', { name, seed, 'evaluation.vary': ['maxTurns=1'] })).sweep.questions.qids
    const first = await qids('first', 1)
    expect(await qids('again', 1)).toEqual(first)
    expect(await qids('other', 2)).not.toEqual(first)
    expect(clips.size).toBe(94)
  }, 60_000)
})
