/**
 * How right the embedded further agents are on miniature episodes that are rendered for it: one JSON line per agent, with the share of
 * right answers and the seconds. Every agent is asked what the stories know. Run with `npm run bench -- agents [episodes]`.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { agentsOptions, openAgents } from '../src/agents/index.ts'
import { openDataset } from '../src/dataset/index.ts'
import { tellStory } from '../src/dataset/miniature/story.ts'
import { writeMiniature } from '../src/dataset/miniature/write.ts'
import { miniatureOptions } from '../src/dataset/options.ts'
import type { Episode, Place, Result } from '../src/types.ts'
import { encodeVideo } from '../src/video/index.ts'

const options = miniatureOptions.parse({ seed: 78, episodes: Number(process.argv[2] ?? 4) })
/** Words for the objects that no detector's label has. */
const OTHERWISE: Readonly<Record<string, string>> = {
  airplane: 'something that flies passengers',
  apple: 'a fruit',
  bird: 'an animal with feathers',
  bus: 'a big vehicle for many passengers',
  car: 'a vehicle parked on the street',
  clock: 'something that tells the time',
  cow: 'a farm animal that gives milk',
  elephant: 'a huge animal with a trunk',
  giraffe: 'an animal with a long neck',
  horse: 'an animal to ride on',
  scissors: 'a tool to cut paper',
  sheep: 'a farm animal with wool',
  zebra: 'an animal with black and white stripes',
}

const scratch = mkdtempSync(join(tmpdir(), 'showrunner-bench-agents-'))
const out = join(scratch, 'miniature')
value(await writeMiniature({ ...options, out, encode: encodeVideo }))
const dataset = value(await openDataset(out))
const agents = value(
  await openAgents(agentsOptions.parse({ cacheDirectory: null, video: { cacheDirectory: join(scratch, 'frames') } })),
)
const { captioner, summary, subtitles, frameInspection, segmentScoring } = agents
const { frameRetrieval, temporalGrounding, sceneGraph, objectTracking, visualSimilarity } = agents

const stories = [...dataset.episodes.values()].map((episode, index) => ({
  episode,
  story: tellStory({ ...options, episode: options.firstEpisode + index }),
}))
const scenes = stories.flatMap(({ episode, story }) =>
  story.clips.map(({ scene }, index) => ({ episode, index, scene, clip: episode.clips[index]! })),
)
const asked = stories.flatMap(({ episode, story }) => story.questions.map((question) => ({ episode, story, question })))

await measure('captioner', async () => {
  const right = { sign: 0, color: 0, object: 0 }
  for (const { episode, clip, scene } of scenes) {
    const { captions } = value(await captioner.ask({ episode, times: [(clip.start + clip.end) / 2] }, {}))
    const text = captions[0]!.text
    if (text.includes(`the sign says ${scene.sign} .`)) right.sign++
    if (text.includes(`the sign is ${scene.color} .`)) right.color++
    if (text.includes(`i see ${scene.object} .`)) right.object++
  }
  return { captions: scenes.length, ...shares(right, scenes.length) }
})

await measure('frameInspection', async () => {
  const looks = asked.filter(({ question }) => question.kind !== 'dialogue')
  let right = 0
  for (const { episode, question } of looks) {
    const { start, end } = episode.clips[question.clip]!
    const times = [start + (end - start) / 4, end - (end - start) / 4]
    const { text } = value(await frameInspection.ask({ episode, times, question: question.text }, {}))
    if (text.split(' ').includes(question.options[question.answer]!)) right++
  }
  return { questions: looks.length, right: share(right, looks.length) }
})

await measure('subtitles', async () => {
  const right = { first: 0, three: 0 }
  for (const { episode, story, question } of asked) {
    const gold = story.clips[question.clip]!
    const wanted = gold.lines[question.line]!.text
    for (const [name, count] of [
      ['first', 1],
      ['three', 3],
    ] as const) {
      const request = { episode, stretch: null, query: question.text, count }
      const { lines } = value(await subtitles.ask(request, {}))
      if (lines.some(({ clipId, text }) => clipId === gold.id && text === wanted)) right[name]++
    }
  }
  return { questions: asked.length, ...shares(right, asked.length) }
})

await measure('summary', async () => {
  const heard = asked.filter(({ question }) => question.kind === 'dialogue')
  let right = 0
  for (const { story, question } of heard) {
    const lines = story.clips.flatMap((clip) =>
      clip.lines.map(({ speaker, text }) => ({ time: null, text: `${speaker} : ${text}` })),
    )
    const { text } = value(await summary.ask({ lines, focus: question.text, words: 40 }, {}))
    if (text.includes(story.clips[question.clip]!.lines[question.line]!.text)) right++
  }
  return { questions: heard.length, words: 40, right: share(right, heard.length) }
})

await measure('segmentScoring', async () => {
  const right = { top: 0, four: 0 }
  let others = 0
  for (const { episode, question } of asked) {
    const segments = episode.clips.map(({ start, end }) => ({ start, end }))
    const public_ = { qid: String(question.qid), episodeId: episode.id, text: question.text, options: question.options }
    const { scores } = value(
      await segmentScoring.ask({ episode, question: public_, segments, framesPerSegment: 2 }, {}),
    )
    const own = scores[question.clip]!.relevance
    if (own === Math.max(...scores.map(({ relevance }) => relevance))) right.top++
    if (own === 4) right.four++
    others += scores.filter(({ relevance }, index) => index !== question.clip && relevance === 4).length
  }
  return { questions: asked.length, ...shares(right, asked.length), othersWithFour: share(others, 7 * asked.length) }
})

await measure('frameRetrieval', async () => {
  const right = { sign: 0, color: 0, label: 0, otherwise: 0 }
  for (const { episode, scene } of scenes) {
    const queries = {
      sign: `a sign that says ${scene.sign}`,
      color: `a ${scene.color} sign`,
      label: `a ${scene.object}`,
      otherwise: OTHERWISE[scene.object]!,
    }
    for (const [name, query] of Object.entries(queries) as [keyof typeof right, string][]) {
      const { hits } = value(await frameRetrieval.ask({ episode, stretch: null, query, count: 1 }, {}))
      const seen = sceneAt(episode, hits[0]!.time)
      const key = name === 'sign' || name === 'color' ? name : 'object'
      if (seen[key] === scene[key]) right[name]++
    }
  }
  return { queries: scenes.length, ...shares(right, scenes.length) }
})

await measure('temporalGrounding', async () => {
  let overlap = 0
  for (const { episode, clip, scene } of scenes) {
    const request = { episode, stretch: null, query: `a sign that says ${scene.sign}`, count: 1 }
    const [best] = value(await temporalGrounding.ask(request, {})).stretches
    if (best === undefined) continue
    const shared = Math.min(best.end, clip.end) - Math.max(best.start, clip.start)
    overlap += Math.max(0, shared) / (Math.max(best.end, clip.end) - Math.min(best.start, clip.start))
  }
  return { queries: scenes.length, meanIou: share(overlap, scenes.length) }
})

await measure('sceneGraph', async () => {
  const right = { count: 0, text: 0 }
  for (const { episode, clip, scene } of scenes) {
    const [graph] = value(await sceneGraph.ask({ episode, times: [(clip.start + clip.end) / 2] }, {})).scenes
    if (graph!.objects.filter(({ label }) => label === scene.object).length === scene.count) right.count++
    if (graph!.objects.some(({ attributes }) => attributes.includes(scene.sign))) right.text++
  }
  return { scenes: scenes.length, ...shares(right, scenes.length) }
})

await measure('objectTracking', async () => {
  let [right, pieces] = [0, 0]
  for (const { episode, clip, scene } of scenes) {
    const stretch = { start: clip.start, end: clip.end }
    const request = { episode, stretch, objects: [scene.object], framesPerSecond: 2 }
    const { tracks } = value(await objectTracking.ask(request, {}))
    if (tracks.length === scene.count) right++
    pieces += tracks.length - scene.count
  }
  return { clips: scenes.length, right: share(right, scenes.length), tracksTooMany: pieces }
})

await measure('visualSimilarity', async () => {
  const half = ({ episode, clip }: (typeof scenes)[number], first: boolean): Place => {
    const middle = (clip.start + clip.end) / 2
    return { episode, stretch: first ? { start: clip.start, end: middle } : { start: middle, end: clip.end } }
  }
  const candidates = scenes.map((scene) => half(scene, false))
  const [same, different]: [number[], number[]] = [[], []]
  let right = 0
  for (const [index, scene] of scenes.entries()) {
    const request = { reference: half(scene, true), candidates, framesPerPlace: 2 }
    const { similarities } = value(await visualSimilarity.ask(request, {}))
    if (similarities.indexOf(Math.max(...similarities)) === index) right++
    same.push(similarities[index]!)
    different.push(...similarities.filter((_, other) => other !== index))
  }
  return {
    places: scenes.length,
    right: share(right, scenes.length),
    lowestSame: share(Math.min(...same), 1),
    highestDifferent: share(Math.max(...different), 1),
  }
})

await agents.close()
rmSync(scratch, { recursive: true, force: true })

async function measure(agent: string, work: () => Promise<Record<string, number>>): Promise<void> {
  const begin = performance.now()
  const found = await work()
  console.log(JSON.stringify({ bench: 'agents', agent, ...found, seconds: share(performance.now() - begin, 1000) }))
}

function sceneAt(episode: Episode, time: number) {
  return scenes.find((one) => one.episode === episode && time >= one.clip.start && time <= one.clip.end)!.scene
}

function shares<Name extends string>(counts: Record<Name, number>, whole: number): Record<string, number> {
  return Object.fromEntries(Object.entries<number>(counts).map(([name, count]) => [name, share(count, whole)]))
}

function share(part: number, whole: number): number {
  return Math.round((1000 * part) / whole) / 1000
}

function value<T>(result: Result<T>): T {
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}
