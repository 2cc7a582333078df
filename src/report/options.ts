/** Options of the report. Every default stands here and only here. */
import { z } from 'zod'

const price = z
  .object({
    promptUsdPerMillion: z.number().nonnegative().default(0).describe('US dollars for a million tokens read.'),
    completionUsdPerMillion: z.number().nonnegative().default(0).describe('US dollars for a million tokens written.'),
    usdPerFrame: z.number().nonnegative().default(0).describe('US dollars for a picture, where they are priced apart.'),
  })
  .strict()
  .nullable()
  .default(null)

export const pricesOptions = z
  .object({
    master: price.describe('Price of the master; null: what its endpoint options made of each call when it ran.'),
    grounding: price.describe('Price of the grounding agent; null: as it was counted.'),
    vision: price.describe('Price of the vision agent; null: as it was counted.'),
  })
  .strict()

export type Prices = z.output<typeof pricesOptions>
