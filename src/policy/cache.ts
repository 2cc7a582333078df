/**
 * The key-value cache of a decoder: its tensors on the device, the pages in them, and what conversations and prompts left there for
 * later. It grows as it is used, up to its capacity; then what was kept for later is given up, longest unused first.
 * It knows no requests and runs no model.
 */
import type { Device } from '../engine/device.ts'
import type { DecoderConfig } from './architecture.ts'
import { cacheRows, cacheTensors, copyProgram, growProgram, PAGE_SIZE } from './decodeGraph.ts'
import { PagePool } from './pages.ts'

const FIRST_PAGES = 64

/** Keys and values of the first `cached` tokens of a sequence. */
export interface Held {
  cached: number
  pages: number[]
}

interface Conversation {
  scope: string
  ids: readonly number[]
  pages: number[]
}

export class KeyValueCache {
  private pool = new PagePool()
  /** In order of last use. */
  private readonly conversations = new Map<string, Conversation>()
  private readonly tensors: readonly { input: string; output: string; resident: string }[]
  private readonly copySession: string
  private readonly growSession: string

  /** @param name of this cache on the device. @param capacity in pages. */
  constructor(
    private readonly device: Device,
    private readonly config: DecoderConfig,
    name: string,
    readonly capacity: number,
    private readonly fail: (error: unknown) => void,
  ) {
    this.tensors = cacheTensors(config).map((tensor) => ({ ...tensor, resident: `${name}/${tensor.input}` }))
    this.copySession = `${name}/copy`
    this.growSession = `${name}/grow`
  }

  async open(): Promise<void> {
    await this.device.createSession(this.copySession, copyProgram(this.config).build(), this.bind())
    await this.device.createSession(this.growSession, growProgram(this.config).build())
    await this.clear()
  }

  async close(): Promise<void> {
    await this.device.releaseSession(this.copySession)
    await this.device.releaseSession(this.growSession)
    await this.device.remove(this.tensors.map(({ resident }) => resident))
  }

  /** Inputs of the decoder's programs that are the cache's tensors. */
  bind(): Record<string, string> {
    return Object.fromEntries(this.tensors.map(({ input, resident }) => [input, resident]))
  }

  /** Where outputs with new keys and values go: `rows` as in `Scatter`. */
  scatter(rows: Int32Array): Record<string, { into: string; rows: Int32Array }> {
    return Object.fromEntries(this.tensors.map(({ output, resident }) => [output, { into: resident, rows }]))
  }

  /** Starts anew with zeros. Nobody may hold a page. */
  clear(): Promise<void> {
    this.conversations.clear()
    this.pool = new PagePool()
    this.pool.grow(Math.min(FIRST_PAGES, this.capacity + 1))
    const rows = cacheRows(this.config, this.pool.size)
    const { headSize } = this.config
    const zeros = () => ({ type: 'float32' as const, dims: [rows, headSize], data: new Float32Array(rows * headSize) })
    return this.device.upload(new Map(this.tensors.map(({ resident }) => [resident, zeros()])))
  }

  get pagesUsed(): number {
    return this.pool.used
  }

  get pages(): number {
    return this.pool.size
  }

  /** Makes room for tokens up to `cached`. The caller has seen to it that all rows together stay within the capacity. */
  extend(pages: number[], cached: number): void {
    while (pages.length * PAGE_SIZE < cached) pages.push(this.take())
  }

  release(pages: number[]): void {
    this.pool.release(pages.splice(0))
  }

  private take(): number {
    for (;;) {
      const page = this.pool.take()
      if (page !== null) return page
      if (this.pool.size <= this.capacity) this.grow()
      else if (!this.pool.forgetOne()) {
        const [oldest] = this.conversations.keys()
        if (oldest === undefined) throw new Error('the key-value cache is full although its rows were reserved')
        this.endConversation(oldest)
      }
    }
  }

  /** The device carries it out before the runs that are sent later. */
  private grow(): void {
    const size = Math.min(this.pool.size * 2, this.capacity + 1)
    const extra = cacheRows(this.config, size - this.pool.size)
    this.pool.grow(size)
    const { headSize } = this.config
    const zeros = { type: 'float32' as const, dims: [extra, headSize], data: new Float32Array(extra * headSize) }
    for (const { resident } of this.tensors) {
      this.device
        .run({ session: this.growSession, bind: { cache: resident }, feeds: { zeros }, keep: { grown: resident } })
        .catch(this.fail)
    }
  }

  // ---- for later

  /** Takes pages over for the conversation's next turn. */
  keep(conversation: string, scope: string, ids: readonly number[], pages: number[]): void {
    this.endConversation(conversation)
    this.conversations.set(conversation, { scope, ids, pages: pages.splice(0) })
  }

  endConversation(conversation: string): void {
    const kept = this.conversations.get(conversation)
    if (kept) this.pool.release(kept.pages)
    this.conversations.delete(conversation)
  }

  /** Lets the full pages of a prompt be found by others that begin with it. */
  remember(scope: string, ids: readonly number[], pages: readonly number[]): void {
    this.pool.remember(scope, ids, pages, PAGE_SIZE)
  }

  /** What is there already of a prompt, but for its last token: that one is fed, to have logits. */
  resume(conversation: string | undefined, scope: string, ids: readonly number[]): Held {
    const own = conversation === undefined ? null : this.resumeConversation(conversation, scope, ids)
    const known = this.pool.recall(scope, ids, Math.floor((ids.length - 1) / PAGE_SIZE), PAGE_SIZE)
    if (own === null || known.length * PAGE_SIZE > own.cached) {
      if (own) this.pool.release(own.pages)
      return { cached: known.length * PAGE_SIZE, pages: known }
    }
    this.pool.release(known)
    return own
  }

  private resumeConversation(conversation: string, scope: string, ids: readonly number[]): Held | null {
    const kept = this.conversations.get(conversation)
    if (kept === undefined || kept.scope !== scope) return null
    this.conversations.delete(conversation)
    const most = Math.min(kept.ids.length, ids.length - 1)
    let same = 0
    while (same < most && kept.ids[same] === ids[same]) same++
    // Others read a shared page: it must not be written into.
    const lastPage = kept.pages[Math.floor(same / PAGE_SIZE)]
    if (same % PAGE_SIZE > 0 && lastPage !== undefined && this.pool.isShared(lastPage)) same -= same % PAGE_SIZE
    const pages = kept.pages.splice(0, Math.ceil(same / PAGE_SIZE))
    this.pool.release(kept.pages)
    return { cached: same, pages }
  }

  /**
   * The same tokens for several others: full pages are shared, the last one is copied.
   * @param cached tokens to have, all in `pages`.
   */
  fork(pages: readonly number[], cached: number, count: number): Held[] {
    const full = Math.floor(cached / PAGE_SIZE)
    const forks = Array.from({ length: count }, (): Held => {
      const shared = pages.slice(0, full)
      for (const page of shared) this.pool.share(page)
      return { cached, pages: shared }
    })
    if (cached % PAGE_SIZE > 0 && count > 0) {
      for (const fork of forks) this.extend(fork.pages, cached)
      this.copy(
        pages[full]!,
        forks.map((fork) => fork.pages[full]!),
      )
    }
    return forks
  }

  private copy(from: number, to: readonly number[]): void {
    const perPage = cacheRows(this.config, 1)
    const rows = Int32Array.from({ length: to.length * perPage }, (_, i) => {
      return to[Math.floor(i / perPage)]! * perPage + (i % perPage)
    })
    this.device
      .run({
        session: this.copySession,
        feeds: { from: { type: 'int32', dims: [to.length], data: new Int32Array(to.length).fill(from) } },
        scatter: this.scatter(rows),
      })
      .catch(this.fail)
  }

  /** What was kept with these weights is of no use any more. */
  forgetScope(scope: string): void {
    this.pool.forgetScope(scope)
    for (const [conversation, kept] of [...this.conversations])
      if (kept.scope === scope) this.endConversation(conversation)
  }
}
