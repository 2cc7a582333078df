/**
 * The text side of a miniature episode: who says what in which clip, what is seen there, and questions about it.
 *
 * A pure function of its seed. Does not render pictures, write files or know about agents.
 *
 * Three kinds of question: `dialogue` is answered by a line in one clip, `visual` by what is seen in the clip that plays at a named
 * place, `both` by what is seen in the clip where somebody talks about a thing. Some questions have a decoy: another clip where the
 * same thing or place is mentioned without the answer, so that a good grounding agent is sometimes wrong and a good master notices.
 */
import seedrandom from 'seedrandom'
import { ANSWER_CLASSES, ITEMS, trainingWords, type WordClass } from './words.ts'

export const CLIPS_PER_EPISODE = 8

export type Seen = 'sign' | 'color' | 'object'

/** What the pictures of a clip show: a sign (a word on a panel of a colour) and `count` photographs of one object. */
export interface Scene {
  sign: string
  color: string
  object: string
  count: number
}

export interface StoryLine {
  speaker: string
  text: string
}

export interface StoryClip {
  id: string
  place: string
  lines: StoryLine[]
  scene: Scene
}

export interface StoryQuestion {
  qid: number
  kind: 'dialogue' | 'visual' | 'both'
  text: string
  options: string[]
  /** Index of the right option. */
  answer: number
  /** Index of the clip with the evidence. */
  clip: number
  /** The line with the answer (dialogue) or that names the clip (visual, both): index into that clip's lines. */
  line: number
  /** What has to be looked at; null for dialogue. */
  seen: Seen | null
  /** Index of the clip that mentions the same thing without the answer; null when there is none. */
  decoy: number | null
}

export interface Story {
  episodeId: string
  clips: StoryClip[]
  questions: StoryQuestion[]
}

export interface StoryOptions {
  seed: number | string
  /** Number of the episode in its data set, from 0. */
  episode: number
  /** `training` uses only the words that may be answers in training; `all` uses every word. */
  words: 'training' | 'all'
  questionsPerEpisode: number
  /** Share of questions that have a decoy. */
  decoyRate: number
}

/** Share of questions whose distractors may also be mentioned in the clip with the evidence. */
const SAME_CLIP_DISTRACTOR_RATE = 0.1
const KIND_WEIGHTS = [
  ['dialogue', 0.4],
  ['visual', 0.3],
  ['both', 0.3],
] as const

interface Relation {
  answerClass: WordClass
  line(item: string, value: string): string
  question(name: string, item: string): string
}

/** What people say about their things. In each, the value stands two words after the thing. */
const RELATIONS: readonly Relation[] = [
  {
    answerClass: 'place',
    line: (item, value) => `i left the ${item} at ${value} .`,
    question: (name, item) => `where did ${name} leave the ${item} ?`,
  },
  {
    answerClass: 'price',
    line: (item, value) => `the ${item} cost ${value} coins .`,
    question: (name, item) => `how many coins did ${name} pay for the ${item} ?`,
  },
  {
    answerClass: 'name',
    line: (item, value) => `i got the ${item} from ${value} .`,
    question: (name, item) => `who gave ${name} the ${item} ?`,
  },
  {
    answerClass: 'goods',
    line: (item, value) => `i traded the ${item} for ${value} .`,
    question: (name, item) => `what did ${name} get for the ${item} ?`,
  },
  {
    answerClass: 'color',
    line: (item, value) => `my ${item} is ${value} .`,
    question: (name, item) => `what color is the ${item} of ${name} ?`,
  },
]

const SEEN_QUESTIONS: Readonly<Record<Seen, string>> = {
  sign: 'what does the sign say',
  color: 'what color is the sign',
  object: 'what object is shown',
}
const SEEN_KINDS: readonly Seen[] = ['sign', 'color', 'object']

const FILLERS: readonly ((name: string) => string)[] = [
  () => 'what a lovely day .',
  (name) => `hello again ${name} .`,
  () => 'i am hungry .',
  (name) => `see you later ${name} .`,
  () => 'let us go now .',
  () => 'nobody told me that .',
  () => 'wait for me please .',
  (name) => `thank you ${name} .`,
]

interface Fact {
  relation: Relation
  speaker: string
  item: string
  value: string
}

/** A uniform pseudo-random stream with the few draws that stories need. */
export class Dice {
  private readonly next: () => number
  constructor(seed: string) {
    this.next = seedrandom.alea(seed)
  }
  /** Uniform in [0, 1). */
  uniform(): number {
    return this.next()
  }
  chance(probability: number): boolean {
    return this.next() < probability
  }
  below(n: number): number {
    return Math.floor(this.next() * n)
  }
  pick<T>(items: readonly T[]): T {
    if (items.length === 0) throw new Error('Dice.pick: the list is empty')
    return items[this.below(items.length)] as T
  }
  /** `n` different items in random order. */
  sample<T>(items: readonly T[], n: number): T[] {
    if (n > items.length) throw new Error(`Dice.sample: ${n} of ${items.length} items`)
    const pool = [...items]
    for (let i = 0; i < n; i++) {
      const j = i + this.below(pool.length - i)
      ;[pool[i], pool[j]] = [pool[j] as T, pool[i] as T]
    }
    return pool.slice(0, n)
  }
  shuffle<T>(items: readonly T[]): T[] {
    return this.sample(items, items.length)
  }
}

/** Tells episode `episode` of the data set `seed`. Same options, same story. */
export function tellStory(options: StoryOptions): Story {
  const dice = new Dice(`story/${options.seed}/${options.words}/${options.episode}`)
  const vocabulary = (wordClass: WordClass) =>
    options.words === 'all' ? ANSWER_CLASSES[wordClass] : trainingWords(wordClass)
  const episodeId = episodeName(options.episode)

  const places = dice.sample(vocabulary('place'), CLIPS_PER_EPISODE)
  const cast = dice.sample(vocabulary('name'), 6)
  const items = dice.sample(ITEMS, 2 * CLIPS_PER_EPISODE)
  const elsewhere = vocabulary('place').filter((place) => !places.includes(place))
  const signs = dice.sample(vocabulary('sign'), CLIPS_PER_EPISODE)

  const facts: Fact[][] = places.map((_, clip) =>
    [0, 1].map((k) => {
      const relation = dice.pick(RELATIONS)
      const speaker = dice.pick(cast)
      const values =
        relation.answerClass === 'place'
          ? elsewhere
          : vocabulary(relation.answerClass).filter((word) => word !== speaker)
      return { relation, speaker, item: items[2 * clip + k] as string, value: dice.pick(values) }
    }),
  )
  const clips: StoryClip[] = places.map((place, clip) => {
    const spoken = new Set((facts[clip] as Fact[]).map((fact) => fact.value))
    return {
      id: `${episodeId}_seg01_clip_${String(clip).padStart(2, '0')}`,
      place,
      lines: dice.shuffle([
        { speaker: dice.pick(cast), text: `this place is ${place} .` },
        ...(facts[clip] as Fact[]).map((fact) => ({
          speaker: fact.speaker,
          text: fact.relation.line(fact.item, fact.value),
        })),
      ]),
      scene: {
        sign: signs[clip] as string,
        // a colour that nobody in the clip mentions, so that hearing is not seeing
        color: dice.pick(vocabulary('color').filter((word) => !spoken.has(word))),
        object: dice.pick(vocabulary('object')),
        count: 1 + dice.below(3),
      },
    }
  })

  const questions: StoryQuestion[] = []
  // the line that names each question's clip, as text until all lines are in place and it has an index
  const namingTexts: string[] = []
  const asked = new Set<string>()
  while (questions.length < options.questionsPerEpisode) {
    const kind = drawKind(dice)
    const clip = dice.below(CLIPS_PER_EPISODE)
    const here = clips[clip] as StoryClip
    const fact = dice.pick(facts[clip] as Fact[])
    const seen = kind === 'dialogue' ? null : dice.pick(SEEN_KINDS)
    const text =
      seen === null
        ? fact.relation.question(fact.speaker, fact.item)
        : kind === 'visual'
          ? `${SEEN_QUESTIONS[seen]} at ${here.place} ?`
          : `${SEEN_QUESTIONS[seen]} where ${fact.speaker} talks about the ${fact.item} ?`
    if (asked.has(text)) continue
    asked.add(text)

    const answerClass: WordClass = seen ?? fact.relation.answerClass
    const right = seen === null ? fact.value : here.scene[seen]
    const options_ = drawOptions(dice, vocabulary(answerClass), right, here, clips, seen)
    const namingText = kind === 'visual' ? `this place is ${here.place} .` : fact.relation.line(fact.item, fact.value)
    const decoy = dice.chance(options.decoyRate)
      ? (clip + 1 + dice.below(CLIPS_PER_EPISODE - 1)) % CLIPS_PER_EPISODE
      : null
    if (decoy !== null) {
      const speaker = dice.pick(cast.filter((name) => name !== fact.speaker))
      const lines = (clips[decoy] as StoryClip).lines
      const mention =
        kind === 'visual' ? `what is at ${here.place} ?` : `${fact.speaker} , tell me about the ${fact.item} .`
      lines.splice(dice.below(lines.length + 1), 0, { speaker, text: mention })
    }
    questions.push({
      qid: (options.episode + 1) * 100 + questions.length,
      kind,
      text,
      options: options_,
      answer: options_.indexOf(right),
      clip,
      line: -1,
      seen,
      decoy,
    })
    namingTexts.push(namingText)
  }
  for (const clip of clips) {
    while (clip.lines.length < 4) {
      const [speaker, listener] = dice.sample(cast, 2) as [string, string]
      clip.lines.splice(dice.below(clip.lines.length + 1), 0, { speaker, text: dice.pick(FILLERS)(listener) })
    }
  }
  questions.forEach((question, i) => {
    question.line = (clips[question.clip] as StoryClip).lines.findIndex((line) => line.text === namingTexts[i])
  })
  return { episodeId, clips, questions }
}

/** `mini_s01e01` and on: 99 episodes a season, as TVQA's names need two digits. */
export function episodeName(episode: number): string {
  const season = 1 + Math.floor(episode / 99)
  return `mini_s${String(season).padStart(2, '0')}e${String(1 + (episode % 99)).padStart(2, '0')}`
}

function drawKind(dice: Dice): StoryQuestion['kind'] {
  let rest = dice.uniform()
  for (const [kind, weight] of KIND_WEIGHTS) {
    rest -= weight
    if (rest < 0) return kind
  }
  return 'both'
}

/** The right word and four of its class, shuffled; about half of the four are true of other clips, so that hearing a word proves nothing. */
function drawOptions(
  dice: Dice,
  pool: readonly string[],
  right: string,
  here: StoryClip,
  clips: readonly StoryClip[],
  seen: Seen | null,
): string[] {
  const spoken = new Set(here.lines.flatMap((line) => [line.speaker, ...line.text.split(' ')]))
  const strict = !dice.chance(SAME_CLIP_DISTRACTOR_RATE)
  const allowed = pool.filter((word) => word !== right && !(strict && spoken.has(word)))
  const trueElsewhere = new Set(
    clips
      .filter((clip) => clip !== here)
      .flatMap((clip) => (seen === null ? clip.lines.flatMap((line) => line.text.split(' ')) : [clip.scene[seen]])),
  )
  const tempting = dice.shuffle(allowed.filter((word) => trueElsewhere.has(word))).slice(0, 2)
  const rest = allowed.filter((word) => !tempting.includes(word))
  return dice.shuffle([right, ...tempting, ...dice.sample(rest, 4 - tempting.length)])
}
