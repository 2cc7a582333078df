/**
 * `showrunner train` where the policy is behind an endpoint: rollouts, rewards and advantages are made here, updates by a trainer of the
 * user's own (verl, TRL, a script). They meet in folders:
 *
 *   rollouts/<run>/steps/step-000012/     what to train on: trajectories with rewards and advantages, segments with token ids, masks and
 *                                         log-probabilities. Whole once `segments.arrows` is there
 *   <adapters>/step-000013/               the PEFT adapter that the trainer makes of it, and that the next step samples from
 *
 * Each adapter is loaded into the endpoint under a name of its own, `<run>-step-000013`. A step whose folder is whole is not run again.
 */
import { existsSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import { join, resolve } from 'node:path'
import { fileEntries } from './checkpoint/safetensors.ts'
import type { RunConfig } from './config.ts'
import { openCurves } from './curves.ts'
import { scoredGroupAdvantages } from './grpo/advantage.ts'
import { goldFor, type OpenRun, openMaster, openRun } from './open.ts'
import { noneScored, tellFailures } from './outages.ts'
import { loadEndpointAdapter, unloadEndpointAdapter } from './policy/endpointAdapters.ts'
import type { EndpointPolicyOptions } from './policy/options.ts'
import type { Progress } from './progress.ts'
import { scoreGroup } from './reward/index.ts'
import { rollout } from './rollout/index.ts'
import { answerable } from './rollouts.ts'
import { recordConfig, runFileFailure } from './runFolder.ts'
import { batch, furtherBatch } from './stepBatches.ts'
import { describeRollouts, type StepRecord } from './stepRecord.ts'
import { answerKeyOf, writeAnswerKey } from './trajectory/answerKey.ts'
import { finalPath } from './trajectory/files.ts'
import { openStore } from './trajectory/store.ts'
import type { Failure, Policy, Result, ScoredGroup, Task } from './types.ts'
import { openValidation } from './validation.ts'

/** A step record without what an update would tell. */
type ExternalStep = Pick<StepRecord, 'step' | 'at' | 'zeroVarianceGroups' | 'secondsRollout'> &
  ReturnType<typeof describeRollouts>

type Failed = { ok: false; failure: Failure }

/** Runs until all steps are rolled out; the trainer's last update comes after that. Returns the number of rollouts made. */
export async function trainExternally(
  config: RunConfig,
  policy: EndpointPolicyOptions,
  progress: Progress,
  signal: AbortSignal,
  { resume }: { resume: boolean },
): Promise<Result<{ steps: number; rollouts: number }>> {
  const { external } = config.training
  const problem = problemWith(config, policy)
  if (external === null || problem !== null) return refused(problem ?? WITHOUT_TRAINER)
  const opened = await openRun({ ...config, policy }, progress, signal, 'training')
  if (!opened.ok) return opened
  try {
    return await stepsFor(external, config, policy, opened.value, progress, signal, resume)
  } finally {
    await opened.value.close()
  }
}

async function stepsFor(
  external: NonNullable<RunConfig['training']['external']>,
  config: RunConfig,
  policyOptions: EndpointPolicyOptions,
  run: OpenRun,
  progress: Progress,
  signal: AbortSignal,
  resume: boolean,
): Promise<Result<{ steps: number; rollouts: number }>> {
  const { steps, tasksPerStep } = config.training
  const directory = join('rollouts', config.name)
  const tasks = answerable(run.dataset, config.dataset.limit)
  if (tasks.length < tasksPerStep)
    return refused(
      `dataset ${config.dataset.path}: expected at least training.tasksPerStep = ${tasksPerStep} questions with an answer, found ${tasks.length}`,
    )
  let first = 0
  while (first < steps && existsSync(finalPath(stepFolder(directory, first), 'segments'))) first++
  if (first > 0 && !resume)
    return refused(
      `${directory}: the run ${config.name} already has ${first} steps; give --resume to continue it, or another name`,
    )
  const validating = await openValidation(config, { directory, run, progress, signal })
  if (!validating.ok) return validating
  const validation = validating.value
  let policy = run.policy
  try {
    const recorded = await recordConfig(directory, config)
    if (!recorded.ok) return recorded
    const curves = await openCurves<ExternalStep>(directory, first)
    if (!curves.ok) return curves
    progress.line(
      `training ${policyOptions.model} behind ${policyOptions.baseUrl}: rollouts, rewards and advantages are made here, updates by the trainer that ${
        external.adapters === null
          ? 'changes the weights behind the endpoint'
          : `leaves an adapter for each step in ${external.adapters}`
      }`,
    )
    progress.stage('rollouts for the trainer', steps)
    progress.to(first)
    const tell = tellFailures((text) => progress.line(text))
    let rollouts = 0
    let loaded: string | null = null
    for (let step = first; step < steps; step++) {
      if (external.adapters !== null && step > 0) {
        const adapter = await nextAdapter(join(external.adapters, stepName(step)), external.waitSeconds, signal)
        if (!adapter.ok) return adapter
        const name = `${config.name}-${stepName(step)}`
        const known = await loadEndpointAdapter(policyOptions, name, adapter.value)
        if (!known.ok) return known
        const opened = await openMaster({ ...config, policy: { ...policyOptions, model: name } })
        if (!opened.ok) return opened
        if (policy !== run.policy) await policy.close()
        policy = opened.value.policy
        // only what was loaded here: after a resume an older one may stay, which does no harm
        if (loaded !== null) await unloadEndpointAdapter(policyOptions, loaded)
        loaded = name
      }
      if (validation?.isDue(step) && curves.value.validations.at(-1)?.step !== step) {
        const measured = await validation.measure(step, policy)
        if (!measured.ok) return measured
        const noted = await curves.value.addValidation(measured.value)
        if (!noted.ok) return noted
      }
      const began = performance.now()
      const scored = await scoredStep(config, { ...run, policy }, tasks, step, signal)
      if (signal.aborted) return stopped(config, step)
      const lost = noneScored(scored, step)
      if (lost !== null) return { ok: false, failure: lost }
      for (const { group } of scored) tell(group)
      const advantages = scoredGroupAdvantages(scored, config.grpo, null)
      const stored = await storeStep(
        stepFolder(directory, step),
        run,
        scored,
        advantages.map((one) => one.advantages),
      )
      if (!stored.ok) return stored
      rollouts += scored.reduce((sum, group) => sum + group.scored.length, 0)
      const described = describeRollouts(scored)
      const noted = await curves.value.addStep({
        step,
        at: new Date().toISOString(),
        ...described,
        zeroVarianceGroups: advantages.filter((group) => group.zeroVariance).length,
        secondsRollout: (performance.now() - began) / 1000,
      })
      if (!noted.ok) return noted
      progress.tick(1, `reward ${described.reward.toFixed(2)}, accuracy ${described.accuracy.toFixed(2)}`)
    }
    progress.done(`in ${join(directory, 'steps')}`)
    return { ok: true, value: { steps, rollouts } }
  } finally {
    if (policy !== run.policy) await policy.close()
    await validation?.close()
  }
}

/** Everything about one step that is rolled out and scored, further batches included. */
async function scoredStep(
  config: RunConfig,
  run: Pick<OpenRun, 'system' | 'agents' | 'dataset'> & { policy: Policy },
  tasks: readonly Task[],
  step: number,
  signal: AbortSignal,
): Promise<ScoredGroup[]> {
  const scored: ScoredGroup[] = []
  let next = batch(tasks, config, step)
  for (let batches = 1; next.length > 0 && !signal.aborted; batches++) {
    const groups = await rollout(next, { ...run, options: config.rollout, step, runSeed: config.seed, signal })
    scored.push(...groups.map((group) => scoreGroup(group, goldFor(run.dataset, group.task), config.reward)))
    next = furtherBatch(tasks, config, step, batches, scored)
  }
  return scored
}

/** A store of its own, so that the trainer finds it whole or not at all. */
async function storeStep(
  folder: string,
  { dataset }: Pick<OpenRun, 'dataset'>,
  scored: readonly ScoredGroup[],
  advantages: readonly (readonly (number | null)[])[],
): Promise<Result<void>> {
  try {
    // what a crash left of it is not taken up: it is a step at most
    await rm(folder, { recursive: true, force: true })
  } catch (error) {
    return runFileFailure(folder, error)
  }
  const opened = await openStore(folder, { resume: false })
  if (!opened.ok) return opened
  const store = opened.value
  try {
    const keyed = await writeAnswerKey(
      folder,
      answerKeyOf(
        scored.map(({ group }) => group.task),
        (task) => goldFor(dataset, task),
      ),
    )
    if (!keyed.ok) return keyed
    const stored = await store.append(scored, advantages)
    return stored.ok ? await store.close() : stored
  } finally {
    await store.release()
  }
}

/** Waits until the adapter in this folder is whole; resolves to its absolute path. */
async function nextAdapter(folder: string, seconds: number, signal: AbortSignal): Promise<Result<string>> {
  const path = resolve(folder)
  const deadline = performance.now() + seconds * 1000
  while (!(await isWholeAdapter(path))) {
    if (signal.aborted || performance.now() > deadline) {
      const message = signal.aborted
        ? `stopped while waiting for the adapter ${folder}; all steps so far are stored; continue with --resume`
        : `${folder}: the trainer has left no whole PEFT adapter there within training.external.waitSeconds = ${seconds} s (expected adapter_config.json and adapter_model.safetensors); look into the trainer, then continue with --resume`
      return {
        ok: false,
        failure: { boundary: 'checkpoint', kind: signal.aborted ? 'cancelled' : 'timeout', message },
      }
    }
    await new Promise((wake) => setTimeout(wake, 200))
  }
  return { ok: true, value: path }
}

/** Its sizes are those that its header tells, so a file that is being written is not taken for a whole one. */
async function isWholeAdapter(path: string): Promise<boolean> {
  try {
    JSON.parse(await readFile(join(path, 'adapter_config.json'), 'utf8'))
    fileEntries(join(path, 'adapter_model.safetensors'))
    return true
  } catch {
    return false
  }
}

const WITHOUT_TRAINER =
  'policy.type endpoint: its weights are not here, so training.external has to say where an external trainer leaves its adapters (docs/training.md); showrunner rollout makes rollouts without training'

/** What stands in the way of training by somebody else; null when nothing does. */
function problemWith({ grpo }: RunConfig, policy: EndpointPolicyOptions): string | null {
  if (!policy.returnTokenIds || policy.tokenizer === null)
    return 'policy: an external trainer needs the token ids that were sampled and their log-probabilities; set policy.returnTokenIds: true, for a server that returns them, and policy.tokenizer to a folder with the tokenizer of its model'
  if (grpo.advantageBaseline === 'value')
    return 'grpo.advantageBaseline value: the value head would have to be where the weights are; use group_mean or leave_one_out'
  return null
}

const stepName = (step: number) => `step-${String(step).padStart(6, '0')}`
const stepFolder = (directory: string, step: number) => join(directory, 'steps', stepName(step))

function refused(message: string): Failed {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}

function stopped(config: RunConfig, step: number): Failed {
  const message = `training of ${config.name} was stopped at step ${step} of ${config.training.steps}; all steps before are stored; continue with --resume`
  return { ok: false, failure: { boundary: 'policy', kind: 'cancelled', message } }
}
