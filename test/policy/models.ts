/** Models that several tests of this room read: the golden one (../shared, may be absent) and a small one made here. */
import { existsSync, readFileSync } from 'node:fs'
import type { TokenizerSource, TextTokenizer } from '../../src/policy/tokenizer.ts'
import { openTokenizer } from '../../src/policy/tokenizer.ts'
import { buildWordTokenizer } from '../../src/policy/wordTokenizer.ts'

export const goldenDirectory = '../shared/golden/trl-grpo'
export const goldenIsThere = existsSync(`${goldenDirectory}/forward.json`)

export interface GoldenForward {
  input_ids: number[][]
  logprobs: number[][]
  greedy_continuation_of_row_0: number[]
  tokenizer: { text: string; ids: number[] }
  chat: { messages: { role: 'system' | 'user'; content: string }[]; rendered: string; ids: number[] }
}

export function goldenForward(): GoldenForward {
  return JSON.parse(readFileSync(`${goldenDirectory}/forward.json`, 'utf8')) as GoldenForward
}

export const tags = ['<request_grounding/>', '<visual_query>', '</visual_query>', '<answer>', '</answer>', '<turns_left_3>', '<seg01_clip_00>']

export function smallTokenizerSource(): TokenizerSource {
  const words = "what colour is the red sign mug ? : . , ' question options a0 a1 s ##s < > cafe".split(' ')
  const files = buildWordTokenizer(words, tags)
  return { tokenizer: files.tokenizerJson, tokenizerConfig: files.tokenizerConfig, chatTemplate: files.chatTemplate, generationConfig: null, config: {} }
}

export function tokenizerFrom(source: TokenizerSource): TextTokenizer {
  const result = openTokenizer(source, 'test model')
  if (!result.ok) throw new Error(result.failure.message)
  return result.value
}

export function goldenTokenizer(): TextTokenizer {
  const directory = `${goldenDirectory}/tiny-qwen2`
  const json = (name: string) => JSON.parse(readFileSync(`${directory}/${name}`, 'utf8')) as Record<string, unknown>
  return tokenizerFrom({
    tokenizer: json('tokenizer.json'),
    tokenizerConfig: json('tokenizer_config.json'),
    chatTemplate: readFileSync(`${directory}/chat_template.jinja`, 'utf8'),
    generationConfig: json('generation_config.json'),
    config: json('config.json'),
  })
}
