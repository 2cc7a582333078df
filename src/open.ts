/**
 * Opens what a configuration names: data set, policy, agents, system. Everything that a command runs with comes from here, so that
 * training, rollouts and evaluation differ in nothing else. Runs no system.
 */
import { checkGroundingCache, type MarkedBox, type MarkedBoxes, type OpenAgents, openAgents } from './agents/index.ts'
import { cast, unmetNeeds } from './casting.ts'
import { type Checkpoint, loadCheckpoint, loadTokenizerFiles } from './checkpoint/checkpoint.ts'
import type { RunConfig } from './config.ts'
import { openBoxes } from './dataset/boxes.ts'
import { type Dataset, openDataset, withShuffledOptions } from './dataset/index.ts'
import { describeEngine } from './engine/protocol.ts'
import { renderMiniature } from './miniature.ts'
import { newAdapter } from './policy/adapter.ts'
import { type EmbeddedPolicy, openPolicy } from './policy/embedded.ts'
import { openEndpoint } from './policy/endpoint.ts'
import type { EndpointPolicyOptions, RoleOptions } from './policy/options.ts'
import { openScriptedModule } from './policy/scriptedModule.ts'
import { openTokenizer, type TextTokenizer } from './policy/tokenizer.ts'
import type { Progress } from './progress.ts'
import type { FrozenRoles } from './rollout/index.ts'
import { createSystem, type Purpose } from './systems/index.ts'
import type { FrozenRole, Gold, Policy, Result, System, Task } from './types.ts'

export interface OpenRun {
  dataset: Dataset
  system: System
  policy: Policy
  /** Who plays the roles that the policy does not play. */
  roles: FrozenRoles
  /** Set when the policy's weights are here and can be trained; `files` are those of the checkpoint it was opened from. */
  trainable: Trainable | null
  agents: OpenAgents
  close(): Promise<void>
}

export interface Trainable {
  policy: EmbeddedPolicy
  files: Checkpoint
}

/** The data set alone; rendered first when the configuration says how and it is not there. */
export async function openQuestions(
  { path, split, miniature, optionSeed }: RunConfig['dataset'],
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<Dataset>> {
  if (miniature !== null) {
    const rendered = await renderMiniature({ out: path, miniature, progress, signal })
    if (!rendered.ok) return rendered
  }
  const opened = await openDataset(path, split === null ? {} : { split })
  if (!opened.ok || optionSeed === null) return opened
  return { ok: true, value: withShuffledOptions(opened.value, optionSeed) }
}

export async function openRun(
  config: RunConfig,
  progress: Progress,
  signal: AbortSignal,
  purpose: Purpose = 'evaluation',
): Promise<Result<OpenRun>> {
  const whole = cast(config)
  if (!whole.ok) return whole
  const system = createSystem(config.system, purpose)
  const dataset = await openQuestions(config.dataset, progress, signal)
  if (!dataset.ok) return dataset
  const master = await openMaster(config)
  if (!master.ok) return master
  if (master.value.trainable !== null) progress.line(describeEngine(master.value.trainable.policy.device.inUse))
  if (config.agents.oracleBoxes)
    progress.line('oracle: the vision agent is given boxes that tell about the right answer (agents.oracleBoxes)')
  const helpers = await openAround(system, whole.value, dataset.value)
  if (!helpers.ok) {
    await master.value.policy.close()
    return helpers
  }
  return {
    ok: true,
    value: {
      dataset: dataset.value,
      system,
      ...master.value,
      roles: helpers.value.roles,
      agents: helpers.value.agents,
      async close() {
        await master.value.policy.close()
        await helpers.value.close()
      },
    },
  }
}

/** What a system works with besides the policy: frozen roles and agents. */
export interface OpenAround {
  roles: FrozenRoles
  agents: OpenAgents
  close(): Promise<void>
}

/** Fails when an agent is lacking that the system asks, or the file of first clips that it begins with. */
export async function openAround(
  system: System,
  config: Pick<RunConfig, 'agents' | 'roles' | 'engine' | 'seed' | 'system'>,
  dataset: Dataset,
): Promise<Result<OpenAround>> {
  const cached = await firstClips(config)
  if (!cached.ok) return cached
  const agents = await openHelpers(config, dataset)
  if (!agents.ok) return agents
  const unmet = unmetNeeds(system, agents.value)
  const roles = unmet === null ? await openRoles(config) : { ok: false as const, failure: unmet }
  if (!roles.ok) {
    await agents.value.close()
    return roles
  }
  const close = async () => {
    await agents.value.close()
    await roles.value.close()
  }
  return { ok: true, value: { roles: roles.value.roles, agents: agents.value, close } }
}

/** The file that a system takes the clips of its first messages from, where it does. */
async function firstClips({ system, agents }: Pick<RunConfig, 'system' | 'agents'>): Promise<Result<void>> {
  if (system.name !== 'longVideoAgent' || system.initialGrounding !== 'cache') return { ok: true, value: undefined }
  if (agents.groundingCache !== null) return checkGroundingCache(agents.groundingCache)
  const message =
    'system.initialGrounding is cache, and agents.groundingCache names no file: make one with showrunner ground, or take another system.initialGrounding'
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}

/** Opens every model that plays a frozen role, once for all the roles that it plays. */
async function openRoles({
  roles,
  engine,
  seed,
}: Pick<RunConfig, 'roles' | 'engine' | 'seed'>): Promise<Result<{ roles: FrozenRoles; close(): Promise<void> }>> {
  const open = new Map<string, Policy>()
  const close = async () => {
    for (const policy of open.values()) await policy.close()
  }
  const played: Record<string, FrozenRole> = {}
  for (const [role, { temperature, maxTokens, ...options }] of Object.entries(roles)) {
    const key = JSON.stringify(options)
    const known = open.get(key)
    const opened =
      known === undefined ? await openPlayer(options, { engine, seed }) : { ok: true as const, value: known }
    if (!opened.ok) {
      await close()
      return { ok: false, failure: { ...opened.failure, message: `roles.${role}: ${opened.failure.message}` } }
    }
    open.set(key, opened.value)
    played[role] = { policy: opened.value, temperature, maxTokens }
  }
  return { ok: true, value: { roles: played, close } }
}

async function openPlayer(
  options: DistributiveOmit<RoleOptions, 'temperature' | 'maxTokens'>,
  run: Pick<RunConfig, 'engine' | 'seed'>,
): Promise<Result<Policy>> {
  if (options.type === 'scripted') return openScriptedModule(options.path)
  const policy = options.type === 'endpoint' ? options : { ...options, lora: null }
  const opened = await openMaster({ ...run, policy, name: options.type === 'endpoint' ? options.model : options.path })
  return opened.ok ? { ok: true, value: opened.value.policy } : opened
}

type DistributiveOmit<Union, Key extends PropertyKey> = Union extends unknown ? Omit<Union, Key> : never

/** The agents; with the boxes of the data set where the configuration asks for that oracle. */
export async function openHelpers(
  { agents }: Pick<RunConfig, 'agents'>,
  dataset: Dataset,
): Promise<Result<OpenAgents>> {
  if (!agents.oracleBoxes) return openAgents(agents)
  const boxes = await boxesByClip(dataset)
  return boxes.ok ? openAgents(agents, boxes.value) : boxes
}

/** The boxes of all questions about a clip, as in the released code: by the clip that holds a question's evidence. */
async function boxesByClip({ directory, split, gold }: Dataset): Promise<Result<MarkedBoxes>> {
  const read = await openBoxes(directory, split ?? undefined)
  if (!read.ok) return read
  const byClip = new Map<string, MarkedBox[]>()
  for (const [qid, pictures] of read.value) {
    const clip = gold.get(qid)?.clipId
    if (clip == null) continue
    const marked = pictures.flatMap(({ picture, boxes }) =>
      boxes.map((box) => ({ ...box, time: (picture - 1) / BOX_FPS })),
    )
    byClip.set(clip, [...(byClip.get(clip) ?? []), ...marked])
  }
  return { ok: true, value: byClip }
}

/** Pictures are numbered from 1 at this rate (`dataset/boxes.ts`). */
const BOX_FPS = 3

export async function openMaster(
  config: Pick<RunConfig, 'policy' | 'engine' | 'name' | 'seed'>,
): Promise<Result<Pick<OpenRun, 'policy' | 'trainable'>>> {
  if (config.policy.type === 'endpoint') {
    const tokenizer = await endpointTokenizer(config.policy)
    if (!tokenizer.ok) return tokenizer
    const endpoint = openEndpoint(config.policy, tokenizer.value)
    return endpoint.ok ? { ok: true, value: { policy: endpoint.value, trainable: null } } : endpoint
  }
  const { path, adapter, rows, cacheTokens, frozenType } = config.policy
  const loaded = await loadCheckpoint(path, adapter)
  if (!loaded.ok) return loaded
  const files = adapted(config, loaded.value)
  if (!files.ok) return files
  const settings = { name: config.name, step: stepOf(loaded.value), rows, cacheTokens, frozenType }
  const policy = await openPolicy(files.value, config.engine, settings)
  if (!policy.ok) return policy
  return { ok: true, value: { policy: policy.value, trainable: { policy: policy.value, files: files.value } } }
}

/** That of the model behind the endpoint; undefined where prompts go there as messages. */
async function endpointTokenizer({
  tokenizer,
  returnTokenIds,
}: EndpointPolicyOptions): Promise<Result<TextTokenizer | undefined>> {
  if (tokenizer === null) return { ok: true, value: undefined }
  if (!returnTokenIds) {
    const message =
      'policy.tokenizer: prompts as token ids make sense with policy.returnTokenIds: true only; set it, or leave the tokenizer out'
    return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
  }
  const files = await loadTokenizerFiles(tokenizer)
  return files.ok ? openTokenizer(files.value, tokenizer) : files
}

/** The checkpoint with a new adapter on it, where the configuration asks for one. */
function adapted({ policy, seed }: Pick<RunConfig, 'policy' | 'seed'>, files: Checkpoint): Result<Checkpoint> {
  if (policy.type === 'endpoint' || policy.lora === null) return { ok: true, value: files }
  const bad = (message: string): Result<Checkpoint> => ({
    ok: false,
    failure: { boundary: 'config', kind: 'bad_request', message },
  })
  if (files.adapter)
    return bad('policy.lora: there is an adapter already, which training continues; leave policy.lora out')
  try {
    return { ok: true, value: { ...files, adapter: newAdapter(files.config, policy.path, policy.lora, seed) } }
  } catch (error) {
    return bad(`${policy.path}: ${(error as Error).message}`)
  }
}

/** The training step that a checkpoint was saved after; 0 for a model that was not trained here. */
function stepOf({ training }: Checkpoint): number {
  const { step } = (training?.state ?? {}) as { step?: unknown }
  return typeof step === 'number' ? step : 0
}

/** The largest K that a run may have. */
export function mostTurns({ rollout }: Pick<RunConfig, 'rollout'>, system: Pick<System, 'turns'>): number {
  return Math.max(...[rollout.budget.turns ?? system.turns].flat())
}

/** The secret half of a task. Throws when it has none: callers choose tasks that do. */
export function goldFor(dataset: Dataset, task: Task): Gold {
  const gold = dataset.gold.get(task.question.qid)
  if (gold === undefined) throw new Error(`data set ${dataset.name}: question ${task.question.qid} has no gold answer`)
  return gold
}
