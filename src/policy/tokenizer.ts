/**
 * Text to token ids and back for one model: Hugging Face `tokenizer.json` and chat template.
 * Rendering is done once per prompt and once per observation; what was sampled is never rendered or tokenised again.
 */
import { Template } from '@huggingface/jinja'
import { Tokenizer } from '@huggingface/tokenizers'
import type { ChatMessage, ChatTokenizer, Message, PromptSettings, Result, ToolSyntax } from '../types.ts'

/** The files of a model directory that say how it reads text; a loaded `Checkpoint` has them. */
export interface TokenizerSource {
  tokenizer: Record<string, unknown> | null
  tokenizerConfig: Record<string, unknown> | null
  chatTemplate: string | null
  generationConfig: Record<string, unknown> | null
  config: Record<string, unknown>
}

export interface TextTokenizer extends ChatTokenizer {
  /** Ids of plain text; nothing is added around it. Tags in the text become their own tokens. */
  encode(text: string): number[]
  /** The whole conversation as text, ending after the last message or where the assistant begins to write. */
  render(messages: readonly ChatMessage[], addGenerationPrompt: boolean, settings?: PromptSettings): string
  idOf(token: string): number | undefined
  /** Ids that end a message: those of generation_config.json, config.json and tokenizer_config.json, and what the template ends one with. */
  readonly endIds: ReadonlySet<number>
  readonly vocabularySize: number
}

/** Stands for what the assistant wrote when we look for what the template puts after it. */
const PLACEHOLDER = 'PLACEHOLDER-OF-WHAT-WAS-SAMPLED'

/** Llama 3's templates write today's date unless they are given one: a prompt must not depend on the clock. This is their own default. */
const PROMPT_DATE = '26 Jul 2024'

/** Words or texts remembered before the memory starts anew. */
const CACHE_ENTRIES = 50_000

export function openTokenizer(source: TokenizerSource, name: string): Result<TextTokenizer> {
  const bad = (message: string): Result<TextTokenizer> => ({
    ok: false,
    failure: { boundary: 'policy', kind: 'bad_file', message: `${name}: ${message}` },
  })
  if (source.tokenizer === null) return bad('no tokenizer.json; expected one beside the weights')
  const settings = source.tokenizerConfig ?? {}
  const templateText = source.chatTemplate ?? defaultTemplate(settings.chat_template)
  if (templateText === null) return bad('no chat template, neither chat_template.jinja nor in tokenizer_config.json')
  let library: Tokenizer
  let template: Template
  try {
    library = new Tokenizer(source.tokenizer, settings)
    template = new Template(templateText)
  } catch (error) {
    return bad(`tokenizer or chat template not understood: ${(error as Error).message}`)
  }
  const specialTokens = namedTokens(settings)
  const encode = cached((text) => library.encode(text, { add_special_tokens: false }).ids, source.tokenizer)
  const render = (messages: readonly ChatMessage[], addGenerationPrompt: boolean, settings: PromptSettings = {}) =>
    template.render({
      ...specialTokens,
      date_string: PROMPT_DATE,
      ...(settings.tools ? { tools: settings.tools } : {}),
      ...settings.variables,
      messages: messages.map((message) => ({ ...message })),
      add_generation_prompt: addGenerationPrompt,
    })
  const idOf = (token: string) => library.token_to_id(token)
  const toolSyntax = toolSyntaxOf(templateText)
  return {
    ok: true,
    value: {
      encode,
      render,
      idOf,
      encodePrompt(messages, settings = {}) {
        if (settings.opening !== 'final message') return encode(render(messages, settings.opening !== 'none', settings))
        const last = messages.at(-1)!
        const text = render([...messages.slice(0, -1), { ...last, content: PLACEHOLDER }], false, settings)
        const at = text.lastIndexOf(PLACEHOLDER)
        if (at < 0) throw new Error('it does not write what the assistant said, so a message cannot be continued')
        return encode(text.slice(0, at) + last.content)
      },
      encodeContinuation(messages) {
        const text = render(
          [{ role: 'user', content: '' }, { role: 'assistant', content: PLACEHOLDER }, ...messages],
          true,
        )
        const at = text.indexOf(PLACEHOLDER)
        if (at < 0)
          throw new Error(
            `${name}: the chat template does not write what the assistant said, so a conversation cannot be continued`,
          )
        return encode(text.slice(at + PLACEHOLDER.length))
      },
      decode: (ids, skipSpecial = false) =>
        ids.length === 0
          ? ''
          : library.decode([...ids], { skip_special_tokens: skipSpecial, clean_up_tokenization_spaces: false }),
      ...(toolSyntax === null ? {} : { toolSyntax }),
      endIds: new Set([...endIds(source, idOf), ...turnEnd(render, source.tokenizer, idOf)]),
      vocabularySize: library.get_vocab().size,
    },
  }
}

/**
 * `encode` with a memory. Where the tokenizer splits at white space anyway and no token holds any, each piece between spaces
 * is tokenised once; elsewhere whole texts are remembered (the same observation is read by every sample of a group).
 */
function cached(
  encode: (text: string) => number[],
  tokenizerJson: Record<string, unknown>,
): (text: string) => number[] {
  const memory = new Map<string, readonly number[]>()
  const remembered = (text: string): readonly number[] => {
    let ids = memory.get(text)
    if (ids === undefined) {
      if (memory.size >= CACHE_ENTRIES) memory.clear()
      ids = text === '' ? [] : encode(text)
      memory.set(text, ids)
    }
    return ids
  }
  if (!splitsAtSpaces(tokenizerJson)) return (text) => [...remembered(text)]
  return (text) => {
    const ids: number[] = []
    // Only the characters that every such tokenizer takes for white space.
    for (const piece of text.split(/[ \t\n\r]+/)) for (const id of remembered(piece)) ids.push(id)
    return ids
  }
}

function splitsAtSpaces(tokenizerJson: Record<string, unknown>): boolean {
  const type = (part: unknown) => (part as { type?: string } | null | undefined)?.type
  const added = (tokenizerJson.added_tokens ?? []) as { content: string; lstrip?: boolean; rstrip?: boolean }[]
  return (
    ['BertPreTokenizer', 'Whitespace', 'WhitespaceSplit'].includes(type(tokenizerJson.pre_tokenizer) ?? '') &&
    [undefined, 'BertNormalizer', 'Lowercase'].includes(type(tokenizerJson.normalizer)) &&
    added.every((token) => !/\s/.test(token.content))
  )
}

/** `bos_token`, `eos_token` and so on, which templates write; a token is a string or an object with `content`. */
function namedTokens(settings: Record<string, unknown>): Record<string, string> {
  const tokens: Record<string, string> = {}
  for (const key of ['bos_token', 'eos_token', 'pad_token', 'unk_token']) {
    const content = tokenText(settings[key])
    if (content !== null) tokens[key] = content
  }
  return tokens
}

function tokenText(value: unknown): string | null {
  if (typeof value === 'string') return value
  const content = (value as { content?: unknown } | null | undefined)?.content
  return typeof content === 'string' ? content : null
}

/** By the words that templates of these families use. */
function toolSyntaxOf(template: string): ToolSyntax | null {
  if (!/\btools\b/.test(template)) return null
  if (template.includes('<tool_call>')) return 'hermes'
  return template.includes('ipython') && template.includes('"parameters"') ? 'llama3' : 'other'
}

/** Old checkpoints hold one template as text, or several by name. */
function defaultTemplate(value: unknown): string | null {
  if (typeof value === 'string') return value
  if (!Array.isArray(value)) return null
  const named = value as { name?: string; template?: string }[]
  return named.find((entry) => entry.name === 'default')?.template ?? null
}

function endIds(source: TokenizerSource, idOf: (token: string) => number | undefined): ReadonlySet<number> {
  const ids = new Set<number>()
  for (const settings of [source.generationConfig, source.config]) {
    for (const id of [settings?.eos_token_id].flat()) if (typeof id === 'number') ids.add(id)
  }
  const named = tokenText(source.tokenizerConfig?.eos_token)
  const id = named === null ? undefined : idOf(named)
  if (id !== undefined) ids.add(id)
  return ids
}

/**
 * The special token that the template writes right after what the assistant said (`<|im_end|>`, `<|eot_id|>`): base models and some
 * instruction models declare another end of sequence, and would never be seen to end a turn.
 */
function turnEnd(
  render: (messages: readonly Message[], addGenerationPrompt: boolean) => string,
  tokenizerJson: Record<string, unknown>,
  idOf: (token: string) => number | undefined,
): number[] {
  let text: string
  try {
    text = render(
      [
        { role: 'user', content: '' },
        { role: 'assistant', content: PLACEHOLDER },
      ],
      false,
    )
  } catch {
    return [] // a template that refuses these messages says nothing about their end
  }
  const at = text.indexOf(PLACEHOLDER)
  const after = at < 0 ? '' : text.slice(at + PLACEHOLDER.length).trimStart()
  const added = (tokenizerJson.added_tokens ?? []) as { content: string; special?: boolean }[]
  const end = added.find(({ content, special }) => special && after.startsWith(content))
  const id = end === undefined ? undefined : idOf(end.content)
  return id === undefined ? [] : [id]
}
