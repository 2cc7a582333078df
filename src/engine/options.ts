/** Options of the engine: every key and every default, here and nowhere else. */

import { z } from 'zod'

export const engineOptions = z
  .object({
    threads: z
      .number()
      .int()
      .min(1)
      .max(256)
      .default(2)
      .describe('Threads that one matrix product may use. More than the cores at hand slows everything down.'),
    memoryArena: z
      .boolean()
      .default(true)
      .describe('Keep freed memory for the next run. Faster; costs up to the largest run seen, per session.'),
  })
  .strict()

export type EngineOptions = z.infer<typeof engineOptions>
