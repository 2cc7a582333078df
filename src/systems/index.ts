/** Which system a config names. */
import type { System } from '../types.ts'
import { longVideoAgent } from './longVideoAgent.ts'
import type { SystemsOptions } from './options.ts'

/** A system without state: one value serves any number of concurrent runs. */
export function createSystem(options: SystemsOptions): System {
  switch (options.name) {
    case 'longVideoAgent':
      return longVideoAgent(options)
  }
}
