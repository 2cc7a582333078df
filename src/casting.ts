/**
 * Who plays which role of the configured system, and whether the configuration has what the system needs. Opens nothing.
 *
 * A role that `roles` names is frozen and played by whom it says; the policy plays the others and is trained in them. `trainedRoles` says
 * it the other way round: the roles that neither list names are frozen too, and played by the policy as the configuration begins with it.
 */
import type { PolicyOptions, RoleOptions } from './policy/options.ts'
import { roleOptions } from './policy/options.ts'
import { createSystem } from './systems/index.ts'
import type { SystemsOptions } from './systems/options.ts'
import type { Agents, Failure, System } from './types.ts'

/** What of a configuration decides it. */
export interface Castable {
  system: SystemsOptions
  policy: PolicyOptions
  roles: Readonly<Record<string, RoleOptions>>
  trainedRoles: readonly string[] | null
  reward: { extras: Readonly<Record<string, number>> }
}

/** The roles that the policy does not play, all named. To be asked before another policy takes the place of the configured one. */
export function cast<Config extends Castable>(
  config: Config,
): { ok: true; value: Config } | { ok: false; failure: Failure } {
  const { system, policy, roles, trainedRoles, reward } = config
  const { roles: all, measures = [] } = createSystem(system)
  const wrong = (key: string, names: readonly string[], known: readonly string[]): string | undefined => {
    const [name] = names.filter((one) => !known.includes(one))
    const has = known.length === 0 ? 'it has none' : `it has ${known.join(', ')}`
    return name === undefined ? undefined : `${key}: system ${system.name} has no ${name}; ${has}`
  }
  const twice = trainedRoles?.find((role) => role in roles)
  const problem =
    wrong('roles', Object.keys(roles), all) ??
    wrong('trainedRoles', trainedRoles ?? [], all) ??
    wrong('reward.extras', Object.keys(reward.extras), measures) ??
    (twice === undefined
      ? undefined
      : `trainedRoles: ${twice} is trained, but roles.${twice} gives it to another model`)
  if (problem !== undefined)
    return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message: problem } }
  if (trainedRoles === null) return { ok: true, value: config }
  const filled = all.flatMap((role) =>
    trainedRoles.includes(role) || role in roles ? [] : [[role, frozen(policy)] as const],
  )
  return { ok: true, value: { ...config, roles: { ...roles, ...Object.fromEntries(filled) } } }
}

/** The policy as it is before training. */
function frozen(policy: PolicyOptions): RoleOptions {
  if (policy.type === 'endpoint') return roleOptions.parse(policy)
  const { lora: _, ...rest } = policy
  return roleOptions.parse(rest)
}

/** The roles that the policy plays. */
export function playedByPolicy({ roles }: Pick<System, 'roles'>, frozen: Readonly<Record<string, unknown>>): string[] {
  return roles.filter((role) => !(role in frozen))
}

/** What the system needs and the agents lack; null: nothing. */
export function unmetNeeds({ name, needs = [] }: Pick<System, 'name' | 'needs'>, agents: Agents): Failure | null {
  const missing = needs.filter((kind) => agents[kind] === undefined)
  if (missing.length === 0) return null
  const message = `system ${name} asks the agents ${missing.join(', ')}, which this configuration lacks; add ${missing.map((kind) => `agents.${kind}`).join(', ')}`
  return { boundary: 'config', kind: 'bad_request', message }
}
