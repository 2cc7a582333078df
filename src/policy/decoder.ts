/**
 * Samples many conversations at once (continuous batching, Yu et al. 2022, Orca): every run on the device takes the rows that are
 * ready, whichever requests they belong to. Conversations keep their keys and values for their next turn; equal prompts that arrive
 * together (the samples of a group) are prefilled once, and prompts that begin alike share the full pages of what they share.
 *
 * A request's tokens and log-probabilities depend on its weights, its prompt, its settings and its seed, and on nothing else, to the
 * last bit: see `decodeGraph.ts`. Several sets of weights can be in use side by side; rows of different sets never share a run.
 * Works in token ids. Knows no text, no templates, and no training; weights are read from the device at every run.
 */
import seedrandom from 'seedrandom'
import type { Device } from '../engine/device.ts'
import type { ToldToken } from '../types.ts'
import type { DecoderConfig } from './architecture.ts'
import type { Held } from './cache.ts'
import { KeyValueCache } from './cache.ts'
import { PAGE_SIZE, prefillProgram, stepProgram } from './decodeGraph.ts'
import type { RunInputs, RunRow } from './runs.ts'
import { prefillInputs, stepInputs } from './runs.ts'
import type { DrawnToken, DrawSettings, NoToken } from './sampling.ts'
import { drawChanged, drawWhole, isWhole, logprobsOf, tell } from './sampling.ts'
import { bindTrained, bindWeights } from './weights.ts'

export interface DecoderOptions {
  /** Conversations sampled at the same time; others wait. */
  rows: number
  /** Positions whose keys and values are kept in all; bounds the memory. */
  cacheTokens: number
}

export interface DecodeRequest extends DrawSettings {
  /** The prompt; at least one id. */
  ids: readonly number[]
  maxTokens: number
  /** These ids are not drawn before so many tokens are. */
  minTokens?: { tokens: number; ids: readonly number[] }
  /** Asked before each token with all ids sampled so far: 1 at the ids that may come next, [vocabularySize]. */
  allowed?(sampled: readonly number[]): Uint8Array
  seed: string
  /** Called after each sampled token with all ids sampled so far. */
  isEnd(sampled: readonly number[]): boolean
  /** Tell each sampled token's rank and this many of the likeliest. */
  tellSampled?: number
  /** Tell the same of each token of the prompt, at temperature 1. */
  tellPrompt?: number
  /** Called with each sampled token as soon as it is there. */
  onToken?(token: SampledToken): void
  /** The set that the trained weights are from (see `residentName`); `policy`, the decoder's own, when absent. */
  weights?: string
  session?: string
  signal?: AbortSignal
}

/** With rank and alternatives where `tellSampled` asked for them. */
export type SampledToken = DrawnToken & Partial<ToldToken>

export type DecodeOutcome =
  | {
      kind: 'stop' | 'length'
      ids: readonly number[]
      logprobs: readonly number[]
      tokens: readonly SampledToken[]
      /** One for each token of the prompt; null for the first, before which there is nothing. Only where asked for. */
      prompt?: readonly (ToldToken | null)[]
    }
  | { kind: 'cancelled' }
  /** The distribution after these sampled tokens holds NaN or infinity. */
  | { kind: 'not_finite'; ids: readonly number[] }
  /** After these sampled tokens none is allowed. */
  | { kind: 'no_choice'; ids: readonly number[] }

export interface Decoder {
  /** Rejects only when the engine fails. `ids.length + maxTokens` must not exceed `cacheTokens`. */
  generate(request: DecodeRequest): Promise<DecodeOutcome>
  endSession(session: string): void
  /**
   * Forgets all keys and values of a set of weights (`policy` when absent): to be called when they have changed in place. Rows that are
   * being sampled go on with theirs.
   */
  dropCaches(weights?: string): void
  /** Resolves when nothing that was asked for with this set is left, and its keys and values are forgotten: then it may be removed. */
  retire(weights: string): Promise<void>
  /** For tests and reports: what was run, and pages held now. */
  statistics(): DecoderStatistics
  /** Cancels what runs and frees the sessions on the device. */
  close(): Promise<void>
}

export interface DecoderStatistics {
  runs: number
  /** Tokens that were computed, and those with padding. */
  tokens: number
  paddedTokens: number
  /** Tokens of prompts that were there already. */
  reusedTokens: number
  pagesUsed: number
  pages: number
}

/** Runs sent ahead: one computes while the other's tokens are sampled here. */
const RUNS_IN_FLIGHT = 2
/** Bounds of one run: what a run keeps should stay in the processor's caches. */
const RUN_ROWS = 64
const RUN_TOKENS = 2048
/** Longer prompts are prefilled in pieces. */
const RUN_TIME = 512
/** Bound of the logits of one run, in numbers, where they are wanted after every token of a prompt. */
const RUN_LOGITS = 2 ** 24
/** At lower temperatures, scaled logits in single precision are not exact enough. */
const SINGLE_PRECISION_TEMPERATURE = 0.1

interface Row extends Held {
  request: DecodeRequest
  /** Prompt and sampled ids. */
  ids: number[]
  tokens: SampledToken[]
  prompt: (ToldToken | null)[]
  random: () => number
  /** Its tokens are drawn from the distribution as it is. */
  whole: boolean
  /** Pages that this row may come to hold. */
  reserved: number
  weights: string
  /** Of its weights, when it began: the scope of what it leaves in the cache. */
  scope: string
  /** Number of the last run that it was in. */
  lastRun: number
  state: 'waiting' | 'ready' | 'running' | 'following' | 'ended'
  /** Rows with the same prompt that wait for this one's prefill. */
  followers: Row[]
  resolve(outcome: DecodeOutcome): void
  reject(error: Error): void
  onAbort: (() => void) | null
}

let opened = 0

/** @param ownWeights names on the device of the weights that requests without `weights` are for (see `bindWeights`). */
export async function openDecoder(
  device: Device,
  config: DecoderConfig,
  options: DecoderOptions,
  ownWeights: Readonly<Record<string, string>> = bindWeights(config, 'policy'),
): Promise<Decoder> {
  opened += 1
  const name = `decoder${opened}`
  const cache = new KeyValueCache(device, config, name, Math.ceil(options.cacheTokens / PAGE_SIZE), failAll)
  /** How often each set of weights was changed in place. */
  const epochs = new Map<string, number>()
  /** Stale pages may hold NaN, which no mask hides: the cache is made anew when nobody uses it. */
  let spoilt = false
  const queue: Row[] = []
  const active = new Set<Row>()
  let reserved = 0
  const busySessions = new Set<string>()
  const retiring = new Map<string, () => void>()
  let inFlight = 0
  let pumpIsDue = false
  let failure: Error | null = null
  const counts = { runs: 0, tokens: 0, paddedTokens: 0, reusedTokens: 0 }

  const stepSession = `${name}/step`
  const prefillSession = `${name}/prefill`
  const bind = { ...ownWeights, ...cache.bind() }
  await device.createSession(stepSession, stepProgram(config).build(), bind)
  await device.createSession(prefillSession, prefillProgram(config).build(), bind)
  await cache.open()

  const scopeOf = (weights: string) => `${weights}#${epochs.get(weights) ?? 0}`

  // ---- requests in and out

  function generate(request: DecodeRequest): Promise<DecodeOutcome> {
    if (failure) return Promise.reject(failure)
    if (request.signal?.aborted) return Promise.resolve({ kind: 'cancelled' })
    const needed = Math.ceil((request.ids.length + request.maxTokens) / PAGE_SIZE)
    if (request.ids.length === 0 || needed > cache.capacity) {
      throw new Error(
        `decoder: ${request.ids.length} ids and ${request.maxTokens} more do not fit into ${options.cacheTokens} cached tokens`,
      )
    }
    const { weights = 'policy' } = request
    return new Promise((resolve, reject) => {
      const row: Row = {
        request,
        ids: [...request.ids],
        cached: 0,
        pages: [],
        tokens: [],
        prompt: [null],
        random: seedrandom(request.seed),
        whole:
          isWhole(request) &&
          !request.allowed &&
          !request.minTokens &&
          (request.temperature === 0 || request.temperature >= SINGLE_PRECISION_TEMPERATURE),
        reserved: needed,
        weights,
        scope: scopeOf(weights),
        lastRun: 0,
        state: 'waiting',
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
    end(row)
    row.resolve({ kind: 'cancelled' })
    // A run that is under way still writes into the row's pages; they are freed when it returns.
    if (!wasRunning) leave(row)
  }

  function end(row: Row): void {
    row.state = 'ended'
    if (row.onAbort) row.request.signal?.removeEventListener('abort', row.onAbort)
    row.onAbort = null
  }

  function finish(row: Row, outcome: DecodeOutcome): void {
    end(row)
    const { session } = row.request
    const isFresh = row.scope === scopeOf(row.weights) && (outcome.kind === 'stop' || outcome.kind === 'length')
    if (session !== undefined && isFresh && busySessions.has(session))
      cache.keep(session, row.scope, row.ids.slice(0, row.cached), row.pages)
    leave(row)
    row.resolve(outcome)
  }

  /** Gives back what an ended row holds. */
  function leave(row: Row): void {
    releaseFollowers(row)
    cache.release(row.pages)
    if (active.delete(row)) {
      reserved -= row.reserved
      if (row.request.session !== undefined) busySessions.delete(row.request.session)
    }
    settle(row.weights)
    schedulePump()
  }

  function settle(weights: string): void {
    const settled = retiring.get(weights)
    if (settled === undefined || [...queue, ...active].some((row) => row.weights === weights)) return
    retiring.delete(weights)
    cache.forgetScope(scopeOf(weights))
    epochs.delete(weights)
    settled()
  }

  function failAll(error: unknown): void {
    failure ??= error instanceof Error ? error : new Error(String(error))
    for (const row of [...queue.splice(0), ...active]) {
      if (row.state === 'ended') continue
      end(row)
      row.reject(failure)
    }
    active.clear()
    for (const settled of retiring.values()) settled()
    retiring.clear()
  }

  // ---- admission

  function admit(): void {
    const leaders = new Map<string, Row>()
    const prompt = (row: Row) => `${row.scope}/${row.ids.join()}`
    for (const row of active) {
      const isPrefilled = row.tokens.length > 0
      if ((row.state === 'ready' || row.state === 'running') && !isPrefilled) leaders.set(prompt(row), row)
    }
    while (queue.length > 0 && active.size < options.rows && reserved + queue[0]!.reserved <= cache.capacity) {
      const row = queue.shift()!
      row.scope = scopeOf(row.weights)
      row.state = 'ready'
      active.add(row)
      reserved += row.reserved
      // Where the prompt's log-probabilities are asked for, all of it is computed.
      if (row.request.tellPrompt !== undefined) continue
      Object.assign(row, cache.resume(ownSession(row), row.scope, row.ids))
      counts.reusedTokens += row.cached
      const rest = row.ids.length - row.cached
      const leader = leaders.get(prompt(row))
      if (leader && rest > 1 && leader.cached >= row.cached) {
        row.state = 'following'
        leader.followers.push(row)
      } else if (rest > 1) leaders.set(prompt(row), row)
    }
  }

  /** The session that the row continues, unless another row does already. */
  function ownSession({ request: { session } }: Row): string | undefined {
    if (session === undefined || busySessions.has(session)) return undefined
    busySessions.add(session)
    return session
  }

  /** Followers get all of the common prompt but its last token, which each feeds itself. */
  function releaseFollowers(leader: Row): void {
    const followers = leader.followers.splice(0).filter((row) => row.state === 'following')
    const cached = Math.min(leader.cached, leader.request.ids.length - 1)
    const forks = cache.fork(leader.pages, cached, followers.length)
    followers.forEach((row, index) => {
      row.state = 'ready'
      // What it had found itself may be more, when the leader was cancelled early.
      const fork = forks[index]!
      if (fork.cached <= row.cached) return cache.release(fork.pages)
      cache.release(row.pages)
      counts.reusedTokens += fork.cached - row.cached
      Object.assign(row, fork)
    })
  }

  // ---- runs

  function pump(): void {
    if (failure) return
    try {
      if (spoilt && active.size === 0 && inFlight === 0) {
        spoilt = false
        cache.clear().catch(failAll)
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

  /**
   * Prompts go first, so that their rows join the others; rows of similar length go together, so that little is padded. Rows of one
   * token wait for one another while something runs, so that they do not fall apart into small runs, unless they are many.
   */
  function nextBlock(): Row[] {
    const ready = [...active].filter((row) => row.state === 'ready').sort((a, b) => a.lastRun - b.lastRun)
    const of = (rows: Row[]) => rows.filter((row) => row.weights === rows[0]!.weights)
    const prompts = of(ready.filter((row) => newTokens(row) > 1)).sort((a, b) => newTokens(b) - newTokens(a))
    if (prompts.length > 0) {
      const time = newTokens(prompts[0]!)
      const most = Math.max(1, Math.min(RUN_ROWS, Math.floor(RUN_TOKENS / time)))
      return prompts.slice(0, most).filter((row) => newTokens(row) * 2 >= time)
    }
    const steps = of(ready).slice(0, RUN_ROWS)
    return inFlight === 0 || steps.length * 2 >= RUN_ROWS ? steps : []
  }

  function newTokens(row: Row): number {
    const most = row.request.tellPrompt === undefined ? RUN_TIME : Math.ceil(RUN_LOGITS / config.vocabularySize)
    return Math.min(row.ids.length - row.cached, RUN_TIME, most)
  }

  function send(block: Row[]): void {
    const fed = block.map(newTokens)
    counts.runs++
    block.forEach((row, b) => {
      row.state = 'running'
      row.lastRun = counts.runs
      cache.extend(row.pages, row.cached + fed[b]!)
    })
    const rows = block.map(
      (row): RunRow => ({
        ids: row.ids,
        cached: row.cached,
        pages: row.pages,
        scale: 1 / (row.request.temperature || 1),
        everywhere: wantsPrompt(row),
      }),
    )
    const isStep = fed.every((count) => count === 1)
    const inputs = isStep ? stepInputs(config, rows) : prefillInputs(config, rows, fed)
    const { weights } = block[0]!
    counts.tokens += fed.reduce((sum, count) => sum + count, 0)
    counts.paddedTokens += block.length * Math.max(...fed)
    inFlight++
    const needsLogits = block.some((row) => !row.whole || row.request.tellSampled !== undefined || wantsPrompt(row))
    device
      .run({
        session: isStep ? stepSession : prefillSession,
        ...(weights === 'policy' ? {} : { bind: bindTrained(config, weights) }),
        feeds: inputs.feeds,
        fetch: needsLogits ? ['logits', 'probabilities'] : ['probabilities'],
        scatter: cache.scatter(inputs.targets),
      })
      .then((results) => {
        inFlight--
        receive(block, fed, inputs, results.probabilities!.data as Float32Array, results.logits?.data as Float32Array)
        pump()
      })
      .catch(failAll)
  }

  const wantsPrompt = (row: Row) => row.request.tellPrompt !== undefined && row.cached < row.request.ids.length - 1

  function receive(
    block: readonly Row[],
    fed: readonly number[],
    { outputs }: RunInputs,
    probabilities: Float32Array,
    logits: Float32Array | undefined,
  ): void {
    const width = config.vocabularySize
    const at = (values: Float32Array, line: number) => values.subarray(line * width, (line + 1) * width)
    block.forEach((row, b) => {
      const tellsPrompt = wantsPrompt(row)
      row.cached += fed[b]!
      if (row.state === 'ended') return leave(row)
      row.state = 'ready'
      if (tellsPrompt) {
        for (let line = outputs[b]!; line < outputs[b + 1]!; line++) tellPromptToken(row, at(logits!, line))
      }
      if (row.cached < row.ids.length) return
      if (row.tokens.length === 0) {
        cache.remember(row.scope, row.request.ids, row.pages)
        releaseFollowers(row)
      }
      const last = outputs[b + 1]! - 1
      accept(row, draw(row, at(probabilities, last), logits && at(logits, last)))
    })
  }

  /** `logits` are those after the prompt's tokens so far told about. */
  function tellPromptToken(row: Row, logits: Float32Array): void {
    const id = row.request.ids[row.prompt.length]
    if (id === undefined) return
    const logprobs = logprobsOf(logits, 1)
    // What is not finite is told when the first token is drawn.
    if (logprobs) row.prompt.push(tell(logprobs, id, row.request.tellPrompt!))
  }

  function draw(row: Row, probabilities: Float32Array, logits: Float32Array | undefined): SampledToken | NoToken {
    const { request, whole } = row
    const { tellSampled } = request
    const wholly = () => drawWhole(probabilities, request.temperature === 0, row.random())
    if (whole && tellSampled === undefined) return wholly()
    const logprobs = logprobsOf(logits!, request.temperature)
    if (logprobs === null) return 'not_finite'
    const token = whole ? wholly() : drawChanged(logprobs, request, allowedNow(row), row.random())
    if (tellSampled === undefined || typeof token === 'string') return token
    return { ...token, ...tell(logprobs, token.id, tellSampled) }
  }

  function allowedNow({ request, ids, tokens }: Row): Uint8Array | null {
    const { minTokens } = request
    const allowed = request.allowed?.(ids.slice(request.ids.length)) ?? null
    if (minTokens === undefined || tokens.length >= minTokens.tokens) return allowed
    const without = allowed ? allowed.slice() : new Uint8Array(config.vocabularySize).fill(1)
    for (const id of minTokens.ids) without[id] = 0
    return without
  }

  function accept(row: Row, token: SampledToken | NoToken): void {
    if (typeof token === 'string') {
      spoilt ||= token === 'not_finite'
      finish(row, { kind: token, ids: row.ids.slice(row.request.ids.length) })
      return
    }
    row.ids.push(token.id)
    row.tokens.push(token)
    const { request, tokens } = row
    request.onToken?.(token)
    const sampled = row.ids.slice(request.ids.length)
    const kind = request.isEnd(sampled) ? 'stop' : sampled.length >= request.maxTokens ? 'length' : null
    if (kind === null) return
    const logprobs = tokens.map(({ logprob }) => logprob)
    const prompt = request.tellPrompt === undefined ? {} : { prompt: row.prompt }
    finish(row, { kind, ids: sampled, logprobs, tokens, ...prompt })
  }

  return {
    generate,
    endSession(session) {
      cache.endConversation(session)
      // What still runs does not keep its cache when it ends.
      busySessions.delete(session)
    },
    dropCaches(weights = 'policy') {
      cache.forgetScope(scopeOf(weights))
      epochs.set(weights, (epochs.get(weights) ?? 0) + 1)
    },
    retire(weights) {
      const settled = new Promise<void>((resolve) => retiring.set(weights, resolve))
      settle(weights)
      return settled
    },
    statistics: () => ({ ...counts, pagesUsed: cache.pagesUsed, pages: cache.pages }),
    async close() {
      for (const row of [...queue, ...active]) cancel(row)
      failure ??= new Error('the policy is closed')
      await device.releaseSession(stepSession)
      await device.releaseSession(prefillSession)
      await cache.close()
    },
  }
}
