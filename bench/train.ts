/**
 * Speed and memory of supervised and GRPO steps on the model size that the quickstart trains. Prints one JSON line per kind.
 * Usage: tsx bench/train.ts [threads] [steps]
 */

import seedrandom from 'seedrandom'
import { openDevice } from '../src/engine/device.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { grpoOptions, supervisedOptions } from '../src/grpo/options.ts'
import { superviseBatch } from '../src/grpo/supervised.ts'
import { updatePolicy } from '../src/grpo/update.ts'
import { weightShapes } from '../src/policy/architecture.ts'
import { decoderConfig } from '../src/policy/families.ts'

const TOKENS_PER_STEP = 4096
const TARGET_SHARE = 0.1
const [threads = 2, steps = 20] = process.argv.slice(2).map(Number)

const config = decoderConfig({
  model_type: 'qwen2',
  vocab_size: 352,
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  rms_norm_eps: 1e-6,
  rope_theta: 10000,
  tie_word_embeddings: true,
  max_position_embeddings: 1024,
})
const random = seedrandom('bench')
const weights = new Map(
  [...weightShapes(config)].map(([name, shape]) => {
    const length = shape.reduce((a, b) => a * b)
    return [
      name,
      { shape, data: Float32Array.from({ length }, () => (name.includes('norm') ? 1 : 0.08 * (random() - 0.5))) },
    ]
  }),
)

/** Sequences of 100 to 250 tokens, one in ten of them a target. */
function sequences(): { ids: number[]; mask: (0 | 1)[] }[] {
  const rows: { ids: number[]; mask: (0 | 1)[] }[] = []
  for (let tokens = 0; tokens < TOKENS_PER_STEP; tokens += rows.at(-1)!.ids.length) {
    const ids = Array.from({ length: 100 + Math.floor(random() * 150) }, () =>
      Math.floor(random() * config.vocabularySize),
    )
    rows.push({ ids, mask: ids.map((_, t) => (t > 0 && (random() < TARGET_SHARE || t === ids.length - 1) ? 1 : 0)) })
  }
  return rows
}

const device = await openDevice(engineOptions.parse({ threads }))
const trainer = await openTrainer(device, config, { weights })

async function measure(kind: string, step: (rows: ReturnType<typeof sequences>) => Promise<unknown>): Promise<void> {
  const rates: number[] = []
  for (let index = 0; index < steps + 2; index += 1) {
    const rows = sequences()
    const start = performance.now()
    await step(rows)
    const seconds = (performance.now() - start) / 1000
    // The first two build the session and fill the arena.
    if (index >= 2) rates.push(rows.reduce((sum, { ids }) => sum + ids.length, 0) / seconds)
  }
  rates.sort((a, b) => a - b)
  const peakMegabytes = Math.round(process.resourceUsage().maxRSS / 1024)
  console.log(
    JSON.stringify({
      kind,
      threads,
      tokensPerSecond: { median: Math.round(rates[rates.length >> 1]!), best: Math.round(rates.at(-1)!) },
      peakMegabytes,
    }),
  )
}

await measure('supervised', (rows) =>
  superviseBatch(
    trainer,
    rows.map(({ ids, mask }) => ({ ids, weights: mask })),
    supervisedOptions.parse({}),
    { totalSteps: steps },
  ),
)
await measure('grpo', (rows) =>
  updatePolicy(
    trainer,
    rows.map(({ ids, mask }) => ({ ids, actionMask: mask, logprobs: null, advantage: random() - 0.5, value: null })),
    grpoOptions.parse({ oldLogprobs: 'recomputed' }),
    { temperature: 1, totalSteps: steps },
  ),
)
await trainer.close()
await device.close()
