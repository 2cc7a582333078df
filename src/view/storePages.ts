/**
 * The pages of one store: what was asked for -> the text of a page. Follows the store while it is being written. Knows no HTTP.
 */

import { z } from 'zod'
import { appendLabel, type Label, labelKinds, readLabels } from '../trajectory/labels.ts'
import { readRatios } from '../trajectory/ratios.ts'
import type { TrajectoryRow } from '../trajectory/schema.ts'
import type { Failure } from '../types.ts'
import { addressOf, asksForGold, type ListQuery, matching } from './filter.ts'
import { type Frame, html, page } from './html.ts'
import { listBody } from './listPage.ts'
import { isRunning, liveBody } from './livePage.ts'
import { readMetrics } from './metrics.ts'
import type { ViewOptions } from './options.ts'
import { PageError } from './pageError.ts'
import type { RunIndex } from './runIndex.ts'
import { Searches } from './search.ts'
import { SegmentPages } from './segments.ts'
import type { ViewedStore, ViewSources } from './sources.ts'
import { tokensBody } from './tokensPage.ts'
import { type Elsewhere, pathOf, trajectoryBody } from './trajectoryPage.ts'

/** How often a page asks again while a run grows, or while a search goes on. */
const GROWING_MS = 2000
const SEARCHING_MS = 400

/** How long the files are taken to be unchanged. */
const FRESH_MS = 1000

const NEWEST_GROUPS = 8

export const labelBody = z
  .object({
    trajectoryId: z.string().min(1),
    kinds: z.array(z.enum(labelKinds)),
    note: z.string().max(10_000),
    by: z.string().max(200),
    goldShown: z.boolean(),
  })
  .strict()

/** What all pages of a store say alike: the names of run and store, the root of its pages, whether there are other stores. */
export type StoreFrame = Pick<Frame, 'run' | 'root' | 'several'>

/** Where a store stands, for the list of stores. */
export interface StoreState {
  trajectories: number
  right: number
  /** Share of its file that is indexed. */
  indexed: number
  complete: boolean
}

export class StorePages {
  private readonly index: RunIndex
  private readonly sources: ViewSources
  private readonly directory: string
  private readonly searches: Searches
  private readonly segments: SegmentPages
  private refreshed = 0

  constructor(
    { index, sources }: ViewedStore,
    private readonly frame: () => StoreFrame,
    private readonly options: Pick<ViewOptions, 'rows' | 'patienceMs'>,
  ) {
    this.index = index
    this.sources = sources
    this.directory = index.directory
    this.searches = new Searches(index)
    this.segments = new SegmentPages(index.directory)
  }

  async close(): Promise<void> {
    await this.index.close()
    await this.segments.close()
  }

  /** Reads the store to its end. */
  async read(onShare: (share: number) => void): Promise<StoreState> {
    await this.index.refresh(({ read, size }) => onShare(size === 0 ? 1 : read / size))
    // in the background; where there are no segments the page of tokens says so
    this.segments.learn(this.index.batches, this.index.generation).catch(() => undefined)
    return this.state()
  }

  async state(): Promise<StoreState> {
    await this.upToDate()
    const { progress, complete, columns } = this.index
    const indexed = progress.size === 0 ? 0 : progress.read / progress.size
    return { trajectories: columns.length, right: this.totals().right, indexed, complete }
  }

  // -------------------------------------------------------------- what pages need

  /** Waits for the index, but not long: a page shows what there is. */
  private async upToDate(): Promise<void> {
    await within(this.options.patienceMs, this.refresh())
  }

  private async labelsByPosition(): Promise<{ labels: Map<number, Label>; trouble: Failure | null }> {
    const read = await readLabels(this.directory)
    const labels = new Map<number, Label>()
    if (!read.ok) return { labels, trouble: read.failure }
    for (const [id, label] of read.value) {
      const position = this.index.positionOf(id)
      if (position !== null) labels.set(position, label)
    }
    return { labels, trouble: null }
  }

  /** Positions in the order of the list, and whether those are all. */
  private async listed(
    query: ListQuery,
    labels: ReadonlyMap<number, Label>,
  ): Promise<{ positions: Uint32Array | number[]; final: boolean }> {
    let positions: Uint32Array | number[] = matching(this.index.columns, query, labels)
    let final = true
    if (query.q !== undefined) {
      const search = this.searches.of(query.q)
      await within(this.options.patienceMs, search.advance())
      positions = common(positions, search.found)
      final = search.searched >= this.index.batches
    }
    if (query.order === 'newest') positions = Array.from(positions).reverse()
    return { positions, final: final && this.index.progress.read >= this.index.progress.size }
  }

  private async find(trajectoryId: string): Promise<number> {
    await this.upToDate()
    // a link may be opened before its part of the run is indexed
    const position =
      this.index.positionOf(trajectoryId) ?? (await this.refresh().then(() => this.index.positionOf(trajectoryId)))
    if (position !== null) return position
    throw new PageError(404, `There is no trajectory ${trajectoryId} in ${this.directory}.`)
  }

  private async refresh(): Promise<void> {
    if (performance.now() - this.refreshed < FRESH_MS) return
    await this.index.refresh()
    this.refreshed = performance.now()
  }

  private goldSwitch(path: string, query: ListQuery) {
    const shown = asksForGold(query)
    const hidden = { gold: undefined, outcome: undefined, kind: undefined, least: undefined, most: undefined }
    return { shown, toggle: addressOf(path, query, shown ? { ...hidden, page: undefined } : { gold: '1' }) }
  }

  // -------------------------------------------------------------- pages

  async listing(query: ListQuery): Promise<string> {
    await this.upToDate()
    const { labels, trouble } = await this.labelsByPosition()
    const { positions, final } = await this.listed(query, labels)
    const last = Math.max(1, Math.ceil(positions.length / this.options.rows))
    const current = Math.min(query.page ?? 1, last)
    const shown = positions.slice((current - 1) * this.options.rows, current * this.options.rows)
    const rows = await Promise.all(
      Array.from(shown, async (position) => ({
        row: await this.index.row(position),
        label: labels.get(position) ?? null,
      })),
    )
    const { read, size } = this.index.progress
    const gold = asksForGold(query)
    const to = (target: number) =>
      target >= 1 && target <= last ? addressOf('/', query, { page: target === 1 ? undefined : target }) : null
    return page({
      ...this.frame(),
      title: 'Trajectories',
      tab: 'trajectories',
      gold: this.goldSwitch('/', query),
      keys: { n: to(current + 1), p: to(current - 1) },
      followAfter: final ? (this.index.complete ? null : GROWING_MS) : SEARCHING_MS,
      body: listBody({
        query,
        gold,
        columns: this.index.columns,
        rows,
        matches: { count: positions.length, final },
        indexed: size === 0 ? 0 : read / size,
        pages: { current, last },
        trouble: (trouble ?? this.index.failure)?.message ?? null,
      }),
    })
  }

  /** What is stored of a trajectory; null when there is none of this id so far. */
  async peek(trajectoryId: string): Promise<TrajectoryRow | null> {
    const position = this.index.positionOf(trajectoryId)
    return position === null ? null : this.index.row(position)
  }

  async trajectory(trajectoryId: string, query: ListQuery, elsewhere: () => Promise<Elsewhere[]>): Promise<string> {
    const position = await this.find(trajectoryId)
    const { labels } = await this.labelsByPosition()
    const { positions } = await this.listed(query, labels)
    const place = positions.indexOf(position)
    const at = (offset: number) => {
      const neighbour = place < 0 ? undefined : positions[place + offset]
      return neighbour === undefined ? null : addressOf(pathOf('t', this.index.idAt(neighbour)), query)
    }
    const mates = await this.index.group(position)
    const row = await this.index.row(position)
    const gold = asksForGold(query)
    const path = pathOf('t', trajectoryId)
    const nextMate = mates[(mates.indexOf(row) + 1) % mates.length]
    const pictures = await Promise.all(
      row.turns.map(({ frames }) =>
        Promise.all(frames.map(({ picture }) => (picture === undefined ? null : this.sources.unchanged(picture)))),
      ),
    )
    return page({
      ...this.frame(),
      title: row.question,
      tab: null,
      gold: this.goldSwitch(path, query),
      keys: {
        n: at(1),
        p: at(-1),
        u: addressOf('/', query),
        m: nextMate === undefined || nextMate === row ? null : addressOf(pathOf('t', nextMate.trajectoryId), query),
      },
      followAfter: null,
      body: trajectoryBody({
        row,
        mates,
        elsewhere: (await elsewhere()).filter((other) => other.row.question === row.question),
        query,
        gold: gold ? { known: this.sources.gold(row.qid) } : null,
        clips: this.sources.clips(row.episodeId),
        label: labels.get(position) ?? null,
        labeller: this.sources.labeller,
        place: place < 0 ? null : { number: place + 1, of: positions.length },
        previous: at(-1),
        next: at(1),
        pictures,
      }),
    })
  }

  async tokens(trajectoryId: string, query: ListQuery): Promise<string> {
    const position = await this.find(trajectoryId)
    const all = await this.segments.of(this.index.batchAt(position), this.index.generation)
    const own = all.filter((segment) => segment.trajectoryId === trajectoryId)
    const ratios = await readRatios(this.directory, this.index.columns.step.at(position))
    const tokens = await this.sources.tokens()
    const trouble = [tokens, ratios].flatMap((read) => (read.ok ? [] : [read.failure.message]))
    const path = pathOf('tokens', trajectoryId)
    return page({
      ...this.frame(),
      title: `Tokens of ${trajectoryId}`,
      tab: null,
      gold: null,
      keys: { u: addressOf(pathOf('t', trajectoryId), query) },
      followAfter: null,
      body: html`<h1>Tokens of <a href="${addressOf(pathOf('t', trajectoryId), query)}">${trajectoryId}</a></h1>
<div id="fragment" data-path="${path}">${tokensBody({
        segments: own,
        ratios: (ratios.ok ? ratios.value?.[trajectoryId] : null) ?? null,
        textsOf: tokens.ok ? tokens.value : null,
        trouble: trouble.length > 0 ? trouble.join(' ') : null,
      })}</div>`,
    })
  }

  async picture(trajectoryId: string, turn: number, frame: number): Promise<{ bytes: Uint8Array; type: string }> {
    const row = await this.index.row(await this.find(trajectoryId))
    const seen = row.turns[turn]?.frames[frame]?.picture
    if (seen === undefined) throw new PageError(404, `No picture is recorded for frame ${frame} of turn ${turn}.`)
    const read = await this.sources.picture(seen)
    if (!read.ok) throw new PageError(404, read.failure.message)
    return read.value
  }

  async live(query: ListQuery): Promise<string> {
    await this.upToDate()
    const { columns, complete } = this.index
    const metrics = await readMetrics(this.directory)
    const gold = asksForGold(query)
    const newest = []
    for (let batch = this.index.batches - 1; batch >= Math.max(0, this.index.batches - NEWEST_GROUPS); batch--)
      newest.push(await this.index.group(this.index.firstOf(batch)))
    const written = [metrics.written, this.index.written].reduce((a, b) =>
      a !== null && (b === null || a > b) ? a : b,
    )
    const content = {
      metrics,
      planned: this.sources.plannedSteps,
      trajectories: columns.length,
      totals: this.totals(),
      complete,
      written,
      now: new Date(),
      newest,
      gold,
    }
    return page({
      ...this.frame(),
      title: 'Live',
      tab: 'training',
      gold: this.goldSwitch('/training', query),
      followAfter: isRunning(content) || this.index.progress.read < this.index.progress.size ? GROWING_MS : null,
      body: liveBody(content),
    })
  }

  private totals() {
    const { columns } = this.index
    const stops = new Map<string, number>()
    let [right, scored] = [0, 0]
    for (let position = 0; position < columns.length; position++) {
      if (columns.correct(position)) right++
      if (columns.scored(position)) scored++
      const stop = columns.stop.at(position)
      stops.set(stop, (stops.get(stop) ?? 0) + 1)
    }
    return { right, scored, stops: [...stops].sort((a, b) => b[1] - a[1]) }
  }

  async label(given: z.output<typeof labelBody>): Promise<{ at: string; by: string }> {
    await this.find(given.trajectoryId)
    const label = { ...given, at: new Date().toISOString() }
    const written = await appendLabel(this.directory, label)
    if (!written.ok) throw new PageError(500, written.failure.message)
    return { at: label.at, by: label.by }
  }
}

/** What two ascending lists share, ascending. */
function common(a: Uint32Array | readonly number[], b: readonly number[]): number[] {
  const both: number[] = []
  for (let i = 0, j = 0; i < a.length && j < b.length; ) {
    const [left, right] = [a[i] as number, b[j] as number]
    if (left === right) both.push(left)
    if (left <= right) i++
    if (right <= left) j++
  }
  return both
}

/** Waits for work, but no longer than `milliseconds`; the work goes on. */
async function within(milliseconds: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise((resolve) => {
    timer = setTimeout(resolve, milliseconds)
  })
  // work that fails after we stopped waiting has nobody to tell
  work.catch(() => undefined)
  await Promise.race([work, late])
  clearTimeout(timer)
}
