/**
 * What a comparison is about, as it stands in `sweep.json` of its run: written before the first question is asked, so that the numbers
 * and the page follow from this file and the stored trajectories alone. Computes nothing.
 */
import { z } from 'zod'
import { pricesOptions } from './options.ts'

const value = z.union([z.string(), z.number(), z.boolean(), z.null()])
const settings = z.record(z.string(), value)

export const sweepSchema = z.object({
  name: z.string(),
  seed: z.number(),
  varied: z
    .array(z.object({ setting: z.string(), values: z.array(value) }))
    .describe('In the order given; a policy is a setting too.'),
  baseline: settings.describe(
    'Settings of the cell that others are held against. Settings that are not named stay those of the cell compared.',
  ),
  questions: z.object({
    dataset: z.string(),
    split: z.string().nullable(),
    qids: z.array(z.string()).describe('Every cell answers these; what is missing or failed counts as wrong.'),
    of: z.number().int().describe('Questions with an answer that the data set has.'),
  }),
  setting: z.record(z.string(), z.union([z.string(), z.number()])).describe('What does not vary, for the reader.'),
  prices: pricesOptions,
  cells: z.array(
    z.object({
      settings,
      directory: z.string().describe('Its store, from the folder of the run.'),
      ceiling: z.boolean().describe('A scripted master that knows the answers: a bound, not a competitor.'),
    }),
  ),
})

export type Sweep = z.output<typeof sweepSchema>
export type Cell = Sweep['cells'][number]
export type Settings = z.output<typeof settings>

/** `maxTurns=5 window=1`; settings in which all cells agree are left out. */
export function cellLabel(settings: Settings, { varied }: Pick<Sweep, 'varied'>): string {
  const telling = varied.filter(({ values }) => values.length > 1).map(({ setting }) => setting)
  const named = telling.length > 0 ? telling : varied.map(({ setting }) => setting)
  return named
    .map((setting) => (setting === 'policy' ? `${settings[setting]}` : `${setting}=${settings[setting]}`))
    .join(' ')
}
