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

const pictureFields = {
  width: z.number().int().min(32).default(640).describe('Frames wider than this many pixels are scaled down to it.'),
  jpegQuality: z.number().int().min(1).max(100).default(85).describe('Quality of the JPEG pictures sent.'),
}

const sampling = {
  secondsPerFrame: z.number().positive().default(2).describe('One picture of every so many seconds is compared.'),
  mostFrames: z
    .number()
    .int()
    .positive()
    .default(240)
    .describe('Most pictures compared for one request; of longer places, one every so many more seconds.'),
}

const sightOptions = z
  .object({
    width: z.number().int().min(32).default(640).describe('Frames wider than this many pixels are scaled down to it.'),
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
  })
  .strict()

const captionerOptions = z.discriminatedUnion('type', [
  z.object({ type: z.literal('embedded') }).strict(),
  z
    .object({
      type: z.literal('stored'),
      path: z.string().min(1).describe('JSON file {"video": ["caption", ...]}; the video is the id of the episode.'),
      secondsPerCaption: z.number().positive().default(1).describe('How many seconds one caption stands for.'),
    })
    .strict(),
  z
    .object({
      ...endpointFields,
      ...pictureFields,
      picturesPerCall: z.number().int().positive().default(8).describe('Pictures captioned in one call.'),
    })
    .strict(),
])

const summaryOptions = z.discriminatedUnion('type', [
  z.object({ type: z.literal('embedded'), lexicalWeight: lexicalWeight.default(5) }).strict(),
  z.object(endpointFields).strict(),
])

const subtitlesOptions = z.discriminatedUnion('type', [
  z
    .object({
      type: z.literal('embedded'),
      lexicalWeight: lexicalWeight.default(5),
      minimumLikeness: z
        .number()
        .default(0.35)
        .describe('Lines that score lower do not bear on the query, however many were asked for.'),
    })
    .strict(),
  z.object(endpointFields).strict(),
])

const segmentScoringOptions = z.discriminatedUnion('type', [
  z
    .object({
      type: z.literal('embedded'),
      mostFrames: z
        .number()
        .int()
        .positive()
        .default(4)
        .describe('Most pictures looked at per segment, whatever a system asks for.'),
    })
    .strict(),
  z.object({ ...endpointFields, ...pictureFields }).strict(),
])

const frameMatching = z.discriminatedUnion('type', [
  z.object({ type: z.literal('embedded'), ...sampling, lexicalWeight: lexicalWeight.default(5) }).strict(),
  z.object({ ...endpointFields, ...pictureFields, ...sampling }).strict(),
])

const frameInspectionOptions = z.discriminatedUnion('type', [
  z
    .object({
      type: z.literal('embedded'),
      mostFrames: z
        .number()
        .int()
        .positive()
        .default(24)
        .describe('Most pictures looked at per question, evenly spread.'),
    })
    .strict(),
  z
    .object({
      ...endpointFields,
      ...pictureFields,
      mostFrames: z.number().int().positive().default(90).describe('Most pictures sent per question, evenly spread.'),
    })
    .strict(),
])

const sceneGraphOptions = z.discriminatedUnion('type', [
  z.object({ type: z.literal('embedded') }).strict(),
  z.object({ ...endpointFields, ...pictureFields }).strict(),
])

const objectTrackingOptions = z
  .object({
    mostFrames: z
      .number()
      .int()
      .positive()
      .default(240)
      .describe('Most pictures looked at for one request; longer places are looked at in wider steps.'),
    minimumOverlap: z
      .number()
      .min(0)
      .max(1)
      .default(0.3)
      .describe('Least intersection over union of the boxes of one thing in neighbouring pictures.'),
    longestGapSeconds: z
      .number()
      .nonnegative()
      .default(2)
      .describe('How long a thing may be out of sight and still be the same.'),
    cutBelow: z
      .number()
      .min(0)
      .max(1)
      .default(0.8)
      .describe('Neighbouring pictures less alike than this are of different shots: nothing goes on over a cut.'),
  })
  .strict()

const visualSimilarityOptions = z.discriminatedUnion('type', [
  z.object({ type: z.literal('embedded') }).strict(),
  z.object({ ...endpointFields, ...pictureFields }).strict(),
])

export const agentsOptions = z
  .object({
    grounding: groundingOptions
      .prefault({ type: 'embedded' })
      .describe('Where to look: question and subtitles in, clip out.'),
    vision: visionOptions.prefault({ type: 'embedded' }).describe('What is there: frames and query in, text out.'),
    captioner: captionerOptions.prefault({ type: 'embedded' }).describe('One caption per moment.'),
    summary: summaryOptions.prefault({ type: 'embedded' }).describe('Many lines in, a short text out.'),
    subtitles: subtitlesOptions
      .prefault({ type: 'embedded' })
      .describe('Which lines of dialogue bear on a query, who matters in them, what they are about.'),
    segmentScoring: segmentScoringOptions
      .prefault({ type: 'embedded' })
      .describe('How much each segment has to do with a question, 1 to 4.'),
    frameRetrieval: frameMatching
      .prefault({ type: 'embedded' })
      .describe('Which frames fit a description; behind an endpoint, a model that embeds pictures and words.'),
    temporalGrounding: frameMatching
      .prefault({ type: 'embedded' })
      .describe('In which stretches something is seen; behind an endpoint, as frameRetrieval.'),
    frameInspection: frameInspectionOptions
      .prefault({ type: 'embedded' })
      .describe('A question about pictures at given moments.'),
    sceneGraph: sceneGraphOptions
      .prefault({ type: 'embedded' })
      .describe('Objects, boxes, attributes and relations in pictures at given moments.'),
    objectTracking: objectTrackingOptions
      .prefault({})
      .describe('Things followed from picture to picture; embedded only.'),
    visualSimilarity: visualSimilarityOptions
      .prefault({ type: 'embedded' })
      .describe('How alike places look; behind an endpoint, a model that embeds pictures.'),
    sight: sightOptions
      .prefault({})
      .describe('How the embedded bodies of the further agents look at a picture (agents.vision has its own).'),
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
