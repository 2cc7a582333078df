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
      .default(32 * 2 ** 20)
      .describe('Longest request body, in bytes; longer ones get 413.'),
    maxSequences: z.number().int().positive().default(1024).describe('Most sequences of one request: prompts times n.'),
    concurrency: z
      .number()
      .int()
      .positive()
      .default(128)
      .describe('Sequences that are sampled at once; others wait, and clients take turns.'),
    maxWaiting: z
      .number()
      .int()
      .min(0)
      .default(1024)
      .describe('Sequences that may wait; a request beyond gets 429 with Retry-After.'),
    deadlineSeconds: z
      .number()
      .positive()
      .default(300)
      .describe('Longest time one request may wait and generate; then it gets 504.'),
    graceSeconds: z
      .number()
      .min(0)
      .default(10)
      .describe(
        'How long running requests may go on after the server was asked to close; waiting ones get 503 at once.',
      ),
    headerSeconds: z
      .number()
      .positive()
      .default(15)
      .describe('How long a client may take to send its request line and headers.'),
    bodySeconds: z.number().positive().default(60).describe('How long a client may take to send its whole request.'),
    keepAliveSeconds: z
      .number()
      .positive()
      .default(75)
      .describe('How long a connection without a request is kept open for the next one.'),
    apiKeyVariable: z
      .string()
      .default('SHOWRUNNER_API_KEY')
      .describe(
        'Environment variable with the key, or keys separated by commas, that clients must send as a bearer token; when there is no key none is asked for.',
      ),
    apiKeyFile: z
      .string()
      .nullable()
      .default(null)
      .describe('File with further keys, one a line; lines that begin with # are comments.'),
    keepVersions: z
      .number()
      .int()
      .min(0)
      .default(2)
      .describe('Earlier versions that stay served under their own names when new weights come.'),
    watchSeconds: z
      .number()
      .positive()
      .nullable()
      .default(null)
      .describe('How often to look for a newer whole checkpoint in the folder of a run and serve it; null: never.'),
    log: z
      .enum(['none', 'requests', 'texts'])
      .default('none')
      .describe(
        'One line for each request on standard error; texts: with prompts and answers, which are never written otherwise.',
      ),
    capture: z
      .string()
      .nullable()
      .default(null)
      .describe(
        'Folder of a run (rollouts/NAME) that stores what clients with an X-Session-ID sample, as trajectories.',
      ),
    sessionSeconds: z
      .number()
      .positive()
      .default(3600)
      .describe('A captured session that is silent for so long is closed without a reward.'),
    proxy: z
      .string()
      .nullable()
      .default(null)
      .describe(
        'Base URL (ending in /v1) of another endpoint that requests are passed on to, in place of a checkpoint.',
      ),
    proxyKeyVariable: z
      .string()
      .default('SHOWRUNNER_PROXY_KEY')
      .describe("Environment variable with that endpoint's key; when it is unset the client's own is passed on."),
  })
  .strict()

export type ServeOptions = z.infer<typeof serveOptions>

/** Whether an address is reachable from this machine only. */
export const isLoopback = (host: string) => host === 'localhost' || host === '::1' || host.startsWith('127.')
