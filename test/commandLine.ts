/** Runs the command line as a user would, in a folder of the test's own. */
import { type ChildProcess, spawn } from 'node:child_process'
import { join } from 'node:path'

const ROOT = join(import.meta.dirname, '..')

export interface Ended {
  code: number | null
  stdout: string
  stderr: string
}

export function start(folder: string, ...words: string[]): { child: ChildProcess; ended: Promise<Ended> } {
  const child = spawn(
    process.execPath,
    ['--import', join(ROOT, 'node_modules/tsx/dist/loader.mjs'), join(ROOT, 'src/cli.ts'), ...words],
    { cwd: folder },
  )
  let stdout = ''
  let stderr = ''
  child.stdout.on('data', (chunk) => {
    stdout += chunk
  })
  child.stderr.on('data', (chunk) => {
    stderr += chunk
  })
  const ended = new Promise<Ended>((done) => child.on('close', (code) => done({ code, stdout, stderr })))
  return { child, ended }
}

export function showrunner(folder: string, ...words: string[]): Promise<Ended> {
  return start(folder, ...words).ended
}
