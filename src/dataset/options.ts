/** Options of the dataset room: which questions to read. */
import { z } from 'zod'

export const datasetOptions = z
  .object({
    directory: z.string().min(1).describe('Folder with question files, subtitles, and videos, frames or visual descriptions.'),
    split: z.string().min(1).nullable().default(null).describe('Which questions to read: what their file name says (train, val, test_public, ...); null reads all.'),
  })
  .strict()

export type DatasetOptions = z.infer<typeof datasetOptions>
