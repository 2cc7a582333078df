/** Serves a checkpoint folder: opens its policy, listens, takes over newer weights and adapters, and closes all when asked to. */
import { realpath } from 'node:fs/promises'
import { basename, dirname, resolve } from 'node:path'
import { type Checkpoint, latestCheckpoint, loadCheckpoint } from '../checkpoint/checkpoint.ts'
import type { Failure, Result } from '../types.ts'
import { openCapture } from './capture.ts'
import { type Keys, readKeys } from './keys.ts'
import { isLoopback, type ServeOptions } from './options.ts'
import { createServer } from './server.ts'
import { type EngineSettings, type Release, ServedVersions } from './versions.ts'
import { type Watch, watchCheckpoints } from './watch.ts'

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
  /** Lets running requests finish, then closes the policies. Fails when captured sessions could not be stored. */
  close(): Promise<Result<void>>
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
  // `checkpoints/mine/best` is a link: the model is named after the step that it stands for
  const folder = await realpath(newest?.directory ?? directory).catch(() => directory)
  const alias = name ?? nameOf(folder)
  if (!/^[\x20-\x7e]+$/.test(alias)) return { ok: false, failure: nameFailure(alias) }
  const loaded = await loadCheckpoint(folder)
  if (!loaded.ok) return loaded
  const release = { step: stepOf(folder), checkpoint: loaded.value, root: folder }
  const opened = await ServedVersions.open(alias, release, engine, options)
  if (!opened.ok) return opened
  const versions = opened.value
  const captured = await openCapture(options)
  if (!captured.ok) {
    await versions.close()
    return captured
  }

  const server = createServer(options, {
    models: versions.models,
    keys: keys.value,
    ...(captured.value ? { capture: captured.value.capture } : {}),
    log,
    loadAdapter: (adapter, path) => versions.loadAdapter(adapter, path),
  })
  const publish = async (release: Release): Promise<Result<void>> => {
    const published = await versions.publish(release)
    if (!published.ok) return published
    server.metrics.swaps.inc()
    log(`${alias} is now ${alias}@${release.step}`)
    return published
  }
  const closeAll = async (watch: Watch | null): Promise<Result<void>> => {
    await watch?.stop()
    await server.close()
    await versions.close()
    return (await captured.value?.close()) ?? { ok: true, value: undefined }
  }
  try {
    const url = await server.listen({ host: options.host, port: options.port })
    warnStrangers(options, keys.value, log)
    const watch =
      options.watchSeconds === null
        ? null
        : watchCheckpoints(directory, newest?.step ?? -1, options.watchSeconds, {
            take: (step, root, checkpoint) => publish({ step, checkpoint, root }),
            log,
          })
    return {
      ok: true,
      value: {
        url,
        model: alias,
        publish: (step, checkpoint) => publish({ step, checkpoint, root: null }),
        close: () => closeAll(watch),
      },
    }
  } catch (error) {
    await closeAll(null)
    return { ok: false, failure: listenFailure(error as NodeJS.ErrnoException, options) }
  }
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

function nameFailure(alias: string): Failure {
  const message = `${alias}: answers tell the model's name in a header, which holds printable ASCII characters only; give another with --name`
  return { boundary: 'serve', kind: 'bad_request', message }
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
