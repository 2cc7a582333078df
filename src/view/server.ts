/**
 * The viewer's pages over HTTP, for one person on this machine. Reads a run's files and writes nothing but labels.
 *
 * Only requests that name this machine are answered, so that no page of the web can read a run through the reader's browser. Gold is
 * not sent before it is asked for: what is not in the address is not in the page.
 */
import { readFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply } from 'fastify'
import { z } from 'zod'
import { openTable, type Place, type TableFile } from '../trajectory/batches.ts'
import { appendLabel, type Label, labelKinds, readLabels } from '../trajectory/labels.ts'
import { readRatios } from '../trajectory/ratios.ts'
import { type SegmentRow, segmentRows } from '../trajectory/schema.ts'
import type { Failure } from '../types.ts'
import { addressOf, asksForGold, type ListQuery, listQuery, matching } from './filter.ts'
import { type Html, html, page } from './html.ts'
import { listBody } from './listPage.ts'
import { isRunning, liveBody } from './livePage.ts'
import { readMetrics } from './metrics.ts'
import type { ViewOptions } from './options.ts'
import type { RunIndex } from './runIndex.ts'
import { Searches } from './search.ts'
import type { ViewSources } from './sources.ts'
import { tokensBody } from './tokensPage.ts'
import { pathOf, trajectoryBody } from './trajectoryPage.ts'

/** How often a page asks again while a run grows, or while a search goes on. */
const GROWING_MS = 2000
const SEARCHING_MS = 400

/** How long the files are taken to be unchanged. */
const FRESH_MS = 1000

const NEWEST_GROUPS = 8

/** A mistake in what was asked for. */
class PageError extends Error {
  constructor(
    readonly statusCode: number,
    message: string,
  ) {
    super(message)
  }
}

const labelBody = z
  .object({
    trajectoryId: z.string().min(1),
    kinds: z.array(z.enum(labelKinds)),
    note: z.string().max(10_000),
    by: z.string().max(200),
    goldShown: z.boolean(),
  })
  .strict()

const frameQuery = z.object({ turn: z.coerce.number().int().min(0), frame: z.coerce.number().int().min(0) })

/** The server, not listening yet. `close()` also closes the index. */
export function createViewer(
  index: RunIndex,
  sources: ViewSources,
  options: Pick<ViewOptions, 'rows' | 'patienceMs'>,
): FastifyInstance {
  const { directory } = index
  const run = basename(resolve(directory))
  const searches = new Searches(index)
  const segments = new SegmentPages(directory)
  let refreshed = 0
  const server = fastify({ logger: false, forceCloseConnections: true, bodyLimit: 1 << 16 })

  server.addHook('onRequest', async (request) => {
    if (!/^(127\.0\.0\.1|localhost|\[::1\])(:\d+)?$/.test(request.headers.host ?? ''))
      throw new PageError(403, 'This page answers only to the name of this machine: 127.0.0.1 or localhost.')
  })
  server.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', reply.getHeader('cache-control') ?? 'no-store')
    reply.header('x-content-type-options', 'nosniff')
    reply.header('referrer-policy', 'no-referrer')
    reply.header(
      'content-security-policy',
      reply.getHeader('content-security-policy') ??
        "default-src 'none'; style-src 'self' 'unsafe-inline'; script-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    )
  })
  server.addHook('onClose', async () => {
    await index.close()
    await segments.close()
  })
  server.setErrorHandler((error: FastifyError | PageError, _request, reply) => answerError(error, reply))
  server.setNotFoundHandler((request, reply) =>
    answerError(new PageError(404, `There is no page ${request.url}.`), reply),
  )

  server.get('/', async (request, reply) => send(reply, await listing(queryOf(request.query))))
  server.get<{ Params: { '*': string } }>('/t/*', async ({ params, query }, reply) =>
    send(reply, await trajectory(params['*'], queryOf(query))),
  )
  server.get<{ Params: { '*': string } }>('/tokens/*', async ({ params, query }, reply) =>
    send(reply, await tokens(params['*'], queryOf(query))),
  )
  server.get<{ Params: { '*': string } }>('/frames/*', ({ params, query }, reply) => picture(params['*'], query, reply))
  server.get('/training', async (request, reply) => send(reply, await live(queryOf(request.query))))
  server.get('/report', (_request, reply) => report(reply))
  server.post('/labels', async (request) => label(request.body))
  for (const [name, type] of Object.entries(ASSETS))
    server.get(`/assets/${name}`, async (_request, reply) => {
      reply.type(type)
      return readFile(join(import.meta.dirname, 'assets', name))
    })
  return server

  // -------------------------------------------------------------- what pages need

  /** Waits for the index, but not long: a page shows what there is. */
  async function upToDate(): Promise<void> {
    await within(options.patienceMs, refresh())
  }

  async function labelsByPosition(): Promise<{ labels: Map<number, Label>; trouble: Failure | null }> {
    const read = await readLabels(directory)
    const labels = new Map<number, Label>()
    if (!read.ok) return { labels, trouble: read.failure }
    for (const [id, label] of read.value) {
      const position = index.positionOf(id)
      if (position !== null) labels.set(position, label)
    }
    return { labels, trouble: null }
  }

  /** Positions in the order of the list, and whether those are all. */
  async function listed(
    query: ListQuery,
    labels: ReadonlyMap<number, Label>,
  ): Promise<{ positions: Uint32Array | number[]; final: boolean }> {
    let positions: Uint32Array | number[] = matching(index.columns, query, labels)
    let final = true
    if (query.q !== undefined) {
      const search = searches.of(query.q)
      await within(options.patienceMs, search.advance())
      positions = common(positions, search.found)
      final = search.searched >= index.batches
    }
    if (query.order === 'newest') positions = Array.from(positions).reverse()
    return { positions, final: final && index.progress.read >= index.progress.size }
  }

  async function find(trajectoryId: string): Promise<number> {
    await upToDate()
    // a link may be opened before its part of the run is indexed
    const position = index.positionOf(trajectoryId) ?? (await refresh().then(() => index.positionOf(trajectoryId)))
    if (position !== null) return position
    throw new PageError(404, `There is no trajectory ${trajectoryId} in ${directory}.`)
  }

  async function refresh(): Promise<void> {
    if (performance.now() - refreshed < FRESH_MS) return
    await index.refresh()
    refreshed = performance.now()
  }

  function goldSwitch(path: string, query: ListQuery) {
    const shown = asksForGold(query)
    const hidden = { gold: undefined, outcome: undefined, kind: undefined, least: undefined, most: undefined }
    return { shown, toggle: addressOf(path, query, shown ? { ...hidden, page: undefined } : { gold: '1' }) }
  }

  // -------------------------------------------------------------- pages

  async function listing(query: ListQuery): Promise<string> {
    await upToDate()
    const { labels, trouble } = await labelsByPosition()
    const { positions, final } = await listed(query, labels)
    const last = Math.max(1, Math.ceil(positions.length / options.rows))
    const current = Math.min(query.page ?? 1, last)
    const shown = positions.slice((current - 1) * options.rows, current * options.rows)
    const rows = []
    for (const position of shown) rows.push({ row: await index.row(position), label: labels.get(position) ?? null })
    const { read, size } = index.progress
    const gold = asksForGold(query)
    const to = (target: number) =>
      target >= 1 && target <= last ? addressOf('/', query, { page: target === 1 ? undefined : target }) : null
    return page({
      run,
      title: 'Trajectories',
      tab: 'trajectories',
      gold: goldSwitch('/', query),
      keys: { n: to(current + 1), p: to(current - 1) },
      followAfter: final ? (index.complete ? null : GROWING_MS) : SEARCHING_MS,
      body: listBody({
        query,
        gold,
        columns: index.columns,
        rows,
        matches: { count: positions.length, final },
        indexed: size === 0 ? 0 : read / size,
        pages: { current, last },
        trouble: (trouble ?? index.failure)?.message ?? null,
      }),
    })
  }

  async function trajectory(trajectoryId: string, query: ListQuery): Promise<string> {
    const position = await find(trajectoryId)
    const { labels } = await labelsByPosition()
    const { positions } = await listed(query, labels)
    const place = positions.indexOf(position)
    const at = (offset: number) => {
      const neighbour = place < 0 ? undefined : positions[place + offset]
      return neighbour === undefined ? null : addressOf(pathOf('t', index.idAt(neighbour)), query)
    }
    const mates = await index.group(position)
    const row = await index.row(position)
    const gold = asksForGold(query)
    const path = pathOf('t', trajectoryId)
    const nextMate = mates[(mates.indexOf(row) + 1) % mates.length]
    const pictures = await Promise.all(
      row.turns.map(({ frames }) =>
        Promise.all(frames.map(({ picture }) => (picture === undefined ? null : sources.unchanged(picture)))),
      ),
    )
    return page({
      run,
      title: row.question,
      tab: null,
      gold: goldSwitch(path, query),
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
        query,
        gold: gold ? { known: sources.gold(row.qid) } : null,
        clips: sources.clips(row.episodeId),
        label: labels.get(position) ?? null,
        labeller: sources.labeller,
        place: place < 0 ? null : { number: place + 1, of: positions.length },
        previous: at(-1),
        next: at(1),
        pictures,
      }),
    })
  }

  async function tokens(trajectoryId: string, query: ListQuery): Promise<string> {
    const position = await find(trajectoryId)
    const all = await segments.of(index.batchAt(position))
    const own = all.filter((segment) => segment.trajectoryId === trajectoryId)
    const ratios = await readRatios(directory, index.columns.step.at(position))
    const { tokens } = sources
    const trouble = [tokens, ratios].flatMap((read) => (read.ok ? [] : [read.failure.message]))
    const path = pathOf('tokens', trajectoryId)
    return page({
      run,
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

  async function picture(trajectoryId: string, asked: unknown, reply: FastifyReply) {
    const { turn, frame } = parsed(frameQuery, asked)
    const row = await index.row(await find(trajectoryId))
    const seen = row.turns[turn]?.frames[frame]?.picture
    if (seen === undefined) throw new PageError(404, `No picture is recorded for frame ${frame} of turn ${turn}.`)
    const read = await sources.picture(seen)
    if (!read.ok) throw new PageError(404, read.failure.message)
    reply.type(read.value.type).header('cache-control', 'private, max-age=3600')
    return read.value.bytes
  }

  async function live(query: ListQuery): Promise<string> {
    await upToDate()
    const { columns, complete } = index
    const metrics = await readMetrics(directory)
    const gold = asksForGold(query)
    const newest = []
    for (let batch = index.batches - 1; batch >= Math.max(0, index.batches - NEWEST_GROUPS); batch--)
      newest.push(await index.group(index.firstOf(batch)))
    const written = [metrics.written, index.written].reduce((a, b) => (a !== null && (b === null || a > b) ? a : b))
    const content = {
      metrics,
      planned: sources.plannedSteps,
      trajectories: columns.length,
      totals: totals(),
      complete,
      written,
      now: new Date(),
      newest,
      gold,
    }
    return page({
      run,
      title: 'Live',
      tab: 'training',
      gold: goldSwitch('/training', query),
      followAfter: isRunning(content) || index.progress.read < index.progress.size ? GROWING_MS : null,
      body: liveBody(content),
    })
  }

  function totals() {
    const { columns } = index
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

  async function report(reply: FastifyReply) {
    const written = await sources.report()
    if (!written.ok) throw new PageError(404, written.failure.message)
    reply
      .type('text/html; charset=utf-8')
      .header(
        'content-security-policy',
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:",
      )
    return readFile(written.value)
  }

  async function label(body: unknown) {
    const given = parsed(labelBody, body)
    await find(given.trajectoryId)
    const label = { ...given, at: new Date().toISOString() }
    const written = await appendLabel(directory, label)
    if (!written.ok) throw new PageError(500, written.failure.message)
    return { at: label.at, by: label.by }
  }
}

const ASSETS: Record<string, string> = {
  'style.css': 'text/css; charset=utf-8',
  'client.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
}

/** Segments by group: batch n of this table belongs to batch n of the trajectories. */
class SegmentPages {
  private table: TableFile | null = null
  private places: Place[] = []
  private searching: Promise<void> = Promise.resolve()

  constructor(private readonly directory: string) {}

  async of(batch: number): Promise<SegmentRow[]> {
    this.searching = this.searching.then(() => this.reach(batch))
    await this.searching
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
    for await (const { place } of this.table.messages(this.places.at(-1)?.end ?? 0)) this.places.push(place)
  }

  async close(): Promise<void> {
    await this.table?.close()
  }
}

function queryOf(asked: unknown): ListQuery {
  return parsed(listQuery, asked)
}

function parsed<Schema extends z.ZodType>(schema: Schema, given: unknown): z.output<Schema> {
  const result = schema.safeParse(given)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  throw new PageError(400, `${issue?.path.join('.')}: ${issue?.message}`)
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

function send(reply: FastifyReply, text: string) {
  return reply.type('text/html; charset=utf-8').send(text)
}

function answerError(error: FastifyError | PageError, reply: FastifyReply) {
  const statusCode = error.statusCode ?? 500
  if (statusCode >= 500) console.error(error)
  const message =
    statusCode >= 500 && !(error instanceof PageError) ? 'The viewer failed; its log says why.' : error.message
  const body: Html = html`<h1>${statusCode === 404 ? 'Not here' : 'That did not work'}</h1><p>${message}</p><p><a href="/">All trajectories</a></p>`
  const text = page({ run: 'Showrunner', title: message, tab: null, gold: null, followAfter: null, body })
  return send(reply.code(statusCode), text)
}
