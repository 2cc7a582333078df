/** Options of the video room: how long ffmpeg may take, how many run at once, where frames are kept. */
import { z } from 'zod'

export const videoOptions = z
  .object({
    deadlineSeconds: z.number().positive().default(60).describe('Longest time one ffmpeg call may take, in seconds.'),
    concurrency: z.number().int().positive().default(2).describe('How many ffmpeg processes may run at once.'),
    cacheDirectory: z
      .string()
      .nullable()
      .default('.cache/frames')
      .describe('Folder for frames already cut from video files; null keeps none. Safe to delete at any time.'),
  })
  .strict()

export type VideoOptions = z.infer<typeof videoOptions>
