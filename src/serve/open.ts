/**
 * Serves a checkpoint folder: opens its policy, listens, takes over newer weights and adapters, and closes all when asked to. Weights are
 * named `policy@step`, which never changes its meaning; the alias `policy` is whatever is newest (spec/pitfalls.md, row 18).
 */
import { stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { type Checkpoint, latestCheckpoint, loadCheckpoint } from '../checkpoint/checkpoint.ts'
import { openPolicy } from '../policy/embedded.ts'
import { policyOptions } from '../policy/options.ts'
import type { Failure, Result } from '../types.ts'
import { openCapture } from './capture.ts'
import { type Keys, readKeys } from './keys.ts'
import { ModelRegistry, type ServedModel } from './models.ts'
import { isLoopback, type ServeOptions } from './options.ts'
import { createServer } from './server.ts'
import { type Watch, watchCheckpoints } from './watch.ts'

export type EngineSettings = Parameters<typeof openPolicy>[1]

export interface ServeSettings {
  /** What clients call the policy; by default the run's name for a step of a run, else the folder's. */
  name?: string
  /** Where one-line messages go. */
  log?(line: string): void
}

export interface RunningServer {
  /** Such as `http://127.0.0.1:8000`. */
  url: string
  /** What clients write as `model` for the newest weights. */
  model: string
  /**
   * Serves these weights from now on, as `model@step`: new requests get them, running ones end on those that they began with. For a trainer
   * in this process; one elsewhere writes checkpoints into a watched folder.
   */
  publish(step: number, checkpoint: Checkpoint): Promise<Result<void>>
  /** Lets running requests finish, then closes the policies. */
  close(): Promise<void>
}

/** Opens, listens, and returns when clients can connect. */
export async function startServer(
  directory: string,
  engine: EngineSettings,
  options: ServeOptions,
  { name, log = () => {} }: ServeSettings = {},
): Promise<Result<RunningServer>> {
  const keys = await readKeys(options)
  if (!keys.ok) return keys
  const newest = await latestCheckpoint(directory)
  const folder = newest?.directory ?? directory
  const alias = name ?? nameOf(folder)
  const loaded = await loadCheckpoint(folder)
  if (!loaded.ok) return loaded
  const first = await openModel(alias, stepOf(folder), loaded.value, folder, engine, options)
  if (!first.ok) return first
  const captured = await openCapture(options)
  if (!captured.ok) {
    await first.value.release?.()
    return captured
  }

  const models = new ModelRegistry()
  models.publish(alias, first.value, options.keepVersions)
  const adapters = new Map<string, number>()
  const server = createServer(options, {
    models,
    keys: keys.value,
    ...(captured.value ? { capture: captured.value.capture } : {}),
    log,
    /** A name that is used again after its adapter was unloaded gets another version, and shares no cache with the old one. */
    async loadAdapter(adapter, adapterFolder) {
      const files = await loadCheckpoint(folder, adapterFolder)
      if (!files.ok) return files
      const uses = adapters.get(adapter) ?? 0
      adapters.set(adapter, uses + 1)
      const opened = await openModel(adapter, uses, files.value, adapterFolder, engine, options)
      return opened.ok ? { ok: true, value: { ...opened.value, name: adapter, parent: alias } } : opened
    },
  })
  const publish = async (step: number, checkpoint: Checkpoint, root: string | null): Promise<Result<void>> => {
    const opened = await openModel(alias, step, checkpoint, root, engine, options)
    if (!opened.ok) return opened
    models.publish(alias, opened.value, options.keepVersions)
    server.metrics.swaps.inc()
    log(`${alias} is now ${opened.value.name}`)
    return { ok: true, value: undefined }
  }
  const closeAll = async (watch: Watch | null) => {
    await watch?.stop()
    await server.close()
    await models.close()
    await captured.value?.close()
  }
  try {
    const url = await server.listen({ host: options.host, port: options.port })
    warnStrangers(options, keys.value, log)
    const watch =
      options.watchSeconds === null
        ? null
        : watchCheckpoints(directory, newest?.step ?? -1, options.watchSeconds, {
            take: (step, path, checkpoint) => publish(step, checkpoint, path),
            log,
          })
    return {
      ok: true,
      value: {
        url,
        model: alias,
        publish: (step, checkpoint) => publish(step, checkpoint, null),
        close: () => closeAll(watch),
      },
    }
  } catch (error) {
    await closeAll(null)
    return { ok: false, failure: listenFailure(error as NodeJS.ErrnoException, options) }
  }
}

/** Opens weights as a model named `alias@step`. */
async function openModel(
  alias: string,
  step: number,
  checkpoint: Checkpoint,
  root: string | null,
  engine: EngineSettings,
  { concurrency }: Pick<ServeOptions, 'concurrency'>,
): Promise<Result<ServedModel>> {
  const options = policyOptions.parse({ type: 'checkpoint', path: root ?? '.', rows: concurrency })
  if (options.type !== 'checkpoint') throw new Error('a checkpoint became an endpoint')
  const policy = await openPolicy(checkpoint, engine, { ...options, name: alias, step })
  if (!policy.ok) return policy
  return {
    ok: true,
    value: {
      name: `${alias}@${step}`,
      policy: policy.value,
      created: root === null ? new Date() : await modified(root),
      root,
      parent: null,
      stopStrings: stopStrings(checkpoint),
      release: () => policy.value.close(),
    },
  }
}

async function modified(root: string): Promise<Date> {
  for (const file of ['adapter_config.json', 'config.json']) {
    const found = await stat(join(root, file)).catch(() => null)
    if (found !== null) return found.mtime
  }
  return new Date()
}

/** `stop_strings` of generation_config.json, as transformers reads it. */
function stopStrings({ generationConfig }: Pick<Checkpoint, 'generationConfig'>): string[] {
  return [generationConfig?.stop_strings]
    .flat()
    .filter((stop): stop is string => typeof stop === 'string' && stop !== '')
}

export function warnStrangers({ host, apiKeyVariable }: ServeOptions, keys: Keys, log: (line: string) => void): void {
  if (isLoopback(host) || keys.required) return
  log(
    `warning: whoever can reach ${host} may use this endpoint; set ${apiKeyVariable} or give a file of keys to ask for one`,
  )
}

function nameOf(folder: string): string {
  const path = resolve(folder)
  return basename(basename(path).startsWith('step-') ? dirname(path) : path)
}

function stepOf(folder: string): number {
  return Number(/^step-(\d+)$/.exec(basename(resolve(folder)))?.[1] ?? 0)
}

export function listenFailure({ code, message }: NodeJS.ErrnoException, { host, port }: ServeOptions): Failure {
  const address = `${host}:${port}`
  const reasons: Record<string, string> = {
    EADDRINUSE: 'something else listens there already; choose another port, or 0 for any free one',
    EACCES: 'ports below 1024 need rights that this process lacks; choose a higher one',
    EADDRNOTAVAIL: 'this machine has no such address; 127.0.0.1 is this machine only, 0.0.0.0 all its addresses',
    ENOTFOUND: 'there is no host of that name',
  }
  return {
    boundary: 'serve',
    kind: 'bad_request',
    message: `${address}: cannot listen: ${reasons[code ?? ''] ?? message}`,
  }
}
