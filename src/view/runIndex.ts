/**
 * A compact index of a run: for every trajectory the numbers that lists filter by, and where its record batch lies. Texts stay on disk
 * and are read batch by batch when somebody looks.
 *
 * It follows a run that is being written: `refresh` reads what was added since, and starts over when the file was replaced or cut
 * back. Memory: about 50 bytes per trajectory, and the ids of the groups.
 */
import { type Message, openTable, type Place, type TableFile } from '../trajectory/batches.ts'
import type { ProjectedBatch } from '../trajectory/projection.ts'
import { type TrajectoryRow, trajectoryRows } from '../trajectory/schema.ts'
import type { Failure, Result } from '../types.ts'
import { NameColumn, NumberColumn } from './growing.ts'

/** Reading stops this often for whoever else wants something. */
const BUSY_MS = 20

/** A page of a list touches at most so many groups, and the next page or the way back some of them again. */
const KEPT = 64

const CORRECT = 1
const GROUNDED = 2
const SCORED = 4

export interface Progress {
  /** Bytes of the file that are indexed, and that it has. */
  read: number
  size: number
}

export interface RunIndex {
  readonly directory: string
  /** Changes whenever positions may mean other trajectories than before. */
  readonly generation: number
  readonly columns: Columns
  readonly progress: Progress
  /** Set while the run cannot be read; what was read before stays. */
  readonly failure: Failure | null
  /** The run is closed: its file has its final name. */
  readonly complete: boolean
  /** When the file was last written, as far as it is known. */
  readonly written: Date | null
  /** Groups, which are record batches. */
  readonly batches: number
  /** Brings the index up to the file, in the background; resolves when it is there. One at a time. */
  refresh(onProgress?: (progress: Progress) => void): Promise<void>
  /** Position of a trajectory; null when the run has no such trajectory (yet). */
  positionOf(trajectoryId: string): number | null
  idAt(position: number): string
  /** The trajectories of a group, in order, with everything that is stored about them. */
  group(position: number): Promise<TrajectoryRow[]>
  row(position: number): Promise<TrajectoryRow>
  /** Number of the record batch, the same in both tables. */
  batchAt(position: number): number
  /** Reads the messages of all batches, from batch `from` on. */
  messages(from: number): AsyncGenerator<Message & { batch: number }>
  /** Single columns of a message. */
  project(message: Message): ProjectedBatch
  firstOf(batch: number): number
  close(): Promise<void>
}

/** One number per trajectory. */
export class Columns {
  readonly batch = new NumberColumn(Uint32Array)
  readonly step = new NumberColumn(Int32Array)
  readonly sample = new NumberColumn(Uint32Array)
  readonly turns = new NumberColumn(Uint16Array)
  /** NaN where there is none. */
  readonly reward = new NumberColumn(Float64Array)
  private readonly flags = new NumberColumn(Uint8Array)
  readonly stop = new NameColumn()
  /** Empty where the data set has no kinds. */
  readonly kind = new NameColumn()
  readonly system = new NameColumn()
  readonly version = new NameColumn()

  get length(): number {
    return this.step.length
  }

  correct(position: number): boolean {
    return (this.flags.at(position) & CORRECT) !== 0
  }

  grounded(position: number): boolean {
    return (this.flags.at(position) & GROUNDED) !== 0
  }

  /** It has a reward: it did not fail outside the policy. */
  scored(position: number): boolean {
    return (this.flags.at(position) & SCORED) !== 0
  }

  add(batch: ProjectedBatch, number: number): void {
    const [step, sample] = [batch.integers('step'), batch.integers('sample')]
    const reward = batch.numbers('reward_total')
    const [correct, grounded] = [batch.flags('correct'), batch.flags('grounded')]
    const turnEnds = batch.offsets('turns')
    const names = [
      [this.stop, batch.texts('stop_reason')],
      [this.kind, batch.texts('kind')],
      [this.system, batch.texts('system')],
      [this.version, batch.texts('policy_version')],
    ] as const
    for (let row = 0; row < batch.rows; row++) {
      const total = reward(row)
      this.batch.push(number)
      this.step.push(step[row] as number)
      this.sample.push(sample[row] as number)
      this.turns.push((turnEnds[row + 1] as number) - (turnEnds[row] as number))
      this.reward.push(total)
      this.flags.push(
        (correct(row) ? CORRECT : 0) | (grounded(row) ? GROUNDED : 0) | (Number.isNaN(total) ? 0 : SCORED),
      )
      for (const [column, texts] of names) column.push(texts.at(row))
    }
  }
}

/** Fails when the directory has no trajectories; reads none yet. */
export async function openRunIndex(directory: string): Promise<Result<RunIndex>> {
  const table = await openTable(directory, 'trajectories')
  return table.ok ? { ok: true, value: new FollowedRun(directory, table.value) } : table
}

class FollowedRun implements RunIndex {
  generation = 0
  columns = new Columns()
  progress: Progress = { read: 0, size: 0 }
  failure: Failure | null = null
  complete = false
  written: Date | null = null
  private places: Place[] = []
  private firsts: number[] = []
  private groups: string[] = []
  private batchOfGroup = new Map<string, number>()
  private lastFingerprint = ''
  private refreshing: Promise<void> | null = null
  /** Groups as they were read last, by batch. */
  private readonly kept = new Map<number, Promise<TrajectoryRow[]>>()

  constructor(
    readonly directory: string,
    private table: TableFile,
  ) {}

  get batches(): number {
    return this.places.length
  }

  refresh(onProgress?: (progress: Progress) => void): Promise<void> {
    this.refreshing ??= this.follow(onProgress).finally(() => {
      this.refreshing = null
    })
    return this.refreshing
  }

  private async follow(onProgress?: (progress: Progress) => void): Promise<void> {
    const now = await openTable(this.directory, 'trajectories')
    if (!now.ok) {
      this.failure = now.failure
      return
    }
    this.failure = null
    const replaced = now.value.identity !== this.table.identity || !(await this.stillThere(now.value))
    this.complete = !now.value.path.endsWith('.partial')
    const old = replaced ? this.table : now.value
    if (replaced) {
      this.table = now.value
      this.startOver()
    }
    // readers of the old file are waited for, not by us
    void old.close()
    const { size, written } = await this.table.state()
    this.written = written
    this.progress = { read: this.places.at(-1)?.end ?? 0, size }
    let since = performance.now()
    for await (const message of this.table.messages(this.progress.read)) {
      this.take(message)
      if (performance.now() - since < BUSY_MS) continue
      onProgress?.(this.progress)
      // requests are answered in between
      await new Promise((resolve) => setImmediate(resolve))
      since = performance.now()
    }
    const last = this.places.at(-1)
    if (last) this.lastFingerprint = await this.table.fingerprint(last)
    // what follows the last whole batch is an end marker, or a batch that is being written
    this.progress = { read: size, size }
    onProgress?.(this.progress)
  }

  /** Whether the last batch is where it was: a run that was resumed from an earlier step was cut back and wrote others. */
  private async stillThere(table: TableFile): Promise<boolean> {
    const last = this.places.at(-1)
    return last === undefined || (await table.fingerprint(last)) === this.lastFingerprint
  }

  private startOver(): void {
    this.generation++
    this.columns = new Columns()
    this.places = []
    this.firsts = []
    this.groups = []
    this.batchOfGroup = new Map()
    this.kept.clear()
  }

  private take({ bytes, place }: Message): void {
    const batch = this.table.layout.open(bytes)
    const number = this.places.length
    const group = batch.texts('group_id').at(0)
    this.firsts.push(this.columns.length)
    this.columns.add(batch, number)
    this.places.push(place)
    this.groups.push(group)
    this.batchOfGroup.set(group, number)
    this.progress = { ...this.progress, read: place.end }
  }

  positionOf(trajectoryId: string): number | null {
    const slash = trajectoryId.lastIndexOf('/')
    const batch = this.batchOfGroup.get(trajectoryId.slice(0, slash))
    if (batch === undefined) return null
    for (let position = this.firstOf(batch); position < this.firstOf(batch + 1); position++)
      if (this.idAt(position) === trajectoryId) return position
    return null
  }

  idAt(position: number): string {
    return `${this.groups[this.columns.batch.at(position)]}/${this.columns.sample.at(position)}`
  }

  batchAt(position: number): number {
    return this.columns.batch.at(position)
  }

  firstOf(batch: number): number {
    return this.firsts[batch] ?? this.columns.length
  }

  group(position: number): Promise<TrajectoryRow[]> {
    const batch = this.batchAt(position)
    const rows = this.kept.get(batch) ?? this.table.read(this.places[batch] as Place).then(trajectoryRows)
    this.kept.delete(batch)
    this.kept.set(batch, rows)
    // a read that failed may succeed the next time
    rows.catch(() => this.kept.delete(batch))
    const oldest = this.kept.size > KEPT ? this.kept.keys().next() : null
    if (oldest?.value !== undefined) this.kept.delete(oldest.value)
    return rows
  }

  async row(position: number): Promise<TrajectoryRow> {
    const rows = await this.group(position)
    const row = rows[position - this.firstOf(this.batchAt(position))]
    if (row === undefined) throw new Error(`${this.directory}: trajectory ${position} is not in its batch`)
    return row
  }

  async *messages(from: number): AsyncGenerator<Message & { batch: number }> {
    const start = this.places[from]?.start
    if (start === undefined) return
    const end = this.places.length
    let batch = from
    for await (const message of this.table.messages(start)) {
      yield { ...message, batch }
      if (++batch === end) return
    }
  }

  project({ bytes }: Message): ProjectedBatch {
    return this.table.layout.open(bytes)
  }

  close(): Promise<void> {
    return this.table.close()
  }
}
