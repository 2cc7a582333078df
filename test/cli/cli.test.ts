import { spawn } from 'node:child_process'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest'
import { main } from '../../src/cli.ts'
import { commands } from '../../src/commands.ts'
import { onInterrupt } from '../../src/interrupt.ts'

const root = resolve(import.meta.dirname, '../..')
let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-cli-'))
})
afterAll(() => rm(folder, { recursive: true }))

/** Runs the command line in this process. */
async function run(line: string) {
  const written = { out: '', err: '' }
  const take = (key: 'out' | 'err') => (chunk: unknown) => {
    written[key] += String(chunk)
    return true
  }
  const spies = [
    vi.spyOn(process.stdout, 'write').mockImplementation(take('out')),
    vi.spyOn(process.stderr, 'write').mockImplementation(take('err')),
    // yargs prints help with it
    vi.spyOn(console, 'log').mockImplementation((text) => take('out')(`${text}\n`)),
  ]
  try {
    return { code: await main(line.split(' ').filter(Boolean)), ...written }
  } finally {
    for (const spy of spies) spy.mockRestore()
  }
}

describe('--help', () => {
  test('lists every command and an example of each', async () => {
    const { code, out } = await run('--help')
    expect(code).toBe(0)
    for (const name of [
      'quickstart',
      'dataset',
      'rollout',
      'train',
      'evaluate',
      'compare',
      'serve',
      'report',
      'pretrain',
    ]) {
      expect(out).toContain(`showrunner ${name}`)
    }
    expect(out).toContain('Examples:')
  })

  test.each(commands.map(({ words }) => words.replace(/ [<[].*/, '')))(
    '%s --help has options and an example',
    async (words) => {
      const { code, out } = await run(`${words} --help`)
      expect(code).toBe(0)
      expect(out).toContain(`showrunner ${words}`)
      expect(out).toContain('Examples:')
    },
  )
})

describe('bad usage is exit code 2 and says what was meant', () => {
  test.each([
    ['', 'Which command?'],
    ['trian', 'Did you mean train?'],
    ['train --config x --resum', 'Unknown argument: resum; did you mean "--resume"?'],
    ['evaluate --max-tuns 3', 'Unknown argument: max-tuns; did you mean "--max-turns"?'],
    ['train', 'Missing required argument: --config'],
    ['dataset miniature', 'Missing required arguments: --seed, --episodes, --out'],
    ['dataset inspct x', 'Did you mean inspect?'],
    ['dataset inspect', 'Not enough non-option arguments'],
    ['report a b', 'Too many non-option arguments'],
    ['train --config', 'Not enough arguments following: config'],
    ['evaluate --max-turns 0', '--max-turns: expected one whole number of at least 1, got 0'],
    ['serve x --port 99999', '--port: expected one whole number from 0 to 65535, got 99999'],
    ['serve x --set concurrency', '--set concurrency: expected key=value, such as concurrency=64'],
    [
      'dataset miniature --seed 1 --seed 2 --episodes 1 --out x',
      '--seed: expected one whole number of at least 0, got [1,2]',
    ],
  ])('showrunner %s', async (line, message) => {
    const { code, out, err } = await run(line)
    expect(err).toContain(message)
    expect(err).toMatch(/See showrunner .*--help\.\n$/)
    expect(code).toBe(2)
    expect(out).toBe('')
  })

  test('a bad configuration too, with file, line and key', async () => {
    const path = join(folder, 'bad.yaml')
    const rest = 'name: x\ndataset: {path: d}\npolicy: {type: checkpoint, path: c}\nreward: {alpha: 0.1}'
    await writeFile(path, `${rest}\ngrpo:\n  learningRat: 1\n`)
    const { code, err } = await run(`train --config ${path}`)
    expect(err).toBe(`${path}:6: grpo.learningRat: there is no such key; did you mean "learningRate"?\n`)
    expect(code).toBe(2)
    // the file may stand behind the command too
    for (const command of ['ground', 'rollout', 'train', 'compare'])
      expect(await run(`${command} ${path}`)).toMatchObject({ code: 2, err: expect.stringContaining(err) })
    const override = await run(`train --config ${path} --set grpo.learningRat=1 --set seed=x`)
    expect(override.err).toContain('--set seed=x: seed: expected number, got "x"')
  })

  test('and a bad limit of the endpoint', async () => {
    const { code, err } = await run('serve x --set concurrency=none')
    expect(err).toBe('serve: --set concurrency: Invalid input: expected number, received string\n')
    expect(code).toBe(2)
  })
})

describe('a command that fails is exit code 1 and one line', () => {
  test.each([
    ['dataset inspect nowhere', /^nowhere: .*check the path\n$/],
    ['serve nowhere', /^checkpoint nowhere does not exist.*\n$/],
    ['report nowhere', /^nowhere\/.*check the directory\n$/],
  ])('showrunner %s', async (line, message) => {
    const { code, out, err } = await run(line)
    expect(err).toMatch(message)
    expect(code).toBe(1)
    expect(out).toBe('')
  })
})

test('results go to standard output', async () => {
  const summary = { name: 'x', seed: 1 }
  await writeFile(join(folder, 'summary.json'), JSON.stringify(summary))
  expect(await run(`report ${folder}`)).toEqual({ code: 0, out: `${join(folder, 'report.html')}\n`, err: '' })
})

describe('Ctrl-C', () => {
  /** Starts `words` under node and waits until it has written `ready`. */
  async function start(words: string[], ready: RegExp) {
    const child = spawn(process.execPath, ['--import', 'tsx', ...words], { cwd: root })
    let written = ''
    const begun = new Promise<void>((resolve) => {
      for (const stream of [child.stdout, child.stderr]) {
        stream.on('data', (chunk) => {
          written += chunk
          if (ready.test(written)) resolve()
        })
      }
    })
    const ended = new Promise<{ code: number | null; signal: string | null }>((resolve) => {
      child.on('exit', (code, signal) => resolve({ code, signal }))
    })
    await Promise.race([begun, ended])
    return { child, ended, output: () => written }
  }
  const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms))

  test('ends a server gracefully, and that is no failure', async () => {
    const checkpoint = 'test/golden/trl-grpo/tiny-qwen2'
    const { child, ended, output } = await start(
      ['src/cli.ts', 'serve', checkpoint, '--port', '0'],
      /Serving tiny-qwen2 at http/,
    )
    const url = /http:\S+/.exec(output())?.[0]
    expect((await fetch(`${url}/models`)).status).toBe(200)
    child.kill('SIGINT')
    expect(await ended).toEqual({ code: 0, signal: null })
  })

  test('once asks to stop, however many signals one press becomes; twice stops at once', async () => {
    const { child, ended, output } = await start(['test/cli/stubborn.ts'], /ready/)
    child.kill('SIGINT')
    await pause(60)
    child.kill('SIGINT')
    await pause(500)
    expect(child.exitCode ?? child.signalCode).toBeNull()
    expect(output()).toContain('asked to stop')
    expect(output().match(/Stopping/g)).toHaveLength(1)
    child.kill('SIGINT')
    expect(await ended).toEqual({ code: null, signal: 'SIGINT' })
  })
})

test('many may listen to Ctrl-C at the same time without a warning of a leak', async () => {
  const warnings: Error[] = []
  const note = (warning: Error) => warnings.push(warning)
  process.on('warning', note)
  const { signal, release } = onInterrupt()
  for (let i = 0; i < 100; i++) signal.addEventListener('abort', () => undefined)
  await new Promise((soon) => setTimeout(soon, 10))
  process.off('warning', note)
  release()
  expect(warnings).toEqual([])
})
