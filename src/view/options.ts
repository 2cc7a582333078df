/** Options of the viewer. Every default stands here and only here. */
import { z } from 'zod'

export const viewOptions = z
  .object({
    port: z
      .number()
      .int()
      .min(0)
      .max(65_535)
      .nullable()
      .default(null)
      .describe('Port on 127.0.0.1; 0: a free one; null: 8100, or a free one where that is taken.'),
    rows: z.number().int().positive().default(50).describe('Trajectories on a page of the list.'),
    patienceMs: z
      .number()
      .int()
      .nonnegative()
      .default(100)
      .describe('A page waits this long for the index or a search, then shows what is there and asks again.'),
  })
  .strict()

export type ViewOptions = z.infer<typeof viewOptions>
