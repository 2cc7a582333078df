/**
 * The viewer over HTTP, for one person on this machine: which address is which page of which store. Reads a run's folder and writes
 * nothing but labels and, when it is asked for, the report.
 *
 * Only requests that name this machine are answered, so that no page of the web can read a run through the reader's browser. Gold is
 * not sent before it is asked for: what is not in the address is not in the page.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply } from 'fastify'
import { z } from 'zod'
import { storeRoot, VIEWER_PORT } from '../trajectory/stores.ts'
import { type ListQuery, listQuery } from './filter.ts'
import { html, page } from './html.ts'
import type { ViewOptions } from './options.ts'
import { PageError } from './pageError.ts'
import type { StoreName, ViewedFolder } from './sources.ts'
import { labelBody, StorePages } from './storePages.ts'
import { storesBody } from './storesPage.ts'
import type { Elsewhere } from './trajectoryPage.ts'

/** How often the list of stores asks again. */
const STORES_MS = 2000

const frameQuery = z.object({ turn: z.coerce.number().int().min(0), frame: z.coerce.number().int().min(0) })

/** `store` is what `storeRoot` makes of a path; absent for the folder's own store. */
type Asked = { Params: { store?: string; '*': string } }

/** The server, not listening yet. `close()` also closes the stores. */
export function createViewer(
  folder: ViewedFolder,
  options: Pick<ViewOptions, 'rows' | 'patienceMs'>,
): FastifyInstance & { openStores(tell: (trouble: string) => void): Promise<StorePages[]> } {
  const stores = new OpenStores(folder, options)
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
  server.addHook('onClose', () => stores.close())
  server.setErrorHandler((error: FastifyError | PageError, _request, reply) => answerError(error, reply))
  server.setNotFoundHandler((request, reply) =>
    answerError(new PageError(404, `There is no page ${request.url}.`), reply),
  )

  for (const root of ['', '/in/:store']) {
    server.get<Asked>(`${root}/`, async ({ params, query }, reply) => {
      // a folder without trajectories of its own begins with the list of its stores
      if (root === '' && !(await stores.names()).some(({ path }) => path === '')) return reply.redirect('/stores')
      return send(reply, await (await stores.of(params.store)).listing(queryOf(query)))
    })
    server.get<Asked>(`${root}/t/*`, async ({ params, query }, reply) =>
      send(
        reply,
        await (await stores.of(params.store)).trajectory(params['*'], queryOf(query), () =>
          stores.elsewhere(params.store, params['*']),
        ),
      ),
    )
    server.get<Asked>(`${root}/tokens/*`, async ({ params, query }, reply) =>
      send(reply, await (await stores.of(params.store)).tokens(params['*'], queryOf(query))),
    )
    server.get<Asked>(`${root}/training`, async ({ params, query }, reply) =>
      send(reply, await (await stores.of(params.store)).live(queryOf(query))),
    )
    server.get<Asked>(`${root}/frames/*`, async ({ params, query }, reply) => {
      const { turn, frame } = parsed(frameQuery, query)
      const picture = await (await stores.of(params.store)).picture(params['*'], turn, frame)
      reply.type(picture.type).header('cache-control', 'private, max-age=3600')
      return picture.bytes
    })
    server.post<Asked>(`${root}/labels`, async ({ params, body }) =>
      (await stores.of(params.store)).label(parsed(labelBody, body)),
    )
    server.get(`${root}/stores`, async (_request, reply) => send(reply, await listOfStores()))
    server.get(`${root}/report`, async (_request, reply) => report(reply))
    for (const [name, type] of Object.entries(ASSETS))
      server.get(`${root}/assets/${name}`, async (_request, reply) => {
        reply.type(type)
        return readFile(join(import.meta.dirname, 'assets', name))
      })
  }
  return Object.assign(server, { openStores: (tell: (trouble: string) => void) => stores.readable(tell) })

  async function listOfStores(): Promise<string> {
    const names = await stores.names()
    const states = []
    for (const name of names) {
      const state = await stores.open(name).then(
        (pages) => pages.state(),
        (error: unknown) => troubleOf(error),
      )
      states.push({ name, state })
    }
    return page({
      run: folder.name,
      root: '/',
      several: true,
      storeless: !names.some(({ path }) => path === ''),
      title: 'Stores',
      tab: 'stores',
      gold: null,
      followAfter: STORES_MS,
      body: storesBody(states),
    })
  }

  async function report(reply: FastifyReply) {
    const written = await folder.report()
    if (!written.ok) throw new PageError(404, written.failure.message)
    reply
      .type('text/html; charset=utf-8')
      .header('content-security-policy', "default-src 'none'; style-src 'unsafe-inline'; img-src data:")
    // its examples lead here, whatever the port
    return (await readFile(written.value, 'utf8')).replaceAll(`href="http://127.0.0.1:${VIEWER_PORT}/`, 'href="/')
  }
}

const ASSETS: Record<string, string> = {
  'style.css': 'text/css; charset=utf-8',
  'client.js': 'text/javascript; charset=utf-8',
  'icon.svg': 'image/svg+xml',
}

/** Stores are opened when somebody looks at them and stay open. */
class OpenStores {
  private readonly opened = new Map<string, Promise<StorePages>>()
  private count = 0

  constructor(
    private readonly folder: ViewedFolder,
    private readonly options: Pick<ViewOptions, 'rows' | 'patienceMs'>,
  ) {}

  async names(): Promise<StoreName[]> {
    const names = await this.folder.stores()
    this.count = names.length
    return names
  }

  async of(name: string | undefined): Promise<StorePages> {
    const root = rootOf(name)
    const known = this.opened.get(root)
    if (known !== undefined) return known
    const found = (await this.names()).find(({ path }) => storeRoot(path) === root)
    if (found === undefined) throw new PageError(404, `There is no store ${name ?? ''} in ${this.folder.name}.`)
    return this.open(found)
  }

  open({ path, label }: StoreName): Promise<StorePages> {
    const root = storeRoot(path)
    const known = this.opened.get(root)
    if (known !== undefined) return known
    const pages = this.folder.open(path).then((store) => {
      if (!store.ok) throw new PageError(404, store.failure.message)
      const run = path === '' ? this.folder.name : `${this.folder.name}: ${label}`
      return new StorePages(store.value, () => ({ run, root, several: this.count > 1 }), this.options)
    })
    this.opened.set(root, pages)
    // it may be there the next time
    pages.catch(() => this.opened.delete(root))
    return pages
  }

  /** The trajectories of the same id in the other stores that are open: of the cells of a comparison, the same question and seed. */
  async elsewhere(name: string | undefined, trajectoryId: string): Promise<Elsewhere[]> {
    const own = rootOf(name)
    const found = []
    for (const { path, label } of await this.names()) {
      const root = storeRoot(path)
      const row = root === own ? null : await (await this.opened.get(root))?.peek(trajectoryId)
      if (row) found.push({ label, root, row })
    }
    return found
  }

  /** All that can be opened; what is wrong with the others is told. */
  async readable(tell: (trouble: string) => void): Promise<StorePages[]> {
    const found = []
    for (const name of await this.names()) {
      const pages = await this.open(name).catch((error: unknown) => troubleOf(error))
      if ('trouble' in pages) tell(pages.trouble)
      else found.push(pages)
    }
    return found
  }

  async close(): Promise<void> {
    for (const pages of this.opened.values()) await (await pages).close()
  }
}

/** Why a store cannot be shown. Throws what is no failure of the store. */
function troubleOf(error: unknown): { trouble: string } {
  if (error instanceof PageError) return { trouble: error.message }
  throw error
}

/** `name` as it stands in an address, decoded. */
function rootOf(name: string | undefined): string {
  return name === undefined ? '/' : `/in/${encodeURIComponent(name)}/`
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

function send(reply: FastifyReply, text: string) {
  return reply.type('text/html; charset=utf-8').send(text)
}

function answerError(error: FastifyError | PageError, reply: FastifyReply) {
  const statusCode = error.statusCode ?? 500
  if (statusCode >= 500) console.error(error)
  const message =
    statusCode >= 500 && !(error instanceof PageError) ? 'The viewer failed; its log says why.' : error.message
  const body = html`<h1>${statusCode === 404 ? 'Not here' : 'That did not work'}</h1><p>${message}</p><p><a href="/">All trajectories</a></p>`
  const frame = { run: 'Showrunner', root: '/', several: false, tab: null, gold: null, followAfter: null }
  return send(reply.code(statusCode), page({ ...frame, title: message, body }))
}
