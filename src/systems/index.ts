/** Which system a config names. Tests that hold for every system go through `systemNames`. */
import type { System } from '../types.ts'
import { longVideoAgent } from './longVideoAgent.ts'
import type { Purpose, SystemsOptions } from './options.ts'
import { symphony } from './symphony.ts'
import { videoHvAgent } from './videoHvAgent.ts'
import { wholeEpisode } from './wholeEpisode.ts'

export type { Purpose } from './options.ts'

type Name = SystemsOptions['name']

const systems: { [One in Name]: (options: Extract<SystemsOptions, { name: One }>, purpose: Purpose) => System } = {
  longVideoAgent,
  wholeEpisode,
  videoHvAgent,
  symphony,
}

/** Every system that a configuration may name. */
export const systemNames = Object.keys(systems) as readonly Name[]

/** A system without state: one value serves any number of concurrent runs. */
export function createSystem(options: SystemsOptions, purpose: Purpose = 'evaluation'): System {
  // the name chooses the function that takes options of this name, which the compiler cannot follow
  const create = systems[options.name] as (options: SystemsOptions, purpose: Purpose) => System
  return create(options, purpose)
}
