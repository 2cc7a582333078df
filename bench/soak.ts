/**
 * `npm run bench -- soak [steps] [hidden size] [layers]`: does resident memory grow over training steps (default 200, 128, 4)? Each step
 * samples groups, scores them, updates the policy with its reference, and drops the caches, as training does, on rows whose lengths are
 * drawn anew. Prints one JSON line every tenth of the way, and one that compares the second tenth with the last.
 */

import seedrandom from 'seedrandom'
import { openDevice } from '../src/engine/device.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { grpoOptions } from '../src/grpo/options.ts'
import type { PolicyRow } from '../src/grpo/rows.ts'
import { updatePolicy } from '../src/grpo/update.ts'
import { weightShapes } from '../src/policy/architecture.ts'
import { openDecoder } from '../src/policy/decoder.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { uploadWeights } from '../src/policy/weights.ts'

const [steps = 200, hidden = 128, layers = 4] = process.argv.slice(2).map(Number)
const GROUPS = 4
const GROUP = 8
const VOCABULARY = 352

const config = decoderConfig({
  model_type: 'qwen2',
  vocab_size: VOCABULARY,
  hidden_size: hidden,
  intermediate_size: 2 * hidden,
  num_hidden_layers: layers,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  rms_norm_eps: 1e-6,
  rope_theta: 10_000,
  tie_word_embeddings: true,
  max_position_embeddings: 512,
})
const random = seedrandom('bench/soak')
const below = (limit: number) => Math.floor(random() * limit)
const weights = new Map(
  [...weightShapes(config)].map(([name, shape]) => {
    const length = shape.reduce((a, b) => a * b)
    return [
      name,
      { shape, data: Float32Array.from({ length }, () => Number(name.includes('norm')) + 0.1 * (random() - 0.5)) },
    ]
  }),
)
const device = await openDevice(engineOptions.parse({}))
await uploadWeights(device, config, weights)
const decoder = await openDecoder(device, config, { rows: GROUPS * GROUP, cacheTokens: GROUPS * GROUP * 160 })
const trainer = await openTrainer(device, config)
await trainer.keepReference()
const options = grpoOptions.parse({ klCoefficient: 0.01, oldLogprobs: 'recomputed', minibatches: 2 })

async function step(index: number): Promise<void> {
  const rows = await Promise.all(
    Array.from({ length: GROUPS }, () => Array.from({ length: 8 + below(60) }, () => below(VOCABULARY))).flatMap(
      (prompt) =>
        Array.from({ length: GROUP }, async (_, sample): Promise<PolicyRow> => {
          const outcome = await decoder.generate({
            ids: prompt,
            maxTokens: 1 + below(60),
            temperature: 1,
            seed: `${index}/${sample}`,
            isEnd: () => false,
          })
          if (outcome.kind !== 'length') throw new Error(`A row ended with ${outcome.kind}`)
          return {
            ids: [...prompt, ...outcome.ids],
            actionMask: [...prompt.map((): 0 | 1 => 0), ...outcome.ids.map((): 0 | 1 => 1)],
            logprobs: [...prompt.map(() => 0), ...outcome.logprobs],
            advantage: random() - 0.5,
            value: null,
          }
        }),
    ),
  )
  await updatePolicy(trainer, rows, options, { temperature: 1, totalSteps: steps })
  decoder.dropCaches()
}

const mebibytes = (bytes: number) => Number((bytes / 2 ** 20).toFixed(1))
const tenths: { residentMiB: number; heapMiB: number; tensors: number }[] = []
for (let index = 0; index < steps; index += 1) {
  await step(index)
  if ((index + 1) % Math.ceil(steps / 10) !== 0) continue
  globalThis.gc?.()
  const { rss, heapUsed } = process.memoryUsage()
  tenths.push({ residentMiB: mebibytes(rss), heapMiB: mebibytes(heapUsed), tensors: (await device.names()).length })
  process.stdout.write(`${JSON.stringify({ bench: 'soak', step: index + 1, ...tenths.at(-1)! })}\n`)
}
const [begin, end] = [tenths[1]!, tenths.at(-1)!]
process.stdout.write(
  `${JSON.stringify({
    bench: 'soak',
    steps,
    residentGrowthMiB: mebibytes((end.residentMiB - begin.residentMiB) * 2 ** 20),
    heapGrowthMiB: mebibytes((end.heapMiB - begin.heapMiB) * 2 ** 20),
    tensorGrowth: end.tensors - begin.tensors,
  })}\n`,
)
await trainer.close()
await decoder.close()
await device.close()
