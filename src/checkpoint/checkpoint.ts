/**
 * Checkpoints on disk: Hugging Face model directories or PEFT adapter directories, with our training state beside the weights.
 *
 * A checkpoint is written into `<dir>.partial`, flushed, and renamed, with `training_state.json` last: a crash leaves the old
 * checkpoint or the new one, and what is half written is never taken for a whole one.
 * Knows named tensors and JSON only: no model class, no tokenizer.
 */
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, isAbsolute, join, resolve } from 'node:path'
import type { Result } from '../types.ts'
import { CheckpointError, failureOf, flushDirectory, writeFlushed } from './durable.ts'
import { parseJson, readJson, readText } from './json.ts'
import type { NamedTensors, StoredType } from './safetensors.ts'
import { fileEntries, openTensors, safetensorsBytes } from './safetensors.ts'

export interface Checkpoint {
  /** config.json: the architecture. */
  config: Record<string, unknown>
  generationConfig: Record<string, unknown> | null
  /** tokenizer.json, as the Hugging Face tokenizers library writes it. */
  tokenizer: Record<string, unknown> | null
  tokenizerConfig: Record<string, unknown> | null
  /** chat_template.jinja; older checkpoints keep it in `tokenizerConfig.chat_template` instead. */
  chatTemplate: string | null
  /** The tokenizer's files by name, as they were read: saved byte by byte, rather than from the parsed forms above. */
  tokenizerFiles?: ReadonlyMap<string, Uint8Array>
  /** Read from disk as they are asked for (`LazyTensors`) when the checkpoint was loaded. Those of the base when there is an adapter. */
  weights: NamedTensors
  /** A LoRA adapter on these weights: saving writes the adapter alone. */
  adapter?: AdapterFiles
  /** null for a model that is not in training. */
  training: TrainingState | null
}

/** A PEFT adapter: adapter_config.json, and adapter_model.safetensors under PEFT's names. */
export interface AdapterFiles {
  config: Record<string, unknown>
  weights: NamedTensors
}

export interface TrainingState {
  /** Any JSON: step, cursor, seeds, metrics. Whoever reads it checks it. */
  state: unknown
  /** The optimizer's tensors, such as AdamW's two moments. */
  optimizer: NamedTensors
}

/** Element types that weights can be saved in, by their names in config.json. */
export const STORED_TYPES: Readonly<Record<string, StoredType>> = { float32: 'F32', float16: 'F16', bfloat16: 'BF16' }

/** What a tokenizer may consist of; only tokenizer.json, tokenizer_config.json and chat_template.jinja are read by us. */
const TOKENIZER_FILES = [
  'tokenizer.json',
  'tokenizer_config.json',
  'chat_template.jinja',
  'special_tokens_map.json',
  'added_tokens.json',
  'vocab.json',
  'merges.txt',
  'tokenizer.model',
]

/**
 * Reads a model directory, single-file or sharded, or an adapter directory with the base that it names. The adapter may also be given
 * apart, for the model in `directory`. Fails naming the file that is missing or wrong.
 */
export async function loadCheckpoint(
  directory: string,
  adapterDirectory: string | null = null,
): Promise<Result<Checkpoint>> {
  try {
    if (adapterDirectory === null && !isAdapter(directory)) return { ok: true, value: await loadModel(directory) }
    const own = adapterDirectory ?? directory
    const config = await adapterConfig(own)
    const base = adapterDirectory === null ? baseDirectory(own, config) : directory
    if (isAdapter(base))
      throw new CheckpointError('bad_file', `${base} is an adapter itself; expected the directory of a whole model`)
    return { ok: true, value: await adapted(await loadModel(base), own, config) }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `loading checkpoint ${directory}`) }
  }
}

/** An adapter directory on a model that is loaded already, whose own files may be gone. */
export async function loadAdapter(model: Checkpoint, directory: string): Promise<Result<Checkpoint>> {
  try {
    return { ok: true, value: await adapted(model, directory, await adapterConfig(directory)) }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `loading adapter ${directory}`) }
  }
}

async function adapted(model: Checkpoint, directory: string, config: Record<string, unknown>): Promise<Checkpoint> {
  const weights = new Map(openTensors(join(directory, 'adapter_model.safetensors')))
  return { ...model, adapter: { config, weights }, training: await loadTraining(directory) }
}

async function adapterConfig(directory: string): Promise<Record<string, unknown>> {
  const config = await readJson(join(directory, 'adapter_config.json'))
  if (config !== null) return config
  throw new CheckpointError(
    'missing_file',
    `${directory} holds no adapter_config.json: expected a PEFT adapter directory`,
  )
}

async function loadModel(directory: string): Promise<Checkpoint> {
  const config = await readJson(join(directory, 'config.json'))
  if (config === null) throw new CheckpointError('missing_file', missingMessage(directory))
  const single = join(directory, 'model.safetensors')
  const weights = openTensors(existsSync(single) ? single : indexOrSingle(directory))
  const tokenizerFiles = new Map<string, Uint8Array>()
  for (const name of TOKENIZER_FILES) {
    const path = join(directory, name)
    if (existsSync(path)) tokenizerFiles.set(name, await readFile(path))
  }
  return {
    config,
    generationConfig: await readJson(join(directory, 'generation_config.json')),
    tokenizer: await readJson(join(directory, 'tokenizer.json')),
    tokenizerConfig: await readJson(join(directory, 'tokenizer_config.json')),
    chatTemplate: await readText(join(directory, 'chat_template.jinja')),
    tokenizerFiles,
    weights,
    training: await loadTraining(directory),
  }
}

/** Of a model directory, what says how the model reads text; weights need not be there. */
export async function loadTokenizerFiles(
  directory: string,
): Promise<Result<Pick<Checkpoint, 'config' | 'generationConfig' | 'tokenizer' | 'tokenizerConfig' | 'chatTemplate'>>> {
  try {
    return {
      ok: true,
      value: {
        config: (await readJson(join(directory, 'config.json'))) ?? {},
        generationConfig: await readJson(join(directory, 'generation_config.json')),
        tokenizer: await readJson(join(directory, 'tokenizer.json')),
        tokenizerConfig: await readJson(join(directory, 'tokenizer_config.json')),
        chatTemplate: await readText(join(directory, 'chat_template.jinja')),
      },
    }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `reading the tokenizer in ${directory}`) }
  }
}

async function loadTraining(directory: string): Promise<TrainingState | null> {
  const path = join(directory, 'training_state.json')
  const state = await readText(path)
  if (state === null) return null
  return {
    state: parseJson(state, path),
    optimizer: openTensors(join(directory, 'optimizer.safetensors')),
  }
}

/** An adapter directory without a model of its own. */
function isAdapter(directory: string): boolean {
  return existsSync(join(directory, 'adapter_config.json')) && !existsSync(join(directory, 'config.json'))
}

/** A path from the working directory, as PEFT takes it, or else from the adapter's own directory. */
function baseDirectory(directory: string, config: Record<string, unknown>): string {
  const base = config.base_model_name_or_path
  if (typeof base === 'string' && base !== '') {
    if (existsSync(base)) return base
    const beside = join(directory, base)
    if (!isAbsolute(base) && existsSync(beside)) return beside
  }
  throw new CheckpointError(
    'missing_file',
    `${join(directory, 'adapter_config.json')}: base_model_name_or_path is ${JSON.stringify(base)}, expected a directory that is here; or give the base as policy.path and ${directory} as policy.adapter`,
  )
}

/**
 * Writes a whole checkpoint or nothing. An existing directory of that name is replaced: a crash between the two renames
 * leaves the old one as `<dir>.replaced`. `type` is the element type of the weights, which config.json then declares: float32 by default,
 * whatever the model was loaded from, since training adds steps too small for 16 bits. Adapters and optimizers are always float32.
 */
export async function saveCheckpoint(
  directory: string,
  checkpoint: Checkpoint,
  type: keyof typeof STORED_TYPES = 'float32',
): Promise<Result<void>> {
  const target = resolve(directory)
  const partial = `${target}.partial`
  const replaced = `${target}.replaced`
  try {
    await rm(partial, { recursive: true, force: true })
    await mkdir(partial, { recursive: true })
    for (const [name, content] of filesOf(checkpoint, type)) await writeFlushed(join(partial, name), content)
    await flushDirectory(partial)
    if (existsSync(target)) {
      await rm(replaced, { recursive: true, force: true })
      await rename(target, replaced)
    }
    await rename(partial, target)
    await flushDirectory(dirname(target))
    await rm(replaced, { recursive: true, force: true })
    return { ok: true, value: undefined }
  } catch (error) {
    // What a full disk cut short only takes up more of the disk.
    await rm(partial, { recursive: true, force: true }).catch(() => undefined)
    return { ok: false, failure: failureOf(error, `saving checkpoint ${directory}`) }
  }
}

/** `<runDirectory>/step-000012`. */
export function stepDirectory(runDirectory: string, step: number): string {
  return join(runDirectory, `step-${String(step).padStart(6, '0')}`)
}

/** The newest whole checkpoint of a run, or null when there is none (also when the run directory does not exist yet). */
export async function latestCheckpoint(runDirectory: string): Promise<{ step: number; directory: string } | null> {
  const names = await readdir(runDirectory).catch(() => [] as string[])
  const steps = names.flatMap((name) => /^step-(\d{6,})$/.exec(name)?.[1] ?? []).map(Number)
  for (const step of steps.sort((a, b) => b - a)) {
    const directory = stepDirectory(runDirectory, step)
    if (await isWhole(directory)) return { step, directory }
  }
  return null
}

async function isWhole(directory: string): Promise<boolean> {
  try {
    JSON.parse(await readFile(join(directory, 'training_state.json'), 'utf8'))
    fileEntries(join(directory, isAdapter(directory) ? 'adapter_model.safetensors' : 'model.safetensors'))
    fileEntries(join(directory, 'optimizer.safetensors'))
    return true
  } catch {
    return false
  }
}

/** In the order of writing; the training state, whose presence means that all is there, comes last. */
function* filesOf(
  checkpoint: Checkpoint,
  type: keyof typeof STORED_TYPES,
): Generator<[name: string, content: Iterable<Uint8Array>]> {
  const json = (value: unknown) => [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)]
  if (checkpoint.adapter) {
    yield ['adapter_config.json', json(checkpoint.adapter.config)]
    yield ['adapter_model.safetensors', safetensorsBytes(checkpoint.adapter.weights)]
  } else {
    yield ['config.json', json(declareType(checkpoint.config, type))]
    if (checkpoint.generationConfig) yield ['generation_config.json', json(checkpoint.generationConfig)]
    yield* tokenizerFilesOf(checkpoint, json)
    yield ['model.safetensors', safetensorsBytes(checkpoint.weights, STORED_TYPES[type])]
  }
  if (checkpoint.training) {
    yield ['optimizer.safetensors', safetensorsBytes(checkpoint.training.optimizer)]
    yield ['training_state.json', json(checkpoint.training.state)]
  }
}

function* tokenizerFilesOf(
  { tokenizerFiles, tokenizer, tokenizerConfig, chatTemplate }: Checkpoint,
  json: (value: unknown) => Uint8Array[],
): Generator<[name: string, content: Iterable<Uint8Array>]> {
  if (tokenizerFiles !== undefined) {
    for (const [name, bytes] of tokenizerFiles) yield [name, [bytes]]
    return
  }
  if (tokenizer) yield ['tokenizer.json', json(tokenizer)]
  if (tokenizerConfig) yield ['tokenizer_config.json', json(tokenizerConfig)]
  if (chatTemplate !== null) yield ['chat_template.jinja', [Buffer.from(chatTemplate)]]
}

/** Under `dtype`, and `torch_dtype` where a file from before transformers 5 has it; all other keys, known or not, stay. */
function declareType(config: Record<string, unknown>, type: string): Record<string, unknown> {
  const { torch_dtype: old, ...rest } = config
  if (old === undefined) return { ...rest, dtype: type }
  return 'dtype' in config ? { ...config, dtype: type, torch_dtype: type } : { ...config, torch_dtype: type }
}

function indexOrSingle(directory: string): string {
  const index = join(directory, 'model.safetensors.index.json')
  if (existsSync(index)) return index
  throw new CheckpointError(
    'missing_file',
    `${directory} holds neither model.safetensors nor model.safetensors.index.json; ${pickled(directory) ? 'pytorch_model.bin is not read: save the model again with save_pretrained, which writes safetensors' : 'check the path'}`,
  )
}

function pickled(directory: string): boolean {
  return ['pytorch_model.bin', 'pytorch_model.bin.index.json'].some((name) => existsSync(join(directory, name)))
}

function missingMessage(directory: string): string {
  if (existsSync(`${directory}.replaced`)) {
    return `${directory} is missing, but ${directory}.replaced is there: saving was interrupted; rename it back`
  }
  if (!existsSync(directory)) return `checkpoint ${directory} does not exist; check the path`
  return `${directory} holds no config.json: expected a Hugging Face model directory`
}
