/**
 * How fast the embedded policy samples: conversations side by side, groups of 8 with one prompt, several turns each.
 * Prints one JSON line per repetition. Run with `npx tsx bench/sampling.ts [conversations] [repetitions]`; the launcher's malloc
 * settings (see scripts/) matter.
 */
import { engineOptions } from '../src/engine/options.ts'
import { openPolicy } from '../src/policy/embedded.ts'
import { initializeWeights } from '../src/policy/initialize.ts'
import { buildWordTokenizer } from '../src/policy/wordTokenizer.ts'

const conversations = Number(process.argv[2] ?? 128)
const repetitions = Number(process.argv[3] ?? 8)
const turns = 4
const groupSize = 8

const words = Array.from({ length: 340 }, (_, i) => `word${i}`)
const files = buildWordTokenizer(words, ['<answer>', '</answer>'])
const vocab_size = 350
const shape = {
  vocab_size,
  hidden_size: 128,
  intermediate_size: 256,
  num_hidden_layers: 4,
  num_attention_heads: 4,
  num_key_value_heads: 4,
  rope_theta: 10_000,
}
const config = {
  ...shape,
  model_type: 'qwen2',
  rms_norm_eps: 1e-6,
  tie_word_embeddings: true,
  max_position_embeddings: 512,
}
const weights = initializeWeights(shape, { seed: 1, embeddingScale: 0.1, previousTokenHeads: 2 })

const opened = await openPolicy(
  {
    config,
    weights,
    tokenizer: files.tokenizerJson,
    tokenizerConfig: files.tokenizerConfig,
    chatTemplate: files.chatTemplate,
    generationConfig: null,
  },
  engineOptions.parse({ threads: 2 }),
  { name: 'bench', rows: 128, cacheTokens: 65_536 },
)
if (!opened.ok) throw new Error(opened.failure.message)
const policy = opened.value

async function converse(repetition: number, conversation: number): Promise<void> {
  const group = Math.floor(conversation / groupSize)
  const text = (offset: number, length: number) =>
    Array.from({ length }, (_, i) => words[(group * 7 + offset * 13 + i * 3) % words.length]).join(' ')
  let ids = policy.tokenizer.encodePrompt([{ role: 'user', content: text(0, 57) }])
  const session = `${repetition}/${conversation}`
  for (let turn = 0; turn < turns; turn++) {
    const generated = await policy.generate({
      messages: [],
      promptIds: ids,
      sampling: { temperature: 1, maxTokens: 3, stop: ['</answer>'] },
      seed: `${session}/${turn}`,
      session,
    })
    if (!generated.ok) throw new Error(generated.failure.message)
    ids = [
      ...ids,
      ...generated.value.tokenIds!,
      ...policy.tokenizer.encodeContinuation([{ role: 'user', content: text(conversation + turn, 27) }]),
    ]
  }
  policy.endSession(session)
}

let before = policy.statistics()
for (let repetition = 0; repetition < repetitions; repetition++) {
  const begin = performance.now()
  await Promise.all(Array.from({ length: conversations }, (_, conversation) => converse(repetition, conversation)))
  const seconds = (performance.now() - begin) / 1000
  const after = policy.statistics()
  console.log(
    JSON.stringify({
      bench: 'sampling',
      conversations,
      turns,
      seconds: Number(seconds.toFixed(3)),
      runs: after.runs - before.runs,
      tokens: after.tokens - before.tokens,
      paddedTokens: after.paddedTokens - before.paddedTokens,
      pages: after.pages,
      residentMiB: Math.round(process.memoryUsage().rss / 2 ** 20),
    }),
  )
  before = after
  policy.bumpVersion(repetition + 1)
}
await policy.close()
