/**
 * A tokenizer of whole words for small models, in the Hugging Face format, so that transformers and vLLM load it as it is.
 * Builds the files only; `tokenizer.ts` reads them like those of any other model.
 *
 * Text is lower-cased, accents are dropped, and it is split at white space and punctuation. A word that is not in the list
 * becomes `<unk>`. Decoding joins words with single spaces and puts none beside a tag: `<visual_query>red sign</visual_query>`.
 */

export interface TokenizerFiles {
  tokenizerJson: Record<string, unknown>
  tokenizerConfig: Record<string, unknown>
  chatTemplate: string
}

const UNKNOWN = '<unk>'
const PADDING = '<|pad|>'
const END = '<|end|>'

const CHAT_TEMPLATE =
  '{% for m in messages %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}'

/**
 * @param words lower-case words and punctuation marks; pieces that continue a word begin with `##` (`sign`, `##s`).
 * @param specialTokens read as one token each wherever they stand: tags such as `<answer>`, and keys of JSON in their quotes, such as
 *   `"score"`. Those in bars (`<|user|>`) are left out of decoded text when a reader asks to skip special tokens; the others are not, since
 *   they are what the policy says.
 * Ids: padding 0, unknown 1, then the special tokens, then the words, each in the order given.
 */
export function buildWordTokenizer(words: readonly string[], specialTokens: readonly string[]): TokenizerFiles {
  const added = [...new Set([PADDING, UNKNOWN, '<|system|>', '<|user|>', '<|assistant|>', END, ...specialTokens])]
  for (const token of added) {
    if (!isSpecial(token))
      throw new Error(`special token ${JSON.stringify(token)}: expected <...> or "..." without white space`)
  }
  const vocabulary = [...new Set([...added, ...words])]
  return {
    tokenizerJson: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: added.map(addedToken),
      normalizer: {
        type: 'BertNormalizer',
        clean_text: true,
        handle_chinese_chars: true,
        strip_accents: null,
        lowercase: true,
      },
      pre_tokenizer: { type: 'BertPreTokenizer' },
      post_processor: null,
      decoder: {
        type: 'Sequence',
        decoders: [
          { type: 'WordPiece', prefix: '##', cleanup: false },
          { type: 'Fuse' },
          // `<unk>` stands for a word and keeps its spaces; every other tag loses them.
          { type: 'Replace', pattern: { Regex: '(?<=[^ ]>)(?<!<unk>) ' }, content: '' },
          { type: 'Replace', pattern: { Regex: ' (?=<[^ ])(?!<unk>)' }, content: '' },
        ],
      },
      model: {
        type: 'WordPiece',
        unk_token: UNKNOWN,
        continuing_subword_prefix: '##',
        max_input_chars_per_word: 100,
        vocab: Object.fromEntries(vocabulary.map((token, id) => [token, id])),
      },
    },
    tokenizerConfig: {
      tokenizer_class: 'PreTrainedTokenizerFast',
      unk_token: UNKNOWN,
      pad_token: PADDING,
      eos_token: END,
      // Otherwise readers write "mug?" for the words "mug" and "?", which is not what was sampled.
      clean_up_tokenization_spaces: false,
      model_max_length: 1e9,
    },
    chatTemplate: CHAT_TEMPLATE,
  }
}

/** The same tokenizer with more tokens behind those that it has, whose ids stay. Tags and quoted keys are read as one token wherever they stand. */
export function extendWordTokenizer(
  tokenizerJson: Record<string, unknown>,
  tokens: readonly string[],
): Record<string, unknown> {
  const { model, added_tokens, ...rest } = tokenizerJson as {
    model: { vocab: Record<string, number> }
    added_tokens: object[]
  }
  const known = Object.keys(model.vocab).length
  const further = [...new Set(tokens)].filter((token) => !(token in model.vocab))
  const ids = new Map(further.map((token, i) => [token, known + i]))
  return {
    ...rest,
    added_tokens: [...added_tokens, ...further.filter(isSpecial).map((token) => addedToken(token, ids.get(token)!))],
    model: { ...model, vocab: { ...model.vocab, ...Object.fromEntries(ids) } },
  }
}

function isSpecial(token: string): boolean {
  return /^(<\S+>|"\S+")$/.test(token)
}

function addedToken(content: string, id: number) {
  return {
    id,
    content,
    single_word: false,
    lstrip: false,
    rstrip: false,
    normalized: false,
    special: content === UNKNOWN || /^<\|.*\|>$/.test(content),
  }
}
