/**
 * Makes a small base policy by lessons (see `lessons.ts`) in phases: the master of LongVideoAgent from nothing, with a word tokenizer and
 * starting weights, and from it (`from`) one for a role of another system, whose words are added to the tokenizer.
 *
 * What comes out reads transcripts and writes well-formed outputs, but decides at random: it is where GRPO begins. Renders no video;
 * agents are simulated. The same config gives the same weights up to rounding.
 */
import { z } from 'zod'
import { loadCheckpoint, saveCheckpoint } from './checkpoint/checkpoint.ts'
import { openDevice } from './engine/device.ts'
import { engineOptions } from './engine/options.ts'
import { describeEngine } from './engine/protocol.ts'
import { openTrainer } from './grpo/deviceTrainer.ts'
import { supervisedOptions } from './grpo/options.ts'
import { superviseBatch } from './grpo/supervised.ts'
import { type Lesson, Lessons, SPECIAL_TOKENS, type Transcripts, VOCABULARY } from './lessons.ts'
import { decoderConfig } from './policy/families.ts'
import { type InitialTensor, initializeWeights, withMoreRows } from './policy/initialize.ts'
import { openTokenizer } from './policy/tokenizer.ts'
import { buildWordTokenizer, extendWordTokenizer } from './policy/wordTokenizer.ts'
import type { Progress } from './progress.ts'
import { RoleLessons } from './roleLessons.ts'
import { standIns } from './standIns/index.ts'
import { actionStops } from './systems/actions.ts'
import { createSystem } from './systems/index.ts'
import { systemsOptions } from './systems/options.ts'
import type { Failure, Result } from './types.ts'

const share = z.number().min(0).max(1)
const lessonKind = z.enum(['lookup', 'sentence', 'binding', 'reading', 'acting'])
const count = z.number().int().positive()
/** Standard deviation of what an embedding starts with. */
const EMBEDDING_SCALE = 0.1

const modelOptions = z
  .object({
    hiddenSize: count.default(128),
    layers: count.default(4),
    heads: count.default(4),
    intermediateSize: count.default(256),
    contextLength: count.default(1024).describe('Longest sequence in tokens that the checkpoint declares.'),
    embeddingScale: z
      .number()
      .positive()
      .default(EMBEDDING_SCALE)
      .describe('Standard deviation of the starting embedding.'),
    previousTokenHeads: z
      .number()
      .int()
      .min(0)
      .default(1)
      .describe('Heads of the first layer that start by looking at the previous tokens.'),
  })
  .strict()

export const pretrainConfig = z
  .object({
    name: z.string().describe('Name of the model.'),
    seed: z.number().int().describe('Seed of the weights and the lessons.'),
    out: z.string().describe('Directory of the checkpoint.'),
    from: z
      .string()
      .min(1)
      .nullable()
      .default(null)
      .describe(
        'Checkpoint with a word tokenizer that training starts from, with the words that its vocabulary lacks. null: from nothing.',
      ),
    model: modelOptions.optional().describe('Shape of a model that is made from nothing.'),
    lessons: z
      .object({
        system: systemsOptions
          .prefault({ initialGrounding: 'none' })
          .describe('What the transcripts are of; a run with this policy has the same settings.'),
        role: z
          .string()
          .default('master')
          .describe('The role of the system that is taught; scripts play its others (src/standIns).'),
        turns: count.nullable().default(null).describe("K in lessons of such a role; null: the system's own number."),
        firstGroundingRate: share
          .default(0.6)
          .describe('How often the simulated grounding agent is right at once; low, so that wrong clips are seen.'),
        nextGroundingRate: share.default(0.95).describe('The same once a clip was visited.'),
        rightQueryRate: share
          .default(0.75)
          .describe('How often the random teacher asks for what the question is about.'),
      })
      .strict()
      .prefault({}),
    phases: z
      .array(
        z
          .object({
            name: z.string(),
            steps: count.describe('Optimizer steps, at most.'),
            until: z
              .object({ lesson: lessonKind, accuracy: share })
              .strict()
              .nullable()
              .default(null)
              .describe('Ends the phase once this lesson is known so well.'),
            finalLearningRate: z
              .number()
              .min(0)
              .nullable()
              .default(null)
              .describe('Where the learning rate falls to in this phase, along half a cosine; null: it stays.'),
            mix: z.partialRecord(lessonKind, share).describe('Share of each kind of lesson.'),
          })
          .strict(),
      )
      .min(1),
    rowsPerStep: count.default(32).describe('Lessons per optimizer step.'),
    warmupSteps: count.default(80).describe('Steps over which the learning rate rises from 0, once.'),
    supervised: supervisedOptions.omit({ schedule: true, warmupSteps: true }).prefault({}),
    engine: engineOptions.prefault({}),
  })
  .strict()
  .refine(({ from, model }) => from === null || model === undefined, {
    path: ['model'],
    message: 'the model of `from` has its shape already; leave `model` or `from` out',
  })

export type PretrainConfig = z.infer<typeof pretrainConfig>

export interface PretrainReport {
  directory: string
  parameters: number
  steps: number
  tokens: number
  seconds: number
  /** Over the last steps: share of taught tokens whose likeliest prediction is right, per kind of lesson. */
  accuracy: Record<string, number>
}

/** Steps between two lines of progress, and over which accuracies are averaged. */
const REPORT_STEPS = 50

export async function pretrain(
  config: PretrainConfig,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<PretrainReport>> {
  const started = performance.now()
  const start = await startOf(config)
  if (!start.ok) return start
  const { modelConfig, weights, files } = start.value
  const made = lessonsOf(config, start.value)
  if (!made.ok) return made
  const lessons = made.value

  const opened = await openDevice(config.engine).catch((error: Error) => error)
  if (opened instanceof Error)
    return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message: opened.message } }
  const device = opened
  progress.line(describeEngine(device.inUse))
  try {
    const trainer = await openTrainer(device, decoderConfig(modelConfig), { weights })
    const tally = new Tally()
    let tokens = 0
    for (const phase of config.phases) {
      progress.stage(phase.name, phase.steps)
      let next = drawBatch(lessons, phase.mix, config)
      for (let step = 1; step <= phase.steps; step++) {
        const batch = await next
        // the next lessons are told while the engine's thread learns these
        next = drawBatch(lessons, phase.mix, config)
        const learningRate = learningRateOf(config, phase, trainer.step, step)
        const options = { ...config.supervised, learningRate, schedule: 'constant', warmupSteps: 0 } as const
        const metrics = await superviseBatch(trainer, batch.map(balanced), options, { totalSteps: phase.steps })
        tokens += batch.reduce((sum, { ids }) => sum + ids.length, 0)
        tally.add(metrics.kinds)
        if (step % REPORT_STEPS === 0 || step === phase.steps) {
          progress.tick(0, `loss ${metrics.loss.toFixed(3)}, ${tally.text()}`)
          if (step % (REPORT_STEPS * 4) === 0)
            progress.line(`${phase.name} ${step}: loss ${metrics.loss.toFixed(3)}, ${tally.text()}`)
          if (phase.until !== null && (tally.accuracy()[phase.until.lesson] ?? 0) >= phase.until.accuracy) break
          if (step < phase.steps) tally.clear()
        }
        progress.tick()
        if (signal.aborted) {
          return {
            ok: false,
            failure: {
              boundary: 'policy',
              kind: 'cancelled',
              message: `pretraining of ${config.name} was stopped at step ${trainer.step}; nothing was written`,
            },
          }
        }
      }
      progress.done(tally.text())
    }
    const saved = await saveCheckpoint(config.out, {
      config: modelConfig,
      generationConfig: {
        eos_token_id: modelConfig.eos_token_id,
        pad_token_id: modelConfig.pad_token_id,
        // the master never learns to end a message: an action ends it; other roles do
        ...(config.lessons.system.name === 'longVideoAgent' ? { stop_strings: actionStops } : {}),
      },
      tokenizer: files.tokenizerJson,
      tokenizerConfig: files.tokenizerConfig,
      chatTemplate: files.chatTemplate,
      weights: (await trainer.save()).weights,
      training: null,
    })
    if (!saved.ok) return saved
    return {
      ok: true,
      value: {
        directory: config.out,
        parameters: [...weights.values()].reduce((sum, { data }) => sum + data.length, 0),
        steps: trainer.step,
        tokens,
        seconds: (performance.now() - started) / 1000,
        accuracy: tally.accuracy(),
      },
    }
  } finally {
    await device.close()
  }
}

/** Learning rate of step `step` (from 1) of a phase, `total` steps after the beginning. */
function learningRateOf(
  config: PretrainConfig,
  phase: PretrainConfig['phases'][number],
  total: number,
  step: number,
): number {
  const rate = config.supervised.learningRate * Math.min(1, (total + 1) / config.warmupSteps)
  if (phase.finalLearningRate === null) return rate
  const falling = (1 + Math.cos((Math.PI * (step - 1)) / phase.steps)) / 2
  return phase.finalLearningRate + (rate - phase.finalLearningRate) * falling
}

/** What training begins with. */
interface Start {
  modelConfig: ReturnType<typeof huggingFaceConfig>
  weights: ReadonlyMap<string, InitialTensor>
  files: ReturnType<typeof buildWordTokenizer>
  vocabulary: ReadonlyMap<string, number>
}

async function startOf({ from, seed, model, lessons }: PretrainConfig): Promise<Result<Start>> {
  const further = standIns[lessons.system.name]?.tokens ?? []
  const vocabularyOf = ({ model }: Record<string, unknown>) =>
    new Map(Object.entries((model as { vocab: Record<string, number> }).vocab))
  if (from === null) {
    const built = buildWordTokenizer(VOCABULARY, SPECIAL_TOKENS)
    const files = { ...built, tokenizerJson: extendWordTokenizer(built.tokenizerJson, further) }
    const vocabulary = vocabularyOf(files.tokenizerJson)
    const shape = model ?? modelOptions.parse({})
    const modelConfig = huggingFaceConfig(shape, vocabulary)
    return {
      ok: true,
      value: { modelConfig, weights: initializeWeights(modelConfig, { ...shape, seed }), files, vocabulary },
    }
  }
  const loaded = await loadCheckpoint(from)
  if (!loaded.ok) return loaded
  const { config, tokenizer, tokenizerConfig, chatTemplate, weights } = loaded.value
  const embedding = weights.get(EMBEDDING)
  if (tokenizer === null || tokenizerConfig === null || chatTemplate === null || embedding === undefined)
    return bad(`from: ${from}: expected a checkpoint that pretrain made, with a word tokenizer beside its weights`)
  const tokenizerJson = extendWordTokenizer(tokenizer, further)
  const vocabulary = vocabularyOf(tokenizerJson)
  const grown = new Map<string, InitialTensor>(
    [...weights].map(([name, { shape, data }]) => [name, { shape: [...shape], data: Float32Array.from(data) }]),
  )
  const rows = grown.get(EMBEDDING) as InitialTensor
  grown.set(EMBEDDING, withMoreRows(rows, vocabulary.size, { seed, embeddingScale: EMBEDDING_SCALE }))
  const modelConfig = { ...config, vocab_size: vocabulary.size } as Start['modelConfig']
  return {
    ok: true,
    value: { modelConfig, weights: grown, files: { tokenizerJson, tokenizerConfig, chatTemplate }, vocabulary },
  }
}

const EMBEDDING = 'model.embed_tokens.weight'

function lessonsOf({ seed, lessons: options }: PretrainConfig, { files, vocabulary }: Start): Result<Lessons> {
  const { role } = options
  const system = createSystem(options.system, 'training')
  if (!system.roles.includes(role))
    return bad(`lessons.role: system ${system.name} has no ${role}; it has ${system.roles.join(', ')}`)
  const stand = standIns[system.name]
  let transcripts: Transcripts | null = null
  if (system.name !== 'longVideoAgent') {
    if (stand?.teachers[role] === undefined) {
      const taught = Object.keys(stand?.teachers ?? {}).join(', ') || 'none of its roles'
      return bad(`lessons.role: of ${system.name} the stand-ins teach ${taught}; got ${role}`)
    }
    const { tokenizerJson, ...rest } = files
    const tokenizer = openTokenizer(
      { tokenizer: tokenizerJson, ...rest, generationConfig: null, config: {} },
      'lessons',
    )
    if (!tokenizer.ok) return tokenizer
    const { turns } = options
    const settings = { seed, system, role, turns, standIns: stand, tokenizer: tokenizer.value, rates: options }
    transcripts = new RoleLessons(settings)
  }
  return { ok: true, value: new Lessons(seed, vocabulary, system, options, transcripts) }
}

function bad(message: string): { ok: false; failure: Failure } {
  return { ok: false, failure: { boundary: 'config', kind: 'bad_request', message } }
}

/** `config.json` of the master: a Qwen2 decoder with as many key-value heads as heads and a tied head. */
function huggingFaceConfig(model: z.output<typeof modelOptions>, vocabulary: ReadonlyMap<string, number>) {
  const id = (token: string) => vocabulary.get(token) as number
  return {
    architectures: ['Qwen2ForCausalLM'],
    model_type: 'qwen2',
    dtype: 'float32',
    hidden_size: model.hiddenSize,
    intermediate_size: model.intermediateSize,
    num_hidden_layers: model.layers,
    num_attention_heads: model.heads,
    num_key_value_heads: model.heads,
    hidden_act: 'silu',
    max_position_embeddings: model.contextLength,
    rms_norm_eps: 1e-6,
    rope_theta: 10000,
    tie_word_embeddings: true,
    use_sliding_window: false,
    attention_dropout: 0,
    vocab_size: vocabulary.size,
    bos_token_id: null,
    eos_token_id: id('<|end|>'),
    pad_token_id: id('<|pad|>'),
  }
}

async function drawBatch(
  lessons: Lessons,
  mix: PretrainConfig['phases'][number]['mix'],
  { rowsPerStep }: PretrainConfig,
): Promise<Lesson[]> {
  const batch: Lesson[] = []
  for (let row = 0; row < rowsPerStep; row++) batch.push(await lessons[lessons.drawKind(mix)]())
  return batch
}

/**
 * Weighs a row's tokens by 1/sqrt(number taught), between one vote per token and one per row: rows with many targets are the easy ones.
 * Acting is weighed alike everywhere, or short runs would count for more and the master would learn to answer early.
 */
function balanced({ ids, weights, kind }: Lesson) {
  const taught = kind === 'acting' ? ACTING_TOKENS : weights.reduce((sum, weight) => sum + weight, 0)
  return { ids, kind, weights: weights.map((weight) => weight / Math.sqrt(taught)) }
}

/** About as many as an acting lesson teaches. */
const ACTING_TOKENS = 16

/** Sums of right predictions per kind of lesson. */
class Tally {
  private sums = new Map<string, { right: number; tokens: number }>()
  add(kinds: Record<string, { accuracy: number; tokens: number }>): void {
    for (const [kind, { accuracy, tokens }] of Object.entries(kinds)) {
      const sum = this.sums.get(kind) ?? { right: 0, tokens: 0 }
      this.sums.set(kind, { right: sum.right + accuracy * tokens, tokens: sum.tokens + tokens })
    }
  }
  accuracy(): Record<string, number> {
    return Object.fromEntries([...this.sums].sort().map(([kind, { right, tokens }]) => [kind, right / tokens]))
  }
  text(): string {
    return Object.entries(this.accuracy())
      .map(([kind, accuracy]) => `${kind} ${accuracy.toFixed(3)}`)
      .join(' ')
  }
  clear(): void {
    this.sums = new Map()
  }
}
