/**
 * Trains as another implementation did, and says how far apart the two end. Reads a folder that has: a model (config.json,
 * model.safetensors) in a folder of its own, rollouts.json, golden.json, and where they were kept forward.json and after-<run>.safetensors
 * (see test/golden/README.md). Writes nothing.
 */

import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import seedrandom from 'seedrandom'
import { z } from 'zod'
import { readSafetensors } from '../../src/checkpoint/safetensors.ts'
import type { Device } from '../../src/engine/device.ts'
import { openDevice } from '../../src/engine/device.ts'
import { engineOptions } from '../../src/engine/options.ts'
import type { FloatType } from '../../src/engine/shape.ts'
import { batchAdvantages } from '../../src/grpo/advantage.ts'
import { openTrainer } from '../../src/grpo/deviceTrainer.ts'
import type { StepMetrics } from '../../src/grpo/metrics.ts'
import type { PolicyRow } from '../../src/grpo/rows.ts'
import { updatePolicy } from '../../src/grpo/update.ts'
import type { DecoderConfig } from '../../src/policy/architecture.ts'
import { decoderConfig } from '../../src/policy/families.ts'
import type { WeightTensor } from '../../src/policy/weights.ts'
import { type GoldenRun, goldenRun, optionsOf } from './settings.ts'

/** Largest differences that count as equal: loss, KL, parameters and log-probabilities absolute, gradient norms relative. */
export const TOLERANCES = { loss: 1e-5, gradNorm: 1e-4, parameter: 1e-5, logprob: 1e-5 }

/**
 * Adam divides a gradient by its own size, so where a gradient is hardly larger than its rounding (a few entries in 100,000), what
 * rounding did decides where the weight goes, and no two implementations agree. Such entries are found without looking at what they are
 * compared with: the run is repeated in float64 from weights moved by up to one unit in the last place of float32, and an entry that
 * ends more than a tenth of the tolerance away is undetermined. More of them than one in a thousand is a failure.
 */
const DETERMINED = { nudges: 3, size: 2 ** -23, spread: TOLERANCES.parameter / 10, mostUndetermined: 1e-3 }

/** Null where the folder has nothing to compare with. */
export interface Check {
  name: string
  /** Of losses, and of KLs where they were kept. */
  maxLossDiff: number | null
  maxGradNormRelDiff: number | null
  /** Over the entries that float32 determines. */
  maxParameterDiff: number | null
  maxLogprobDiff: number | null
  /** The other entries: how many, and how far apart they end. */
  undetermined: { entries: number; maxParameterDiff: number } | null
  ok: boolean
}

const rolloutRow = z
  .object({
    prompt_ids: z.array(z.number().int().min(0)).min(1),
    completion_ids: z.array(z.number().int().min(0)),
    action_mask: z.array(z.union([z.literal(0), z.literal(1)])),
    group: z.number().int(),
    reward: z.number().nullable(),
  })
  .strict()
  .refine((row) => row.action_mask.length === row.completion_ids.length, {
    error: 'expected as many as completion_ids',
    path: ['action_mask'],
  })
const rollouts = z.array(z.array(rolloutRow).min(1)).min(1)
type RolloutRow = z.output<typeof rolloutRow>

const forward = z.looseObject({ input_ids: z.array(z.array(z.number().int())), logprobs: z.array(z.array(z.number())) })

interface Fixture {
  directory: string
  config: DecoderConfig
  weights: ReadonlyMap<string, WeightTensor>
  batches: RolloutRow[][]
  runs: Map<string, GoldenRun>
  forward: z.output<typeof forward> | null
}

/** One check of the forward pass, then one of each run. Throws when the folder has another layout, naming the file and the key. */
export async function* compareFolder(directory: string): AsyncGenerator<Check> {
  const fixture = await readFixture(directory)
  const device = await openDevice(engineOptions.parse({}))
  try {
    if (fixture.forward !== null) yield await compareForward(device, fixture)
    for (const [name, run] of fixture.runs) yield await compareRun(device, fixture, name, run)
  } finally {
    await device.close()
  }
}

async function readFixture(directory: string): Promise<Fixture> {
  const model = existsSync(directory)
    ? readdirSync(directory).find((name) => existsSync(join(directory, name, 'config.json')))
    : undefined
  if (model === undefined)
    throw new Error(
      `${directory}: expected a folder that has a model with config.json and model.safetensors in a folder of its own, rollouts.json and golden.json`,
    )
  const runs = readJson(join(directory, 'golden.json'), z.record(z.string(), goldenRun))
  return {
    directory,
    config: decoderConfig(JSON.parse(readFileSync(join(directory, model, 'config.json'), 'utf8'))),
    weights: await tensorsOf(join(directory, model, 'model.safetensors')),
    batches: readJson(join(directory, 'rollouts.json'), rollouts),
    runs: new Map(Object.entries(runs)),
    forward: existsSync(join(directory, 'forward.json')) ? readJson(join(directory, 'forward.json'), forward) : null,
  }
}

function readJson<Schema extends z.ZodType>(path: string, schema: Schema): z.output<Schema> {
  if (!existsSync(path)) throw new Error(`${path}: there is no such file`)
  const parsed = schema.safeParse(JSON.parse(readFileSync(path, 'utf8')))
  if (parsed.success) return parsed.data
  const issues = parsed.error.issues.slice(0, 5).map(({ path: at, message }) => `${at.join('.')}: ${message}`)
  throw new Error(`${path}: ${issues.join('; ')}`)
}

async function tensorsOf(path: string): Promise<ReadonlyMap<string, WeightTensor>> {
  const tensors = await readSafetensors(path)
  if (!tensors.ok) throw new Error(tensors.failure.message)
  return tensors.value
}

async function compareForward(device: Device, fixture: Fixture): Promise<Check> {
  const { input_ids: inputs, logprobs: expected } = fixture.forward!
  const trainer = await openTrainer(device, fixture.config, { weights: fixture.weights })
  const rows = inputs.map((ids) => ({ ids, positions: [...ids.keys()].slice(1) }))
  const scored = await trainer.score(rows, { temperature: 1, weights: 'policy', microBatchTokens: 4096 })
  await trainer.close()
  const maxLogprobDiff = largest(scored.map((row, index) => largestDifference(row, expected[index]!)))
  return {
    name: 'forward',
    maxLossDiff: null,
    maxGradNormRelDiff: null,
    maxParameterDiff: null,
    maxLogprobDiff,
    undetermined: null,
    ok: maxLogprobDiff <= TOLERANCES.logprob,
  }
}

async function compareRun(device: Device, fixture: Fixture, name: string, run: GoldenRun): Promise<Check> {
  const { steps, weights } = await trainAsIn(device, fixture, run, 'float32')
  const each = (difference: (ours: StepMetrics, golden: GoldenRun['steps'][number]) => number) =>
    largest(run.steps.map((golden, index) => difference(steps[index]!, golden)))
  const lossDiff = each((ours, golden) => Math.abs(ours.loss - golden.loss))
  const klDiff = each((ours, golden) => (golden.kl === undefined ? 0 : Math.abs(ours.kl - golden.kl)))
  const maxLossDiff = largest([lossDiff, klDiff])
  const maxGradNormRelDiff = each(
    (ours, golden) => Math.abs(ours.gradNorm - golden.grad_norm) / Math.max(Math.abs(golden.grad_norm), 1e-12),
  )
  const rateDiff = each((ours, golden) => Math.abs(ours.learningRate - golden.learning_rate) / run.learning_rate)
  const after = join(fixture.directory, `after-${name}.safetensors`)
  const parameters = existsSync(after)
    ? await compareParameters(device, fixture, run, weights, await tensorsOf(after))
    : null
  return {
    name,
    maxLossDiff,
    maxGradNormRelDiff,
    maxParameterDiff: parameters?.maxDiff ?? null,
    maxLogprobDiff: null,
    undetermined: parameters?.undetermined ?? null,
    ok:
      maxLossDiff <= TOLERANCES.loss &&
      maxGradNormRelDiff <= TOLERANCES.gradNorm &&
      rateDiff <= 1e-6 &&
      (parameters === null || parameters.ok),
  }
}

interface Parameters {
  maxDiff: number
  undetermined: { entries: number; maxParameterDiff: number }
  ok: boolean
}

async function compareParameters(
  device: Device,
  fixture: Fixture,
  run: GoldenRun,
  ours: ReadonlyMap<string, WeightTensor>,
  golden: ReadonlyMap<string, WeightTensor>,
): Promise<Parameters> {
  const spread = await roundingSpread(device, fixture, run)
  const undetermined = { entries: 0, maxParameterDiff: 0 }
  let [entries, maxDiff] = [0, 0]
  for (const [name, { data }] of golden) {
    const tensor = ours.get(name)
    if (tensor === undefined || tensor.data.length !== data.length)
      throw new Error(`after-*.safetensors: ${name} is no weight of the model, or has another size`)
    entries += data.length
    data.forEach((value, index) => {
      const difference = Math.abs(tensor.data[index]! - value)
      if (spread.get(name)![index]! <= DETERMINED.spread) maxDiff = largest([maxDiff, difference])
      else {
        undetermined.entries += 1
        undetermined.maxParameterDiff = largest([undetermined.maxParameterDiff, difference])
      }
    })
  }
  const ok = maxDiff <= TOLERANCES.parameter && undetermined.entries <= DETERMINED.mostUndetermined * entries
  return { maxDiff, undetermined, ok }
}

/** How far each weight ends from where it ends in float64, when the run begins at weights that were nudged by their rounding. */
async function roundingSpread(device: Device, fixture: Fixture, run: GoldenRun): Promise<Map<string, Float32Array>> {
  const exact = (await trainAsIn(device, fixture, run, 'float64')).weights
  const spread = new Map([...exact].map(([name, { data }]) => [name, new Float32Array(data.length)]))
  for (let nudge = 0; nudge < DETERMINED.nudges; nudge += 1) {
    const random = seedrandom(`nudge ${nudge}`)
    const weights = new Map(
      [...fixture.weights].map(([name, { shape, data }]) => [
        name,
        { shape, data: data.map((value) => value * (1 + DETERMINED.size * (2 * random() - 1))) },
      ]),
    )
    const nudged = (await trainAsIn(device, { ...fixture, weights }, run, 'float64')).weights
    for (const [name, { data }] of exact) {
      const most = spread.get(name)!
      const other = nudged.get(name)!.data
      for (let index = 0; index < most.length; index += 1)
        most[index] = Math.max(most[index]!, Math.abs(other[index]! - data[index]!))
    }
  }
  return spread
}

/** The optimizer steps of one run, and the weights after them. */
export async function trainAsIn(
  device: Device,
  { config, weights: initial, batches }: Pick<Fixture, 'config' | 'weights' | 'batches'>,
  run: GoldenRun,
  float: FloatType,
): Promise<{ steps: StepMetrics[]; weights: ReadonlyMap<string, WeightTensor> }> {
  const options = optionsOf(run)
  const needed = run.optimizer_steps / run.num_iterations
  if (batches.length < needed) throw new Error(`rollouts.json: expected ${needed} batches, found ${batches.length}`)
  const trainer = await openTrainer(device, config, { weights: initial, float })
  await trainer.keepReference()
  const context = { temperature: run.temperature, totalSteps: run.optimizer_steps }
  const steps: StepMetrics[] = []
  for (const batch of batches.slice(0, needed))
    steps.push(...(await updatePolicy(trainer, policyRows(batch, run), options, context)).steps)
  const { weights } = await trainer.save()
  await trainer.close()
  return { steps, weights }
}

/** A completion without a reward has advantage 0 and stays in the batch, as in TRL. */
function policyRows(batch: readonly RolloutRow[], run: GoldenRun): PolicyRow[] {
  const groups = [...new Set(batch.map(({ group }) => group))].map((id) => batch.filter(({ group }) => group === id))
  const size = run.num_generations
  if (size !== undefined && groups.some((members) => members.length !== size))
    throw new Error(`rollouts.json: expected groups of num_generations = ${size} rows`)
  const advantages = new Map<RolloutRow, number>()
  batchAdvantages(
    groups.map((members) => members.map(({ reward }) => reward)),
    optionsOf(run),
  ).forEach((ofGroup, index) => {
    ofGroup.advantages.forEach((advantage, sample) => advantages.set(groups[index]![sample]!, advantage ?? 0))
  })
  return batch.map((row) => ({
    ids: [...row.prompt_ids, ...row.completion_ids],
    actionMask: [...row.prompt_ids.map(() => 0 as const), ...row.action_mask],
    logprobs: null,
    advantage: advantages.get(row)!,
    value: null,
  }))
}

function largestDifference(a: ArrayLike<number>, b: ArrayLike<number>): number {
  if (a.length !== b.length) return Number.POSITIVE_INFINITY
  return largest(Array.from(a, (value, index) => Math.abs(value - b[index]!)))
}

/** NaN when any is. */
function largest(values: readonly number[]): number {
  return values.reduce((most, value) => (value > most || Number.isNaN(value) ? value : most), 0)
}
