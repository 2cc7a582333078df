/**
 * An OpenAI-compatible endpoint over policies, with what RL trainers need besides (spec/endpoint.md, 3): `/v1/models`,
 * `/v1/chat/completions`, `/v1/completions`, `/tokenize`, `/detokenize`, `/health`, `/metrics`, adapters and rewards.
 *
 * Offers only what it does exactly: an unknown or unsupported parameter is a 400 that names it, and nothing is truncated to fit.
 * It does not load checkpoints (open.ts) or answer completions itself (answer.ts).
 */
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Policy, Result } from '../types.ts'
import { answer, type Shared } from './answer.ts'
import type { Capture } from './capture.ts'
import { ApiError } from './errors.ts'
import { checkIds, checkLength, promptIds } from './generate.ts'
import { closed, createHttpServer } from './http.ts'
import type { Keys } from './keys.ts'
import { createMetrics, type Metrics } from './metrics.ts'
import { type ModelRegistry, type ServedModel, versionOf } from './models.ts'
import { isLoopback, type ServeOptions } from './options.ts'
import { FairQueue } from './queue.ts'
import { parseChatRequest, parseCompletionRequest, parseDetokenizeRequest, parseTokenizeRequest } from './requests.ts'
import { rewardCall } from './rewards.ts'
import { neutral, parse, refused } from './schema.ts'

export interface ServerParts {
  models: ModelRegistry
  keys: Keys
  capture?: Capture
  /** Loads the adapter in a folder under a name; absent where adapters cannot be loaded. */
  loadAdapter?(name: string, folder: string): Promise<Result<ServedModel>>
  log?(line: string): void
}

export type PolicyServer = FastifyInstance & { metrics: Metrics }

/**
 * The server, not listening yet: `await server.listen({ host, port })`.
 * `close()` answers waiting requests with 503, lets running ones finish for `graceSeconds`, then answers them with 503 too. Models stay
 * open; whoever opened them closes them.
 */
export function createServer(
  options: ServeOptions,
  { models, keys, capture, loadAdapter, log = () => {} }: ServerParts,
): PolicyServer {
  const queue = new FairQueue({ places: options.concurrency, mostWaiting: options.maxWaiting })
  const metrics = createMetrics(queue)
  const { server, closing } = createHttpServer({ options, keys, metrics, log }, () => queue.close(closed()))
  /** Names of adapters that clients loaded, and of those on their way. */
  const adapters = new Set<string>()
  const loading = new Set<string>()
  const shared: Shared = { options, models, queue, metrics, capture: capture ?? null, keys, closing, log }

  server.get('/health', async () => ({ status: 'ok' }))
  server.get('/metrics', async (_request, reply) => {
    reply.type(metrics.registry.contentType)
    return metrics.registry.metrics()
  })
  server.get('/v1/models', async () => ({ object: 'list', data: models.list().map(modelCard) }))
  server.get<{ Params: { '*': string } }>('/v1/models/*', async (request) => {
    const name = request.params['*']
    const lease = models.use(name)
    lease.done()
    return modelCard({ name, model: lease.model })
  })
  server.post('/v1/chat/completions', (request, reply) =>
    answer('chat', parseChatRequest(request.body), request, reply, shared),
  )
  server.post('/v1/completions', (request, reply) =>
    answer('completions', parseCompletionRequest(request.body), request, reply, shared),
  )
  server.post('/tokenize', async (request) => tokenize(models, request.body))
  server.post('/detokenize', async (request) => detokenize(models, request.body))
  server.post('/v1/rewards', async (request) => rewardCall(capture, request.body, request.headers))
  server.post('/v1/load_lora_adapter', async (request) => {
    const { lora_name: name, lora_path: folder } = parse(loadRequest, request.body)
    const load = adapterLoader()
    if (/@\d+$/.test(name)) throw refused('lora_name', 'names that end in @ and a number are those of versions')
    if (models.has(name))
      throw refused(
        'lora_name',
        `the adapter ${name} is loaded already; weights under a name never change, so load others under another`,
      )
    if (loading.has(name)) throw refused('lora_name', `the adapter ${name} is being loaded`)
    loading.add(name)
    try {
      const loaded = await load(name, folder)
      if (!loaded.ok) throw refused('lora_path', loaded.failure.message)
      models.add(loaded.value)
      adapters.add(name)
      return `Success: LoRA adapter '${name}' added successfully.`
    } finally {
      loading.delete(name)
    }
  })
  server.post('/v1/unload_lora_adapter', async (request) => {
    const { lora_name: name } = parse(unloadRequest, request.body)
    adapterLoader()
    if (!adapters.delete(name))
      throw new ApiError(404, `The lora adapter '${name}' cannot be found.`, { param: 'lora_name', code: 'not_found' })
    // requests that it is answering go on; nobody waits for them here
    models.remove(name).catch((error) => console.error(error))
    return `Success: LoRA adapter '${name}' removed successfully.`
  })
  return Object.assign(server, { metrics })

  /** Fails when adapters cannot be loaded here, or by strangers. */
  function adapterLoader() {
    if (loadAdapter === undefined) throw new ApiError(400, 'What is served here takes no adapters.')
    if (!keys.required && !isLoopback(options.host))
      throw new ApiError(
        403,
        'Adapters are loaded and unloaded only with an API key where others can reach the server.',
      )
    return loadAdapter
  }
}

const loadRequest = z
  .object({
    // answers tell it in a header
    lora_name: z.string().regex(/^[\x21-\x7e]{1,200}$/, 'expected up to 200 printable characters without spaces'),
    lora_path: z.string().min(1),
    load_inplace: neutral(false),
    is_3d_lora_weight: neutral(false),
  })
  .strict()

const unloadRequest = z.object({ lora_name: z.string().min(1), lora_int_id: z.number().nullish() }).strict()

/** Name, context and weights of a model: what clients write, and where it comes from. */
function modelCard({ name, model }: { name: string; model: ServedModel }) {
  return {
    id: name,
    object: 'model',
    created: Math.floor(model.created.getTime() / 1000),
    owned_by: 'showrunner',
    max_model_len: model.policy.contextLength,
    root: model.root ?? model.name,
    parent: model.parent,
    policy_version: versionOf(model),
  }
}

/** vLLM's `/tokenize`. Without a model: the first. */
function tokenize(models: ModelRegistry, body: unknown) {
  const { model, content, return_token_strs } = parseTokenizeRequest(body)
  return withPolicy(models, model, (policy) => {
    checkLength(content, policy)
    const tokens = promptIds(content, policy)
    return {
      count: tokens.length,
      max_model_len: policy.contextLength,
      tokens,
      token_strs: return_token_strs ? tokens.map((id) => policy.tokenizer?.decode([id])) : null,
    }
  })
}

/** vLLM's `/detokenize`. */
function detokenize(models: ModelRegistry, body: unknown) {
  const { model, tokens } = parseDetokenizeRequest(body)
  return withPolicy(models, model, (policy) => {
    if (!policy.tokenizer) throw refused('model', `the policy ${policy.name} has no tokenizer`)
    checkIds('tokens', tokens, policy)
    return { prompt: policy.tokenizer.decode(tokens) }
  })
}

function withPolicy<T>(models: ModelRegistry, name: string | null | undefined, use: (policy: Policy) => T): T {
  const lease = models.use(name ?? models.list()[0]?.name ?? '')
  try {
    return use(lease.model.policy)
  } finally {
    lease.done()
  }
}
