/**
 * A perception thread: holds the embedded models and answers one request after another. Models are opened when first needed.
 * It stops by message only: terminating a thread in the middle of an ONNX Runtime call aborts the process.
 */
import { fileURLToPath } from 'node:url'
import { parentPort, workerData } from 'node:worker_threads'
import { appearanceSize, featuresNode, openAppearance } from './appearance.ts'
import { dominantColour, panelColour } from './colours.ts'
import { openDetector } from './detector.ts'
import { reasonOf } from './failure.ts'
import { loadGraphModel } from './graphModel.ts'
import { openTextReader } from './ocr.ts'
import type { Answers, Envelope, PerceptionRequest, Reply, WorkerData } from './perception.ts'
import { openSentenceEncoder } from './sentenceEncoder.ts'

const port = parentPort
if (port === null) throw new Error('perceptionWorker.ts runs only as a worker thread')
const { cacheDirectory } = workerData as WorkerData

const textReader = once(openTextReader)
const sentenceEncoder = once(() => openSentenceEncoder(cacheDirectory))
const weights = fileURLToPath(new URL('./weights/nanodet.json', import.meta.url))
const appearance = once(async () =>
  openAppearance(await loadGraphModel(weights, { outputs: [featuresNode], cacheDirectory })),
)
const detector = once(async () => openDetector(await loadGraphModel(weights, { cacheDirectory })))

let queue: Promise<void> = Promise.resolve()
let closing = false
port.on('message', (envelope: Envelope) => {
  // Nobody waits for what is still in the queue then, and a user who wants to stop should not either.
  if (envelope.request.kind === 'close') closing = true
  queue = queue.then(() => handle(envelope))
})

async function handle({ id, request }: Envelope): Promise<void> {
  let reply: Reply
  const transfer: ArrayBuffer[] = []
  try {
    if (closing && request.kind !== 'close') throw new Error('the agents are closed')
    const value = await answer(request)
    if (value instanceof Float32Array) transfer.push(value.buffer as ArrayBuffer)
    reply = { id, ok: true, value }
  } catch (error) {
    reply = { id, ok: false, error: reasonOf(error) }
  }
  port!.postMessage(reply, transfer)
  if (request.kind === 'close') port!.close()
}

async function answer(request: PerceptionRequest): Promise<Answers[keyof Answers]> {
  switch (request.kind) {
    case 'text': {
      const lines = await (await textReader())(request.pictures, request.minimumScore)
      return request.pictures.map((picture, index) => ({
        lines: lines[index]!.map((line) => ({ ...line, panel: panelColour(picture, line.box) })),
        colour: dominantColour(picture),
      }))
    }
    case 'objects': {
      const detect = await detector()
      const found = []
      for (const picture of request.pictures) found.push(await detect(picture, request.threshold))
      return found
    }
    case 'appearance': {
      const see = await appearance()
      const seen = new Float32Array(request.pictures.length * appearanceSize)
      for (const [index, picture] of request.pictures.entries()) seen.set(await see(picture), index * appearanceSize)
      return seen
    }
    case 'embed':
      return (await sentenceEncoder())(request.texts)
    case 'close':
      return null
  }
}

function once<T>(open: () => Promise<T>): () => Promise<T> {
  let opened: Promise<T> | null = null
  return () => (opened ??= open())
}
