/**
 * The client of the device thread (`worker.ts`): every verb of `Device` is a message, and its answer another. It does not know what the
 * tensors mean.
 */

import { Worker } from 'node:worker_threads'
import type { EngineOptions } from './options.ts'
import type { Call, Device, EngineInUse, Reply } from './protocol.ts'

export type { Device } from './protocol.ts'

/** Starts a device thread. Fails when the engine that is asked for cannot be opened. */
export async function openDevice(options: EngineOptions): Promise<Device> {
  const worker = new Worker(new URL('./worker-start.mjs', import.meta.url), { execArgv: [] })
  const pending = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>()
  let nextId = 0
  let ended: Error | null = null
  let closing = false

  const fail = (error: Error) => {
    ended ??= error
    for (const { reject } of pending.values()) reject(ended)
    pending.clear()
  }
  worker.on('message', (reply: Reply) => {
    const waiting = pending.get(reply.id)
    pending.delete(reply.id)
    // An idle device does not keep the process alive.
    if (pending.size === 0) worker.unref()
    if (reply.ok) waiting?.resolve(reply.value)
    else waiting?.reject(new Error(reply.error))
  })
  worker.on('error', (error) => fail(new Error(`The engine's thread failed: ${error.message}`)))
  worker.on('exit', (code) =>
    fail(new Error(closing ? 'The engine is closed' : `The engine's thread ended unexpectedly, with code ${code}`)),
  )

  function ask<T>(call: Call): Promise<T> {
    if (ended !== null) return Promise.reject(ended)
    const id = nextId
    nextId += 1
    return new Promise<T>((resolve, reject) => {
      // First, since it throws on what cannot be sent.
      worker.postMessage({ id, call })
      pending.set(id, { resolve: resolve as (value: unknown) => void, reject })
      worker.ref()
    })
  }

  async function close(): Promise<void> {
    if (ended !== null) return
    closing = true
    const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
    await ask({ method: 'close', arguments: [] })
    worker.ref()
    await exited
  }

  let inUse: EngineInUse
  try {
    inUse = await ask<EngineInUse>({ method: 'open', arguments: [options] })
  } catch (error) {
    await close()
    throw error
  }
  return {
    inUse,
    upload: (...given) => ask({ method: 'upload', arguments: given }),
    download: (...given) => ask({ method: 'download', arguments: given }),
    copy: (...given) => ask({ method: 'copy', arguments: given }),
    remove: (...given) => ask({ method: 'remove', arguments: given }),
    names: () => ask({ method: 'names', arguments: [] }),
    createSession: (...given) => ask({ method: 'createSession', arguments: given }),
    releaseSession: (...given) => ask({ method: 'releaseSession', arguments: given }),
    run: (...given) => ask({ method: 'run', arguments: given }),
    squaredNorms: (...given) => ask({ method: 'squaredNorms', arguments: given }),
    adamw: (...given) => ask({ method: 'adamw', arguments: given }),
    close,
  }
}
