/** Training sequences by group: batch n of their table belongs to batch n of the trajectories. Remembers where batches lie. */
import { openTable, type Place, type TableFile } from '../trajectory/batches.ts'
import { type SegmentRow, segmentRows } from '../trajectory/schema.ts'
import { PageError } from './pageError.ts'

/** Batches that are looked for in one go while nobody waits for them. */
const A_FEW = 500

export class SegmentPages {
  private table: TableFile | null = null
  private places: Place[] = []
  private generation = 0
  private busy: Promise<unknown> = Promise.resolve()

  constructor(private readonly directory: string) {}

  /** Empty where the group is not stored yet. `generation` is that of the index: another one means that batches were written anew. */
  of(batch: number, generation: number): Promise<SegmentRow[]> {
    return this.inTurn(async () => {
      const table = await this.reach(batch, generation)
      const place = this.places[batch]
      return place === undefined ? [] : segmentRows(await table.read(place))
    })
  }

  /** Finds the places of the first `batches`, a few at a time, so that whoever asks for one in between does not wait for all. */
  async learn(batches: number, generation: number): Promise<void> {
    for (let known = 0; known < batches; known += A_FEW) {
      const last = Math.min(batches, known + A_FEW) - 1
      await this.inTurn(() => this.reach(last, generation))
    }
  }

  /** One after the other, since they share the open table; one may succeed where the one before failed. */
  private inTurn<Found>(work: () => Promise<Found>): Promise<Found> {
    const done = this.busy.then(work)
    this.busy = done.catch(() => undefined)
    return done
  }

  private async reach(batch: number, generation: number): Promise<TableFile> {
    const now = await openTable(this.directory, 'segments')
    if (!now.ok) throw new PageError(404, now.failure.message)
    const table = now.value
    if (table.identity !== this.table?.identity || generation !== this.generation) this.places = []
    await this.table?.close()
    this.table = table
    this.generation = generation
    if (this.places.length > batch) return table
    for await (const { place } of table.messages(this.places.at(-1)?.end ?? 0)) {
      this.places.push(place)
      if (this.places.length > batch) break
    }
    return table
  }

  async close(): Promise<void> {
    await this.inTurn(async () => this.table?.close())
  }
}
