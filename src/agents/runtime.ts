/**
 * ONNX sessions with the settings that fit several small models beside a training engine: one thread each, no spinning.
 * `run` blocks the event loop of the thread it is called in: call it in the perception thread only.
 */
import * as ort from 'onnxruntime-node'

export type Feeds = Record<string, ort.Tensor>

/** A model's forward pass: named tensors in, named tensors out. */
export type Run = (feeds: Feeds) => Promise<Record<string, ort.Tensor>>

/** `model` is a path or ONNX bytes. Throws when ONNX Runtime rejects it. */
export async function openSession(model: string | Uint8Array): Promise<Run> {
  const options: ort.InferenceSession.SessionOptions = {
    executionProviders: ['cpu'],
    intraOpNumThreads: 1,
    interOpNumThreads: 1,
    executionMode: 'sequential',
    logSeverityLevel: 3,
    extra: { session: { intra_op: { allow_spinning: '0' } } },
  }
  const session =
    typeof model === 'string'
      ? await ort.InferenceSession.create(model, options)
      : await ort.InferenceSession.create(model, options)
  return (feeds) => session.run(feeds) as Promise<Record<string, ort.Tensor>>
}

export function floatTensor(data: Float32Array, dims: readonly number[]): ort.Tensor {
  return new ort.Tensor('float32', data, dims)
}

export function integerTensor(values: readonly number[], dims: readonly number[]): ort.Tensor {
  return new ort.Tensor('int64', BigInt64Array.from(values, BigInt), dims)
}
