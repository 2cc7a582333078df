/**
 * The device thread: opens the engine that the options name, and carries out one request after another.
 * It stops by message: terminating it in the middle of a run aborts the process.
 */

import { parentPort } from 'node:worker_threads'
import type { EngineOptions } from './options.ts'
import type { Call, Device, Envelope, Reply, TensorData } from './protocol.ts'

const port = parentPort
if (port === null) throw new Error('engine/worker.ts runs only as a worker thread')

let device: Device | null = null

let queue: Promise<void> = Promise.resolve()
port.on('message', (envelope: Envelope) => {
  queue = queue.then(() => handle(envelope))
})

async function handle({ id, call }: Envelope): Promise<void> {
  let reply: Reply
  let transfer: ArrayBuffer[] = []
  try {
    const value = await answer(call)
    transfer = buffersOf(value)
    reply = { id, ok: true, value }
  } catch (error) {
    reply = { id, ok: false, error: error instanceof Error ? error.message : String(error) }
  }
  port!.postMessage(reply, transfer)
  if (call.method === 'close') port!.close()
}

async function answer(call: Call): Promise<unknown> {
  if (call.method === 'close' && device === null) return null
  if (call.method === 'open') {
    device = await open(...call.arguments)
    return device.inUse
  }
  const method = device![call.method] as (...given: readonly unknown[]) => Promise<unknown>
  return method(...call.arguments)
}

/** An engine that is not used is not loaded. */
async function open(options: EngineOptions): Promise<Device> {
  if (options.type === 'tfjs') return (await import('./tfjs/device.ts')).openTfjsDevice()
  return (await import('./onnx/device.ts')).openOnnxDevice(options)
}

/** Buffers of the tensors in a reply, to be moved rather than copied: none of them is used here afterwards. */
function buffersOf(value: unknown): ArrayBuffer[] {
  if (value === null || typeof value !== 'object') return []
  const found: TensorData[] = (Array.isArray(value) ? value : Object.values(value)).filter(
    (item) => item?.data?.buffer instanceof ArrayBuffer,
  )
  return [...new Set(found.map((tensor) => tensor.data.buffer as ArrayBuffer))]
}
