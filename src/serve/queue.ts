/**
 * Who may sample next. So many sequences run at once; the others wait, and a free place goes to the client that has the fewest running
 * (max-min fairness), of equals to the one that has not had one for longest: a client that sends a thousand requests does not keep out one
 * that sends a single one. The queue is bounded.
 * Knows neither HTTP nor policies.
 */

export class QueueFull extends Error {
  constructor(
    readonly waiting: number,
    /** When it may be worth trying again. */
    readonly retrySeconds: number,
  ) {
    super(`${waiting} sequences wait already`)
  }
}

export interface QueueBounds {
  /** Sequences that run at once. */
  places: number
  /** Sequences that wait at most. */
  mostWaiting: number
}

interface Waiting {
  client: string
  /** Places that are taken together. */
  size: number
  priority: number
  /** Order of arrival. */
  order: number
  admit(): void
  refuse(error: unknown): void
}

/** Seconds over which the speed is measured that a refused client's waiting time is told from. */
const SPEED_SECONDS = 10

export class FairQueue {
  private readonly waitingOf = new Map<string, Waiting[]>()
  private readonly runningOf = new Map<string, number>()
  /** Number of the last admission of each client that runs or waits. */
  private readonly servedOf = new Map<string, number>()
  private admissions = 0
  /** When sequences ended, in seconds. */
  private ended: number[] = []
  private arrivals = 0
  private held = 0
  private queued = 0
  private closed: Error | null = null

  constructor(private readonly bounds: QueueBounds) {}

  get running(): number {
    return this.held
  }

  get waiting(): number {
    return this.queued
  }

  /** Rejects everybody who waits, and who comes later, with this error. Those with a place keep it. */
  close(error: Error): void {
    this.closed = error
    for (const line of [...this.waitingOf.values()]) for (const waiting of [...line]) waiting.refuse(error)
  }

  /** Throws `QueueFull` unless so many more sequences may run or wait. Takes no place. */
  check(sequences: number): void {
    const free = this.queued > 0 ? 0 : this.bounds.places - this.held
    if (this.queued + Math.max(0, sequences - free) > this.bounds.mostWaiting)
      throw new QueueFull(this.queued, this.retrySeconds())
  }

  /**
   * Resolves when `size` sequences of this client may run; each must then be given back by `leave`. More than there are places take
   * all of them. Lower priorities of the same client go first. Rejects with the signal's reason when it is aborted before.
   */
  enter(client: string, size: number, priority: number, signal: AbortSignal): Promise<void> {
    return new Promise((resolve, reject) => {
      const isOver = signal.aborted || this.closed !== null
      if (isOver) return reject(signal.aborted ? signal.reason : this.closed)
      const waiting: Waiting = {
        client,
        size,
        priority,
        order: this.arrivals++,
        admit: () => {
          signal.removeEventListener('abort', giveUp)
          resolve()
        },
        refuse: (error) => {
          signal.removeEventListener('abort', giveUp)
          this.remove(waiting)
          reject(error)
        },
      }
      const giveUp = () => {
        waiting.refuse(signal.reason)
        this.admit()
      }
      signal.addEventListener('abort', giveUp, { once: true })
      const line = this.waitingOf.get(client) ?? []
      const behind = line.findIndex((other) => other.priority > priority)
      line.splice(behind < 0 ? line.length : behind, 0, waiting)
      this.waitingOf.set(client, line)
      this.queued += size
      this.admit()
    })
  }

  /** One sequence of the client has ended. */
  leave(client: string): void {
    const left = (this.runningOf.get(client) ?? 0) - 1
    if (left < 0) throw new Error(`queue: ${client} leaves more places than it took`)
    if (left === 0) this.runningOf.delete(client)
    else this.runningOf.set(client, left)
    this.forget(client)
    this.held--
    this.ended.push(performance.now() / 1000)
    if (this.ended.length > 10_000) this.ended = this.ended.slice(-1000)
    this.admit()
  }

  private admit(): void {
    for (;;) {
      const next = this.next()
      if (next === null) return
      // What does not fit yet keeps its turn: otherwise large requests would wait for ever.
      if (this.held > 0 && this.held + next.size > this.bounds.places) return
      this.remove(next)
      this.held += next.size
      this.runningOf.set(next.client, (this.runningOf.get(next.client) ?? 0) + next.size)
      this.servedOf.set(next.client, ++this.admissions)
      next.admit()
    }
  }

  private next(): Waiting | null {
    /** Compared in this order: places held, last admission, arrival. */
    const rank = ({ client, order }: Waiting) => [
      this.runningOf.get(client) ?? 0,
      this.servedOf.get(client) ?? 0,
      order,
    ]
    let best: { waiting: Waiting; rank: number[] } | null = null
    for (const [waiting] of this.waitingOf.values()) {
      if (waiting === undefined) continue
      const own = rank(waiting)
      const differs = own.findIndex((value, i) => value !== best?.rank[i])
      if (best === null || own[differs]! < best.rank[differs]!) best = { waiting, rank: own }
    }
    return best?.waiting ?? null
  }

  private remove(waiting: Waiting): void {
    const line = this.waitingOf.get(waiting.client) ?? []
    line.splice(line.indexOf(waiting), 1)
    if (line.length === 0) this.waitingOf.delete(waiting.client)
    this.queued -= waiting.size
    this.forget(waiting.client)
  }

  private forget(client: string): void {
    if (!this.waitingOf.has(client) && !this.runningOf.has(client)) this.servedOf.delete(client)
  }

  /** How long what waits now takes at the speed of the last seconds: 1 to 60. */
  private retrySeconds(): number {
    const now = performance.now() / 1000
    this.ended = this.ended.filter((time) => time > now - SPEED_SECONDS)
    const perSecond = Math.max(1, this.ended.length) / SPEED_SECONDS
    return Math.min(60, Math.max(1, Math.ceil(this.queued / perSecond)))
  }
}
