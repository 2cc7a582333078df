/**
 * What is served under which name. A name such as `policy@12` or an adapter's means one set of weights for as long as it is served; an
 * alias (`policy`) moves to the newest. A model that is replaced or unloaded takes no new requests, and is released when the last of its
 * requests has ended (spec/pitfalls.md, row 18). Opens and trains nothing.
 */
import type { Policy } from '../types.ts'
import { ApiError } from './errors.ts'

export interface ServedModel {
  /** What clients write as `model`. */
  name: string
  policy: Policy
  /** What answers say they were sampled from, when the policy holds several sets of weights; else its own version. */
  version?: string
  created: Date
  /** Folder that the weights came from; null when they are only in memory. */
  root: string | null
  /** Name of the model that an adapter stands on. */
  parent: string | null
  /** Where generation ends when a request names no stop; the stop string is then kept in the text, since it belongs to what the model says. */
  stopStrings: readonly string[]
  /** Frees what belongs to this model alone. Called once, when nothing uses it any more. */
  release?(): Promise<void>
}

/** A model that a request uses; `done` must be called once. */
export interface Lease {
  model: ServedModel
  done(): void
}

interface Entry {
  model: ServedModel
  users: number
  retired: boolean
  freed(release: Promise<void>): void
  /** Settles when the model has been released. */
  whenFreed: Promise<void>
}

export class ModelRegistry {
  private readonly entries = new Map<string, Entry>()
  /** Alias to the names that it has had, the present one last. */
  private readonly aliases = new Map<string, string[]>()

  /** Throws when the name is taken. */
  add(model: ServedModel): void {
    if (this.has(model.name)) throw new Error(`a model named ${model.name} is served already`)
    let freed: Entry['freed'] = () => {}
    const whenFreed = new Promise<void>((resolve) => {
      freed = resolve
    })
    this.entries.set(model.name, { model, users: 0, retired: false, freed, whenFreed })
  }

  /**
   * Adds the next version behind an alias and moves the alias, in one turn of the event loop: there is no moment without a model.
   * Of the earlier versions the last `keep` stay served under their own names.
   */
  publish(alias: string, model: ServedModel, keep: number): void {
    this.add(model)
    const names = [...(this.aliases.get(alias) ?? []), model.name]
    while (names.length > keep + 1) this.remove(names.shift() as string).catch((error) => console.error(error))
    this.aliases.set(alias, names)
  }

  has(name: string): boolean {
    return this.entries.has(name) || this.aliases.has(name)
  }

  /** The model behind a name or alias, kept until `done`. Throws 404. */
  use(name: string): Lease {
    const entry = this.entries.get(this.aliases.get(name)?.at(-1) ?? name)
    if (entry === undefined) {
      const known = [...this.aliases.keys(), ...this.entries.keys()].join(', ')
      throw new ApiError(404, `There is no model "${name}" here; served: ${known}.`, {
        param: 'model',
        code: 'model_not_found',
      })
    }
    entry.users++
    let isDone = false
    return {
      model: entry.model,
      done: () => {
        if (isDone) return
        isDone = true
        entry.users--
        this.freeIfUnused(entry)
      },
    }
  }

  /** Takes a model away; resolves when the last of its requests has ended and it is released. */
  async remove(name: string): Promise<void> {
    const entry = this.entries.get(name)
    if (entry === undefined) throw new Error(`no model named ${name} is served`)
    this.entries.delete(name)
    entry.retired = true
    this.freeIfUnused(entry)
    await entry.whenFreed
  }

  /** Aliases first, as what clients take that ask for no version; each with the model it stands for now. */
  list(): { name: string; model: ServedModel }[] {
    const aliased = [...this.aliases].map(([name, names]) => ({ name, model: this.modelNamed(names.at(-1) as string) }))
    return [...aliased, ...[...this.entries.values()].reverse().map(({ model }) => ({ name: model.name, model }))]
  }

  /** Releases all models. */
  async close(): Promise<void> {
    this.aliases.clear()
    await Promise.all([...this.entries.keys()].map((name) => this.remove(name)))
  }

  private modelNamed(name: string): ServedModel {
    return (this.entries.get(name) as Entry).model
  }

  private freeIfUnused(entry: Entry): void {
    if (!entry.retired || entry.users > 0) return
    entry.retired = false
    entry.freed(entry.model.release?.() ?? Promise.resolve())
  }
}

export function versionOf(model: ServedModel): string {
  return model.version ?? model.policy.version
}
