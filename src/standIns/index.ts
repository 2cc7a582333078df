/** Which systems have stand-ins. */
import type { StandIns } from './standIns.ts'
import { symphony } from './symphony.ts'
import { videoHvAgent } from './videoHvAgent.ts'

/** By name of the system. */
export const standIns: Readonly<Record<string, StandIns>> = { videoHvAgent, symphony }
