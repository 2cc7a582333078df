/**
 * ONNX Runtime's execution providers: which of those asked for start on this machine, and what to do about those that do not. ONNX
 * Runtime itself leaves out some that it lacks without an error, so each is tried on a small model first.
 */

import * as ort from 'onnxruntime-node'
import type { ExecutionProvider, OnnxOptions } from '../options.ts'
import { ProgramBuilder } from '../program.ts'
import { lowerToOnnx } from './lower.ts'

const HINTS: Record<Exclude<ExecutionProvider, 'cpu'>, string> = {
  cuda: 'linux/x64 only: needs an NVIDIA driver, CUDA 12 and cuDNN 9, and files that this installation skips: fetch them with "node node_modules/onnxruntime-node/script/install.js --onnxruntime-node-install=cuda12"',
  webgpu:
    'windows, macOS and linux/x64: needs a graphics driver, on linux a Vulkan driver with a device (check with "vulkaninfo --summary")',
  coreml: 'macOS only',
  dml: 'windows only, with a DirectX 12 device',
}

/**
 * The providers that runs shall use, in order. Throws an Error that names one which does not start, unless `fallback` lets it be left out:
 * then `note` says so. What no provider takes runs on the CPU in any case.
 */
export async function startableProviders({
  executionProviders,
  fallback,
}: Pick<OnnxOptions, 'executionProviders' | 'fallback'>): Promise<{
  providers: ExecutionProvider[]
  note: string | null
}> {
  const providers: ExecutionProvider[] = []
  const notes: string[] = []
  for (const provider of executionProviders) {
    const reason = provider === 'cpu' ? null : await reasonNotToStart(provider)
    if (provider === 'cpu' || reason === null) {
      providers.push(provider)
      continue
    }
    const problem = `${provider} does not start here: ${reason}; ${HINTS[provider]}`
    if (!fallback)
      throw new Error(`engine.executionProviders: ${problem}; or set engine.fallback to true, to do without it`)
    notes.push(problem)
  }
  return { providers: providers.length === 0 ? ['cpu'] : providers, note: notes.length === 0 ? null : notes.join('; ') }
}

/** Null when a model runs on it. */
async function reasonNotToStart(provider: ExecutionProvider): Promise<string | null> {
  const program = new ProgramBuilder()
  program.output('y', program.ops.add(program.input('x', 'float32', [1]), program.ops.scalar(1)))
  try {
    const session = await ort.InferenceSession.create(lowerToOnnx(program.build()), { executionProviders: [provider] })
    await session.run({ x: new ort.Tensor('float32', Float32Array.of(1), [1]) })
    await session.release()
    return null
  } catch (error) {
    const message = (error as Error).message.trim()
    if (message.includes('backend not found')) return "this platform's onnxruntime-node lacks it"
    // After the place in ONNX Runtime's sources, where it names one.
    return message.replace(/^.*was false\. /s, '').replaceAll('\n', ' ')
  }
}
