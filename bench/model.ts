/**
 * `npm run bench -- model --path <directory> [--expected forward.json] [--rows 1,8,32] [--tokens 64] [--threads 2]`: a real model. Prints
 * JSON lines: how its token ids, log-probabilities and greedy texts compare with those of transformers (`scripts/golden/forward.py` writes
 * them), and how many tokens per second it samples, at a forced length, by number of conversations at once. All conversations have the
 * same short prompt, which is prefilled once here and once per conversation there.
 */
import { readFile } from 'node:fs/promises'
import { parseArgs } from 'node:util'
import { loadCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { engineOptions } from '../src/engine/options.ts'
import { openTrainer } from '../src/grpo/deviceTrainer.ts'
import { openDecoder } from '../src/policy/decoder.ts'
import { openPolicy } from '../src/policy/embedded.ts'
import type { Message } from '../src/types.ts'

interface Expected {
  /** `logprobs[t]` is that of token t + 1 of `ids` and `greedy` together. */
  chats: { messages: Message[]; ids: number[]; greedy: number[]; logprobs: number[] }[]
  speed: { conversations: number; tokensPerSecond: number; tokensPerCpuSecond: number }[]
}

const { values: words } = parseArgs({
  options: {
    path: { type: 'string' },
    expected: { type: 'string' },
    rows: { type: 'string', default: '1,8,32' },
    tokens: { type: 'string', default: '64' },
    threads: { type: 'string', default: '2' },
  },
})
if (words.path === undefined) throw new Error('--path: expected the directory of a model')
const loaded = await loadCheckpoint(words.path)
if (!loaded.ok) throw new Error(loaded.failure.message)
const opened = await openPolicy(loaded.value, engineOptions.parse({ threads: Number(words.threads) }), {
  name: words.path,
  rows: 8,
  cacheTokens: 8192,
})
if (!opened.ok) throw new Error(opened.failure.message)
const policy = opened.value
const expected: Expected | null =
  words.expected === undefined ? null : (JSON.parse(await readFile(words.expected, 'utf8')) as Expected)
if (expected !== null) await compare(expected.chats)

const maxTokens = Number(words.tokens)
const prompt = policy.tokenizer.encodePrompt([{ role: 'user', content: 'Tell me about the sea.' }])
for (const conversations of words.rows.split(',').filter(Boolean).map(Number)) {
  const theirs = expected?.speed.find((speed) => speed.conversations === conversations)
  print({
    bench: 'model',
    conversations,
    tokens: conversations * maxTokens,
    ...(await speed(conversations)),
    transformersTokensPerSecond: theirs?.tokensPerSecond,
    transformersTokensPerCpuSecond: theirs?.tokensPerCpuSecond,
  })
}
await policy.close()

async function compare(chats: Expected['chats']): Promise<void> {
  const trainer = await openTrainer(policy.device, policy.config)
  const sequences = chats.map(({ ids, greedy }) => [...ids, ...greedy])
  const scored = await trainer.score(
    sequences.map((ids) => ({ ids, positions: [...ids.keys()].slice(1) })),
    { temperature: 1, weights: 'policy', microBatchTokens: 512 },
  )
  await trainer.close()
  const differences = scored.flatMap((logprobs, row) =>
    [...logprobs].map((logprob, t) => Math.abs(logprob - chats[row]!.logprobs[t]!)),
  )
  let sameIds = 0
  let sameGreedy = 0
  for (const { messages, ids, greedy } of chats) {
    if (policy.tokenizer.encodePrompt(messages).join() === ids.join()) sameIds += 1
    const sampling = { temperature: 0, maxTokens: greedy.length, stop: [] }
    const result = await policy.generate({ messages, promptIds: ids, sampling, seed: '0' })
    if (!result.ok) throw new Error(result.failure.message)
    if (result.value.tokenIds?.join() === greedy.join()) sameGreedy += 1
  }
  print({
    bench: 'model',
    chats: chats.length,
    sameIds,
    sameGreedy,
    greedyTokens: chats.reduce((sum, { greedy }) => sum + greedy.length, 0),
    logprobs: differences.length,
    maxLogprobDiff: differences.reduce((most, one) => Math.max(most, one), 0),
    meanLogprobDiff: differences.reduce((sum, one) => sum + one, 0) / differences.length,
  })
}

/** Of the second of two rounds. */
async function speed(rows: number): Promise<Record<'tokensPerSecond' | 'tokensPerCpuSecond', number>> {
  const decoder = await openDecoder(policy.device, policy.config, {
    rows,
    cacheTokens: rows * (prompt.length + maxTokens + 32),
  })
  const sample = (round: number) =>
    Promise.all(
      Array.from({ length: rows }, (_, row) =>
        decoder.generate({ ids: prompt, maxTokens, temperature: 1, seed: `${round}/${row}`, isEnd: () => false }),
      ),
    )
  await sample(0)
  const [began, cpu] = [performance.now(), process.cpuUsage()]
  await sample(1)
  const seconds = (performance.now() - began) / 1000
  const { user, system } = process.cpuUsage(cpu)
  await decoder.close()
  return {
    tokensPerSecond: (rows * maxTokens) / seconds,
    tokensPerCpuSecond: (rows * maxTokens * 1e6) / (user + system),
  }
}

function print(line: Record<string, unknown>): void {
  process.stdout.write(
    `${JSON.stringify(line, (_, value) => (typeof value === 'number' ? Number(value.toPrecision(4)) : value))}\n`,
  )
}
