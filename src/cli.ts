/**
 * The command line: words -> a root module's function -> an exit code. Each handler is a few lines; what it starts is imported only
 * then, so that `--help` and mistakes answer at once. No command is implemented here.
 *
 * Exit codes: 0 done, 1 failed, 2 bad usage, 130 stopped by Ctrl-C. Progress goes to standard error, results to standard output.
 */
import { pathToFileURL } from 'node:url'
import yargs, { type Argv, type Options } from 'yargs'
import type { RunConfig } from './config.ts'
import { suggestion } from './configFile.ts'
import { onInterrupt } from './interrupt.ts'
import { createProgress, type Progress } from './progress.ts'
import type { Result } from './types.ts'

/** What every handler is given besides its options. */
interface Context {
  progress: Progress
  signal: AbortSignal
}

type Words = Record<string, unknown>

interface Command {
  /** As yargs writes it: `report <directory>`. */
  words: string
  about: string
  options?: Record<string, Options>
  examples?: [string, string][]
  run(options: Words, context: Context): Promise<Result<unknown>>
}

class UsageError extends Error {}

// ---------------------------------------------------------------- options that several commands have

const config = (path?: string): Options => ({
  type: 'string',
  describe: 'YAML file with the configuration of the run',
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
const resume: Options = { type: 'boolean', default: false, describe: 'Continue the run where it stopped' }
const json: Options = { type: 'boolean', default: false, describe: 'Print one JSON object instead of a table' }
const limit: Options = { describe: 'Use only so many questions', requiresArg: true, coerce: wholeNumber('limit', 1) }

// ---------------------------------------------------------------- commands

const commands: Command[] = [
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
    run: async (options, { progress, signal }) => {
      const { pretrain, pretrainConfig } = await import('./pretrain.ts')
      const { readConfigFile } = await import('./configFile.ts')
      const read = await readConfigFile(pretrainConfig, String(options.config), options.set as string[])
      return read.ok ? pretrain(read.value, progress, signal) : read
    },
  },
  {
    words: 'rollout',
    about: 'Generate and score trajectories, without training',
    options: { config: config(), set, resume },
    examples: [['$0 rollout --config configs/longtvqa.yaml --resume', 'Go on with what is not stored yet']],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) =>
        (await import('./rollouts.ts')).generateRollouts(run, progress, signal, { resume: options.resume === true }),
      ),
  },
  {
    words: 'train',
    about: 'Train a master by GRPO',
    options: { config: config(), set, resume },
    examples: [
      ['$0 train --config configs/mine.yaml --set grpo.learningRate=1e-4', 'Train with another learning rate'],
    ],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) =>
        (await import('./train.ts')).train(run, progress, signal, { resume: options.resume === true }),
      ),
  },
  {
    words: 'evaluate',
    about: 'Measure a checkpoint on a data set',
    options: {
      checkpoint: { type: 'string', describe: 'Folder of a checkpoint; default: the policy of the configuration', requiresArg: true },
      dataset: { type: 'string', describe: 'Folder of a data set; default: that of the configuration', requiresArg: true },
      config: config('configs/quickstart.yaml'),
      set,
      'max-turns': {
        describe: 'K: how often the master may write',
        default: 5,
        requiresArg: true,
        coerce: wholeNumber('max-turns', 1),
      },
      sampled: { type: 'boolean', default: false, describe: 'Sample at temperature 1 instead of greedily' },
      limit,
      json,
    },
    examples: [
      [
        '$0 evaluate --checkpoint checkpoints/quickstart/step-000120 --dataset datasets/other --max-turns 5 --json',
        'One JSON object',
      ],
    ],
    run: async (options, { progress, signal }) => {
      const { evaluateCheckpoint } = await import('./evaluate.ts')
      const evaluated = await evaluateCheckpoint({
        checkpoint: (options.checkpoint as string | undefined) ?? null,
        dataset: (options.dataset as string | undefined) ?? null,
        config: String(options.config),
        overrides: options.set as string[],
        maxTurns: Number(options['max-turns']),
        temperature: options.sampled ? 1 : 0,
        limit: (options.limit as number | undefined) ?? null,
        progress,
        signal,
      })
      if (evaluated.ok) print(evaluated.value, options.json === true)
      return evaluated
    },
  },
  {
    words: 'compare',
    about: 'Compare step budgets: accuracy against the number of turns, with the oracle as the ceiling',
    options: {
      config: config(),
      set,
      'max-turns': {
        array: true,
        describe: 'Budgets to compare; default: those of the configuration',
        coerce: (values: unknown[]) => values.map(wholeNumber('max-turns', 1)),
      },
      json,
    },
    examples: [['$0 compare --config configs/quickstart.yaml --max-turns 1 2 3 4 5', 'The budget curve']],
    run: (options, { progress, signal }) =>
      withConfig(options, async (run) => {
        const { compareBudgets } = await import('./compare.ts')
        const maxTurns = (options['max-turns'] as number[] | undefined) ?? run.evaluation.maxTurns
        const compared = await compareBudgets(run, maxTurns, progress, signal)
        if (compared.ok) print(compared.value, options.json === true)
        return compared
      }),
  },
  {
    words: 'serve <directory>',
    about: 'Serve a checkpoint as an OpenAI-compatible endpoint',
    options: {
      host: { type: 'string', describe: 'Address to listen on', default: '127.0.0.1', requiresArg: true },
      port: {
        describe: 'Port to listen on; 0 takes a free one',
        default: 8000,
        requiresArg: true,
        coerce: wholeNumber('port', 0, 65_535),
      },
      name: { type: 'string', describe: 'Model name for clients; default: the name of the folder', requiresArg: true },
    },
    examples: [
      ['$0 serve checkpoints/quickstart/step-000120 --port 8000', 'Then: curl http://127.0.0.1:8000/v1/models'],
    ],
    run: async (options, { progress, signal }) => {
      const { serveCheckpoint } = await import('./serve/open.ts')
      const { directory, host, port, name } = options as {
        directory: string
        host: string
        port: number
        name?: string
      }
      return serveCheckpoint({
        directory,
        host,
        port,
        name,
        signal,
        onReady: (url) => progress.line(`Serving ${directory} at ${url}/v1 (Ctrl-C stops)`),
      })
    },
  },
  {
    words: 'report <directory>',
    about: 'Write report.html from what a run has stored',
    examples: [['$0 report rollouts/quickstart', 'One page that needs no network']],
    run: async (options, { progress }) => {
      const { writeReport } = await import('./report/write.ts')
      const written = await writeReport(String(options.directory))
      if (written.ok) progress.line(`Wrote ${written.value}`)
      return written
    },
  },
]

const datasetCommands: Command[] = [
  {
    words: 'dataset inspect <directory>',
    about: 'Count what a data set has and lacks, and audit it for leaked answers',
    options: { json },
    examples: [['$0 dataset inspect datasets/longtvqa_plus', 'Counts, missing subtitles and frames, leak audit']],
    run: async (options) => {
      const { inspect } = await import('./inspect.ts')
      return inspect(String(options.directory), options.json === true)
    },
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
        coerce: wholeNumber('episodes', 1),
      },
      out: { type: 'string', describe: 'Folder to write', demandOption: true, requiresArg: true },
    },
    examples: [
      ['$0 dataset miniature --seed 7 --episodes 20 --out datasets/other', 'Twenty episodes that nobody has seen'],
    ],
    run: async (options, { progress, signal }) => {
      const { renderMiniature } = await import('./miniature.ts')
      const { seed, episodes, out } = options as { seed: number; episodes: number; out: string }
      return renderMiniature({ out, miniature: { seed, episodes }, progress, signal })
    },
  },
]

// ---------------------------------------------------------------- the parser

/** Runs one command and returns the exit code. */
export async function main(words: readonly string[]): Promise<number> {
  const interrupt = onInterrupt()
  const context: Context = { progress: createProgress(), signal: interrupt.signal }
  const outcomes: Result<unknown>[] = []
  try {
    await parser(words, async (command, options) => {
      outcomes.push(await command.run(options, context))
    }).parseAsync()
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    process.stderr.write(`${error.message}\n`)
    return 2
  } finally {
    interrupt.release()
  }
  const outcome = outcomes[0]
  // help was asked for, or all went well
  if (!outcome || outcome.ok) return 0
  context.progress.line(outcome.failure.message)
  if (outcome.failure.boundary === 'config') return 2
  return outcome.failure.kind === 'cancelled' && interrupt.signal.aborted ? 130 : 1
}

function parser(words: readonly string[], execute: (command: Command, options: Words) => Promise<void>): Argv {
  let current: Command | null = null
  const root = yargs([...words])
    .scriptName('showrunner')
    .usage('$0 <command>\n\nTrains master agents that answer questions about hour-long video.')
    .epilogue('Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 130 stopped by Ctrl-C.')
    // one name per option, or every mistake would be reported twice
    .parserConfiguration({ 'camel-case-expansion': false })
    .strict()
    .demandCommand(1, 1, 'Which command?')
    .recommendCommands()
    .exitProcess(false)
    .wrap(Math.min(120, process.stdout.columns ?? 100))
    .version(false)
    .help()
    .fail((message: string | null, error: Error | undefined) => {
      // without a message it is what a handler threw
      if (!message) throw error
      throw new UsageError(explain(message, current))
    })
  const add = (to: Argv, command: Command, words: string) => {
    const build = (one: Argv) => {
      current = command
      for (const [example, about] of command.examples ?? []) one.example(example, about)
      return one
        .usage(`$0 ${command.words}\n\n${command.about}`)
        .options(command.options ?? {})
        .demandCommand(0, 0)
    }
    to.command(words, command.about, build, (options) => execute(command, options))
  }
  for (const command of commands) add(root, command, command.words)
  root.command('dataset', 'Inspect a data set, or render one', (inner) => {
    for (const command of datasetCommands) add(inner, command, command.words.slice('dataset '.length))
    return inner.demandCommand(1, 1, 'dataset: inspect or miniature?').recommendCommands()
  })
  for (const command of [...commands, ...datasetCommands]) {
    for (const [example, about] of command.examples?.slice(0, 1) ?? []) root.example(example, about)
  }
  return root as Argv
}

/** yargs' message with the nearest option where one is unknown, and where to read on. */
function explain(message: string, command: Command | null): string {
  const help = `See showrunner ${command ? `${command.words.replace(/ <.*/, '')} ` : ''}--help.`
  const unknown = /^Unknown arguments?: (.*)$/.exec(message)?.[1]?.split(', ')
  if (!unknown)
    return `${message.replace(/^Missing required arguments?: .*/, (all) => all.replace(/(?<=: |, )/g, '--'))}\n${help}`
  const known = ['help', ...Object.keys(command?.options ?? {})].map((name) => `--${name}`)
  return [...unknown.map((word) => `Unknown argument: ${word}${suggestion(`--${word}`, known)}`), help].join('\n')
}

/** For yargs' `coerce`: a whole number in a range, or a usage error that says so. */
function wholeNumber(name: string, least: number, most = Number.MAX_SAFE_INTEGER) {
  return (value: unknown) => {
    if (value === undefined) return undefined
    const number = typeof value === 'string' && value.trim() === '' ? Number.NaN : Number(value)
    if (Number.isInteger(number) && number >= least && number <= most) return number
    const range = most === Number.MAX_SAFE_INTEGER ? `of at least ${least}` : `from ${least} to ${most}`
    throw new UsageError(`--${name}: expected a whole number ${range}, got ${JSON.stringify(value)}`)
  }
}

async function withConfig(
  options: Words,
  run: (config: RunConfig) => Promise<Result<unknown>>,
): Promise<Result<unknown>> {
  const { loadConfig } = await import('./config.ts')
  const loaded = await loadConfig(String(options.config), options.set as string[])
  return loaded.ok ? run(loaded.value) : loaded
}

function print(value: unknown, asJson: boolean) {
  if (asJson) process.stdout.write(`${JSON.stringify(value)}\n`)
  else console.table(value)
}

// `showrunner ... | head` closes the pipe early: nobody is left to tell
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.exitCode = await main(process.argv.slice(2))
}
