/** Options of the policy endpoint: defaults live here and only here. */
import { z } from 'zod'

export const serveOptions = z
  .object({
    host: z
      .string()
      .default('127.0.0.1')
      .describe('Address to listen on; the default is reachable from this machine only.'),
    port: z.number().int().min(0).max(65_535).default(8000).describe('Port to listen on; 0 takes any free one.'),
    bodyLimitBytes: z
      .number()
      .int()
      .positive()
      .default(8 * 2 ** 20)
      .describe('Longest request body, in bytes; longer ones get 413.'),
    maxSequences: z.number().int().positive().default(256).describe('Most sequences of one request: prompts times n.'),
    deadlineSeconds: z
      .number()
      .positive()
      .default(300)
      .describe('Longest time one request may generate; then it gets 504.'),
    graceSeconds: z
      .number()
      .min(0)
      .default(10)
      .describe('How long running requests may go on after the server was asked to close.'),
    apiKeyVariable: z
      .string()
      .default('SHOWRUNNER_API_KEY')
      .describe(
        'Environment variable with the key that clients must send as a bearer token; when it is unset none is asked for.',
      ),
  })
  .strict()

export type ServeOptions = z.infer<typeof serveOptions>
