/**
 * Finds texts in a run: trajectories whose question, options, answer, reasoning or id have all of the words, upper and lower case alike. Reads
 * the batches one after the other and keeps only positions, so the first hits are there long before the last batch was read.
 *
 * Most batches are refused on their bytes, before they are decoded. Observations are not searched: they are not the master's words.
 */
import type { ProjectedBatch, Texts } from '../trajectory/projection.ts'
import type { RunIndex } from './runIndex.ts'

export interface Search {
  /** Positions found so far, ascending. */
  readonly found: readonly number[]
  /** Batches searched so far. */
  readonly searched: number
  /** Goes on with what was added to the run since; resolves when all is searched. One at a time. */
  advance(): Promise<void>
}

/** Searches that are kept, so that paging through one costs nothing. */
const KEPT = 8

export class Searches {
  private readonly kept = new Map<string, { generation: number; search: RunSearch }>()

  constructor(private readonly index: RunIndex) {}

  of(text: string): Search {
    const words = wordsOf(text)
    const key = words.join(' ')
    const known = this.kept.get(key)
    const entry =
      known?.generation === this.index.generation
        ? known
        : { generation: this.index.generation, search: new RunSearch(this.index, words) }
    this.kept.delete(key)
    this.kept.set(key, entry)
    for (const [oldest] of this.kept) {
      if (this.kept.size <= KEPT) break
      this.kept.get(oldest)?.search.stop()
      this.kept.delete(oldest)
    }
    return entry.search
  }
}

export function wordsOf(text: string): string[] {
  return text
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== '')
}

class RunSearch implements Search {
  readonly found: number[] = []
  searched = 0
  private running: Promise<void> | null = null
  private stopped = false
  private readonly generation: number
  private readonly needles: string[]

  constructor(
    private readonly index: RunIndex,
    private readonly words: readonly string[],
  ) {
    this.generation = index.generation
    this.needles = words.map(asciiPart).filter((part) => part !== '')
  }

  stop(): void {
    this.stopped = true
  }

  advance(): Promise<void> {
    this.running ??= this.run().finally(() => {
      this.running = null
    })
    return this.running
  }

  private async run(): Promise<void> {
    let since = performance.now()
    for await (const message of this.index.messages(this.searched)) {
      if (this.stopped || this.index.generation !== this.generation) return
      if (this.mayHave(message.bytes)) this.searchBatch(this.index.project(message), this.index.firstOf(message.batch))
      this.searched = message.batch + 1
      if (performance.now() - since > 20) {
        // requests are answered in between
        await new Promise((resolve) => setImmediate(resolve))
        since = performance.now()
      }
    }
  }

  /** On latin-1, where every byte is a letter: right for the ASCII parts of words, which is enough to refuse most. */
  private mayHave(bytes: Uint8Array): boolean {
    const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1').toLowerCase()
    return this.needles.every((needle) => text.includes(needle))
  }

  private searchBatch(batch: ProjectedBatch, first: number): void {
    const [ids, questions, options, responses] = SEARCHED.map((path) => batch.texts(path)) as [
      Texts,
      Texts,
      Texts,
      Texts,
    ]
    const [optionEnds, turnEnds] = [batch.offsets('options'), batch.offsets('turns')]
    const within = (texts: Texts, ends: Int32Array, row: number) =>
      Array.from({ length: (ends[row + 1] as number) - (ends[row] as number) }, (_, item) =>
        texts.at((ends[row] as number) + item),
      )
    for (let row = 0; row < batch.rows; row++) {
      const said = [...within(options, optionEnds, row), ...within(responses, turnEnds, row)]
      const text = [ids.at(row), questions.at(row), ...said].join('\n').toLowerCase()
      if (this.words.every((word) => text.includes(word))) this.found.push(first + row)
    }
  }
}

const SEARCHED = ['trajectory_id', 'question', 'options', 'turns.response']

/** The longest stretch of a word that is the same in UTF-8 and latin-1. */
function asciiPart(word: string): string {
  return word.split(/[^ -~]+/).reduce((longest, part) => (part.length > longest.length ? part : longest), '')
}
