/**
 * Options of a policy: a checkpoint on disk, or an endpoint. Every default stands here and only here.
 */
import { z } from 'zod'

/** Projections that an adapter may change, by PEFT's names of modules. */
export const LORA_TARGETS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'] as const

const loraOptions = z
  .object({
    rank: z.number().int().positive().default(16).describe('Inner size of each low-rank pair'),
    alpha: z.number().positive().default(32).describe('The pair is scaled by alpha / rank'),
    targets: z
      .array(z.enum(LORA_TARGETS))
      .min(1)
      .default([...LORA_TARGETS])
      .describe('Projections that get a pair, in every layer'),
  })
  .strict()

const checkpointPolicyOptions = z
  .object({
    type: z.literal('checkpoint'),
    path: z
      .string()
      .min(1)
      .describe('Hugging Face model directory, or a PEFT adapter directory whose base_model_name_or_path is one'),
    adapter: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe('PEFT adapter directory on top of `path`; training continues it'),
    lora: loraOptions
      .nullable()
      .default(null)
      .describe('Train a new LoRA adapter instead of the weights at `path`; {} takes the defaults'),
    frozenType: z
      .enum(['float32', 'float16'])
      .default('float32')
      .describe(
        'Element type of matrices that are not trained, in memory: float16 halves it, each use casts back to float32',
      ),
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
    tokenizer: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe(
        'Folder with the tokenizer and chat template of the model behind the endpoint (no weights needed): prompts are then sent as token ids, and what is sampled is stored as it was, for training. Needs returnTokenIds. null: messages are sent and no token ids are stored.',
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

const scriptedPolicyOptions = z
  .object({
    type: z.literal('scripted'),
    path: z
      .string()
      .min(1)
      .describe('ES module whose default export is (messages, request) => text, or a promise of it'),
  })
  .strict()

const frozenFields = {
  temperature: z.number().min(0).default(0).describe('Sampling temperature of the role; 0 is greedy'),
  maxTokens: z.number().int().positive().default(512).describe('Longest answer of the role in tokens'),
}

/** Who plays a role of the system that the policy does not play: never trained. */
export const roleOptions = z.discriminatedUnion('type', [
  checkpointPolicyOptions.omit({ lora: true }).extend(frozenFields),
  endpointPolicyOptions.extend(frozenFields),
  scriptedPolicyOptions.extend(frozenFields),
])

export type CheckpointPolicyOptions = z.infer<typeof checkpointPolicyOptions>
export type PolicyOptions = z.infer<typeof policyOptions>
export type RoleOptions = z.infer<typeof roleOptions>
export type LoraOptions = z.infer<typeof loraOptions>
export type EndpointPolicyOptions = z.infer<typeof endpointPolicyOptions>
