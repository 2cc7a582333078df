/**
 * Options of a policy: a checkpoint on disk, or an endpoint. Every default stands here and only here.
 */
import { z } from 'zod'

const checkpointPolicyOptions = z
  .object({
    type: z.literal('checkpoint'),
    path: z.string().min(1).describe('Hugging Face model directory'),
    rows: z.number().int().positive().default(128).describe('Conversations sampled at the same time; others wait'),
    cacheTokens: z
      .number()
      .int()
      .positive()
      .default(65_536)
      .describe('Tokens whose keys and values are kept in all; bounds the memory of sampling'),
  })
  .strict()

export const endpointPolicyOptions = z
  .object({
    type: z.literal('endpoint'),
    baseUrl: z.url().describe('OpenAI-compatible base URL, usually ending in /v1'),
    model: z.string().min(1).describe('Model name that the endpoint knows'),
    apiKeyEnv: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe('Environment variable that holds the API key; null for servers without keys'),
    attemptSeconds: z.number().positive().default(60).describe('Time limit of one attempt'),
    deadlineSeconds: z.number().positive().default(180).describe('Time limit of a call with its retries'),
    retries: z
      .number()
      .int()
      .nonnegative()
      .default(4)
      .describe('Further attempts after time-outs, lost connections, 429 and 5xx'),
    maxTokensField: z
      .enum(['max_tokens', 'max_completion_tokens'])
      .default('max_tokens')
      .describe('Newer OpenAI models want max_completion_tokens'),
    returnTokenIds: z
      .boolean()
      .default(false)
      .describe(
        "The server has vLLM's additions return_token_ids, include_stop_str_in_output and logprobs: ask for them and check them",
      ),
    contextLength: z
      .number()
      .int()
      .positive()
      .nullable()
      .default(null)
      .describe('Longest prompt plus answer in tokens, where known'),
    promptUsdPerMillion: z.number().nonnegative().default(0).describe('Price of a million prompt tokens in US dollars'),
    completionUsdPerMillion: z
      .number()
      .nonnegative()
      .default(0)
      .describe('Price of a million sampled tokens in US dollars'),
  })
  .strict()

export const policyOptions = z.discriminatedUnion('type', [checkpointPolicyOptions, endpointPolicyOptions])

export type CheckpointPolicyOptions = z.infer<typeof checkpointPolicyOptions>
export type EndpointPolicyOptions = z.infer<typeof endpointPolicyOptions>
