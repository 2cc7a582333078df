/**
 * Chooses the backend that TensorFlow.js computes on: its native one when a package with it is installed and loads, else wasm, else
 * plain JavaScript.
 */

import { createRequire } from 'node:module'
import * as tf from '@tensorflow/tfjs'
import '@tensorflow/tfjs-backend-wasm'

/** In order of preference. Only one may be tried in a process: each registers the same kernels, whether it then loads or not. */
const NATIVE = ['@tensorflow/tfjs-node-gpu', '@tensorflow/tfjs-node']

/** Makes the best backend the current one. Says which, and why it is not a native one. */
export async function chooseBackend(): Promise<{ backend: string; note: string | null }> {
  // Without the advice to install the native package, and without checks that are for development.
  tf.enableProdMode()
  const { native, note } = await loadNative()
  if (native !== null) return { backend: native, note: null }
  for (const backend of ['wasm', 'cpu']) {
    if (await tf.setBackend(backend)) return { backend, note }
  }
  throw new Error('TensorFlow.js has no backend that starts here: neither native nor wasm nor cpu')
}

async function loadNative(): Promise<{ native: string | null; note: string | null }> {
  const { resolve } = createRequire(import.meta.url)
  const installed = NATIVE.find((name) => {
    try {
      return resolve(name) !== ''
    } catch {
      return false
    }
  })
  if (installed === undefined) return { native: null, note: `neither ${NATIVE.join(' nor ')} is installed` }
  try {
    // A package whose download failed may be there without its library; it fails in various ways.
    await import(installed)
    if (!(await tf.setBackend('tensorflow'))) throw new Error('its backend does not start')
    tf.tidy(() => tf.add(tf.scalar(1), tf.scalar(1)).dataSync())
    const { isUsingGpuDevice } = tf.backend() as { isUsingGpuDevice?: boolean }
    return { native: `${installed} (${isUsingGpuDevice ? 'GPU' : 'CPU'})`, note: null }
  } catch (error) {
    const reason = String((error as Error)?.message ?? error).split(/\n|\. /)[0]
    return { native: null, note: `${installed} is installed but cannot be loaded: ${reason}` }
  }
}
