/**
 * What the command line offers: each command's words, options and examples, and which root function it hands over to. Handlers import
 * what they start only when they run, so that `--help` and mistakes answer at once. Parsing is cli.ts; nothing is implemented here.
 */
import type { Options } from 'yargs'
import type { RunConfig } from './config.ts'
import type { Progress } from './progress.ts'
import type { Result } from './types.ts'

/** What every handler is given besides its options. */
export interface Context {
  progress: Progress
  signal: AbortSignal
  /** Writes a result to standard output. */
  print(text: string): void
}

/** Parsed options and positionals, under the names they have on the command line. */
export type Words = Record<string, unknown>

export interface Command {
  /** As yargs writes it: `report <directory>`. */
  words: string
  about: string
  options?: Record<string, Options>
  examples: [string, string][]
  run(options: Words, context: Context): Promise<Result<unknown>>
}

/** A mistake in what was typed; the command line answers it with exit code 2. */
export class UsageError extends Error {}

// ---------------------------------------------------------------- options that several commands have

const config = (path?: string): Options => ({
  type: 'string',
  describe: 'YAML file with the configuration of the run, or the name of a preset',
  requiresArg: true,
  ...(path ? { default: path } : { demandOption: true }),
})
const set: Options = {
  type: 'string',
  array: true,
  default: [],
  nargs: 1,
  describe: 'Change a key of the configuration: path.to.key=value (may be repeated)',
}
/** Which system, and which of its roles the policy plays and is trained in. */
const casting: Record<'system' | 'role', Options> = {
  system: {
    type: 'string',
    requiresArg: true,
    describe: 'Run this system; by default that of the configuration (short for --set system.name=...)',
  },
  role: {
    type: 'string',
    array: true,
    default: [],
    nargs: 1,
    describe: 'Role of the system that the policy plays, the others frozen (may be repeated; trainedRoles)',
  },
}
const resume: Options = { type: 'boolean', default: false, describe: 'Continue the run where it stopped' }
const json: Options = { type: 'boolean', default: false, describe: 'Print JSON instead of text' }

// ---------------------------------------------------------------- commands

export const commands: Command[] = [
  {
    words: 'quickstart',
    about: 'The whole loop on a small data set: render, roll out, train, compare budgets, serve, report',
    options: { config: config('configs/quickstart.yaml'), set },
    examples: [['$0 quickstart', 'Run it, or resume it; does nothing when all is done']],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) => (await import('./quickstart.ts')).quickstart(run, progress, signal)),
  },
  {
    words: 'pretrain',
    about: 'Make the small base master from nothing',
    options: { config: config('configs/pretrain.yaml'), set },
    examples: [['$0 pretrain', 'Train the base that the quickstart begins with']],
    async run(options, { progress, signal }) {
      const { pretrain, pretrainConfig } = await import('./pretrain.ts')
      const { readConfigFile } = await import('./configFile.ts')
      const read = await readConfigFile(pretrainConfig, options.config as string, options.set as string[])
      return read.ok ? pretrain(read.value, progress, signal) : read
    },
  },
  {
    words: 'dataset inspect <directory>',
    about: 'Count what a data set has and lacks, and audit it for leaked answers',
    options: { json },
    examples: [['$0 dataset inspect datasets/longtvqa_plus', 'Counts, missing subtitles and frames, leak audit']],
    run: async (options) => (await import('./inspect.ts')).inspect(options.directory as string, options.json === true),
  },
  {
    words: 'dataset miniature',
    about: 'Render episodes with questions, from a seed',
    options: {
      seed: {
        describe: 'The same seed gives the same questions',
        demandOption: true,
        requiresArg: true,
        coerce: wholeNumber('seed', 0),
      },
      episodes: {
        describe: 'How many episodes',
        demandOption: true,
        requiresArg: true,
        coerce: wholeNumber('episodes', 1, 900),
      },
      out: { type: 'string', describe: 'Folder to write', demandOption: true, requiresArg: true },
      words: {
        choices: ['training', 'all'],
        describe: 'Option words of the stories; "all" has some that are never trained on',
        requiresArg: true,
      },
    },
    examples: [
      ['$0 dataset miniature --seed 7 --episodes 20 --out datasets/other', 'Twenty episodes that nobody has seen'],
    ],
    async run(options, { progress, signal }) {
      const { renderMiniature } = await import('./miniature.ts')
      const { seed, episodes, out, words } = options as Miniature
      return renderMiniature({ out, miniature: { seed, episodes, words }, progress, signal })
    },
  },
  {
    words: 'dataset import <inputs..>',
    about: 'Make one data set of whole episodes from TVQA, TVQA+, LongTVQA or LongTVQA+ files (docs/data.md)',
    options: {
      out: { type: 'string', describe: 'Folder to write', demandOption: true, requiresArg: true },
      as: {
        type: 'string',
        array: true,
        default: [],
        nargs: 1,
        describe:
          'KIND=FILE or questions:SPLIT=FILE, where content or name does not tell what a file is (may be repeated)',
      },
      untimed: {
        type: 'boolean',
        default: false,
        describe: 'Import without durations; episodes have no timeline then',
      },
      json,
    },
    examples: [
      [
        '$0 dataset import tvqa_qa_release tvqa_preprocessed_subtitles.jsonl tvr_video2dur_idx.json --out datasets/tvqa',
        'TVQA with timed subtitles; run again to go on where it stopped',
      ],
    ],
    async run(options, { progress, signal, print }) {
      const { runImport } = await import('./import.ts')
      const { inputs, out, as, untimed, json } = options as Import
      return runImport({ options: { inputs, out, as, untimed }, json, progress, signal, print })
    },
  },
  {
    words: 'ground [config]',
    about: 'Ask the grounding agent once per question, into the file agents.groundingCache',
    options: { config: config(), set },
    examples: [
      [
        '$0 ground --config configs/mine.yaml --set agents.groundingCache=datasets/tvqa/grounding.jsonl',
        'Run again to go on where it stopped',
      ],
    ],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) => (await import('./ground.ts')).groundQuestions(run, progress, signal)),
  },
  {
    words: 'rollout [config]',
    about: 'Generate and score trajectories, without training',
    options: { config: config(), ...casting, set, resume },
    examples: [['$0 rollout --config configs/longtvqa-plus.yaml --resume', 'Go on with what is not stored yet']],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) =>
        (await import('./rollouts.ts')).generateRollouts(run, progress, signal, { resume: options.resume === true }),
      ),
  },
  {
    words: 'train [config]',
    about: 'Train a master by GRPO; one behind an endpoint with the trainer that updates it (docs/training.md)',
    options: { config: config(), ...casting, set, resume },
    examples: [
      ['$0 train --config configs/mine.yaml --set grpo.learningRate=1e-4', 'Train with another learning rate'],
    ],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) => {
        const resuming = { resume: options.resume === true }
        if (run.policy.type !== 'endpoint') return (await import('./train.ts')).train(run, progress, signal, resuming)
        return (await import('./externalTraining.ts')).trainExternally(run, run.policy, progress, signal, resuming)
      }),
  },
  {
    words: 'replay <directory>',
    about: 'Run again the rows at which a training run stopped at a NaN or an infinity',
    options: { json },
    examples: [['$0 replay checkpoints/mine/non-finite-step-000012', 'What is not finite first, row by row']],
    async run(options, { print }) {
      const { replayNonFinite, replayText } = await import('./replay.ts')
      const replayed = await replayNonFinite(options.directory as string)
      if (replayed.ok) print(options.json ? JSON.stringify(replayed.value) : replayText(replayed.value))
      return replayed
    },
  },
  {
    words: 'evaluate',
    about: 'Measure a checkpoint on a data set, one trajectory per question',
    options: {
      checkpoint: {
        type: 'string',
        describe: 'Folder of a checkpoint; by default the policy of the configuration',
        requiresArg: true,
      },
      dataset: {
        type: 'string',
        describe: 'Folder of a data set; by default that of the configuration',
        requiresArg: true,
      },
      'max-turns': {
        describe:
          'K: how often the master may write, or rounds of another system; by default that of the configuration',
        requiresArg: true,
        coerce: wholeNumber('max-turns', 1),
      },
      sampled: { type: 'boolean', default: false, describe: 'Sample at temperature 1 instead of greedily' },
      limit: { describe: 'Use only so many questions', requiresArg: true, coerce: wholeNumber('limit', 1) },
      config: {
        ...config('configs/quickstart.yaml'),
        describe: 'YAML file with the system, agents and budget to run with',
      },
      ...casting,
      set,
      json,
    },
    examples: [
      [
        '$0 evaluate --checkpoint checkpoints/quickstart/step-000250 --dataset datasets/other --max-turns 5 --json',
        'One JSON object',
      ],
    ],
    async run(options, { progress, signal, print }) {
      const { evaluateCheckpoint } = await import('./evaluate.ts')
      const { checkpoint, dataset, config, sampled, limit } = options as Evaluate
      const maxTurns = (options['max-turns'] as number | undefined) ?? null
      const evaluated = await evaluateCheckpoint({
        checkpoint: checkpoint ?? null,
        dataset: dataset ?? null,
        config,
        overrides: overridesOf(options),
        maxTurns,
        temperature: sampled ? 1 : 0,
        limit: limit ?? null,
        progress,
        signal,
      })
      const { measurementText } = await import('./report/terminal.ts')
      if (evaluated.ok) print(options.json ? JSON.stringify(evaluated.value) : measurementText(evaluated.value))
      return evaluated
    },
  },
  {
    words: 'compare [config]',
    about: 'Compare budgets, settings and masters on the same questions: accuracy against cost, with intervals',
    options: {
      config: config(),
      ...casting,
      set,
      vary: {
        ...set,
        describe:
          'Values to compare: setting=value,value,... (may be repeated; every combination is run). A setting is a path of the configuration or one of maxTurns, window, temperature, ...; by default the step budgets of the configuration',
      },
      policy: {
        ...set,
        describe:
          'A master to compare: folder of a checkpoint, model of the configured endpoint, or oracle (may be repeated); by default the policy of the configuration',
      },
      baseline: {
        type: 'string',
        requiresArg: true,
        describe: 'What to hold the others against: setting=value,...; by default the first combination',
      },
      json,
    },
    examples: [
      [
        '$0 compare --config configs/quickstart.yaml --policy checkpoints/quickstart/step-000250 --policy oracle --set name=curve',
        'The budget curve of a trained master below the ceiling that its agents allow',
      ],
      ['$0 compare configs/experiments/windows.yaml', 'A table of the LongVideoAgent paper: 1, 2 and 3 clips in view'],
      [
        '$0 compare --config configs/mine.yaml --vary maxTurns=2,5,10 --vary window=1,3 --baseline maxTurns=2',
        'Six settings, each held against two turns with the same window',
      ],
    ],
    async run(options, { progress, signal, print }) {
      const { compare } = await import('./compare.ts')
      const { comparisonText } = await import('./report/terminal.ts')
      const { writeReport } = await import('./report/write.ts')
      const { config, vary, policy, baseline } = options as Compare
      const request = { config, overrides: overridesOf(options), vary, policies: policy, baseline: baseline ?? null }
      const compared = await compare(request, progress, signal)
      if (!compared.ok) return compared
      const written = await writeReport(`rollouts/${compared.value.name}`)
      const text = comparisonText(compared.value, process.stdout.columns ?? 120)
      print(options.json ? JSON.stringify(compared.value) : text)
      if (written.ok) progress.line(written.value)
      return written
    },
  },
  {
    words: 'serve [directory]',
    about:
      'Serve a checkpoint as an OpenAI-compatible endpoint, or capture what passes to another one (docs/endpoint.md)',
    options: {
      host: { type: 'string', describe: 'Address to listen on; by default this machine only', requiresArg: true },
      port: {
        describe: 'Port to listen on, 8000 by default; 0 takes a free one',
        requiresArg: true,
        coerce: wholeNumber('port', 0, 65_535),
      },
      name: {
        type: 'string',
        describe: "Model name for clients; by default the run's or the folder's",
        requiresArg: true,
      },
      watch: { type: 'boolean', default: false, describe: 'Serve newer checkpoints of the run as they are written' },
      capture: {
        type: 'string',
        describe: 'Store what clients with an X-Session-ID sample as trajectories in this folder',
        requiresArg: true,
      },
      proxy: {
        type: 'string',
        describe: 'Pass requests on to this base URL (ending in /v1) instead of serving a checkpoint',
        requiresArg: true,
      },
      'api-key-file': {
        type: 'string',
        describe: 'File with the keys that clients must send, one a line',
        requiresArg: true,
      },
      log: {
        choices: ['none', 'requests', 'texts'],
        describe: 'One line for each request; texts: with prompts and answers',
        requiresArg: true,
      },
      threads: {
        describe: 'Threads of the engine, 2 by default',
        requiresArg: true,
        coerce: wholeNumber('threads', 1, 256),
      },
      set: {
        ...set,
        describe: 'Change a limit, such as concurrency=64 (docs/endpoint.md lists them; may be repeated)',
        coerce: assignments,
      },
    },
    examples: [
      ['$0 serve checkpoints/quickstart/step-000250 --port 8001', 'Then: curl http://127.0.0.1:8001/v1/models'],
      [
        '$0 serve checkpoints/mine --watch --capture rollouts/agents',
        'Follow a training run and store what agents sample',
      ],
      ['$0 serve --proxy http://gpu:8000/v1 --capture rollouts/agents', 'The same in front of a vLLM server'],
    ],
    async run(words, { progress, signal }) {
      const { startServer } = await import('./serve/open.ts')
      const { startProxy } = await import('./serve/proxy.ts')
      const { serveOptions } = await import('./serve/options.ts')
      const { engineOptions } = await import('./engine/options.ts')
      const { directory, name, watch, 'api-key-file': apiKeyFile, ...given } = words as Serve
      if ((directory === undefined) === (given.proxy === undefined))
        throw new UsageError('serve: expected the folder of a checkpoint, or --proxy URL')
      const asked = serveOptions.safeParse({
        host: given.host,
        port: given.port,
        capture: given.capture,
        proxy: given.proxy,
        log: given.log,
        apiKeyFile,
        ...(watch ? { watchSeconds: WATCH_SECONDS } : {}),
        ...given.set,
      })
      if (!asked.success) {
        const [issue] = asked.error.issues
        throw new UsageError(`${['serve: --set', ...(issue?.path ?? [])].join(' ')}: ${issue?.message}`)
      }
      const options = asked.data
      const settings = { ...(name === undefined ? {} : { name }), log: (line: string) => progress.line(line) }
      const served =
        directory === undefined
          ? await startProxy(options, settings)
          : await startServer(directory, engineOptions.parse({ threads: given.threads }), options, settings)
      if (!served.ok) return served
      progress.line(`Serving ${served.value.model} at ${served.value.url}/v1 (Ctrl-C stops)`)
      await untilAborted(signal, progress)
      const closed = await served.value.close()
      return closed.ok ? served : closed
    },
  },
  {
    words: 'checkpoint merge <directory>',
    about: 'Write an adapter and its base as one model, for programs that know no adapters',
    options: {
      out: { type: 'string', describe: 'Folder to write', demandOption: true, requiresArg: true },
      base: {
        type: 'string',
        describe: 'Folder of the base model; by default the one that the adapter names',
        requiresArg: true,
      },
      dtype: {
        choices: ['float32', 'float16', 'bfloat16'],
        describe: 'Element type of the weights; by default that of the base',
        requiresArg: true,
      },
    },
    examples: [
      ['$0 checkpoint merge checkpoints/mine/step-000100 --out models/mine', 'A Hugging Face folder, as vLLM reads it'],
    ],
    async run(options, { print }) {
      const { mergeAdapter } = await import('./merge.ts')
      const { directory, base, out, dtype } = options as Merge
      const merged = await mergeAdapter({ adapter: directory, base: base ?? null, out, type: dtype ?? null })
      if (merged.ok) print(merged.value)
      return merged
    },
  },
  {
    words: 'view <directory>',
    about: 'Look at the trajectories of a run, label them, follow training: a page on this machine',
    options: {
      port: {
        describe: 'Port to listen on; by default 8100, where the links of reports lead, or a free one',
        requiresArg: true,
        coerce: wholeNumber('port', 0, 65_535),
      },
      dataset: {
        type: 'string',
        array: true,
        nargs: 1,
        describe:
          'Folder of the data set, for runs of earlier versions, which keep no clips and no gold (may be repeated)',
      },
      open: { type: 'boolean', default: false, describe: 'Open the page in the browser' },
    },
    examples: [['$0 view rollouts/quickstart --open', 'Why does the master fail?']],
    async run(words, { progress, signal }) {
      const { openViewer } = await import('./viewer.ts')
      const { viewOptions } = await import('./view/options.ts')
      const { directory, port, dataset, open } = words as View
      const viewer = await openViewer({ ...viewOptions.parse({ port }), directory, datasets: dataset ?? [] }, progress)
      if (!viewer.ok) return viewer
      progress.line(`${directory}: ${viewer.value.url} (Ctrl-C stops)`)
      if (open) await (await import('open')).default(viewer.value.url)
      await untilAborted(signal, progress)
      await viewer.value.close()
      return viewer
    },
  },
  {
    words: 'report <directory>',
    about: 'Write report.html from what a run has stored',
    examples: [['$0 report rollouts/quickstart', 'One page that needs no network']],
    async run(options, { print }) {
      const { writeReport } = await import('./report/write.ts')
      const written = await writeReport(options.directory as string)
      if (written.ok) print(written.value)
      return written
    },
  },
]

type Miniature = { seed: number; episodes: number; out: string; words?: 'training' | 'all' }
type Import = { inputs: string[]; out: string; as: string[]; untimed: boolean; json: boolean }
type Merge = { directory: string; base?: string; out: string; dtype?: string }
type Evaluate = {
  checkpoint?: string
  dataset?: string
  config: string
  sampled: boolean
  limit?: number
}
type View = { directory: string; port?: number; dataset?: string[]; open: boolean }
type Compare = { config: string; vary: string[]; policy: string[]; baseline?: string }
type Serve = {
  directory?: string
  host?: string
  port?: number
  name?: string
  watch: boolean
  capture?: string
  proxy?: string
  'api-key-file'?: string
  log?: 'none' | 'requests' | 'texts'
  threads?: number
  set: Record<string, unknown>
}

// ---------------------------------------------------------------- what handlers share

/** `--system`, `--role` and `--set`, which wins over both. */
function overridesOf({
  system,
  role = [],
  set,
}: { system?: string; role?: string[]; set?: string[] } & Words): string[] {
  return [
    ...(system === undefined ? [] : [`system.name=${system}`]),
    ...(role.length === 0 ? [] : [`trainedRoles=${JSON.stringify(role)}`]),
    ...(set ?? []),
  ]
}

/** Loads `--config` with what changes it. */
async function withConfig(
  options: Words,
  run: (config: RunConfig) => Promise<Result<unknown>>,
): Promise<Result<unknown>> {
  const { loadConfig } = await import('./config.ts')
  const loaded = await loadConfig(options.config as string, overridesOf(options))
  return loaded.ok ? run(loaded.value) : loaded
}

async function untilAborted(signal: AbortSignal, progress: Progress): Promise<void> {
  progress.meanwhile(null)
  if (signal.aborted) return
  await new Promise((stop) => signal.addEventListener('abort', stop, { once: true }))
}

/** How often `serve --watch` looks for a newer checkpoint. */
const WATCH_SECONDS = 2

/** For yargs' `coerce`: `key=value` each, the value in JSON or a plain word. */
function assignments(set: readonly string[]): Record<string, unknown> {
  return Object.fromEntries(
    set.map((one) => {
      const [, key, value] = /^(\w+)=(.*)$/.exec(one) ?? []
      if (key === undefined) throw new UsageError(`--set ${one}: expected key=value, such as concurrency=64`)
      try {
        return [key, JSON.parse(value ?? '')]
      } catch {
        return [key, value]
      }
    }),
  )
}

/** For yargs' `coerce`: a whole number in a range, or a usage error that says so. */
function wholeNumber(name: string, least: number, most = Number.MAX_SAFE_INTEGER) {
  return (value: unknown) => {
    if (value === undefined) return undefined
    const number = typeof value === 'string' && value.trim() === '' ? Number.NaN : Number(value)
    if (!Array.isArray(value) && Number.isInteger(number) && number >= least && number <= most) return number
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`
    throw new UsageError(`--${name}: expected one whole number ${range}, got ${JSON.stringify(value)}`)
  }
}
