/**
 * The command line: words -> a command's handler -> an exit code. What the commands are is commands.ts.
 *
 * Exit codes: 0 done, 1 failed, 2 bad usage or configuration, 130 stopped by Ctrl-C. Progress and complaints go to standard error,
 * results to standard output.
 */
import { pathToFileURL } from 'node:url'
import yargs, { type Argv } from 'yargs'
import { type Command, type Context, commands, UsageError, type Words } from './commands.ts'
import { suggestion } from './configFile.ts'
import { onInterrupt } from './interrupt.ts'
import { createProgress } from './progress.ts'
import type { Result } from './types.ts'

/** Runs one command and returns the exit code. */
export async function main(words: readonly string[]): Promise<number> {
  const interrupt = onInterrupt()
  const context: Context = {
    progress: createProgress(),
    signal: interrupt.signal,
    print(text) {
      // a result stands alone on its lines
      context.progress.meanwhile(null)
      process.stdout.write(`${text}\n`)
    },
  }
  const outcomes: Result<unknown>[] = []
  try {
    await parser(words, async (command, options) => {
      context.progress.meanwhile(command.words.replace(/ [<[].*/, ''))
      outcomes.push(await command.run(options, context))
    }).parseAsync()
  } catch (error) {
    if (!(error instanceof UsageError)) throw error
    process.stderr.write(`${error.message}\n`)
    return 2
  } finally {
    context.progress.meanwhile(null)
    interrupt.release()
  }
  const outcome = outcomes[0]
  context.progress.done(outcome?.ok === false ? 'not finished' : undefined)
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
      for (const [example, about] of command.examples) one.example(example, about)
      return one
        .usage(`$0 ${command.words}\n\n${command.about}`)
        .options(command.options ?? {})
        .demandCommand(0, 0)
    }
    to.command(words, command.about, build, (options) => execute(command, options))
  }
  const group = 'dataset '
  for (const command of commands) if (!command.words.startsWith(group)) add(root, command, command.words)
  root.command(group.trim(), 'Inspect a data set, render one, or import one', (inner) => {
    for (const command of commands) {
      if (command.words.startsWith(group)) add(inner, command, command.words.slice(group.length))
    }
    return inner.demandCommand(1, 1, 'dataset: inspect, miniature or import?').recommendCommands()
  })
  for (const { examples } of commands) for (const [example, about] of examples) root.example(example, about)
  return root as Argv
}

/** yargs' message with the nearest option where one is unknown, and where to read on. */
function explain(message: string, command: Command | null): string {
  const help = `See showrunner ${command ? `${command.words.replace(/ [<[].*/, '')} ` : ''}--help.`
  const unknown = /^Unknown arguments?: (.*)$/.exec(message)?.[1]?.split(', ')
  if (unknown) {
    const known = ['help', ...Object.keys(command?.options ?? {})].map((name) => `--${name}`)
    return [...unknown.map((word) => `Unknown argument: ${word}${suggestion(`--${word}`, known)}`), help].join('\n')
  }
  const missing = message.replace(/^Missing required arguments?: .*/, (all) => all.replace(/(?<=: |, )/g, '--'))
  return `${missing}\n${help}`
}

// `showrunner ... | head` closes the pipe early: nobody is left to tell
process.stdout.on('error', (error: NodeJS.ErrnoException) => process.exit(error.code === 'EPIPE' ? 0 : 1))

if (process.argv[1] && import.meta.url === pathToFileURL(process.argv[1]).href) {
  process.exitCode = await main(process.argv.slice(2))
}
