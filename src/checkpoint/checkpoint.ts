/**
 * Checkpoints on disk: Hugging Face directories, with our training state beside the weights.
 *
 * A checkpoint is written into `<dir>.partial`, flushed, and renamed, with `training_state.json` last: a crash leaves the old
 * checkpoint or the new one, and what is half written is never taken for a whole one.
 * Knows named tensors and JSON only: no model class, no tokenizer.
 */
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import type { Result } from '../types.ts'
import { CheckpointError, failureOf, flushDirectory, writeFlushed } from './durable.ts'
import type { NamedTensors } from './safetensors.ts'
import { checkSafetensors, parseJson, parseObject, readSafetensors, safetensorsBytes } from './safetensors.ts'

export interface Checkpoint {
  /** config.json: the architecture. */
  config: Record<string, unknown>
  generationConfig: Record<string, unknown> | null
  /** tokenizer.json, as the Hugging Face tokenizers library writes it. */
  tokenizer: Record<string, unknown> | null
  tokenizerConfig: Record<string, unknown> | null
  /** chat_template.jinja; older checkpoints keep it in `tokenizerConfig.chat_template` instead. */
  chatTemplate: string | null
  weights: NamedTensors
  /** null for a model that is not in training. */
  training: TrainingState | null
}

export interface TrainingState {
  /** Any JSON: step, cursor, seeds, metrics. Whoever reads it checks it. */
  state: unknown
  /** The optimizer's tensors, such as AdamW's two moments. */
  optimizer: NamedTensors
}

/** Both single-file and sharded weights. Fails naming the file that is missing or wrong. */
export async function loadCheckpoint(directory: string): Promise<Result<Checkpoint>> {
  try {
    const config = await readJson(join(directory, 'config.json'))
    if (config === null) throw new CheckpointError('missing_file', missingMessage(directory))
    const single = join(directory, 'model.safetensors')
    const weights = await tensorsOf(existsSync(single) ? single : indexOrSingle(directory))
    const state = await readText(join(directory, 'training_state.json'))
    return {
      ok: true,
      value: {
        config,
        generationConfig: await readJson(join(directory, 'generation_config.json')),
        tokenizer: await readJson(join(directory, 'tokenizer.json')),
        tokenizerConfig: await readJson(join(directory, 'tokenizer_config.json')),
        chatTemplate: await readText(join(directory, 'chat_template.jinja')),
        weights,
        training:
          state === null
            ? null
            : {
                state: parseJson(state, join(directory, 'training_state.json')),
                optimizer: await tensorsOf(join(directory, 'optimizer.safetensors')),
              },
      },
    }
  } catch (error) {
    return { ok: false, failure: failureOf(error, `loading checkpoint ${directory}`) }
  }
}

/**
 * Writes a whole checkpoint or nothing. An existing directory of that name is replaced: a crash between the two renames
 * leaves the old one as `<dir>.replaced`.
 */
export async function saveCheckpoint(directory: string, checkpoint: Checkpoint): Promise<Result<void>> {
  const target = resolve(directory)
  const partial = `${target}.partial`
  const replaced = `${target}.replaced`
  try {
    await rm(partial, { recursive: true, force: true })
    await mkdir(partial, { recursive: true })
    for (const [name, content] of filesOf(checkpoint)) await writeFlushed(join(partial, name), content)
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
    await checkSafetensors(join(directory, 'model.safetensors'))
    await checkSafetensors(join(directory, 'optimizer.safetensors'))
    return true
  } catch {
    return false
  }
}

/** In the order of writing; the training state, whose presence means that all is there, comes last. */
function* filesOf(checkpoint: Checkpoint): Generator<[name: string, content: Iterable<Uint8Array>]> {
  const json = (value: unknown) => [Buffer.from(`${JSON.stringify(value, null, 2)}\n`)]
  yield ['config.json', json(checkpoint.config)]
  if (checkpoint.generationConfig) yield ['generation_config.json', json(checkpoint.generationConfig)]
  if (checkpoint.tokenizer) yield ['tokenizer.json', json(checkpoint.tokenizer)]
  if (checkpoint.tokenizerConfig) yield ['tokenizer_config.json', json(checkpoint.tokenizerConfig)]
  if (checkpoint.chatTemplate !== null) yield ['chat_template.jinja', [Buffer.from(checkpoint.chatTemplate)]]
  yield ['model.safetensors', safetensorsBytes(checkpoint.weights)]
  if (checkpoint.training) {
    yield ['optimizer.safetensors', safetensorsBytes(checkpoint.training.optimizer)]
    yield ['training_state.json', json(checkpoint.training.state)]
  }
}

function indexOrSingle(directory: string): string {
  const index = join(directory, 'model.safetensors.index.json')
  if (existsSync(index)) return index
  throw new CheckpointError(
    'missing_file',
    `${directory} holds neither model.safetensors nor model.safetensors.index.json; check the path`,
  )
}

function missingMessage(directory: string): string {
  if (existsSync(`${directory}.replaced`)) {
    return `${directory} is missing, but ${directory}.replaced is there: saving was interrupted; rename it back`
  }
  if (!existsSync(directory)) return `checkpoint ${directory} does not exist; check the path`
  return `${directory} holds no config.json: expected a Hugging Face model directory`
}

async function tensorsOf(path: string): Promise<NamedTensors> {
  const result = await readSafetensors(path)
  if (!result.ok) throw new CheckpointError(result.failure.kind, result.failure.message)
  return result.value
}

async function readText(path: string): Promise<string | null> {
  return existsSync(path) ? await readFile(path, 'utf8') : null
}

async function readJson(path: string): Promise<Record<string, unknown> | null> {
  const text = await readText(path)
  return text === null ? null : parseObject(text, path)
}
