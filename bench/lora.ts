/**
 * `npm run bench -- lora [--frozen float16] [--prompt 256] [--completion 256] [--steps 3] [--threads 2]`: one LoRA update of a model of
 * Qwen2.5-0.5B's shape (24 layers, hidden 896, vocabulary 151,936, tied head), rank 16 on all seven projections, random weights, one
 * sequence. Prints one JSON line: seconds and CPU seconds of the last step, and the peak resident memory of the whole process.
 * Samples nothing; no weights are read from disk, but they are made tensor by tensor as they would be read.
 */
import { parseArgs } from 'node:util'
import { LazyTensors } from '../src/checkpoint/safetensors.ts'
import { openDevice } from '../src/engine/device.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../src/grpo/options.ts'
import type { PolicyRow } from '../src/grpo/rows.ts'
import { updatePolicy } from '../src/grpo/update.ts'
import { adaptedConfig, newAdapter, trainedOf } from '../src/policy/adapter.ts'
import { weightShapes } from '../src/policy/architecture.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { LORA_TARGETS } from '../src/policy/options.ts'
import { uploadWeights } from '../src/policy/weights.ts'

const { values: words } = parseArgs({
  options: {
    frozen: { type: 'string', default: 'float16' },
    prompt: { type: 'string', default: '256' },
    completion: { type: 'string', default: '256' },
    steps: { type: 'string', default: '3' },
    threads: { type: 'string', default: '2' },
  },
})
const [prompt, completion, steps] = [Number(words.prompt), Number(words.completion), Number(words.steps)]

const model = {
  model_type: 'qwen2',
  vocab_size: 151_936,
  hidden_size: 896,
  intermediate_size: 4864,
  num_hidden_layers: 24,
  num_attention_heads: 14,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 1_000_000,
  tie_word_embeddings: true,
  max_position_embeddings: 32_768,
}

/** Uniform in ±0.03, or 1 for norms: a generator that is quick enough for half a billion numbers. */
function randomTensor(name: string, shape: readonly number[]): Float32Array {
  const data = new Float32Array(shape.reduce((a, b) => a * b))
  if (name.includes('norm')) return data.fill(1)
  let state = name.length * 7919 + 1
  for (let index = 0; index < data.length; index += 1) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    data[index] = state * (0.03 / 2 ** 31)
  }
  return data
}

const shapes = weightShapes(decoderConfig(model))
const weights = new LazyTensors(shapes, (name) => randomTensor(name, shapes.get(name)!))
const adapter = newAdapter(model, 'none', { rank: 16, alpha: 32, targets: [...LORA_TARGETS] }, 1)
const source = { config: model, weights, adapter }
const config = { ...adaptedConfig(source), matrixType: words.frozen as 'float32' | 'float16' }
const trained = trainedOf(source)

const began = performance.now()
const device = await openDevice(engineOptions.parse({ threads: Number(words.threads) }))
await uploadWeights(device, config, { get: (name) => trained.get(name) ?? weights.get(name) })
const loadSeconds = (performance.now() - began) / 1000
const peakOfLoading = process.resourceUsage().maxRSS
const trainer = await openTrainer(device, config)

const ids = Array.from({ length: prompt + completion }, (_, t) => (t * 7919) % model.vocab_size)
const row: PolicyRow = {
  ids,
  actionMask: ids.map((_, t): 0 | 1 => (t < prompt ? 0 : 1)),
  logprobs: ids.map((_, t) => (t < prompt ? 0 : -12)),
  advantage: 1,
  value: null,
}
let last = { seconds: 0, cpuSeconds: 0, gradNorm: 0 }
for (let step = 0; step < steps; step += 1) {
  const [start, cpu] = [performance.now(), process.cpuUsage()]
  const { steps: metrics } = await updatePolicy(trainer, [row], grpoOptions.parse({ microBatchTokens: 8192 }), {
    temperature: 1,
    totalSteps: steps,
  })
  const { user, system } = process.cpuUsage(cpu)
  last = {
    seconds: (performance.now() - start) / 1000,
    cpuSeconds: (user + system) / 1e6,
    gradNorm: metrics[0]!.gradNorm,
  }
}
await trainer.close()
await device.close()

const count = (tensors: Iterable<readonly number[]>) =>
  [...tensors].reduce((sum, shape) => sum + shape.reduce((a, b) => a * b), 0)
const gibibytes = (kilobytes: number) => Number((kilobytes / 2 ** 20).toFixed(2))
console.log(
  JSON.stringify({
    bench: 'lora',
    frozen: words.frozen,
    threads: Number(words.threads),
    prompt,
    completion,
    parameters: count(shapes.values()),
    adapterParameters: count([...trained.values()].map(({ shape }) => shape)),
    loadSeconds,
    ...last,
    peakGibibytes: gibibytes(process.resourceUsage().maxRSS),
    peakGibibytesOfLoading: gibibytes(peakOfLoading),
  }),
)
