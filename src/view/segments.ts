/** Training sequences by group: batch n of their table belongs to batch n of the trajectories. Remembers where batches lie. */
import { openTable, type Place, type TableFile } from '../trajectory/batches.ts'
import { type SegmentRow, segmentRows } from '../trajectory/schema.ts'
import { PageError } from './pageError.ts'

export class SegmentPages {
  private table: TableFile | null = null
  private places: Place[] = []
  private searching: Promise<void> = Promise.resolve()

  constructor(private readonly directory: string) {}

  /** Empty where the group is not stored yet. */
  async of(batch: number): Promise<SegmentRow[]> {
    const reached = this.searching.then(() => this.reach(batch))
    // the next one may succeed where this one failed
    this.searching = reached.catch(() => undefined)
    await reached
    const place = this.places[batch]
    return place === undefined || this.table === null ? [] : segmentRows(await this.table.read(place))
  }

  private async reach(batch: number): Promise<void> {
    const now = await openTable(this.directory, 'segments')
    if (!now.ok) throw new PageError(404, now.failure.message)
    const replaced =
      now.value.identity !== this.table?.identity || (await this.table.state()).size < (this.places.at(-1)?.end ?? 0)
    if (replaced) this.places = []
    await this.table?.close()
    this.table = now.value
    if (this.places.length > batch) return
    for await (const { place } of this.table.messages(this.places.at(-1)?.end ?? 0)) {
      this.places.push(place)
      if (this.places.length > batch) return
    }
  }

  async close(): Promise<void> {
    await this.table?.close()
  }
}
