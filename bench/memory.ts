/**
 * `npm run bench -- memory [steps]`: is `training.memoryGiB` kept? One JSON line per model and budget: what was planned, and the most that
 * the process had resident while it sampled and updated with rows of mixed lengths, up to the longest that the context allows.
 *
 * Each case is a process of its own (`memory case <model> <GiB> <steps>` runs one). Rows begin alike in groups of eight.
 */

import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import seedrandom from 'seedrandom'
import { runConfig } from '../src/config.ts'
import { openDevice } from '../src/engine/device.ts'
import type { BatchShape } from '../src/grpo/batching.ts'
import { paddedTokens } from '../src/grpo/batching.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import type { PolicyRow } from '../src/grpo/rows.ts'
import { updatePolicy } from '../src/grpo/update.ts'
import { planMemory } from '../src/memory.ts'
import { weightShapes } from '../src/policy/architecture.ts'
import { openDecoder } from '../src/policy/decoder.ts'
import { decoderConfig } from '../src/policy/families.ts'
import { uploadWeights } from '../src/policy/weights.ts'

/** Hidden size, layers, vocabulary, context. */
const MODELS: Record<string, [number, number, number, number]> = {
  quickstart: [128, 4, 352, 512],
  vocabulary: [128, 4, 16_384, 256],
  wide: [256, 6, 1024, 768],
}
const CASES: [string, number][] = [
  ['quickstart', 0.8],
  ['quickstart', 2],
  ['vocabulary', 1],
  ['vocabulary', 3],
  ['wide', 1.5],
  ['wide', 4],
]
const GROUPS = 6
const GROUP = 8

async function measure(model: string, memoryGiB: number, steps: number): Promise<void> {
  const [hidden, layers, vocabulary, context] = MODELS[model]!
  const decoder = decoderConfig({
    model_type: 'qwen2',
    vocab_size: vocabulary,
    hidden_size: hidden,
    intermediate_size: 2 * hidden,
    num_hidden_layers: layers,
    num_attention_heads: 4,
    num_key_value_heads: 4,
    rms_norm_eps: 1e-6,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    max_position_embeddings: context,
  })
  const config = runConfig.parse({
    name: 'memory',
    dataset: { path: 'none' },
    policy: { type: 'checkpoint', path: 'none', rows: 32, cacheTokens: 32 * context },
    reward: { alpha: 0.1 },
    rollout: { concurrency: 32 },
    // More than any budget here allows: it is the budget that bounds.
    grpo: { microBatchTokens: 1_000_000, oldLogprobs: 'recomputed' },
    training: { memoryGiB },
  })
  const plan = planMemory(config, decoder, context)
  if (!plan.ok) throw new Error(plan.failure.message)
  let largest = 0
  const withinMemory = (shape: BatchShape) => {
    const fits = plan.value.withinMemory(shape)
    if (fits) largest = Math.max(largest, paddedTokens(shape))
    return fits
  }

  const random = seedrandom('bench/memory')
  const token = () => Math.floor(random() * vocabulary)
  const weights = new Map(
    [...weightShapes(decoder)].map(([name, shape]) => {
      const length = shape.reduce((a, b) => a * b)
      return [
        name,
        { shape, data: Float32Array.from({ length }, () => Number(name.includes('norm')) + 0.1 * (random() - 0.5)) },
      ]
    }),
  )
  const device = await openDevice(config.engine)
  await uploadWeights(device, decoder, weights)
  const { rows, cacheTokens } = config.policy as { rows: number; cacheTokens: number }
  const sampler = await openDecoder(device, decoder, { rows, cacheTokens })
  const trainer = await openTrainer(device, decoder, { withinMemory })
  for (let step = 0; step < steps; step += 1) {
    const prompts = Array.from({ length: rows }, () => Array.from({ length: context - 20 }, token))
    await Promise.all(
      prompts.map((ids, row) =>
        sampler.generate({ ids, maxTokens: 16, temperature: 1, seed: `${step}/${row}`, isEnd: () => false }),
      ),
    )
    sampler.dropCaches()
    const batch = Array.from({ length: GROUPS }, () => {
      const prompt = Array.from({ length: 8 + Math.floor(random() * 48) }, token)
      return Array.from({ length: GROUP }, (): PolicyRow => {
        const most = context - prompt.length
        const completion = Array.from({ length: 1 + Math.floor(most * random() ** 2) }, token)
        const ids = [...prompt, ...completion].slice(0, context)
        const actionMask = ids.map((_, at): 0 | 1 =>
          at >= prompt.length && (random() < 0.3 || at === ids.length - 1) ? 1 : 0,
        )
        return { ids, actionMask, logprobs: null, advantage: random() - 0.5, value: null }
      })
    }).flat()
    await updatePolicy(trainer, batch, config.grpo, { temperature: 1, totalSteps: steps })
  }
  await trainer.save()
  process.stdout.write(
    `${JSON.stringify({
      bench: 'memory',
      model,
      budgetGiB: memoryGiB,
      peakGiB: Number((process.resourceUsage().maxRSS / 2 ** 20).toFixed(3)),
      largestMicroBatch: largest,
      plan: plan.value.line,
    })}\n`,
  )
  await trainer.close()
  await sampler.close()
  await device.close()
}

const [first, ...rest] = process.argv.slice(2)
if (first === 'case') await measure(rest[0]!, Number(rest[1]), Number(rest[2]))
else {
  for (const [model, budget] of CASES) {
    const words = ['case', model, String(budget), first ?? '6']
    const { status } = spawnSync(process.execPath, [...process.execArgv, fileURLToPath(import.meta.url), ...words], {
      stdio: 'inherit',
    })
    if (status !== 0) process.exitCode = 1
  }
}
