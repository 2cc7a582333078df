/**
 * Finds a working ffmpeg and runs it with a deadline.
 *
 * Order: FFMPEG_PATH, ffmpeg-static (optional: its install downloads and may have been refused), PATH, and the binary inside
 * @ffmpeg-installer/ffmpeg. Each is asked for its version before use, because a package that imports can still point
 * at a file that is not there or does not start on this machine.
 *
 * Does not know about frames, clips or caches, and never needs ffprobe, which two of the four sources lack.
 */

import type { ChildProcess, SpawnOptions } from 'node:child_process'
import { spawn } from 'node:child_process'
import type { Result } from '../types.ts'
import { failed, reasonOf } from './failure.ts'

export interface Ffmpeg {
  path: string
  /** First words of `ffmpeg -version`, such as `5.1.9-0+deb12u1`. */
  version: string
  /** Which of the four places it came from. */
  source: string
}

type Environment = Readonly<Record<string, string | undefined>>

const probeSeconds = 15
const readerLeft = new Set(['EPIPE', 'ECONNRESET', 'ERR_STREAM_PREMATURE_CLOSE'])
const located = new Map<string, Promise<Result<Ffmpeg>>>()

/** The ffmpeg to use, found once per (FFMPEG_PATH, PATH). Fails with `missing_file`, listing everything that was tried and why it was refused. */
export function locateFfmpeg(environment: Environment = process.env): Promise<Result<Ffmpeg>> {
  const key = `${environment.FFMPEG_PATH ?? ''}\0${environment.PATH ?? ''}`
  let found = located.get(key)
  if (!found) {
    found = firstWorking(places(environment), environment)
    located.set(key, found)
    // A failure is not remembered: the user may install ffmpeg while a server runs.
    void found.then((result) => result.ok || located.delete(key))
  }
  return found
}

/** The first place whose ffmpeg starts; the failure tells of each place why not. */
export async function firstWorking(candidates: readonly Place[], environment: Environment): Promise<Result<Ffmpeg>> {
  const tried: string[] = []
  for (const { source, find } of candidates) {
    try {
      const path = await find()
      if (path === null) continue
      const version = await versionOf(path, environment)
      if (version.ok) return { ok: true, value: { path, version: version.value, source } }
      tried.push(`${source} (${path}): ${version.failure.message}`)
    } catch (error) {
      tried.push(`${source}: ${reasonOf(error).split('\n')[0]}`)
    }
  }
  return failed('missing_file', `no working ffmpeg; set FFMPEG_PATH to one. Tried ${tried.join('; ')}`)
}

export interface Place {
  source: string
  /** Path of the candidate; null when this place does not apply; throws when it should have had one. */
  find(): Promise<string | null>
}

function places(environment: Environment): Place[] {
  return [
    { source: 'FFMPEG_PATH', find: async () => environment.FFMPEG_PATH || null },
    { source: 'ffmpeg-static', find: () => pathInPackage('ffmpeg-static', (module) => module) },
    { source: 'PATH', find: async () => 'ffmpeg' },
    {
      source: '@ffmpeg-installer/ffmpeg',
      find: () => pathInPackage('@ffmpeg-installer/ffmpeg', (module) => (module as { path?: unknown }).path),
    },
  ]
}

/** Imported by a variable name, so that neither the compiler nor a bundler demands the optional package. */
async function pathInPackage(name: string, pick: (module: unknown) => unknown): Promise<string> {
  const module = (await import(/* @vite-ignore */ name)) as { default?: unknown }
  const path = pick(module.default ?? module)
  if (typeof path !== 'string') throw new Error('the package names no binary for this platform')
  return path
}

async function versionOf(path: string, environment: Environment): Promise<Result<string>> {
  const run = await runProcess(path, ['-version'], { deadlineSeconds: probeSeconds, environment })
  if (!run.ok) return run
  const version = /^ffmpeg version (\S+)/.exec(run.value.stdout.toString('utf8'))?.[1]
  if (run.value.exitCode !== 0 || !version) {
    return failed('bad_file', `-version ended with code ${run.value.exitCode} and no version line`)
  }
  return { ok: true, value: version }
}

export interface RunOptions {
  /** Wall-clock bound in seconds; the process is killed at it. */
  deadlineSeconds: number
  signal?: AbortSignal
  environment?: Environment
  /** Feeds standard input; rejects what went wrong on the feeding side. */
  feed?: (process: ChildProcess) => Promise<void>
}

export interface Finished {
  exitCode: number | null
  stdout: Buffer
  stderr: string
}

/** Runs the located ffmpeg. The result is `ok` for any exit code: what a code means is the caller's to say. */
export async function runFfmpeg(args: readonly string[], options: RunOptions): Promise<Result<Finished>> {
  const ffmpeg = await locateFfmpeg(options.environment)
  if (!ffmpeg.ok) return ffmpeg
  return runProcess(ffmpeg.value.path, args, options)
}

async function runProcess(path: string, args: readonly string[], options: RunOptions): Promise<Result<Finished>> {
  if (options.signal?.aborted) return failed('cancelled', 'ffmpeg was not started: the request was cancelled')
  const settings: SpawnOptions = {
    stdio: [options.feed ? 'pipe' : 'ignore', 'pipe', 'pipe'],
    windowsHide: true,
    ...(options.environment ? { env: { ...options.environment } } : {}),
  }
  const child = spawn(path, args, settings)
  const stdout: Buffer[] = []
  const stderr: Buffer[] = []
  child.stdout?.on('data', (chunk: Buffer) => stdout.push(chunk))
  child.stderr?.on('data', (chunk: Buffer) => stderr.push(chunk))

  let stopped: 'timeout' | 'cancelled' | null = null
  const stop = (why: 'timeout' | 'cancelled') => {
    stopped ??= why
    child.kill('SIGKILL')
  }
  const timer = setTimeout(() => stop('timeout'), options.deadlineSeconds * 1000)
  const onAbort = () => stop('cancelled')
  options.signal?.addEventListener('abort', onAbort, { once: true })

  try {
    const ended = new Promise<Finished | Error>((resolve) => {
      child.once('error', resolve)
      child.once('close', (exitCode) =>
        resolve({ exitCode, stdout: Buffer.concat(stdout), stderr: Buffer.concat(stderr).toString('utf8') }),
      )
    })
    if (options.feed) {
      try {
        await Promise.race([options.feed(child), ended])
      } catch (error) {
        // A reader that went away is told by the exit code; anything else is the feeder's own error.
        if (!readerLeft.has((error as NodeJS.ErrnoException).code ?? '') && stopped === null) {
          child.kill('SIGKILL')
          await ended
          throw error
        }
      }
    }
    const outcome = await ended
    if (stopped === 'timeout') return failed('timeout', `ffmpeg did not finish within ${options.deadlineSeconds} s`)
    if (stopped === 'cancelled') return failed('cancelled', 'ffmpeg was stopped: the request was cancelled')
    if (outcome instanceof Error) return failed('missing_file', `could not be started: ${outcome.message}`)
    return { ok: true, value: outcome }
  } finally {
    clearTimeout(timer)
    options.signal?.removeEventListener('abort', onAbort)
  }
}

/** The line of ffmpeg's log that says most: the last one with an error in it, else the last one. */
export function mainComplaint(stderr: string): string {
  const lines = stderr.split(/[\r\n]+/).filter((line) => line.trim() !== '')
  const telling = lines.findLast((line) =>
    /invalid|error|not found|no such|denied|no space|matches no streams|partial/i.test(line),
  )
  return (telling ?? lines.at(-1) ?? 'ffmpeg said nothing').replace(/^\[[^\]]*\]\s*/, '').trim()
}
