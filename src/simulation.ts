/**
 * Episodes that are told and not rendered, for lessons: tasks with their answers, and stand-ins for the agents in the words of the
 * embedded ones, which read the story instead of pictures. They are right as often as the options say. Nothing here is measured on.
 */
import { type Dice, type Story, type StoryLine, type StoryQuestion, tellStory } from './dataset/miniature/story.ts'
import { ITEMS, NAMES, OBJECTS, PLACES } from './dataset/miniature/words.ts'
import type {
  Agent,
  AgentAnswer,
  Agents,
  CaptionAnswer,
  CaptionRequest,
  Episode,
  FrameRetrievalAnswer,
  FrameRetrievalRequest,
  Gold,
  InspectionAnswer,
  InspectionRequest,
  SegmentScoringAnswer,
  SegmentScoringRequest,
  SubtitleAnswer,
  SubtitleRequest,
  SummaryAnswer,
  SummaryRequest,
  Task,
  Usage,
} from './types.ts'

/** A task with what only the teller knows. */
export interface ToldTask {
  task: Task
  gold: Gold
  story: Story
  asked: StoryQuestion
}

/** Questions of one story after another. The seed is one that no data set on disk uses; answers are training words only. */
export class Stories {
  private story: Story | null = null
  private told = 0
  private nextQuestion = 0

  constructor(private readonly seed: number) {}

  next(): ToldTask {
    if (this.story === null || this.nextQuestion >= this.story.questions.length) {
      this.story = tellStory({
        seed: `lessons-${this.seed}`,
        episode: this.told++ % 9000,
        words: 'training',
        questionsPerEpisode: QUESTIONS_PER_STORY,
        decoyRate: DECOY_RATE,
      })
      this.nextQuestion = 0
    }
    const story = this.story
    const asked = story.questions[this.nextQuestion++] as StoryQuestion
    const { text, options, answer, kind } = asked
    const qid = String(asked.qid)
    const clipId = (story.clips[asked.clip] as Story['clips'][number]).id
    return {
      story,
      asked,
      task: { episode: episodeOf(story), question: { qid, episodeId: story.episodeId, text, options } },
      gold: { qid, answer, clipId, span: null, kind },
    }
  }
}

function episodeOf(story: Story): Episode {
  return {
    id: story.episodeId,
    show: 'miniature',
    clips: story.clips.map(({ id, lines }, index) => ({
      id,
      index,
      start: index * CLIP_SECONDS,
      end: (index + 1) * CLIP_SECONDS,
      subtitles: lines.map((line, i) => ({ ...line, start: (i * CLIP_SECONDS) / lines.length })),
      source: { kind: 'none' },
    })),
  }
}

export interface GroundingRates {
  /** Probability that the simulated grounding agent is right at its first try. */
  firstGroundingRate: number
  /** The same once a clip was visited. */
  nextGroundingRate: number
}

/** Every agent that a taught system asks. */
export function simulatedAgents({ story, asked }: ToldTask, rates: GroundingRates, dice: Dice): Agents {
  const clipAt = (time: number) =>
    story.clips[Math.min(story.clips.length - 1, Math.floor(time / CLIP_SECONDS))] as Story['clips'][number]
  return {
    grounding: {
      name: 'simulated-grounding',
      ground: async ({ visited }) => {
        const seen = new Set(visited)
        const unseen = story.clips.filter((clip) => !seen.has(clip.id))
        const gold = story.clips[asked.clip] as Story['clips'][number]
        const decoy = asked.decoy === null ? undefined : story.clips[asked.decoy]
        const rate = visited.length === 0 ? rates.firstGroundingRate : rates.nextGroundingRate
        const wrong = unseen.filter((clip) => clip !== gold)
        const clip =
          (!seen.has(gold.id) && dice.chance(rate)) || wrong.length === 0
            ? gold
            : decoy !== undefined && !seen.has(decoy.id) && dice.chance(0.6)
              ? decoy
              : dice.pick(wrong)
        return { ok: true, value: { clipId: clip.id, reason: '', usage: NO_USAGE } }
      },
    },
    vision: {
      name: 'simulated-vision',
      look: async ({ clips, query }) => {
        const clip = story.clips.find((candidate) => candidate.id === clips[0]?.id)
        if (clip === undefined) throw new Error('simulated vision: unknown clip')
        return { ok: true, value: { text: simulatedSight(clip.scene, query, dice), frames: [], usage: NO_USAGE } }
      },
    },
    captioner: simulated<CaptionRequest, CaptionAnswer>(({ times }) => ({
      captions: times.map((time) => ({ time, text: simulatedSight(clipAt(time).scene, '', dice) })),
    })),
    frameInspection: simulated<InspectionRequest, InspectionAnswer>(({ times, question }) => {
      const query = (['color', 'sign', 'object'] as const).find((word) => question.includes(word)) ?? ''
      const seen = times.map((time) => simulatedSight(clipAt(time).scene, query, dice))
      return { text: [...new Set(seen)].join(' ') }
    }),
    subtitles: simulated<SubtitleRequest, SubtitleAnswer>(({ episode, query, count }) => {
      const wanted = topicsOf(query ?? '')
      const lines = episode.clips
        .flatMap(({ id, start, subtitles }) =>
          subtitles.map(({ speaker = null, text, start: within = 0 }) => ({
            clipId: id,
            start: start + within,
            end: start + within + CLIP_SECONDS / subtitles.length,
            speaker,
            text,
          })),
        )
        .filter(({ speaker, text }) => topicsOf(`${speaker} ${text}`).some((word) => wanted.includes(word)))
        .map((line) => ({ line, shared: topicsOf(line.text).filter((word) => wanted.includes(word)).length }))
        .sort((a, b) => b.shared - a.shared)
        .slice(0, count)
        .map(({ line }) => line)
        .sort((a, b) => a.start - b.start)
      const entities = [...new Set(lines.flatMap(({ speaker }) => speaker ?? []))]
      return { available: true, lines, entities, topic: '' }
    }),
    segmentScoring: simulated<SegmentScoringRequest, SegmentScoringAnswer>(({ question, segments }) => ({
      scores: segments.map(({ start, end }) => {
        const { lines, scene } = clipAt((start + end) / 2)
        const wanted = topicsOf(question.text)
        const shared = ({ speaker, text }: StoryLine) =>
          topicsOf(`${speaker} ${text}`).filter((word) => wanted.includes(word)).length
        const closest = lines.reduce((best, line) => (shared(line) > shared(best) ? line : best))
        const relevance = ([1, 2, 3] as const)[Math.min(2, shared(closest))] as 1 | 2 | 3
        const caption = simulatedSight(scene, '', dice)
        const reasoning = relevance === 1 ? null : `closest : ${closest.speaker} : ${closest.text}`
        return { relevance, caption, reasoning }
      }),
    })),
    frameRetrieval: simulated<FrameRetrievalRequest, FrameRetrievalAnswer>(({ stretch, count }) => {
      const within = stretch ?? { start: 0, end: story.clips.length * CLIP_SECONDS }
      const middles = story.clips.map((_, clip) => (clip + 0.5) * CLIP_SECONDS)
      const there = middles.filter((time) => time >= within.start && time < within.end)
      return {
        hits: dice
          .shuffle(there)
          .slice(0, count)
          .map((time, place) => ({ time, score: 1 / (1 + place) })),
      }
    }),
    summary: simulated<SummaryRequest, SummaryAnswer>(({ lines, words }) => ({
      text: lines
        .flatMap(({ text }) => text.split(' '))
        .slice(0, words)
        .join(' '),
    })),
  }
}

function simulated<Request, Answer extends AgentAnswer>(
  answer: (request: Request) => Omit<Answer, keyof AgentAnswer>,
): Agent<Request, Answer> {
  return {
    name: 'simulated',
    // the compiler cannot see that a part and the rest are the whole
    ask: async (request) => ({
      ok: true,
      value: { ...answer(request), usage: NO_USAGE, frames: [], caveat: null } as unknown as Answer,
    }),
  }
}

/** The words that lines and questions are matched by. */
function topicsOf(text: string): string[] {
  return text.split(' ').filter((word) => TOPICS.has(word))
}

const TOPICS: ReadonlySet<string> = new Set([...NAMES, ...PLACES, ...ITEMS])

/** What the embedded vision agent says of a scene, with its usual slips: text missed, one object too many. */
export function simulatedSight(scene: Story['clips'][number]['scene'], query: string, dice: Dice): string {
  const sees = (probability: number) => dice.chance(probability)
  const extra = sees(0.2) ? dice.pick(OBJECTS.filter((label) => label !== scene.object)) : null
  const objects = extra === null ? [scene.object] : dice.shuffle([scene.object, extra])
  if (query === 'sign') return sees(0.97) ? `the sign says ${scene.sign} .` : 'i see no text .'
  if (query === 'color') return sees(0.97) ? `the sign is ${scene.color} .` : `the picture is mostly ${scene.color} .`
  if (query === 'object') return sees(0.97) ? `i see ${objects.join(' , ')} .` : 'i see no object .'
  return `the sign says ${scene.sign} . the sign is ${scene.color} . i see ${objects.join(' , ')} .`
}

const QUESTIONS_PER_STORY = 8
/** High, so that the master learns to tell a clip that mentions a thing from the clip that answers. */
const DECOY_RATE = 0.8
/** As rendered clips have it, about. */
const CLIP_SECONDS = 5
const NO_USAGE: Usage = { calls: 1, promptTokens: 0, completionTokens: 0, frames: 0, seconds: 0, costUsd: 0, cached: 0 }
