/**
 * The weights that one server samples from: the versions of its policy and the adapters on it, all on one device. Weights are named
 * `policy@step`, and no such name is used twice; the alias `policy` is whatever is newest (spec/pitfalls.md, row 18).
 * Reads checkpoints of adapters only; knows no HTTP.
 */
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { type Checkpoint, loadAdapter } from '../checkpoint/checkpoint.ts'
import { type EmbeddedPolicy, openPolicy } from '../policy/embedded.ts'
import { policyOptions } from '../policy/options.ts'
import type { Result } from '../types.ts'
import { ModelRegistry, type ServedModel } from './models.ts'
import type { ServeOptions } from './options.ts'

export type EngineSettings = Parameters<typeof openPolicy>[1]

/** Weights and where they are from: the step of a run, and a folder; null when they are only in memory. */
export interface Release {
  step: number
  checkpoint: Checkpoint
  root: string | null
}

export class ServedVersions {
  readonly models = new ModelRegistry()
  private readonly published = new Set<number>()
  private readonly adapters = new Map<string, number>()

  private constructor(
    readonly alias: string,
    /** Without its weights: what all versions have in common. */
    private readonly described: Checkpoint,
    /** Owns the device; its weights are the first version. */
    private readonly host: EmbeddedPolicy,
    private readonly keep: number,
  ) {}

  /** Opens the device with the first weights on it, and serves them. */
  static async open(
    alias: string,
    first: Release & { root: string },
    engine: EngineSettings,
    { concurrency, keepVersions }: Pick<ServeOptions, 'concurrency' | 'keepVersions'>,
  ): Promise<Result<ServedVersions>> {
    const options = policyOptions.parse({ type: 'checkpoint', path: first.root, rows: concurrency })
    if (options.type !== 'checkpoint') throw new Error('a checkpoint became an endpoint')
    const host = await openPolicy(first.checkpoint, engine, { ...options, name: alias, step: first.step })
    if (!host.ok) return host
    const described = { ...first.checkpoint, weights: new Map(), training: null }
    const versions = new ServedVersions(alias, described, host.value, keepVersions)
    const model = await servedModel(host.value, first)
    // its weights go like others' when newer ones come; the device stays
    versions.add(first.step, { ...model, release: () => host.value.dropWeights() })
    return { ok: true, value: versions }
  }

  /** Serves newer weights of the same model: new requests for the alias get them, running ones end on those that they began with. */
  async publish(release: Release): Promise<Result<void>> {
    const { step, checkpoint } = release
    if (this.published.has(step))
      return {
        ok: false,
        failure: {
          boundary: 'serve',
          kind: 'bad_request',
          message: `${this.alias}@${step} has been served already, and a name never changes its meaning; give a step of its own`,
        },
      }
    this.published.add(step)
    const opened = await this.host.withWeights(checkpoint, { name: this.alias, step })
    if (!opened.ok) {
      this.published.delete(step)
      return opened
    }
    this.add(step, await servedModel(opened.value, release))
    return { ok: true, value: undefined }
  }

  /**
   * Opens the PEFT adapter in a folder on the newest weights, under a name of its own. A name that is used again after its adapter was
   * unloaded gets another version, and shares no cache with the old one.
   */
  async loadAdapter(name: string, folder: string): Promise<Result<ServedModel>> {
    // its base stays as long as it does
    const base = this.models.use(this.alias)
    const opened = await this.openAdapter(name, folder, base.model)
    if (!opened.ok) base.done()
    else opened.value.release = after(opened.value.release, base.done)
    return opened
  }

  private async openAdapter(name: string, folder: string, base: ServedModel): Promise<Result<ServedModel>> {
    // trainers delete older checkpoints: the folder of the base may be gone
    const files = await loadAdapter(this.described, folder)
    if (!files.ok) return files
    const step = this.adapters.get(name) ?? 0
    this.adapters.set(name, step + 1)
    const opened = await (base.policy as EmbeddedPolicy).withAdapter(files.value, { name, step })
    if (!opened.ok) return opened
    const model = await servedModel(opened.value, { checkpoint: files.value, root: folder })
    return { ok: true, value: { ...model, name, parent: base.name } }
  }

  async close(): Promise<void> {
    await this.models.close()
    await this.host.close()
  }

  private add(step: number, model: ServedModel): void {
    this.published.add(step)
    this.models.publish(this.alias, model, this.keep)
  }
}

/** A policy's weights as a model under the name of their version. */
async function servedModel(
  policy: EmbeddedPolicy,
  { checkpoint, root }: Pick<Release, 'checkpoint' | 'root'>,
): Promise<ServedModel> {
  return {
    name: policy.version,
    policy,
    created: root === null ? new Date() : await modified(root),
    root,
    parent: null,
    stopStrings: stopStrings(checkpoint),
    release: () => policy.close(),
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

function after(release: ServedModel['release'], then: () => void): () => Promise<void> {
  return async () => {
    try {
      await release?.()
    } finally {
      then()
    }
  }
}
