/**
 * What the small base master is taught before any reinforcement: rows of token ids with a weight per target token.
 *
 * Five lessons, easiest first. `lookup`: a word, then its option label, many times over. `sentence`: one sentence that holds one
 * option's word, then that label. `binding`: whether a thing is spoken of, and which value belongs to it. `reading` and `acting` are transcripts of the real
 * system over simulated agents, in which the master begins each turn with one word of reasoning that says where it stands
 * (elsewhere: the evidence is not in this clip; here: it is, but was not yet seen; a label: it was seen and supports that option).
 * Reading teaches that word alone, over tool calls that are shown but not taught. Acting teaches every token of a teacher that
 * reasons right and then uses tools at random: when to use which tool is left for reinforcement to find.
 *
 * Stories come from a seed that no data set on disk uses and draw their answers from the training words only; the held-out words
 * occur in `lookup`, `sentence` and `binding`, never as an answer in an episode.
 */

import { CLIPS_PER_EPISODE, Dice } from './dataset/miniature/story.ts'
import { ANSWER_CLASSES, FUNCTION_WORDS, ITEMS, NAMES, type WordClass } from './dataset/miniature/words.ts'
import { type GroundingRates, Stories, simulatedAgents } from './simulation.ts'
import { ACTIONS, oracleAction, readSituation, rightQuery, type Situation } from './teacher.ts'
import type { Gold, Message, Question, System, SystemOutcome, Turn } from './types.ts'

/** `weights[t]` is the weight of predicting `ids[t]` from what precedes it; 0 where nothing is taught. Same length as `ids`. */
export interface Lesson {
  ids: number[]
  weights: number[]
  kind: LessonKind
}

export type LessonKind = 'lookup' | 'sentence' | 'binding' | 'reading' | 'acting'

const ELSEWHERE = 'elsewhere'
const HERE = 'here'

/** Turn budgets that the master's vocabulary has a token for. */
export const MAX_TURNS = 10

/** The tokenizer's special tokens, tags first: each is one token. */
export const SPECIAL_TOKENS: readonly string[] = [
  '<reasoning>',
  '</reasoning>',
  '<request_grounding/>',
  '<visual_query>',
  '</visual_query>',
  '<answer>',
  '</answer>',
  '<information>',
  '</information>',
  '<error>',
  '</error>',
  ...Array.from({ length: MAX_TURNS + 1 }, (_, n) => `<turns_left_${n}>`),
  ...Array.from({ length: CLIPS_PER_EPISODE }, (_, n) => clipLabel(n)).flatMap((label) => [
    `<${label}>`,
    `</${label}>`,
  ]),
]

const LABELS = ['a0', 'a1', 'a2', 'a3', 'a4'] as const

/** Every other word that the master can read or write. */
export const VOCABULARY: readonly string[] = [
  ...new Set([
    ...'. , : ? ! a0 a1 a2 a3 a4 1 2 3 4 5 6 7 8 9 0'.split(' '),
    ELSEWHERE,
    HERE,
    ...FUNCTION_WORDS,
    ...Object.values(ANSWER_CLASSES).flat(),
    ...ITEMS,
  ]),
]

/** The first grounding is right at a low rate, so that wrong clips are seen often. */
export interface LessonOptions extends GroundingRates {
  /** Probability that the random teacher asks the vision agent for what the question is about. */
  rightQueryRate: number
}

/** Lessons from runs of a system. */
export interface Transcripts {
  next(kind: 'reading' | 'acting'): Promise<Lesson>
}

/** Makes lessons one after another from a seed. */
export class Lessons {
  private readonly dice: Dice
  private readonly stories: Stories

  constructor(
    seed: number,
    /** Token -> id of the master's tokenizer. */
    private readonly vocabulary: ReadonlyMap<string, number>,
    private readonly system: System,
    private readonly options: LessonOptions,
    /** What `reading` and `acting` are instead, for a role of another system. */
    private readonly transcripts: Transcripts | null = null,
  ) {
    this.dice = new Dice(`lessons/${seed}`)
    this.stories = new Stories(seed)
  }

  /** Draws a kind of lesson by its share. */
  drawKind(mix: Partial<Record<LessonKind, number>>): LessonKind {
    const shares = Object.entries(mix) as [LessonKind, number][]
    let rest = this.dice.uniform() * shares.reduce((sum, [, share]) => sum + share, 0)
    for (const [kind, share] of shares) {
      rest -= share
      if (rest < 0) return kind
    }
    return (shares.at(-1) as [LessonKind, number])[0]
  }

  /** A word, then its label, fourteen times over. */
  lookup(): Lesson {
    const words = this.dice.sample(this.dice.chance(0.5) ? this.anyClass() : ALL_ANSWERS, 5)
    const row = new RowBuilder(this.vocabulary, 'lookup')
    row.read(`<|user|> ${options(words)}`)
    for (let i = 0; i < 14; i++) {
      const j = this.dice.below(5)
      row.read(words[j] as string)
      row.teach(LABELS[j] as string)
    }
    return row.lesson()
  }

  /** Six sentences that hold one option's word each, then its label, where a turn or an answer would begin. */
  sentence(): Lesson {
    const words = this.dice.sample(this.dice.chance(0.5) ? this.anyClass() : ALL_ANSWERS, 5)
    const row = new RowBuilder(this.vocabulary, 'sentence')
    row.read(`<|user|> ${options(words)} <|end|> <|assistant|>`)
    for (let i = 0; i < 6; i++) {
      const j = this.dice.below(5)
      const before = `<|end|> <|user|> ${this.sentenceWith(words[j] as string, words)} <turns_left_${1 + this.dice.below(4)}> <|end|> <|assistant|>`
      row.read(`${before} ${this.dice.chance(0.7) ? '<reasoning>' : '<answer>'}`)
      row.teach(LABELS[j] as string)
    }
    return row.lesson()
  }

  /** Lines that bind things to values; then a thing, and the label of its value, or "away" when no line has it. */
  binding(): Lesson {
    const relation = this.dice.pick(BOUND_LINES)
    const words = this.dice.sample(ANSWER_CLASSES[relation.answerClass], 5)
    const row = new RowBuilder(this.vocabulary, 'binding')
    row.read(`<|user|> ${options(words)}`)
    if (this.dice.chance(0.5)) {
      const items = this.dice.sample(ITEMS, 4)
      const values = this.dice.sample([0, 1, 2, 3, 4], 4)
      row.read(
        items
          .map((item, i) => `${this.dice.pick(NAMES)} : ${relation.line(item, words[values[i] as number] as string)}`)
          .join(' '),
      )
      for (let i = 0; i < 8; i++) {
        const j = this.dice.below(4)
        row.read(items[j] as string)
        row.teach(LABELS[values[j] as number] as string)
      }
    } else {
      for (let i = 0; i < 4; i++) {
        const [first, second, third] = this.dice.sample(ITEMS, 3) as [string, string, string]
        const [one, two] = this.dice.sample([0, 1, 2, 3, 4], 2) as [number, number]
        const present = this.dice.chance(0.6)
        const mention = `${this.dice.pick(NAMES)} : ${this.dice.pick(NAMES)} , tell me about the ${third} .`
        const lines = this.dice.shuffle([
          `${this.dice.pick(NAMES)} : ${relation.line(first, words[one] as string)}`,
          `${this.dice.pick(NAMES)} : ${relation.line(second, words[two] as string)}`,
          ...(this.dice.chance(0.5) ? [mention] : []),
        ])
        row.read(
          `the ${present ? first : third} ? <|end|> <|user|> ${lines.join(' ')} <turns_left_3> <|end|> <|assistant|> <reasoning>`,
        )
        row.teach(present ? (LABELS[one] as string) : ELSEWHERE)
      }
    }
    return row.lesson()
  }

  /** Transcripts with weight on the reasoning, and on the answer where the evidence was seen; two in three follow the oracle's tool calls. */
  async reading(): Promise<Lesson> {
    if (this.transcripts !== null) return this.transcripts.next('reading')
    const style = this.dice.chance(2 / 3) ? 'oracle' : 'explore'
    return this.transcript('reading', style, style === 'oracle' ? 5 : this.dice.pick([3, 4, 5, 5]))
  }

  /** Transcripts of a teacher that uses tools at random, with weight on every token. */
  async acting(): Promise<Lesson> {
    if (this.transcripts !== null) return this.transcripts.next('acting')
    return this.transcript('acting', 'random', this.dice.pick([1, 2, 3, 4, 5, 5]))
  }

  private async transcript(kind: LessonKind, style: TeacherStyle, turns: number): Promise<Lesson> {
    const told = this.stories.next()
    const { task, gold } = told
    const { question } = task
    const situations: Situation[] = []
    let firstMessages: readonly Message[] = []
    const outcome = await this.system.run({
      task,
      speaker: () => ({
        say: async (messages) => {
          const situation = readSituation(messages, question, gold)
          situations.push(situation)
          if (situations.length === 1) firstMessages = [...messages]
          return { ok: true, text: this.act(style, situation, question, gold) }
        },
      }),
      agents: simulatedAgents(told, this.options, this.dice),
      budget: {
        turns,
        windowClips: 1,
        tokensPerTurn: 16,
        tokensPerObservation: null,
        tokensPerTrajectory: null,
        deadlineSeconds: null,
      },
      signal: NEVER,
      fitObservation: (text) => text,
      spend: () => {},
    })
    return this.row(kind, firstMessages, outcome, situations, gold)
  }

  private row(
    kind: LessonKind,
    first: readonly Message[],
    outcome: SystemOutcome,
    situations: readonly Situation[],
    gold: Gold,
  ): Lesson {
    const row = new RowBuilder(this.vocabulary, kind)
    for (const message of first) row.read(`<|${message.role}|> ${message.content} <|end|>`)
    row.read('<|assistant|>')
    outcome.turns.forEach((turn: Turn, t) => {
      const situation = situations[t] as Situation
      row.push('<reasoning>', kind === 'acting')
      row.teach(situation.seen ? `a${gold.answer}` : situation.atGold ? HERE : ELSEWHERE)
      row.push('</reasoning>', kind === 'acting')
      if (kind === 'reading' && turn.action.kind === 'answer' && situation.seen) {
        row.read('<answer>')
        row.teach(`a${gold.answer}`)
        row.read('</answer>')
      } else row.push(turn.response, kind === 'acting')
      if (turn.observation !== null) row.read(`<|end|> <|user|> ${turn.observation} <|end|> <|assistant|>`)
    })
    return row.lesson()
  }

  private act(style: TeacherStyle, situation: Situation, question: Question, gold: Gold): string {
    const dice = this.dice
    const guess = dice.below(5)
    if (style === 'oracle') return oracleAction(situation, question, gold, guess)
    const answer = () => ACTIONS.answer(situation.seen ? gold.answer : guess)
    const look = () => {
      const right = rightQuery(question)
      const known = right !== null && dice.chance(this.options.rightQueryRate)
      return ACTIONS.look(known ? right : dice.pick(QUERIES))
    }
    if (situation.turnsLeft <= 1) return answer()
    if (style === 'random') {
      const draw = dice.uniform()
      return draw < 0.2 ? answer() : draw < 0.6 ? ACTIONS.ground : look()
    }
    // explore: no early answers, so that many situations are seen
    if (situation.atGold && !situation.seen && rightQuery(question) !== null && dice.chance(0.8)) return look()
    if (!situation.anyClip) return dice.chance(0.85) ? ACTIONS.ground : look()
    return dice.chance(0.5) ? ACTIONS.ground : look()
  }

  private anyClass(): readonly string[] {
    return ANSWER_CLASSES[this.dice.pick(WORD_CLASSES)]
  }

  private sentenceWith(word: string, others: readonly string[]): string {
    const dice = this.dice
    const free = <T extends string>(list: readonly T[]) =>
      dice.pick(list.filter((candidate) => !others.includes(candidate)))
    const draw = dice.below(BOUND_LINES.length + 3)
    if (draw === BOUND_LINES.length) return `<information> the sign says ${word} . </information>`
    if (draw === BOUND_LINES.length + 1) return `<information> the sign is ${word} . </information>`
    if (draw === BOUND_LINES.length + 2) return `<information> i see ${word} . </information>`
    const line = (BOUND_LINES[draw] as BoundLine).line(free(ITEMS), word)
    return `<${clipLabel(dice.below(CLIPS_PER_EPISODE))}> ${free(NAMES)} : ${line}`
  }
}

type TeacherStyle = 'oracle' | 'explore' | 'random'

interface BoundLine {
  answerClass: WordClass
  line(item: string, value: string): string
}

/** The sentences of `story.ts` that bind a thing to a value. */
const BOUND_LINES: readonly BoundLine[] = [
  { answerClass: 'place', line: (item, value) => `i left the ${item} at ${value} .` },
  { answerClass: 'price', line: (item, value) => `the ${item} cost ${value} coins .` },
  { answerClass: 'name', line: (item, value) => `i got the ${item} from ${value} .` },
  { answerClass: 'goods', line: (item, value) => `i traded the ${item} for ${value} .` },
  { answerClass: 'color', line: (item, value) => `my ${item} is ${value} .` },
]
const QUERIES = ['sign', 'color', 'object'] as const
const WORD_CLASSES = Object.keys(ANSWER_CLASSES) as WordClass[]
const ALL_ANSWERS: readonly string[] = Object.values(ANSWER_CLASSES).flat()
const NEVER = new AbortController().signal

/** The five options as the master's prompt writes them. */
function options(words: readonly string[]): string {
  return words.map((word, i) => `a${i} ${word}`).join(' ')
}

function clipLabel(index: number): string {
  return `seg01_clip_${String(index).padStart(2, '0')}`
}

/** Splits text as the word tokenizer does: tags whole, the rest lower-cased, at white space and punctuation. */
export function splitTokens(text: string): string[] {
  return text.toLowerCase().match(/<\/?[a-z|][^<>]*>|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? []
}

class RowBuilder {
  private readonly ids: number[] = []
  private readonly weights: number[] = []
  constructor(
    private readonly vocabulary: ReadonlyMap<string, number>,
    private readonly kind: LessonKind,
  ) {}
  read(text: string): void {
    this.push(text, false)
  }
  teach(text: string): void {
    this.push(text, true)
  }
  push(text: string, taught: boolean): void {
    for (const token of splitTokens(text)) {
      const id = this.vocabulary.get(token)
      if (id === undefined)
        throw new Error(`lesson ${this.kind}: the vocabulary has no "${token}" (in "${text.slice(0, 80)}")`)
      this.ids.push(id)
      this.weights.push(taught ? 1 : 0)
    }
  }
  lesson(): Lesson {
    return { ids: this.ids, weights: this.weights, kind: this.kind }
  }
}
