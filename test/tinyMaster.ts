/** A random master small enough for tests of the loop: it has the real vocabulary and learns nothing worth measuring. */
import { saveCheckpoint } from '../src/checkpoint/checkpoint.ts'
import { SPECIAL_TOKENS, VOCABULARY } from '../src/lessons.ts'
import { initializeWeights } from '../src/policy/initialize.ts'
import { buildWordTokenizer } from '../src/policy/wordTokenizer.ts'

export async function tinyMaster(directory: string): Promise<void> {
  const files = buildWordTokenizer(VOCABULARY, SPECIAL_TOKENS)
  const vocabulary = (files.tokenizerJson.model as { vocab: Record<string, number> }).vocab
  const config = {
    architectures: ['Qwen2ForCausalLM'],
    model_type: 'qwen2',
    hidden_size: 32,
    intermediate_size: 48,
    num_hidden_layers: 2,
    num_attention_heads: 2,
    num_key_value_heads: 2,
    hidden_act: 'silu',
    max_position_embeddings: 512,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    tie_word_embeddings: true,
    vocab_size: Object.keys(vocabulary).length,
    eos_token_id: vocabulary['<|end|>'],
  }
  const weights = initializeWeights(config, { seed: 1, embeddingScale: 0.1, previousTokenHeads: 1 })
  const saved = await saveCheckpoint(directory, {
    config,
    generationConfig: null,
    tokenizer: files.tokenizerJson,
    tokenizerConfig: files.tokenizerConfig,
    chatTemplate: files.chatTemplate,
    weights,
    training: null,
  })
  if (!saved.ok) throw new Error(saved.failure.message)
}
