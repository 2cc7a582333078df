/** Options of the engine: every key and every default, here and nowhere else. */

import { z } from 'zod'

const EXECUTION_PROVIDERS = ['cuda', 'webgpu', 'coreml', 'dml', 'cpu'] as const

const onnxOptions = z
  .object({
    type: z.literal('onnxruntime').describe('ONNX Runtime, through onnxruntime-node; the default.'),
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
    executionProviders: z
      .array(z.enum(EXECUTION_PROVIDERS))
      .min(1)
      .default(['cpu'])
      .describe('What runs the graphs, the first that can; operators that none of them has run on the CPU.'),
    fallback: z
      .boolean()
      .default(false)
      .describe('Do without an execution provider that does not start here, and say so, rather than fail.'),
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
  (value) => {
    if (typeof value === 'string') return { type: value }
    const typeless = value !== null && typeof value === 'object' && !('type' in value)
    return typeless ? { type: 'onnxruntime', ...value } : value
  },
  z.discriminatedUnion('type', [onnxOptions, tfjsOptions]),
)

export type EngineOptions = z.infer<typeof engineOptions>
export type ExecutionProvider = (typeof EXECUTION_PROVIDERS)[number]
export type OnnxOptions = z.infer<typeof onnxOptions>
