/**
 * What an import dropped, changed or noted: counts by reason, with the first examples. Does not decide anything.
 */

/** Rows, spans and boxes that are not in the result; things that are there otherwise than in the input; things worth knowing. */
export type Effect = 'dropped' | 'changed' | 'noted'

export interface Finding {
  reason: Reason
  effect: Effect
  meaning: string
  count: number
  /** The first few, in the order of the input. `where` names file and row. */
  examples: { where: string; detail: string }[]
}

const REASONS = {
  'row/not-a-row': ['dropped', 'question rows that are no object'],
  'row/qid': ['dropped', 'question rows without a qid'],
  'row/clip': ['dropped', 'question rows whose clip has no name of the known form'],
  'row/episode': ['dropped', "question rows without an episode, or whose episode contradicts the clip's name"],
  'row/show': ['dropped', "question rows whose show_name contradicts the clip's name"],
  'row/question': ['dropped', "question rows without the question's text"],
  'row/option': ['dropped', 'question rows without five options'],
  'row/answer': ['dropped', 'question rows whose answer is none of a0..a4'],
  'row/answer-without-clip': ['dropped', 'question rows with an answer but no clip'],
  'row/kind': ['dropped', 'question rows of an unknown kind'],
  'row/unknown-clip': ['dropped', 'question rows about a clip that their episode does not have'],
  'row/repeated': ['dropped', 'question rows that repeat an earlier row'],
  'row/qid-taken': ['dropped', 'question rows with the qid of an earlier row and other content'],
  'span/format': ['dropped', 'time spans of no known form (the questions are kept)'],
  'span/not-a-number': ['dropped', 'time spans that are no numbers (the questions are kept)'],
  'span/reversed': ['dropped', 'time spans that end before they start, or start before 0 (the questions are kept)'],
  'span/outside': ['dropped', "time spans that begin after their clip ends (clip-local ts kept, episode's left out)"],
  'span/past-end': ['changed', "time spans that reach past their clip's end: cut on the episode's timeline"],
  'span/zero-length': ['noted', 'time spans of no length: kept'],
  'box/format': ['dropped', 'boxes of no known form'],
  'box/outside': ['dropped', 'boxes with no area inside the picture'],
  'box/cut': ['changed', 'boxes that reach outside the picture of 640 x 360: cut to it'],
  'box/after-clip': ['noted', "pictures with boxes after their clip's end by duration: kept"],
  'clip/no-duration': ['noted', 'episodes without a timeline, since the duration of a clip is unknown'],
  'clip/questions-only': ['noted', 'episodes whose clips are known from questions only, which tells where evidence is'],
  'clip/name': ['dropped', 'entries whose key is no clip name'],
  'duration/format': ['dropped', 'durations of no known form'],
  'duration/conflict': ['noted', 'clips with two durations: the first is used'],
  'text/format': ['dropped', 'subtitles, descriptions or video spans of no known form'],
  'text/twice': ['noted', 'clips that two files of one kind describe: the first is used'],
  'srt/empty': ['noted', 'subtitle files without a line'],
  'srt/format': ['dropped', 'subtitle files in which no cue was found'],
  'srt/latin': ['noted', 'subtitle files read as ISO-8859-1 (windows-1252), not UTF-8'],
  'frames/none': ['dropped', 'frame folders without a picture named 00001.jpg and on'],
  'frames/gap': ['noted', 'frame folders that lack pictures between others'],
  'frames/length': ['noted', 'frame folders more than 2 s longer or shorter than their clip'],
  'video/unreadable': ['dropped', 'videos that cannot be read'],
  'video/length': ['noted', 'videos more than 2 s longer or shorter than their clip or episode'],
  'episode/unused': ['noted', 'episodes that no question is about: not written'],
} as const satisfies Record<string, readonly [Effect, string]>

export type Reason = keyof typeof REASONS

const SHOWN = 5

export class Findings {
  readonly #found = new Map<Reason, Finding>()

  add(reason: Reason, where: string, detail: string, count = 1): void {
    const [effect, meaning] = REASONS[reason]
    const finding = this.#found.get(reason) ?? { reason, effect, meaning, count: 0, examples: [] }
    finding.count += count
    if (finding.examples.length < SHOWN) finding.examples.push({ where, detail })
    this.#found.set(reason, finding)
  }

  /** Takes in what another part of the import found. */
  include(others: readonly Finding[]): void {
    for (const other of others) {
      const mine = this.#found.get(other.reason)
      if (!mine) {
        this.#found.set(other.reason, { ...other, examples: [...other.examples] })
        continue
      }
      mine.count += other.count
      mine.examples.push(...other.examples.slice(0, SHOWN - mine.examples.length))
    }
  }

  /** In the order of `Reason`. */
  list(): Finding[] {
    return (Object.keys(REASONS) as Reason[]).flatMap((reason) => this.#found.get(reason) ?? [])
  }
}
