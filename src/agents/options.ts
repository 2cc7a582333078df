/** Options of the frozen helpers. Every default stands here and only here (those of ffmpeg and frames in `video/options.ts`). */
import { z } from 'zod'
import { videoOptions } from '../video/index.ts'

const lexicalWeight = z
  .number()
  .nonnegative()
  .describe(
    'Weight of exact shared words (names, numbers) against likeness of meaning. Default 5: best hit rate of 0 to 100 on real and on miniature questions.',
  )
const descriptionsPerAnswer = z
  .number()
  .int()
  .positive()
  .describe('Timed descriptions quoted per look, for clips that have those instead of pictures.')

const endpointFields = {
  type: z.literal('endpoint'),
  baseUrl: z.url().describe('OpenAI-compatible base URL, usually ending in /v1.'),
  model: z.string().min(1).describe('Model name that the endpoint knows.'),
  apiKeyEnv: z
    .string()
    .min(1)
    .nullable()
    .default(null)
    .describe('Environment variable that holds the API key; null for servers without keys.'),
  temperature: z
    .number()
    .nonnegative()
    .nullable()
    .default(0)
    .describe('Sampling temperature; null leaves it to the server.'),
  maxTokens: z.number().int().positive().default(512).describe('Longest answer in tokens.'),
  maxTokensField: z
    .enum(['max_tokens', 'max_completion_tokens'])
    .default('max_tokens')
    .describe('Newer OpenAI models want max_completion_tokens.'),
  attemptSeconds: z.number().positive().default(60).describe('Time limit of one attempt.'),
  deadlineSeconds: z.number().positive().default(180).describe('Time limit of a call with its retries.'),
  retries: z
    .number()
    .int()
    .nonnegative()
    .default(4)
    .describe('Further attempts after time-outs, lost connections, 429 and 5xx.'),
  concurrency: z.number().int().positive().default(8).describe('Requests in flight at once.'),
  promptUsdPerMillion: z.number().nonnegative().default(0).describe('Price of a million prompt tokens in US dollars.'),
  completionUsdPerMillion: z
    .number()
    .nonnegative()
    .default(0)
    .describe('Price of a million answered tokens in US dollars.'),
}

const groundingOptions = z.discriminatedUnion('type', [
  z
    .object({
      type: z.literal('embedded'),
      lexicalWeight: lexicalWeight.default(5),
      readOptions: z.boolean().default(false).describe('Match the answer options too, not the question alone.'),
    })
    .strict(),
  z.object(endpointFields).strict(),
])

const visionOptions = z.discriminatedUnion('type', [
  z
    .object({
      type: z.literal('embedded'),
      framesPerClip: z
        .number()
        .int()
        .positive()
        .default(4)
        .describe('Frames looked at per clip, at the centres of equal spans.'),
      width: z
        .number()
        .int()
        .min(32)
        .default(640)
        .describe('Frames wider than this many pixels are scaled down to it.'),
      minimumTextScore: z
        .number()
        .min(0)
        .max(1)
        .default(0.7)
        .describe('Text read with a lower mean probability is dropped.'),
      objectThreshold: z
        .number()
        .min(0)
        .max(1)
        .default(0.4)
        .describe('Objects found with a lower probability are dropped.'),
      lexicalWeight: lexicalWeight.default(5),
      descriptionsPerAnswer: descriptionsPerAnswer.default(3),
    })
    .strict(),
  z
    .object({
      type: z.literal('descriptions'),
      lexicalWeight: lexicalWeight.default(5),
      descriptionsPerAnswer: descriptionsPerAnswer.default(3),
    })
    .strict(),
  z
    .object({
      ...endpointFields,
      framesPerLook: z
        .number()
        .int()
        .positive()
        .default(12)
        .describe('Pictures sent per look; the clips of a window share them evenly.'),
      frameTimes: z
        .enum(['uniform', 'firstMinute'])
        .default('uniform')
        .describe(
          'Where in a clip: centres of equal spans of the whole clip, or, as in the released code, equal steps from its start over 60 s, as far as the clip goes.',
        ),
      layout: z
        .enum(['pictures', 'sheet'])
        .default('pictures')
        .describe('How they are sent: each picture by itself, or all on one contact sheet, row by row.'),
      width: z
        .number()
        .int()
        .min(32)
        .default(640)
        .describe('Frames wider than this many pixels are scaled down to it.'),
      jpegQuality: z.number().int().min(1).max(100).default(85).describe('Quality of the JPEG pictures sent.'),
    })
    .strict(),
])

export const agentsOptions = z
  .object({
    grounding: groundingOptions
      .prefault({ type: 'embedded' })
      .describe('Where to look: question and subtitles in, clip out.'),
    vision: visionOptions.prefault({ type: 'embedded' }).describe('What is there: frames and query in, text out.'),
    groundingCache: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe(
        'File with a clip per question, made by `showrunner ground` or by the released code; system.initialGrounding cache reads it.',
      ),
    oracleBoxes: z
      .boolean()
      .default(false)
      .describe(
        'Put the boxes that annotators drew in front of what the vision agent says, as the released code does. They tell about the right answer: reports of such runs say so.',
      ),
    threads: z
      .number()
      .int()
      .positive()
      .default(1)
      .describe('Threads that run the embedded models, each with its own copy (about 0.3 GB).'),
    cacheDirectory: z
      .string()
      .nullable()
      .default('.cache/agents')
      .describe('Folder for answers, percepts and converted models; null keeps them in memory. Safe to delete.'),
    replay: z
      .boolean()
      .default(false)
      .describe('Answer endpoint calls from the cache alone: what is not there is a failure.'),
    video: videoOptions.prefault({}).describe('ffmpeg and frames.'),
  })
  .strict()

export type AgentsOptions = z.infer<typeof agentsOptions>
export type EndpointOptions = z.infer<z.ZodObject<typeof endpointFields>>
