/**
 * Opens what a configuration names: data set, policy, agents, system. Everything that a command runs with comes from here, so that
 * training, rollouts and evaluation differ in nothing else. Runs no system.
 */
import { type OpenAgents, openAgents } from './agents/index.ts'
import { type Checkpoint, loadCheckpoint } from './checkpoint/checkpoint.ts'
import type { RunConfig } from './config.ts'
import { type Dataset, openDataset } from './dataset/index.ts'
import { renderMiniature } from './miniature.ts'
import { type EmbeddedPolicy, openPolicy } from './policy/embedded.ts'
import { openEndpoint } from './policy/endpoint.ts'
import type { Progress } from './progress.ts'
import { createSystem } from './systems/index.ts'
import type { Gold, Policy, Result, System, Task } from './types.ts'

export interface OpenRun {
  dataset: Dataset
  system: System
  policy: Policy
  /** Set when the policy's weights are here and can be trained; `files` are those of the checkpoint it was opened from. */
  trainable: Trainable | null
  agents: OpenAgents
  close(): Promise<void>
}

export interface Trainable {
  policy: EmbeddedPolicy
  files: Checkpoint
}

/** Renders the data set first when the configuration says how and it is not there. */
export async function openRun(config: RunConfig, progress: Progress, signal: AbortSignal): Promise<Result<OpenRun>> {
  const { path, split, miniature } = config.dataset
  if (miniature !== null) {
    const rendered = await renderMiniature({ out: path, miniature, progress, signal })
    if (!rendered.ok) return rendered
  }
  const dataset = await openDataset(path, split === null ? {} : { split })
  if (!dataset.ok) return dataset
  const master = await openMaster(config)
  if (!master.ok) return master
  const agents = await openAgents(config.agents)
  if (!agents.ok) {
    await master.value.policy.close()
    return agents
  }
  return {
    ok: true,
    value: {
      dataset: dataset.value,
      system: createSystem(config.system),
      ...master.value,
      agents: agents.value,
      async close() {
        await master.value.policy.close()
        await agents.value.close()
      },
    },
  }
}

async function openMaster(
  config: Pick<RunConfig, 'policy' | 'engine' | 'name'>,
): Promise<Result<Pick<OpenRun, 'policy' | 'trainable'>>> {
  if (config.policy.type === 'endpoint') {
    const endpoint = openEndpoint(config.policy)
    return endpoint.ok ? { ok: true, value: { policy: endpoint.value, trainable: null } } : endpoint
  }
  const { path, rows, cacheTokens } = config.policy
  const checkpoint = await loadCheckpoint(path)
  if (!checkpoint.ok) return checkpoint
  const settings = { name: config.name, step: stepOf(checkpoint.value), rows, cacheTokens }
  const policy = await openPolicy(checkpoint.value, config.engine, settings)
  if (!policy.ok) return policy
  return { ok: true, value: { policy: policy.value, trainable: { policy: policy.value, files: checkpoint.value } } }
}

/** The training step that a checkpoint was saved after; 0 for a model that was not trained here. */
function stepOf({ training }: Checkpoint): number {
  const { step } = (training?.state ?? {}) as { step?: unknown }
  return typeof step === 'number' ? step : 0
}

/** The secret half of a task. Throws when it has none: callers choose tasks that do. */
export function goldFor(dataset: Dataset, task: Task): Gold {
  const gold = dataset.gold.get(task.question.qid)
  if (gold === undefined) throw new Error(`data set ${dataset.name}: question ${task.question.qid} has no gold answer`)
  return gold
}
