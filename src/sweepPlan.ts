/**
 * `--vary`, `--policy` and `--baseline` -> the cells of a comparison: one configuration per combination of values, checked by the same
 * schema as every other. Opens nothing and runs nothing.
 */
import { join } from 'node:path'
import { parse } from 'yaml'
import { loadEvaluationConfig, type RunConfig, runConfig } from './config.ts'
import { configHash, suggestion } from './configFile.ts'
import { checkpointPolicy } from './evaluate.ts'
import type { Settings, Sweep } from './report/sweep.ts'
import type { Result } from './types.ts'

export interface SweepRequest {
  /** The configuration file. */
  config: string
  overrides: readonly string[]
  /** `maxTurns=1,2,3` each; empty: what the configuration varies, which are its step budgets where it does not say. */
  vary: readonly string[]
  /** Folders of checkpoints, models of the configured endpoint, or `oracle`; empty: the policy of the configuration. */
  policies: readonly string[]
  /** `maxTurns=1`, several joined by commas; null: the first cell. */
  baseline: string | null
}

export interface PlannedCell {
  settings: Settings
  config: RunConfig
  /** The scripted master that knows the answers stands in for the configuration's policy. */
  ceiling: boolean
}

export interface SweepPlan {
  /** The configuration without what is varied. */
  config: RunConfig
  varied: Sweep['varied']
  baseline: Settings
  cells: PlannedCell[]
}

/** Short names of what is varied most, for the keys of the configuration. Every other key is given by its path. */
export const shortNames: Readonly<Record<string, string>> = {
  maxTurns: 'rollout.budget.turns',
  window: 'rollout.budget.windowClips',
  tokensPerTurn: 'rollout.budget.tokensPerTurn',
  tokensPerObservation: 'rollout.budget.tokensPerObservation',
  tokensPerTrajectory: 'rollout.budget.tokensPerTrajectory',
  deadlineSeconds: 'rollout.budget.deadlineSeconds',
  temperature: 'evaluation.temperature',
  initialGrounding: 'system.initialGrounding',
  grounding: 'agents.grounding.model',
  vision: 'agents.vision.model',
}

/** The policy that knows the answers; for data sets that say how a question is answered. */
export const ORACLE = 'oracle'

/** Cells would not answer the same questions, or not lie in the same folder. */
const FIXED = [
  'name',
  'dataset',
  'evaluation.dataset',
  'evaluation.questions',
  'evaluation.maxTurns',
  'evaluation.vary',
  'evaluation.set',
  'policy',
  'prices',
]

/** Combinations in the order given, the policy first. */
export async function planSweep(request: SweepRequest): Promise<Result<SweepPlan>> {
  const loaded = await loadEvaluationConfig(request.config, request.overrides)
  if (!loaded.ok) return loaded
  const config = loaded.value
  const { vary, maxTurns } = config.evaluation
  const given: readonly (string | NamedAxes)[] = [request.vary, vary].find((some) => some.length > 0) ?? [
    `maxTurns=${maxTurns.join(',')}`,
  ]
  const axes: Axis[] = []
  for (const one of given) {
    const found = typeof one === 'string' ? eachOf(axisOf(one)) : namedAxes(one)
    if (!found.ok) return found
    for (const axis of found.value) {
      const twice = axes.flatMap(keysOf).find((key) => keysOf(axis).includes(key))
      if (twice !== undefined) return fail(`--vary ${axis.setting}: ${twice} is varied twice.`)
      axes.push(axis)
    }
  }
  const policies = request.policies.length > 0 ? request.policies : [nameOf(config.policy)]
  if (new Set(policies).size < policies.length)
    return fail(`--policy: expected different policies, got ${policies.join(', ')}.`)

  const cells: PlannedCell[] = []
  for (const policy of policies) {
    for (const choice of combinations(axes)) {
      const overrides = choice.flatMap(({ set }) => set.map(([key, value]) => `${key}=${JSON.stringify(value)}`))
      const own = await loadEvaluationConfig(request.config, [...request.overrides, ...overrides])
      if (!own.ok) return own
      const master =
        policy === nameOf(config.policy) ? { ok: true as const, value: config.policy } : policyOf(policy, config)
      if (!master.ok) return master
      const turnsVaried = axes.flatMap(keysOf).includes(shortNames.maxTurns as string)
      cells.push({
        settings: Object.fromEntries([
          ['policy', labelOf(policy)],
          ...choice.map(({ setting, value }) => [setting, value]),
        ]),
        config: comparable({ ...own.value, policy: master.value }, turnsVaried),
        ceiling: policy === ORACLE,
      })
    }
  }
  const varied = [
    { setting: 'policy', values: policies.map(labelOf) },
    ...axes.map(({ setting, values }) => ({ setting, values: values.map(({ value }) => value) })),
  ]
  const baseline = baselineOf(request.baseline, cells)
  if (!baseline.ok) return baseline
  return { ok: true, value: { config: comparable(config, false), varied, baseline: baseline.value, cells } }
}

/** The step budgets of a configuration, for its policy and, as the ceiling, for the oracle where the data set allows one. */
export function budgetSweep(config: RunConfig): SweepPlan {
  const { maxTurns, dataset } = config.evaluation
  const policies = [nameOf(config.policy), ...((dataset ?? config.dataset).miniature === null ? [] : [ORACLE])]
  const cells = policies.flatMap((policy) =>
    maxTurns.map((turns): PlannedCell => {
      const budget = { ...config.rollout.budget, turns }
      return {
        settings: { policy: labelOf(policy), maxTurns: turns },
        config: comparable({ ...config, rollout: { ...config.rollout, budget } }, true),
        ceiling: policy === ORACLE,
      }
    }),
  )
  const varied = [
    { setting: 'policy', values: policies.map(labelOf) },
    { setting: 'maxTurns', values: maxTurns },
  ]
  return { config: comparable(config, false), varied, baseline: (cells[0] as PlannedCell).settings, cells }
}

interface Axis {
  setting: string
  values: AxisValue[]
}

interface AxisValue {
  /** What the cells of it are told apart by. */
  value: Settings[string]
  /** Keys of the configuration and their values. */
  set: [key: string, value: unknown][]
}

const keysOf = ({ values }: Axis): string[] => values.flatMap(({ set }) => set.map(([key]) => key))

const eachOf = (axis: Result<Axis>): Result<Axis[]> => (axis.ok ? { ok: true, value: [axis.value] } : axis)

/** `{setting: {label: {path.to.key: value}}}`. */
type NamedAxes = Record<string, Record<string, Record<string, unknown>>>

/** Values that have names, each with the keys that it sets; none: the configuration as it is. */
function namedAxes(settings: NamedAxes): Result<Axis[]> {
  const axes: Axis[] = []
  for (const [setting, variants] of Object.entries(settings)) {
    const values = Object.entries(variants).map(([value, set]): AxisValue => ({ value, set: Object.entries(set) }))
    if (values.length === 0) return fail(`evaluation.vary: ${setting}: expected at least one value.`)
    const fixed = keysOf({ setting, values })
      .map(fixedKey)
      .find((one) => one !== undefined)
    if (fixed !== undefined) return fail(`evaluation.vary: ${setting}: ${cannotVary(fixed)}`)
    axes.push({ setting, values })
  }
  return { ok: true, value: axes }
}

const fixedKey = (key: string) => FIXED.find((one) => key === one || key.startsWith(`${one}.`))

const cannotVary = (fixed: string) =>
  `${fixed} cannot be varied within a comparison${fixed === 'policy' ? '; give each master by --policy' : ''}.`

/** `window=1,3`; values are YAML, so that lists and mappings may stand in brackets. */
function axisOf(text: string): Result<Axis> {
  const equals = text.indexOf('=')
  const setting = text.slice(0, equals).trim()
  if (equals < 1) return fail(`--vary ${text}: expected setting=value,value,..., such as --vary maxTurns=1,2,5.`)
  const key = shortNames[setting] ?? setting
  const known = [...Object.keys(shortNames), ...Object.keys(runConfig.shape)]
  if (!known.includes(key.split('.')[0] as string))
    return fail(`--vary ${text}: there is no setting ${setting}${suggestion(setting, known)}`)
  const fixed = fixedKey(key)
  if (fixed !== undefined) return fail(`--vary ${text}: ${cannotVary(fixed)}`)
  let values: unknown
  try {
    values = parse(`[${text.slice(equals + 1)}]`)
  } catch (error) {
    return fail(`--vary ${text}: the values are no YAML: ${(error as Error).message.split('\n')[0]}.`)
  }
  if (!Array.isArray(values) || values.length === 0) return fail(`--vary ${text}: expected at least one value.`)
  if (new Set(values.map((value) => JSON.stringify(value))).size < values.length)
    return fail(`--vary ${text}: expected different values.`)
  return {
    ok: true,
    value: { setting, values: values.map((value): AxisValue => ({ value: settingOf(value), set: [[key, value]] })) },
  }
}

interface Choice extends AxisValue {
  setting: string
}

function combinations(axes: readonly Axis[]): Choice[][] {
  return axes.reduce<Choice[][]>(
    (sofar, { setting, values }) =>
      sofar.flatMap((choice) => values.map((value) => [...choice, { setting, ...value }])),
    [[]],
  )
}

/**
 * The held-out questions, one run each, at the temperature and, where turns are not varied and the configuration mixes them, the largest
 * step budget of evaluation.
 */
function comparable(config: RunConfig, turnsVaried: boolean): RunConfig {
  const { rollout, evaluation } = config
  const { turns } = rollout.budget
  const most = turnsVaried || !Array.isArray(turns) ? turns : Math.max(...evaluation.maxTurns)
  return {
    ...config,
    dataset: evaluation.dataset ?? config.dataset,
    rollout: {
      ...rollout,
      groupSize: 1,
      temperature: evaluation.temperature,
      budget: { ...rollout.budget, turns: most },
    },
  }
}

function policyOf(name: string, config: RunConfig): Result<RunConfig['policy']> {
  if (name === ORACLE) return { ok: true, value: config.policy }
  if (config.policy.type === 'endpoint' && !name.includes('checkpoints/'))
    return { ok: true, value: { ...config.policy, model: name } }
  return { ok: true, value: checkpointPolicy(config, name) }
}

const nameOf = (policy: RunConfig['policy']) => (policy.type === 'checkpoint' ? policy.path : policy.model)

/** `checkpoints/mine/step-000250` -> `mine@250`. */
const labelOf = (policy: string) =>
  policy
    .replace(/^(\.\/)?checkpoints\//, '')
    .replace(/\/$/, '')
    .replace(/\/step-0*(\d+)$/, '@$1')

/** Lists and mappings as text. */
function settingOf(value: unknown): Settings[string] {
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' || value === null
    ? value
    : JSON.stringify(value)
}

/** The settings that `--baseline` names; all those of the first cell by default. Fails when no cell has them. */
function baselineOf(text: string | null, cells: readonly PlannedCell[]): Result<Settings> {
  const first = cells[0] as PlannedCell
  if (text === null) return { ok: true, value: first.settings }
  const wanted: Settings = {}
  for (const part of text.split(',')) {
    const equals = part.indexOf('=')
    const setting = part.slice(0, equals).trim()
    if (equals < 1 || !(setting in first.settings))
      return fail(
        `--baseline ${text}: expected setting=value with one of the settings ${Object.keys(first.settings).join(', ')}${suggestion(setting, Object.keys(first.settings))}`,
      )
    const value = part.slice(equals + 1).trim()
    wanted[setting] = setting === 'policy' ? labelOf(value) : settingOf(parse(value))
  }
  const found = cells.some(({ settings }) => Object.entries(wanted).every(([key, value]) => settings[key] === value))
  if (found) return { ok: true, value: wanted }
  return fail(`--baseline ${text}: no cell of this comparison has these settings; add the value to --vary or --policy.`)
}

/**
 * Where each cell's trajectories lie, from the folder of the run: named by all that decides them, so that sweeps that share a cell share
 * its trajectories. `sampling`: of each cell, what `samplingHash` says. The deadline does not enter that hash and is a budget all the same.
 */
export function cellDirectories(cells: readonly PlannedCell[], sampling: readonly string[]): string[] {
  const names = cells.map(({ config, ceiling }, i) =>
    configHash([sampling[i], ceiling, config.rollout.budget.deadlineSeconds]),
  )
  return names.map((name, i) => {
    // what varies only in how it runs, such as the number of threads, is compared in its seconds
    const alone = names.filter((other) => other === name).length === 1
    return join('cells', alone ? name : configHash([name, cells[i]?.settings]))
  })
}

function fail(message: string): { ok: false; failure: { boundary: 'config'; kind: 'bad_request'; message: string } } {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}
