/**
 * How a run was made, for the reader of its report: from a configuration, or from the `config.json` that a run keeps. Measures nothing.
 */
import { readFile } from 'node:fs/promises'
import { dirname, join, resolve } from 'node:path'
import { z } from 'zod'
import { createSystem } from '../systems/index.ts'
import { systemsOptions } from '../systems/options.ts'
import { type Prices, pricesOptions } from './options.ts'
import type { Sweep } from './sweep.ts'

/** Names of what was chosen -> the choice. */
export type Setting = Sweep['setting']

const player = z.looseObject({ type: z.string(), model: z.string().optional() })

/** What is read of a configuration. */
const described = z.looseObject({
  seed: z.number(),
  dataset: z.looseObject({ path: z.string() }),
  system: systemsOptions,
  roles: z.record(z.string(), player).default({}),
  agents: z.looseObject({ grounding: player, vision: player, oracleBoxes: z.boolean() }),
  policy: player.extend({ path: z.string().optional(), baseUrl: z.string().optional() }),
  engine: z.looseObject({ type: z.string() }),
  rollout: z.looseObject({
    groupSize: z.number(),
    temperature: z.number(),
    budget: z.looseObject({
      turns: z.union([z.number(), z.array(z.number())]).nullable(),
      windowClips: z.number(),
    }),
  }),
  reward: z.looseObject({}),
  prices: pricesOptions.prefault({}),
})

type Described = z.output<typeof described>

/** System, agents, data, budget, decoding, engine and seed: what the cells of a comparison may differ in, the master aside. */
export function settingOf({ system, roles, agents, rollout, policy, engine, seed, dataset }: Described): Setting {
  const { name, ...options } = system
  const { type, ...engineOptions } = engine
  return {
    system: named(name, options),
    'grounding agent': agentOf(agents.grounding),
    'vision agent': agentOf(agents.vision),
    data: dataset.path,
    ...(Object.keys(roles).length === 0
      ? {}
      : {
          'frozen roles': Object.entries(roles)
            .map(([role, one]) => `${role}: ${agentOf(one)}`)
            .join('; '),
        }),
    'turns at most (K)': [rollout.budget.turns ?? createSystem(system).turns].flat().join(', '),
    'clips in view (w)': rollout.budget.windowClips,
    decoding: rollout.temperature === 0 ? 'greedy' : `sampled, temperature ${rollout.temperature}`,
    engine: policy.type === 'endpoint' ? `endpoint ${policy.baseUrl}` : named(type, engineOptions),
    seed,
  }
}

/** A recorded configuration, as far as a report needs it. */
export interface RecordedSetting {
  setting: Setting
  prices: Prices
  oracleBoxes: boolean
}

/** From the folder of a store, or the nearest one above it; null where none is recorded, or another version wrote it. */
export async function recordedSetting(directory: string): Promise<RecordedSetting | null> {
  for (let folder = resolve(directory); dirname(folder) !== folder; folder = dirname(folder)) {
    const text = await readFile(join(folder, 'config.json'), 'utf8').catch(() => null)
    if (text === null) continue
    const { success, data } = described.safeParse(parsedJson(text))
    if (!success) return null
    const { policy, rollout, reward, prices, agents } = data
    const setting = {
      master: policy.path ?? policy.model ?? policy.type,
      ...settingOf(data),
      'runs per question': rollout.groupSize,
      reward: named('', reward),
    }
    return { setting, prices, oracleBoxes: agents.oracleBoxes }
  }
  return null
}

function agentOf({ type, model }: z.output<typeof player>): string {
  return model === undefined ? type : `${type}, ${model}`
}

/** `longVideoAgent: prompt brief, showTurnsLeft true`. */
function named(name: string, options: object): string {
  const keys = Object.entries(options).flatMap(([key, value]) => {
    if (typeof value !== 'object' || Array.isArray(value)) return [`${key} ${value}`]
    return value === null || Object.keys(value).length === 0 ? [] : [`${key} ${JSON.stringify(value)}`]
  })
  return [name, keys.join(', ')].filter(Boolean).join(': ')
}

function parsedJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null
  }
}
