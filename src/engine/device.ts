/**
 * The client of the device thread (`worker.ts`): named tensors, sessions and runs behind promises. Requests are carried out in the
 * order in which they are made. It does not know what the tensors mean.
 */

import { Worker } from 'node:worker_threads'
import type { EngineOptions } from './options.ts'
import type { Program } from './program.ts'
import type { AdamwRequest, DeviceRequest, Reply, RunRequest, TensorData } from './protocol.ts'

export interface Device {
  /** Places tensors on the device under these names. The arrays are copied; later changes to them are not seen. */
  upload(tensors: ReadonlyMap<string, TensorData>): Promise<void>
  /** Copies of named tensors, in the order asked for. */
  download(names: readonly string[]): Promise<TensorData[]>
  copy(from: string, to: string): Promise<void>
  /** Forgets tensors; unknown names are ignored. */
  remove(names: readonly string[]): Promise<void>
  /** Names of the tensors that the device holds. */
  names(): Promise<string[]>
  /** Makes a program ready to run; `bind` gives the named tensors that stand for some of its inputs in every run. */
  createSession(session: string, program: Program, bind?: Readonly<Record<string, string>>): Promise<void>
  releaseSession(session: string): Promise<void>
  /** Runs a session; resolves to the outputs in `fetch`. */
  run(request: RunRequest): Promise<Record<string, TensorData>>
  /** Sum of squares of each tensor, in float64: not finite when any entry is not. */
  squaredNorms(names: readonly string[]): Promise<number[]>
  adamw(request: AdamwRequest): Promise<void>
  /** Finishes what was asked for, then stops the thread. */
  close(): Promise<void>
}

/** Starts a device thread. */
export async function openDevice(options: EngineOptions): Promise<Device> {
  const worker = new Worker(new URL('./worker-start.mjs', import.meta.url), { execArgv: [] })
  const pending = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>()
  let nextId = 0
  let ended: Error | null = null

  const fail = (error: Error) => {
    ended ??= error
    for (const { reject } of pending.values()) reject(error)
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
  worker.on('exit', () => fail(new Error('The engine is closed')))

  function ask<T>(request: DeviceRequest): Promise<T> {
    if (ended !== null) return Promise.reject(ended)
    const id = nextId
    nextId += 1
    return new Promise<T>((resolve, reject) => {
      pending.set(id, { resolve: resolve as (value: unknown) => void, reject })
      worker.ref()
      worker.postMessage({ id, request })
    })
  }

  await ask({ kind: 'start', options })
  return {
    upload: (tensors) => ask({ kind: 'upload', tensors: [...tensors].map(([name, tensor]) => ({ name, tensor })) }),
    download: (names) => ask({ kind: 'download', names }),
    copy: (from, to) => ask({ kind: 'copy', from, to }),
    remove: (names) => ask({ kind: 'remove', names }),
    names: () => ask({ kind: 'names' }),
    createSession: (session, program, bind = {}) => ask({ kind: 'createSession', session, program, bind }),
    releaseSession: (session) => ask({ kind: 'releaseSession', session }),
    run: (request) => ask({ kind: 'run', run: request }),
    squaredNorms: (names) => ask({ kind: 'squaredNorms', names }),
    adamw: (request) => ask({ kind: 'adamw', adamw: request }),
    async close() {
      if (ended !== null) return
      const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()))
      await ask({ kind: 'close' })
      worker.ref()
      await exited
    },
  }
}
