/**
 * Serves a checkpoint folder: opens its policy, listens, and closes both when asked to. Names what it serves after run and step, which
 * never change their meaning, so that no client can mistake one version for another (spec/pitfalls.md, row 18).
 */
import { stat } from 'node:fs/promises'
import { basename, dirname, join, resolve } from 'node:path'
import { latestCheckpoint, loadCheckpoint } from '../checkpoint/checkpoint.ts'
import { openPolicy } from '../policy/embedded.ts'
import { policyOptions } from '../policy/options.ts'
import type { Failure, Result } from '../types.ts'
import type { ServeOptions } from './options.ts'
import { createServer, type ServedPolicy } from './server.ts'

export type EngineSettings = Parameters<typeof openPolicy>[1]

export interface RunningServer {
  /** Such as `http://127.0.0.1:8000`. */
  url: string
  /** What clients write as `model`. */
  model: string
  /** Lets running requests finish, then closes the policy. */
  close(): Promise<void>
}

/**
 * Opens a checkpoint, or the newest one of a run's folder, as a policy to serve.
 * `name`: what clients call it; by default `run/step-000012` for a step of a run, else the folder's name.
 */
export async function openServedPolicy(
  directory: string,
  engine: EngineSettings,
  name?: string,
): Promise<Result<ServedPolicy>> {
  const newest = await latestCheckpoint(directory)
  const folder = newest?.directory ?? directory
  const checkpoint = await loadCheckpoint(folder)
  if (!checkpoint.ok) return checkpoint
  const options = policyOptions.parse({ type: 'checkpoint', path: folder })
  if (options.type !== 'checkpoint') throw new Error('a checkpoint became an endpoint')
  const model = name ?? nameOf(folder)
  const step = /^step-(\d+)$/.exec(basename(resolve(folder)))?.[1]
  const policy = await openPolicy(checkpoint.value, engine, { ...options, name: model, step: Number(step ?? 0) })
  if (!policy.ok) return policy
  const { mtime } = await stat(join(folder, checkpoint.value.adapter ? 'adapter_config.json' : 'config.json'))
  return {
    ok: true,
    value: { name: model, policy: policy.value, created: mtime, stopStrings: stopStrings(checkpoint.value) },
  }
}

/** Opens, listens, and returns when clients can connect. */
export async function startServer(
  directory: string,
  engine: EngineSettings,
  options: ServeOptions & { name?: string },
): Promise<Result<RunningServer>> {
  const opened = await openServedPolicy(directory, engine, options.name)
  if (!opened.ok) return opened
  const { name, policy } = opened.value
  const server = createServer({ ...options, policies: [opened.value] })
  try {
    const url = await server.listen({ host: options.host, port: options.port })
    return {
      ok: true,
      value: {
        url,
        model: name,
        async close() {
          await server.close()
          await policy.close()
        },
      },
    }
  } catch (error) {
    await server.close()
    await policy.close()
    return { ok: false, failure: listenFailure(error as NodeJS.ErrnoException, options) }
  }
}

/** `stop_strings` of generation_config.json, as transformers reads it. */
function stopStrings({ generationConfig }: { generationConfig: Record<string, unknown> | null }): string[] {
  return [generationConfig?.stop_strings]
    .flat()
    .filter((stop): stop is string => typeof stop === 'string' && stop !== '')
}

function nameOf(folder: string): string {
  const path = resolve(folder)
  return basename(path).startsWith('step-') ? `${basename(dirname(path))}/${basename(path)}` : basename(path)
}

function listenFailure({ code, message }: NodeJS.ErrnoException, { host, port }: ServeOptions): Failure {
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
