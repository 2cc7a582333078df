/** Options of the dataset room: which questions to read, and which miniature episodes to render. */
import { z } from 'zod'

export const miniatureOptions = z
  .object({
    seed: z
      .number()
      .int()
      .nonnegative()
      .default(1)
      .describe('Same seed: same stories, same questions and, with the same ffmpeg, same pixels.'),
    episodes: z.number().int().positive().max(900).default(20).describe('How many episodes to render.'),
    firstEpisode: z
      .number()
      .int()
      .nonnegative()
      .default(0)
      .describe('Number of the first episode; its stories and names go on from there.'),
    split: z
      .string()
      .regex(/^[a-z]+$/)
      .default('train')
      .describe('Name of the split, in the name of the question file.'),
    words: z
      .enum(['training', 'all'])
      .default('all')
      .describe(
        'Which option words stories use: `training` keeps the held-out words for episodes that are never trained on.',
      ),
    questionsPerEpisode: z.number().int().positive().max(24).default(10).describe('Questions about each episode.'),
    decoyRate: z
      .number()
      .min(0)
      .max(1)
      .default(0.2)
      .describe('Share of questions with a decoy: another clip that mentions the same thing without the answer.'),
  })
  .strict()

export type MiniatureOptions = z.infer<typeof miniatureOptions>

export const importOptions = z
  .object({
    inputs: z
      .array(z.string().min(1))
      .min(1)
      .describe('Files and folders: questions, subtitles, durations, frames, videos. Folders are looked through.'),
    out: z.string().min(1).describe('Folder to write.'),
    as: z
      .array(z.string())
      .default([])
      .describe('`kind=file` or `questions:split=file`, where the content of a file or its name does not tell.'),
    untimed: z
      .boolean()
      .default(false)
      .describe('Import although no durations are known; episodes then have no timeline and spans stay clip-local.'),
  })
  .strict()

export type ImportOptions = z.infer<typeof importOptions>

export const datasetOptions = z
  .object({
    path: z
      .string()
      .min(1)
      .describe('Folder with question files, subtitles, and videos, frames or visual descriptions.'),
    split: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe('Which questions to read: what their file name says (train, val, test_public, ...); null reads all.'),
    limit: z.number().int().positive().nullable().default(null).describe('Use only so many questions; null: all.'),
    optionSeed: z
      .number()
      .int()
      .nonnegative()
      .nullable()
      .default(null)
      .describe(
        'Shuffles the options of each question by this seed, the right answer with them; null: as in the files.',
      ),
    miniature: miniatureOptions
      .nullable()
      .default(null)
      .describe('Renders this miniature data set into the folder when it is not there; null: the folder must exist.'),
  })
  .strict()

export type DatasetOptions = z.infer<typeof datasetOptions>
