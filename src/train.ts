/**
 * The loop, top to bottom: tasks -> rollouts -> rewards -> store -> advantages -> policy update -> checkpoint.
 *
 * Every step is a function of the config's seed and its number, so a resumed run equals an uninterrupted one. Evaluates nothing and
 * draws nothing: that is `evaluate.ts` and `report/`.
 */
import { appendFile, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import {
  type Checkpoint,
  latestCheckpoint,
  loadCheckpoint,
  saveCheckpoint,
  stepDirectory,
} from './checkpoint/checkpoint.ts'
import { configHash, type RunConfig } from './config.ts'
import { Dice } from './dataset/miniature/story.ts'
import type { EngineInUse } from './engine/protocol.ts'
import { scoredGroupAdvantages } from './grpo/advantage.ts'
import type { StepMetrics } from './grpo/metrics.ts'
import { isExplained, NonFiniteError, samplerNonFinite } from './grpo/nonFinite.ts'
import { policyRows } from './grpo/rows.ts'
import { openTrainer, type Trainer } from './grpo/trainer.ts'
import { trajectoryValues } from './grpo/trajectoryValues.ts'
import { type UpdateMetrics, updatePolicy } from './grpo/update.ts'
import { planMemory } from './memory.ts'
import { stoppedAt } from './nonFinite.ts'
import { goldFor, type OpenRun, openRun, type Trainable } from './open.ts'
import { tellFailures } from './outages.ts'
import { trainedOf, withTrained } from './policy/adapter.ts'
import type { Progress } from './progress.ts'
import { rewardWarnings, scoreGroup } from './reward/index.ts'
import { rollout } from './rollout/index.ts'
import { answerable } from './rollouts.ts'
import { recordConfig, recordEngine, replaceFile, runFileFailure } from './runFolder.ts'
import { answerKeyOf, writeAnswerKey } from './trajectory/answerKey.ts'
import { openStore } from './trajectory/store.ts'
import type { Failure, Result, ScoredGroup, Task } from './types.ts'

export interface TrainReport {
  checkpoint: string
  steps: number
  rollouts: number
  sampledTokens: number
  seconds: number
  /** One record per step, as written to metrics.jsonl. */
  metrics: StepRecord[]
}

/** In `rollouts/<run>/`: one `StepRecord` per line. */
const METRICS = 'metrics.jsonl'

/** One training step. Means over the step's trajectories. */
export interface StepRecord {
  step: number
  reward: number
  accuracy: number
  grounded: number
  formatRate: number
  turns: number
  loss: number
  gradNorm: number
  learningRate: number
  kl: number
  clipFractionLow: number
  clipFractionHigh: number
  clipFractionDual: number
  entropy: number
  ratioMean: number
  /** Largest ratio of the first pass: 1 when sampler and trainer agree. */
  ratioMax: number
  /** Over training rows. */
  advantageMean: number
  advantageDeviation: number
  /** Truncated importance weights; null where `grpo.importanceSamplingCap` is. */
  importanceWeightMean: number | null
  importanceWeightMin: number | null
  /** Share of tokens whose importance weight is at the cap. */
  importanceTruncated: number | null
  /** Of the value head; null with another baseline. */
  valueLoss: number | null
  explainedVariance: number | null
  zeroVarianceGroups: number
  excluded: number
  sampledTokens: number
  /** Share of the positions run through the model that hold no token, and of the rows' tokens that were run with another row's. */
  padding: number
  shared: number
  secondsRollout: number
  secondsUpdate: number
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
      return fail(`policy.type: expected checkpoint, since training changes weights; got ${config.policy.type}`)
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
  for (const warning of rewardWarnings(config.reward, Math.max(...[config.rollout.budget.turns].flat())))
    progress.line(`warning: ${warning}`)

  const begun = await continueFrom(checkpoints, config, trainer, policy.device.inUse, resume)
  if (!begun.ok) return begun
  let state = begun.value
  policy.bumpVersion(state.step)
  // the reference of the KL term is where the run began, also when it is resumed
  if (config.grpo.klCoefficient > 0) await trainer.keepReference(files.weights)
  const opened = await openStore(directory, { resume, dropFromStep: state.step })
  if (!opened.ok) return opened
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
    const metrics = join(directory, METRICS)
    const kept = await keepMetrics(metrics, state.step)
    if (!kept.ok) return kept
    const records = kept.value
    const tell = tellFailures((text) => progress.line(text))
    const started = performance.now() - state.seconds * 1000
    progress.stage('training', config.training.steps)
    progress.tick(state.step)
    for (let step = state.step; step < config.training.steps; step++) {
      const rolloutStarted = performance.now()
      const groups = await rollout(batch(tasks, config, step), {
        system: run.system,
        policy,
        agents: run.agents,
        options: config.rollout,
        step,
        runSeed: config.seed,
        signal,
      })
      if (signal.aborted) return cancelled(config, checkpoints, state.step)
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
      for (const group of groups) tell(group)
      const scored = groups.map((group) => scoreGroup(group, goldFor(run.dataset, group.task), config.reward))
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

      const record: StepRecord = {
        step,
        ...describeRollouts(scored),
        ...describeUpdate(update),
        zeroVarianceGroups: advantages.filter((group) => group.zeroVariance).length,
        secondsRollout: (updateStarted - rolloutStarted) / 1000,
        secondsUpdate: (performance.now() - updateStarted) / 1000,
      }
      records.push(record)
      const noted = await appendFile(metrics, `${JSON.stringify(record)}\n`).catch((error) =>
        runFileFailure(metrics, error),
      )
      if (noted !== undefined) return noted
      state = {
        ...state,
        step: step + 1,
        optimizerSteps: trainer.step,
        rollouts: state.rollouts + scored.reduce((sum, group) => sum + group.scored.length, 0),
        sampledTokens: state.sampledTokens + update.tokens,
        seconds: (performance.now() - started) / 1000,
      }
      if (state.step % config.training.saveEvery === 0 || state.step === config.training.steps) {
        const saved = await save(checkpoints, files, trainer, state)
        if (!saved.ok) return saved
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
        metrics: records,
      },
    }
  } finally {
    await store.release()
  }
}

/** The tasks of a step: the data set is shuffled anew for each pass, by seed, and cut into whole batches. */
export function batch(tasks: readonly Task[], config: Pick<RunConfig, 'seed' | 'training'>, step: number): Task[] {
  const size = config.training.tasksPerStep
  const perPass = Math.floor(tasks.length / size)
  const pass = Math.floor(step / perPass)
  const order = new Dice(`batches/${config.seed}/${pass}`).shuffle(tasks)
  const first = (step % perPass) * size
  return order.slice(first, first + size)
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

/** The records of the steps before `step`: what a crash left of later ones is cut off, as those steps are run again. */
async function keepMetrics(path: string, step: number): Promise<Result<StepRecord[]>> {
  const text = await readFile(path, 'utf8').catch(() => '')
  const whole = text.slice(0, text.lastIndexOf('\n') + 1)
  const records = whole
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line) as StepRecord)
  const kept = records.filter((record) => record.step < step)
  try {
    await replaceFile(path, kept.map((record) => `${JSON.stringify(record)}\n`).join(''))
    return { ok: true, value: kept }
  } catch (error) {
    return runFileFailure(path, error)
  }
}

function describeRollouts(groups: readonly ScoredGroup[]) {
  const all = groups.flatMap((group) => group.scored)
  const scored = all.flatMap((one) => (one.reward === null ? [] : [{ ...one, reward: one.reward }]))
  const turns = scored.flatMap((one) => one.trajectory.turns)
  return {
    reward: mean(scored.map((one) => one.reward.total)),
    accuracy: mean(scored.map((one) => Number(one.correct))),
    grounded: mean(scored.map((one) => Number(one.grounded))),
    formatRate: mean(turns.map((turn) => Number(turn.wellFormed))),
    turns: mean(scored.map((one) => one.trajectory.turns.length)),
    excluded: all.length - scored.length,
  }
}

function describeUpdate({ steps, ratioMax, tokens, advantages, importanceWeights, explainedVariance }: UpdateMetrics) {
  const each = (key: Exclude<keyof StepMetrics, 'valueLoss'>) => mean(steps.map((step) => step[key]))
  const valueLosses = steps.flatMap(({ valueLoss }) => (valueLoss === null ? [] : [valueLoss]))
  return {
    loss: each('loss'),
    gradNorm: each('gradNorm'),
    learningRate: each('learningRate'),
    kl: each('kl'),
    clipFractionLow: each('clipFractionLow'),
    clipFractionHigh: each('clipFractionHigh'),
    clipFractionDual: each('clipFractionDual'),
    entropy: each('entropy'),
    ratioMean: each('ratioMean'),
    ratioMax,
    advantageMean: advantages?.mean ?? 0,
    advantageDeviation: advantages?.standardDeviation ?? 0,
    importanceWeightMean: importanceWeights?.mean ?? null,
    importanceWeightMin: importanceWeights?.min ?? null,
    importanceTruncated: importanceWeights?.truncated ?? null,
    valueLoss: valueLosses.length === 0 ? null : mean(valueLosses),
    explainedVariance,
    sampledTokens: tokens,
    padding: each('padding'),
    shared: each('shared'),
  }
}

/** 0 of none, so that a step without a scored trajectory can be written down. */
function mean(values: readonly number[]): number {
  return values.length === 0 ? 0 : values.reduce((sum, value) => sum + value, 0) / values.length
}

function fail(message: string): { ok: false; failure: Failure } {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}

function cancelled(config: RunConfig, checkpoints: string, step: number): { ok: false; failure: Failure } {
  const message = `training of ${config.name} was stopped at step ${step} of ${config.training.steps}; all complete groups are stored; continue from the newest checkpoint in ${checkpoints} with --resume`
  return { ok: false, failure: { boundary: 'policy', kind: 'cancelled', message } }
}
