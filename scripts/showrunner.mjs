#!/usr/bin/env node
/**
 * Starts Showrunner: `node scripts/showrunner.mjs <command> [args]`, `... test [vitest args]` for the tests,
 * `... bench <name> [args]` for a benchmark, or `... golden DIR` for a comparison with another implementation.
 *
 * Installs the packages when they are missing or differ from package-lock.json, sets what must be in the environment before
 * Node starts, and hands over to src/cli.ts (or vitest). Plain JavaScript without dependencies, since it runs before there are any.
 * It parses no options and knows no commands except `test`, `bench` and `golden`: that is src/cli.ts.
 */
import { spawn } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const ROOT = fileURLToPath(new URL('..', import.meta.url))
const OLDEST_NODE = 20

/** glibc gives large blocks back to the kernel at once; keeping them made runs with large tensors up to 18 times faster. */
const ENVIRONMENT = {
  MALLOC_MMAP_THRESHOLD_: '8589934592',
  MALLOC_TRIM_THRESHOLD_: '8589934592',
  // The CPU library is inside the npm package; the install script would only download CUDA files.
  ONNXRUNTIME_NODE_INSTALL: 'skip',
  ONNXRUNTIME_NODE_INSTALL_CUDA: 'skip',
  // ONNX Runtime would otherwise keep a device id and queue events for its maker.
  ORT_DISABLE_TELEMETRY: '1',
  ...process.env,
}

if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
  fail(
    `Showrunner needs Node ${OLDEST_NODE} or newer; this is ${process.version}. Install a newer Node and run the same command again.`,
  )
}
const [command, ...args] = process.argv.slice(2)
await installPackages()
process.exitCode =
  command === 'test'
    ? await runTests(args)
    : command === 'bench'
      ? await runBenchmark(args)
      : command === 'golden'
        ? await runScript('scripts/golden/golden.ts', args)
        : await runScript('src/cli.ts', process.argv.slice(2))

/** @param {string} path @param {string[]} words */
function runScript(path, words) {
  const tsx = pathToFileURL(join(ROOT, 'node_modules/tsx/dist/loader.mjs')).href
  return start(process.execPath, ['--import', tsx, join(ROOT, path), ...words])
}

/** `bench <name> [args]` runs bench/<name>.ts. @param {string[]} words */
function runBenchmark([name, ...words]) {
  const names = readdirSync(join(ROOT, 'bench')).map((file) => file.replace(/\.ts$/, ''))
  if (name === undefined || !names.includes(name))
    fail(`Name a benchmark: ${names.join(', ')}. Example: npm run bench -- ${names[0]}`)
  return runScript(`bench/${name}.ts`, words)
}

/**
 * Runs vitest and prints `N passed, N failed` as the last line. A test file that cannot be loaded, or an error outside any test,
 * counts as one failure.
 * @param {string[]} words
 */
async function runTests(words) {
  const directory = mkdtempSync(join(tmpdir(), 'showrunner-test-'))
  const results = join(directory, 'results.json')
  const vitest = join(ROOT, 'node_modules/vitest/vitest.mjs')
  const reporters = ['--reporter=default', '--reporter=json', `--outputFile.json=${results}`]
  const code = await start(process.execPath, [vitest, 'run', '--root', ROOT, ...reporters, ...words])
  let passed = 0
  let failed = 0
  if (existsSync(results)) {
    const report = JSON.parse(readFileSync(results, 'utf8'))
    passed = report.numPassedTests
    failed = report.numFailedTests
    for (const file of report.testResults) {
      if (file.status === 'failed' && !file.assertionResults.some((test) => test.status === 'failed')) failed += 1
    }
  }
  rmSync(directory, { recursive: true, force: true })
  if (code !== 0 && failed === 0) failed = 1
  console.log(`${passed} passed, ${failed} failed`)
  return failed > 0 ? Math.max(1, code) : code
}

/**
 * Starts a program in the terminal of this one and waits for it. Signals go on to it; it decides what they mean.
 * @param {string} program
 * @param {string[]} words
 * @returns {Promise<number>} its exit code, or 128 + signal
 */
function start(program, words) {
  return new Promise((resolve) => {
    const child = spawn(program, words, { stdio: 'inherit', env: ENVIRONMENT })
    const signals = /** @type {NodeJS.Signals[]} */ (['SIGINT', 'SIGTERM', 'SIGHUP'])
    for (const signal of signals) process.on(signal, () => child.kill(signal))
    child.on('error', (error) => fail(`Cannot start ${program}: ${error.message}`))
    child.on('exit', (code, signal) => resolve(code ?? 128 + constants.signals[signal ?? 'SIGTERM']))
  })
}

async function installPackages() {
  const missing = missingPackages()
  if (missing.length === 0) return
  const expected = requiredPackages().length
  const began = Date.now()
  const seconds = () => Math.round((Date.now() - began) / 1000)
  const status = () =>
    `Installing packages with npm ci: ${installedCount()} of ${expected}, ${seconds()} s (once, about a minute)`
  const terminal = process.stderr.isTTY
  if (!terminal) process.stderr.write(`Installing ${expected} packages with npm ci (once, about a minute)\n`)
  const timer = setInterval(
    () => process.stderr.write(terminal ? `\r\x1b[K${status()}` : `${status()}\n`),
    terminal ? 500 : 15_000,
  )
  const { code, output } = await npmCi()
  clearInterval(timer)
  if (terminal) process.stderr.write('\r\x1b[K')
  if (code === 0 && missingPackages().length === 0) {
    process.stderr.write(`Packages installed in ${seconds()} s\n`)
    return
  }
  const reason =
    output
      .split('\n')
      .filter((line) => /^npm (error|ERR!) +[A-Za-z]+Error|^npm (error|ERR!) code/.test(line))
      .slice(0, 4)
      .join('\n') ||
    output.trim() ||
    missingPackages().join(', ')
  fail(
    `${reason}\nThe packages could not be installed: npm ci ended with code ${code}. Check the network and the registry (npm config get registry), then run the same command again.`,
  )
}

/** @returns {Promise<{code: number, output: string}>} */
function npmCi() {
  return new Promise((resolve) => {
    // npm itself runs us under `npm run`; then it names its own program, which also works where `npm` is not on the PATH.
    const [program, prefix] = process.env.npm_execpath?.endsWith('.js')
      ? [process.execPath, [process.env.npm_execpath]]
      : ['npm', []]
    const words = [
      ...prefix,
      'ci',
      '--no-audit',
      '--no-fund',
      '--loglevel=error',
      '--no-progress',
      '--include=dev',
      '--include=optional',
    ]
    const child = spawn(program, words, {
      cwd: ROOT,
      env: ENVIRONMENT,
      stdio: ['ignore', 'pipe', 'pipe'],
      shell: process.platform === 'win32',
    })
    let output = ''
    for (const stream of [child.stdout, child.stderr])
      stream.on('data', (chunk) => {
        output += chunk
      })
    child.on('error', (error) => resolve({ code: 127, output: error.message }))
    child.on('close', (code) => resolve({ code: code ?? 1, output }))
  })
}

/**
 * Names of required packages that node_modules lacks or has in another version.
 * npm writes node_modules/.package-lock.json last, so an install that was cut short counts as missing.
 */
function missingPackages() {
  const installed = join(ROOT, 'node_modules/.package-lock.json')
  const have = existsSync(installed) ? lockedPackages(installed) : new Map()
  return requiredPackages().flatMap(([name, entry]) => (have.get(name)?.version === entry.version ? [] : [name]))
}

/** What the lock file wants on every machine; optional packages may be absent. */
function requiredPackages() {
  return [...lockedPackages(join(ROOT, 'package-lock.json'))].filter(
    ([, entry]) => !entry.optional && !entry.devOptional,
  )
}

/**
 * @param {string} file
 * @returns {Map<string, {version: string, optional?: boolean, devOptional?: boolean}>}
 */
function lockedPackages(file) {
  const { packages } = JSON.parse(readFileSync(file, 'utf8'))
  return new Map(Object.entries(packages).filter(([name]) => name !== ''))
}

/** How many packages are unpacked so far; a rough count for the progress line. */
function installedCount() {
  const modules = join(ROOT, 'node_modules')
  if (!existsSync(modules)) return 0
  return readdirSync(modules).reduce((count, name) => {
    if (name.startsWith('.')) return count
    if (!name.startsWith('@')) return count + 1
    try {
      return count + readdirSync(join(modules, name)).length
    } catch {
      return count // npm is moving folders about while we look
    }
  }, 0)
}

/** @param {string} message */
function fail(message) {
  process.stderr.write(`${message}\n`)
  process.exit(1)
}
