/** Options of the engine: every key and every default, here and nowhere else. */

import { z } from 'zod'

const onnxOptions = z
  .object({
    type: z.literal('onnxruntime').default('onnxruntime').describe('ONNX Runtime, through onnxruntime-node.'),
    threads: z
      .number()
      .int()
      .min(1)
      .max(256)
      .default(2)
      .describe('Threads that one matrix product may use. More than the cores at hand slows everything down.'),
    memoryArena: z
      .boolean()
      .default(true)
      .describe('Keep freed memory for the next run. Faster; costs up to the largest run seen, per session.'),
  })
  .strict()

const tfjsOptions = z
  .object({
    type: z
      .literal('tfjs')
      .describe(
        'TensorFlow.js: on @tensorflow/tfjs-node-gpu or @tensorflow/tfjs-node where one is installed, else on its wasm backend.',
      ),
  })
  .strict()

/** `engine: tfjs` is short for `engine: { type: tfjs }`. */
export const engineOptions = z.preprocess(
  (value) => (typeof value === 'string' ? { type: value } : value),
  z.discriminatedUnion('type', [onnxOptions, tfjsOptions]),
)

export type EngineOptions = z.infer<typeof engineOptions>
export type OnnxOptions = z.infer<typeof onnxOptions>
