/**
 * The client of the perception threads: text, colours and objects in pictures, and sentence vectors, behind promises.
 * Knows no clips, queries or caches. Frames are copied to the thread; answers are small.
 */
import { Worker } from 'node:worker_threads'
import type { ColourName } from './colours.ts'
import type { SeenObject } from './detector.ts'
import type { TextLine } from './ocr.ts'
import type { Picture } from './picture.ts'

export interface SeenText {
  lines: readonly (TextLine & { panel: ColourName })[]
  /** The dominant colour of the whole picture. */
  colour: ColourName
}

export type PerceptionRequest =
  | { kind: 'text'; pictures: readonly Picture[]; minimumScore: number }
  | { kind: 'objects'; pictures: readonly Picture[]; threshold: number }
  | { kind: 'appearance'; pictures: readonly Picture[] }
  | { kind: 'embed'; texts: readonly string[] }
  | { kind: 'close' }

/** What each kind of request is answered with. */
export interface Answers {
  text: readonly SeenText[]
  objects: readonly (readonly SeenObject[])[]
  appearance: Float32Array
  embed: Float32Array
  close: null
}

export interface Envelope {
  id: number
  request: PerceptionRequest
}

export type Reply = { id: number; ok: true; value: Answers[keyof Answers] } | { id: number; ok: false; error: string }

export interface WorkerData {
  cacheDirectory: string | null
}

export interface Perception {
  /** Text, its panels' colours and the dominant colour of each picture. */
  readText(pictures: readonly Picture[], minimumScore: number): Promise<Answers['text']>
  /** Objects of each picture, the surest first. */
  findObjects(pictures: readonly Picture[], threshold: number): Promise<Answers['objects']>
  /** What each picture looks like, pictures.length * `appearanceSize` values. */
  seeAppearance(pictures: readonly Picture[]): Promise<Float32Array>
  /** Unit vectors, texts.length * 512 values. */
  embed(texts: readonly string[]): Promise<Float32Array>
  /** Finishes what has begun, refuses what waits, then stops the threads. */
  close(): Promise<void>
}

export interface PerceptionOptions {
  threads: number
  /** Where converted models are kept; null converts again in every process. */
  cacheDirectory: string | null
}

/** Threads start with the first request and do not keep the process alive while idle. Rejections are damaged installations: they throw. */
export function openPerception({ threads, cacheDirectory }: PerceptionOptions): Perception {
  const started: PerceptionThread[] = []
  let closed = false

  function thread(kind: PerceptionRequest['kind']): PerceptionThread {
    if (closed) throw new Error('the agents are closed')
    const idle = started.find(({ load }) => load() === 0)
    // Sentence vectors come from the first thread alone, so that only one holds that model.
    if (kind === 'embed' && started.length > 0) return started[0]!
    if (idle) return idle
    if (started.length < threads) started.push(startThread({ cacheDirectory }))
    return started.reduce((least, other) => (other.load() < least.load() ? other : least))
  }
  async function ask<K extends keyof Answers>(request: PerceptionRequest & { kind: K }): Promise<Answers[K]> {
    return (await thread(request.kind).ask(request)) as Answers[K]
  }
  return {
    readText: (pictures, minimumScore) => ask({ kind: 'text', pictures: pictures.map(bare), minimumScore }),
    findObjects: (pictures, threshold) => ask({ kind: 'objects', pictures: pictures.map(bare), threshold }),
    seeAppearance: (pictures) => ask({ kind: 'appearance', pictures: pictures.map(bare) }),
    embed: (texts) => ask({ kind: 'embed', texts }),
    async close() {
      closed = true
      await Promise.all(started.map((one) => one.close()))
    },
  }
}

/** Only what the thread needs, in a buffer of its own: frames of one call share a large one. */
function bare({ width, height, data }: Picture): Picture {
  return { width, height, data: data.slice() }
}

interface PerceptionThread {
  load(): number
  ask(request: PerceptionRequest): Promise<unknown>
  close(): Promise<void>
}

function startThread(data: WorkerData): PerceptionThread {
  const worker = new Worker(new URL('./perceptionStart.mjs', import.meta.url), { execArgv: [], workerData: data })
  const pending = new Map<number, { resolve(value: unknown): void; reject(error: Error): void }>()
  let nextId = 0
  let ended: Error | null = null
  const end = (error: Error) => {
    ended ??= error
    for (const { reject } of pending.values()) reject(ended)
    pending.clear()
  }
  worker.unref()
  worker.on('message', (reply: Reply) => {
    const waiting = pending.get(reply.id)
    pending.delete(reply.id)
    if (pending.size === 0) worker.unref()
    if (reply.ok) waiting?.resolve(reply.value)
    else waiting?.reject(new Error(reply.error))
  })
  worker.on('error', (error) => end(new Error(`the perception thread failed: ${error.message}`)))
  worker.on('exit', () => end(new Error('the perception thread is closed')))
  const ask = (request: PerceptionRequest) => {
    if (ended) return Promise.reject(ended)
    const id = nextId++
    return new Promise<unknown>((resolve, reject) => {
      pending.set(id, { resolve, reject })
      worker.ref()
      worker.postMessage({ id, request } satisfies Envelope)
    })
  }
  return {
    load: () => pending.size,
    ask,
    async close() {
      if (ended) return
      const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
      await ask({ kind: 'close' })
      worker.ref()
      await exited
    },
  }
}
