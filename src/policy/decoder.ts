/**
 * Samples many conversations at once (continuous batching, Yu et al. 2022, Orca): every run on the device takes the rows that are
 * ready, whichever requests they belong to. Conversations keep their keys and values for their next turn; equal prompts that
 * arrive together (the samples of a group) are prefilled once.
 *
 * Works in token ids. Knows no text, no templates, and no training; weights are read from the device at every run.
 */
import seedrandom from 'seedrandom'
import type { Device } from '../engine/device.ts'
import { ProgramBuilder } from '../engine/program.ts'
import type { DecoderConfig } from './architecture.ts'
import { cacheRow, cacheRows, cacheTensors, decodeGraph, PAGE_SIZE } from './decodeGraph.ts'
import { PagePool } from './pages.ts'
import { sampleToken } from './sampling.ts'
import { bindWeights } from './weights.ts'

export interface DecoderOptions {
  /** Conversations sampled at the same time; others wait. */
  rows: number
  /** Positions whose keys and values are kept in all; bounds the memory. */
  cacheTokens: number
}

export interface DecodeRequest {
  /** The prompt; at least one id. */
  ids: readonly number[]
  maxTokens: number
  temperature: number
  seed: string
  /** Called after each sampled token with all ids sampled so far. */
  isEnd(sampled: readonly number[]): boolean
  session?: string
  signal?: AbortSignal
}

export type DecodeOutcome =
  | { kind: 'stop' | 'length'; ids: readonly number[]; logprobs: readonly number[] }
  | { kind: 'cancelled' }
  /** The distribution after these sampled tokens holds NaN or infinity. */
  | { kind: 'not_finite'; ids: readonly number[] }

export interface Decoder {
  /** Rejects only when the engine fails. `ids.length + maxTokens` must not exceed `cacheTokens`. */
  generate(request: DecodeRequest): Promise<DecodeOutcome>
  endSession(session: string): void
  /** Forgets all keys and values: to be called when the weights have changed. Rows that are being sampled go on with theirs. */
  dropCaches(): void
  /** For tests and reports: what was run, and pages held now. */
  statistics(): { runs: number; tokens: number; paddedTokens: number; pagesUsed: number; pages: number }
  /** Cancels what runs and frees the sessions on the device. */
  close(): Promise<void>
}

/** Runs sent ahead: one computes while the other's tokens are sampled here. */
const RUNS_IN_FLIGHT = 2
/** Bounds of one run: what a run keeps should stay in the processor's caches. */
const RUN_ROWS = 64
const RUN_TOKENS = 2048
/** Longer prompts are prefilled in pieces. */
const RUN_TIME = 512
const FIRST_PAGES = 64

interface Row {
  request: DecodeRequest
  /** Prompt and sampled ids. */
  ids: number[]
  /** How many of them have keys and values in `pages`. */
  cached: number
  pages: number[]
  logprobs: number[]
  random: () => number
  /** Pages that this row may come to hold. */
  reserved: number
  /** Which weights the cache was computed with. */
  epoch: number
  state: 'ready' | 'running' | 'following' | 'ended'
  /** Rows with the same prompt that wait for this one's prefill. */
  followers: Row[]
  resolve(outcome: DecodeOutcome): void
  reject(error: Error): void
  onAbort: (() => void) | null
}

interface KeptSession {
  ids: number[]
  pages: number[]
}

export async function openDecoder(device: Device, config: DecoderConfig, options: DecoderOptions): Promise<Decoder> {
  const capacity = Math.ceil(options.cacheTokens / PAGE_SIZE)
  const tensors = cacheTensors(config)
  let pool = new PagePool()
  let epoch = 0
  /** Stale pages may hold NaN, which no mask hides: the cache is made anew when nobody uses it. */
  let spoilt = false
  const queue: Row[] = []
  const active = new Set<Row>()
  let reserved = 0
  /** In order of last use. */
  const sessions = new Map<string, KeptSession>()
  const busySessions = new Set<string>()
  let inFlight = 0
  let pumpIsDue = false
  let failure: Error | null = null
  const counts = { runs: 0, tokens: 0, paddedTokens: 0 }

  const decodeSession = 'decoder/decode'
  const growSession = 'decoder/grow'
  await device.createSession(decodeSession, decodeGraph(config).build(), {
    ...bindWeights(config, 'policy'),
    ...Object.fromEntries(tensors.map(({ input, resident }) => [input, resident])),
  })
  await device.createSession(growSession, growGraph(config).build())
  await makeCache()

  async function makeCache(): Promise<void> {
    pool = new PagePool()
    pool.grow(Math.min(FIRST_PAGES, capacity + 1))
    const rows = cacheRows(config, pool.size)
    const zeros = () => ({
      type: 'float32' as const,
      dims: [rows, config.headSize],
      data: new Float32Array(rows * config.headSize),
    })
    await device.upload(new Map(tensors.map(({ resident }) => [resident, zeros()])))
  }

  /** Asks for growth; the device carries it out before the runs that are sent later. */
  function growCache(): void {
    const size = Math.min(pool.size * 2, capacity + 1)
    const extra = cacheRows(config, size - pool.size)
    pool.grow(size)
    const { headSize } = config
    const zeros = { type: 'float32' as const, dims: [extra, headSize], data: new Float32Array(extra * headSize) }
    for (const { resident } of tensors) {
      device
        .run({ session: growSession, bind: { cache: resident }, feeds: { zeros }, keep: { grown: resident } })
        .catch(failAll)
    }
  }

  function takePage(): number {
    for (;;) {
      const page = pool.take()
      if (page !== null) return page
      if (pool.size <= capacity) growCache()
      else {
        const [oldest] = sessions.keys()
        if (oldest === undefined) throw new Error('the key-value cache is full although its rows were reserved')
        forgetSession(oldest)
      }
    }
  }

  function forgetSession(session: string): void {
    const kept = sessions.get(session)
    if (kept) pool.release(kept.pages)
    sessions.delete(session)
  }

  // ---- requests in and out

  function generate(request: DecodeRequest): Promise<DecodeOutcome> {
    if (failure) return Promise.reject(failure)
    if (request.signal?.aborted) return Promise.resolve({ kind: 'cancelled' })
    const needed = Math.ceil((request.ids.length + request.maxTokens) / PAGE_SIZE)
    if (request.ids.length === 0 || needed > capacity) {
      throw new Error(
        `decoder: ${request.ids.length} ids and ${request.maxTokens} more do not fit into ${options.cacheTokens} cached tokens`,
      )
    }
    return new Promise((resolve, reject) => {
      const row: Row = {
        request,
        ids: [...request.ids],
        cached: 0,
        pages: [],
        logprobs: [],
        random: seedrandom(request.seed),
        reserved: needed,
        epoch,
        state: 'ready',
        followers: [],
        resolve,
        reject,
        onAbort: null,
      }
      if (request.signal) {
        row.onAbort = () => cancel(row)
        request.signal.addEventListener('abort', row.onAbort, { once: true })
      }
      queue.push(row)
      schedulePump()
    })
  }

  /** The pump waits for the end of this turn of the event loop, so that requests made together run together. */
  function schedulePump(): void {
    if (pumpIsDue) return
    pumpIsDue = true
    setImmediate(() => {
      pumpIsDue = false
      pump()
    })
  }

  function cancel(row: Row): void {
    if (row.state === 'ended') return
    const wasRunning = row.state === 'running'
    const waiting = queue.indexOf(row)
    if (waiting >= 0) queue.splice(waiting, 1)
    row.state = 'ended'
    detach(row)
    row.resolve({ kind: 'cancelled' })
    // A run that is under way still writes into the row's pages; they are freed when it returns.
    if (!wasRunning) leave(row)
  }

  function detach(row: Row): void {
    if (row.onAbort) row.request.signal?.removeEventListener('abort', row.onAbort)
    row.onAbort = null
  }

  function finish(row: Row, outcome: DecodeOutcome): void {
    row.state = 'ended'
    detach(row)
    const { session } = row.request
    if (session !== undefined && row.epoch === epoch && outcome.kind !== 'not_finite' && busySessions.has(session)) {
      const pages = row.pages.splice(0)
      forgetSession(session)
      sessions.set(session, { ids: row.ids.slice(0, row.cached), pages })
    }
    leave(row)
    row.resolve(outcome)
  }

  /** Gives back what an ended row holds. */
  function leave(row: Row): void {
    releaseFollowers(row)
    pool.release(row.pages.splice(0))
    if (!active.delete(row)) return
    reserved -= row.reserved
    if (row.request.session !== undefined) busySessions.delete(row.request.session)
    schedulePump()
  }

  function failAll(error: unknown): void {
    failure ??= error instanceof Error ? error : new Error(String(error))
    for (const row of [...queue.splice(0), ...active]) {
      if (row.state === 'ended') continue
      row.state = 'ended'
      detach(row)
      row.reject(failure)
    }
    active.clear()
  }

  // ---- admission

  function admit(): void {
    const leaders = new Map<string, Row>()
    for (const row of active) if (row.state === 'ready' && row.cached === 0) leaders.set(row.ids.join(), row)
    while (queue.length > 0 && active.size < options.rows && reserved + queue[0]!.reserved <= capacity) {
      const row = queue.shift()!
      row.epoch = epoch
      active.add(row)
      reserved += row.reserved
      resume(row)
      if (row.cached > 0) continue
      const key = row.ids.join()
      const leader = leaders.get(key)
      if (leader) {
        row.state = 'following'
        leader.followers.push(row)
      } else leaders.set(key, row)
    }
  }

  /** Takes over the keys and values that the session's last turn left, as far as the new prompt agrees with it. */
  function resume(row: Row): void {
    const { session } = row.request
    if (session === undefined || busySessions.has(session)) return
    busySessions.add(session)
    const kept = sessions.get(session)
    if (!kept) return
    sessions.delete(session)
    // At least one token must be fed, to have logits.
    const most = Math.min(kept.ids.length, row.ids.length - 1)
    let same = 0
    while (same < most && kept.ids[same] === row.ids[same]) same++
    // Others read a shared page: it must not be written into.
    const lastPage = kept.pages[Math.floor(same / PAGE_SIZE)]
    if (same % PAGE_SIZE > 0 && lastPage !== undefined && pool.isShared(lastPage)) same -= same % PAGE_SIZE
    row.cached = same
    row.pages = kept.pages.splice(0, Math.ceil(same / PAGE_SIZE))
    pool.release(kept.pages)
  }

  /** Followers get the full pages of the common prompt and go on alone. */
  function releaseFollowers(leader: Row): void {
    for (const row of leader.followers.splice(0)) {
      if (row.state !== 'following') continue
      const shared = Math.floor(Math.min(leader.cached, row.ids.length - 1) / PAGE_SIZE)
      row.pages = leader.pages.slice(0, shared)
      row.pages.forEach((page) => pool.share(page))
      row.cached = row.pages.length * PAGE_SIZE
      row.state = 'ready'
    }
  }

  // ---- runs

  function pump(): void {
    if (failure) return
    try {
      if (spoilt && active.size === 0 && inFlight === 0) {
        spoilt = false
        sessions.clear()
        makeCache().catch(failAll)
      }
      admit()
      while (inFlight < RUNS_IN_FLIGHT) {
        const block = nextBlock()
        if (block.length === 0) return
        send(block)
      }
    } catch (error) {
      failAll(error)
    }
  }

  /** Prompts go first, so that their rows join the others; rows of similar length go together, so that little is padded. */
  function nextBlock(): Row[] {
    const ready = [...active].filter((row) => row.state === 'ready')
    const prompts = ready.filter((row) => newTokens(row) > 1).sort((a, b) => newTokens(b) - newTokens(a))
    if (prompts.length === 0) return ready.slice(0, RUN_ROWS)
    const time = newTokens(prompts[0]!)
    const most = Math.max(1, Math.min(RUN_ROWS, Math.floor(RUN_TOKENS / time)))
    return prompts.slice(0, most).filter((row) => newTokens(row) * 2 >= time)
  }

  function newTokens(row: Row): number {
    return Math.min(row.ids.length - row.cached, RUN_TIME)
  }

  function send(block: Row[]): void {
    const batch = block.length
    const fed = block.map(newTokens)
    const time = Math.max(...fed)
    const tables = Math.max(1, ...block.map((row) => Math.ceil(row.cached / PAGE_SIZE)))
    const ids = new Int32Array(batch * time)
    const starts = Float32Array.from(block, (row) => row.cached)
    const pages = new Int32Array(batch * tables)
    const last = Int32Array.from(fed, (count, b) => b * time + count - 1)
    const heads = config.keyValueHeads
    const targets = new Int32Array(batch * heads * time).fill(-1)
    block.forEach((row, b) => {
      row.state = 'running'
      const count = fed[b]!
      while (row.pages.length * PAGE_SIZE < row.cached + count) row.pages.push(takePage())
      for (let n = 0; n * PAGE_SIZE < row.cached; n++) pages[b * tables + n] = row.pages[n]!
      for (let t = 0; t < count; t++) {
        const position = row.cached + t
        ids[b * time + t] = row.ids[position]!
        const page = row.pages[Math.floor(position / PAGE_SIZE)]!
        for (let head = 0; head < heads; head++)
          targets[(b * heads + head) * time + t] = cacheRow(config, page, head, position % PAGE_SIZE)
      }
    })
    counts.runs++
    counts.tokens += fed.reduce((sum, count) => sum + count, 0)
    counts.paddedTokens += batch * time
    inFlight++
    device
      .run({
        session: decodeSession,
        feeds: {
          ids: { type: 'int32', dims: [batch, time], data: ids },
          starts: { type: 'float32', dims: [batch], data: starts },
          pages: { type: 'int32', dims: [batch, tables], data: pages },
          rows: { type: 'int32', dims: [batch], data: last },
        },
        fetch: ['logits'],
        scatter: Object.fromEntries(tensors.map(({ output, resident }) => [output, { into: resident, rows: targets }])),
      })
      .then(({ logits }) => {
        inFlight--
        receive(block, fed, logits!.data as Float32Array)
        pump()
      })
      .catch((error: unknown) => failAll(error))
  }

  function receive(block: readonly Row[], fed: readonly number[], logits: Float32Array): void {
    block.forEach((row, b) => {
      row.cached += fed[b]!
      if (row.state === 'ended') return leave(row)
      row.state = 'ready'
      if (row.cached < row.ids.length) return
      releaseFollowers(row)
      const width = config.vocabularySize
      const token = sampleToken(logits.subarray(b * width, (b + 1) * width), row.request.temperature, row.random())
      if (token === null) {
        spoilt = true
        return finish(row, { kind: 'not_finite', ids: row.ids.slice(row.request.ids.length) })
      }
      row.ids.push(token.id)
      row.logprobs.push(token.logprob)
      const sampled = row.ids.slice(row.request.ids.length)
      if (row.request.isEnd(sampled)) finish(row, { kind: 'stop', ids: sampled, logprobs: row.logprobs })
      else if (sampled.length >= row.request.maxTokens)
        finish(row, { kind: 'length', ids: sampled, logprobs: row.logprobs })
    })
  }

  return {
    generate,
    endSession(session) {
      forgetSession(session)
      // What still runs does not keep its cache when it ends.
      busySessions.delete(session)
    },
    dropCaches() {
      epoch++
      for (const session of [...sessions.keys()]) forgetSession(session)
    },
    statistics: () => ({ ...counts, pagesUsed: pool.used, pages: pool.size }),
    async close() {
      for (const row of [...queue, ...active]) cancel(row)
      failure ??= new Error('the policy is closed')
      await device.releaseSession(decodeSession)
      await device.releaseSession(growSession)
      await device.remove(tensors.map(({ resident }) => resident))
    },
  }
}

/** A cache tensor with rows of zeros behind it. */
function growGraph(config: DecoderConfig): ProgramBuilder {
  const program = new ProgramBuilder()
  const cache = program.input('cache', 'float32', ['R', config.headSize])
  const zeros = program.input('zeros', 'float32', ['Z', config.headSize])
  program.output('grown', program.ops.concat([cache, zeros], 0))
  return program
}
