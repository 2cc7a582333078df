/**
 * The loop, top to bottom: tasks -> rollouts -> rewards -> store -> advantages -> policy update -> checkpoint.
 *
 * Every step is a function of the config's seed and its number, so a resumed run equals an uninterrupted one. Now and then the policy
 * answers held-out questions (`validation.ts`). Draws nothing: that is `report/`.
 */
import { join } from 'node:path'
import { playedByPolicy } from './casting.ts'
import { linkBest, pruneCheckpoints } from './checkpoint/best.ts'
import {
  type Checkpoint,
  latestCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
  stepDirectory,
} from './checkpoint/checkpoint.ts'
import { configHash, type RunConfig } from './config.ts'
import { openCurves } from './curves.ts'
import type { EngineInUse } from './engine/protocol.ts'
import { scoredGroupAdvantages } from './grpo/advantage.ts'
import { openTrainer } from './grpo/deviceTrainer.ts'
import { isExplained, NonFiniteError, samplerNonFinite } from './grpo/nonFinite.ts'
import { policyRows } from './grpo/rows.ts'
import type { Trainer } from './grpo/trainer.ts'
import { trajectoryValues } from './grpo/trajectoryValues.ts'
import { updatePolicy } from './grpo/update.ts'
import { planMemory } from './memory.ts'
import { stoppedAt } from './nonFinite.ts'
import { goldFor, mostTurns, type OpenRun, openRun, type Trainable } from './open.ts'
import { noneScored, tellFailures } from './outages.ts'
import { trainedOf, withTrained } from './policy/adapter.ts'
import type { Progress } from './progress.ts'
import { recordRatios } from './ratios.ts'
import { rewardWarnings, scoreGroup } from './reward/index.ts'
import { rollout } from './rollout/index.ts'
import { answerable } from './rollouts.ts'
import { recordConfig, recordEngine } from './runFolder.ts'
import { batch, furtherBatch } from './stepBatches.ts'
import { describeRollouts, describeUpdate, type StepRecord } from './stepRecord.ts'
import { answerKeyOf, writeAnswerKey } from './trajectory/answerKey.ts'
import { openStore } from './trajectory/store.ts'
import type { Failure, Result, ScoredGroup } from './types.ts'
import { openValidation, type ValidationRecord } from './validation.ts'

export interface TrainReport {
  checkpoint: string
  steps: number
  rollouts: number
  sampledTokens: number
  seconds: number
  /** One record per step, as written to metrics.jsonl. */
  metrics: readonly StepRecord[]
  /** Of the checkpoint that was most accurate on held-out questions; null without `training.validation`. */
  best: ValidationRecord | null
}

/** What a checkpoint remembers of the run besides weights and optimizer. */
interface RunState {
  /** Steps done. */
  step: number
  optimizerSteps: number
  seed: number
  configHash: string
  rollouts: number
  sampledTokens: number
  seconds: number
  /** What the last steps ran on. */
  engine: EngineInUse
}

export interface TrainOptions {
  /** Continue from the newest whole checkpoint of the run; without it an existing run is an error. */
  resume: boolean
}

export async function train(
  config: RunConfig,
  progress: Progress,
  signal: AbortSignal,
  { resume }: TrainOptions,
): Promise<Result<TrainReport>> {
  const opened = await openRun(config, progress, signal, 'training')
  if (!opened.ok) return opened
  const run = opened.value
  try {
    if (run.trainable === null)
      return fail(`policy.type: expected checkpoint, since weights are changed here; got ${config.policy.type}`)
    if (config.training.external !== null)
      return fail('training.external: is read only where the policy is behind an endpoint; leave it out')
    if (playedByPolicy(run.system, run.roles).length === 0)
      return fail(`roles: expected at least one role of ${run.system.name} that the policy plays; all are frozen`)
    const { device, config: decoder } = run.trainable.policy
    if (decoder.matrixType !== 'float32' && decoder.lora === null)
      return fail('policy.frozenType: float16 weights are not trained; add policy.lora, or use float32')
    const memory = planMemory(config, decoder, run.trainable.policy.contextLength)
    if (!memory.ok) return memory
    const { withinMemory, line } = memory.value
    if (line !== null) progress.line(line)
    const valueHead = config.grpo.advantageBaseline === 'value'
    const trainer = await openTrainer(device, decoder, { valueHead, withinMemory })
    try {
      return await trainRun(config, run, run.trainable, trainer, progress, signal, resume)
    } finally {
      await trainer.close()
    }
  } finally {
    await run.close()
  }
}

async function trainRun(
  config: RunConfig,
  run: OpenRun,
  { policy, files }: Trainable,
  trainer: Trainer,
  progress: Progress,
  signal: AbortSignal,
  resume: boolean,
): Promise<Result<TrainReport>> {
  const directory = join('rollouts', config.name)
  const checkpoints = join('checkpoints', config.name)
  const tasks = answerable(run.dataset, config.dataset.limit)
  if (tasks.length < config.training.tasksPerStep) {
    return fail(
      `dataset ${config.dataset.path}: expected at least training.tasksPerStep = ${config.training.tasksPerStep} questions with an answer, found ${tasks.length}`,
    )
  }
  for (const warning of rewardWarnings(config.reward, mostTurns(config, run.system)))
    progress.line(`warning: ${warning}`)

  const begun = await continueFrom(checkpoints, config, trainer, policy.device.inUse, resume)
  if (!begun.ok) return begun
  let state = begun.value
  policy.bumpVersion(state.step)
  // the reference of the KL term is where the run began, also when it is resumed
  if (config.grpo.klCoefficient > 0) await trainer.keepReference(files.weights)
  const validating = await openValidation(config, { directory, run, progress, signal })
  if (!validating.ok) return validating
  const validation = validating.value
  const opened = await openStore(directory, { resume, dropFromStep: state.step })
  if (!opened.ok) {
    await validation?.close()
    return opened
  }
  const store = opened.value
  try {
    const keyed = await writeAnswerKey(
      directory,
      answerKeyOf(tasks, (task) => goldFor(run.dataset, task)),
    )
    if (!keyed.ok) return keyed
    const recorded = await recordConfig(directory, config)
    if (!recorded.ok) return recorded
    const engine = await recordEngine(directory, policy.device.inUse)
    if (!engine.ok) return engine
    const totalSteps = config.training.steps * config.grpo.epochs * config.grpo.minibatches
    const curves = await openCurves<StepRecord>(directory, state.step)
    if (!curves.ok) return curves
    const { steps: metrics, validations, addStep, addValidation } = curves.value
    /** Whether the policy as it stands is the best so far; false as well where it was not asked. */
    const validate = async (): Promise<Result<boolean>> => {
      if (!validation?.isDue(state.step)) return { ok: true, value: false }
      const measured = await validation.measure(state.step, policy)
      if (signal.aborted) return cancelled(config, checkpoints, state.step)
      if (!measured.ok) return measured
      const noted = await addValidation(measured.value)
      if (!noted.ok) return noted
      const isBest = bestOf(validations) === measured.value
      progress.line(describeValidation(measured.value, isBest))
      return { ok: true, value: isBest }
    }
    // a crash may have come between a checkpoint and the link to it
    if (bestOf(validations)?.step === state.step) {
      const linked = await linkBest(checkpoints, state.step)
      if (!linked.ok) return linked
    }
    if (validations.length === 0) {
      const untrained = await validate()
      if (!untrained.ok) return untrained
    }
    const tell = tellFailures((text) => progress.line(text))
    const started = performance.now() - state.seconds * 1000
    progress.stage('training', config.training.steps)
    progress.tick(state.step)
    for (let step = state.step; step < config.training.steps; step++) {
      const rolloutStarted = performance.now()
      const scored: ScoredGroup[] = []
      let next = batch(tasks, config, step)
      for (let batches = 1; next.length > 0; batches++) {
        const groups = await rollout(next, {
          system: run.system,
          policy,
          roles: run.roles,
          agents: run.agents,
          options: config.rollout,
          step,
          runSeed: config.seed,
          signal,
        })
        if (signal.aborted) return cancelled(config, checkpoints, state.step)
        for (const group of groups) tell(group)
        scored.push(...groups.map((group) => scoreGroup(group, goldFor(run.dataset, group.task), config.reward)))
        next = furtherBatch(tasks, config, step, batches, scored)
      }
      // greedy rollouts record the log-probabilities of temperature 1
      const temperature = config.rollout.temperature || 1
      const stopAt = async (error: unknown): Promise<{ ok: false; failure: Failure }> => {
        if (!(error instanceof NonFiniteError) || !isExplained(error)) throw error
        const { weights, optimizer } = await trainer.save()
        const training = optimizer.size > 0 ? { state, optimizer } : null
        const checkpoint = { ...withTrained(files, weights), training }
        const stopped = { step, optimizerStep: trainer.step, policyVersion: policy.version, error, config }
        return { ok: false, failure: await stoppedAt(checkpoints, stopped, checkpoint) }
      }
      const damaged = policy.takeNonFinite()
      if (damaged.length > 0) return stopAt(samplerNonFinite(damaged, temperature))
      const lost = noneScored(scored, step)
      if (lost !== null) return { ok: false, failure: lost }
      const values =
        config.grpo.advantageBaseline === 'value' ? await trajectoryValues(trainer, scored, config.grpo) : null
      const advantages = scoredGroupAdvantages(scored, config.grpo, values)
      const stored = await store.append(
        scored,
        advantages.map((group) => group.advantages),
      )
      if (!stored.ok) return stored

      const updateStarted = performance.now()
      const rows = policyRows(scored, advantages, config.grpo, values)
      const update = await updatePolicy(trainer, rows, config.grpo, { temperature, totalSteps }).catch(stopAt)
      if ('ok' in update) return update
      policy.bumpVersion(step + 1)
      const { ratiosEvery } = config.training
      if (ratiosEvery !== null && step % ratiosEvery === 0) {
        const recorded = await recordRatios(directory, step, scored, trainer, { ...config.grpo, temperature })
        if (!recorded.ok) return recorded
      }

      const record: StepRecord = {
        step,
        at: new Date().toISOString(),
        ...describeRollouts(scored),
        ...describeUpdate(update),
        zeroVarianceGroups: advantages.filter((group) => group.zeroVariance).length,
        secondsRollout: (updateStarted - rolloutStarted) / 1000,
        secondsUpdate: (performance.now() - updateStarted) / 1000,
      }
      const noted = await addStep(record)
      if (!noted.ok) return noted
      state = {
        ...state,
        step: step + 1,
        optimizerSteps: trainer.step,
        rollouts: state.rollouts + scored.reduce((sum, group) => sum + group.scored.length, 0),
        sampledTokens: state.sampledTokens + update.tokens,
        seconds: (performance.now() - started) / 1000,
      }
      // before the checkpoint is saved, so that a run that is resumed there has not missed it
      const validated = await validate()
      if (!validated.ok) return validated
      const isBest = validated.value
      if (isBest || state.step % config.training.saveEvery === 0 || state.step === config.training.steps) {
        const saved = await save(checkpoints, files, trainer, state)
        if (!saved.ok) return saved
        const kept = await keep(checkpoints, isBest ? state.step : null, config.training.keepCheckpoints)
        if (!kept.ok) return kept
      }
      progress.tick(
        1,
        `reward ${record.reward.toFixed(2)}, accuracy ${record.accuracy.toFixed(2)}, turns ${record.turns.toFixed(1)}`,
      )
    }
    progress.done()
    const closed = await store.close()
    if (!closed.ok) return closed
    const { rollouts, sampledTokens, seconds } = state
    return {
      ok: true,
      value: {
        checkpoint: stepDirectory(checkpoints, state.step),
        steps: state.step,
        rollouts,
        sampledTokens,
        seconds,
        metrics,
        best: bestOf(validations),
      },
    }
  } finally {
    await store.release()
    await validation?.close()
  }
}

/** The most accurate of the trained ones, the earliest of equals; null while there is none. */
function bestOf(validations: readonly ValidationRecord[]): ValidationRecord | null {
  return validations
    .filter(({ step }) => step > 0)
    .reduce<ValidationRecord | null>((best, one) => (best === null || one.accuracy > best.accuracy ? one : best), null)
}

function describeValidation(
  { step, n, accuracy, accuracyLow, accuracyHigh }: ValidationRecord,
  isBest: boolean,
): string {
  const interval = `${accuracyLow.toFixed(3)} to ${accuracyHigh.toFixed(3)}`
  return `after ${step} steps: accuracy ${accuracy.toFixed(3)} (95 % ${interval}) on ${n} held-out questions${isBest ? ', the best so far' : ''}`
}

/** Points `best` to the checkpoint of this step, when there is one to point to, and deletes old ones where so many are to be kept. */
async function keep(checkpoints: string, best: number | null, newest: number | null): Promise<Result<unknown>> {
  const linked = best === null ? null : await linkBest(checkpoints, best)
  if (linked !== null && !linked.ok) return linked
  return newest === null ? { ok: true, value: null } : pruneCheckpoints(checkpoints, newest)
}

/** Where training begins: the base checkpoint, or the newest whole checkpoint of the run. */
async function continueFrom(
  checkpoints: string,
  config: RunConfig,
  trainer: Trainer,
  engine: EngineInUse,
  resume: boolean,
): Promise<Result<RunState>> {
  const fresh: RunState = {
    step: 0,
    optimizerSteps: 0,
    seed: config.seed,
    configHash: configHash(config),
    rollouts: 0,
    sampledTokens: 0,
    seconds: 0,
    engine,
  }
  const latest = await latestCheckpoint(checkpoints)
  if (latest === null) return { ok: true, value: fresh }
  if (!resume)
    return fail(
      `${checkpoints}: the run ${config.name} already has a checkpoint of step ${latest.step}; give --resume to continue it, or another name`,
    )
  const loaded = await loadCheckpoint(latest.directory)
  if (!loaded.ok) return loaded
  const state = loaded.value.training?.state as RunState
  if (state.configHash !== fresh.configHash) {
    return fail(
      `${latest.directory}: was made with another configuration (hash ${state.configHash}, now ${fresh.configHash}); resume with the same configuration, or choose another name`,
    )
  }
  await trainer.load({
    weights: trainedOf(loaded.value),
    optimizer: loaded.value.training?.optimizer,
    step: state.optimizerSteps,
  })
  return { ok: true, value: { ...state, engine } }
}

async function save(checkpoints: string, files: Checkpoint, trainer: Trainer, state: RunState): Promise<Result<void>> {
  const { weights, optimizer } = await trainer.save()
  return saveCheckpoint(stepDirectory(checkpoints, state.step), {
    ...withTrained(files, weights),
    training: { state, optimizer },
  })
}

function fail(message: string): { ok: false; failure: Failure } {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}

function cancelled(config: RunConfig, checkpoints: string, step: number): { ok: false; failure: Failure } {
  const message = `training of ${config.name} was stopped at step ${step} of ${config.training.steps}; all complete groups are stored; continue from the newest checkpoint in ${checkpoints} with --resume`
  return { ok: false, failure: { boundary: 'policy', kind: 'cancelled', message } }
}
