/** scripts/showrunner.mjs in a project of its own, with this one's packages. */
import { execFile } from 'node:child_process'
import { cp, mkdir, mkdtemp, rm, symlink, unlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'

const root = resolve(import.meta.dirname, '../..')
let project: string

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), 'showrunner-launcher-'))
  for (const file of ['package.json', 'package-lock.json', 'scripts/showrunner.mjs', 'vitest.config.ts']) {
    await cp(join(root, file), join(project, file))
  }
  await mkdir(join(project, 'src'))
  await mkdir(join(project, 'test'))
  await symlink(join(root, 'node_modules'), join(project, 'node_modules'))
})
afterAll(() => rm(project, { recursive: true }))

/** Stands in for npm, which must never touch the packages that are linked here. */
async function fakeNpm(body: string): Promise<Record<string, string>> {
  const path = join(project, 'npm-cli.js')
  await writeFile(path, `import { symlinkSync } from 'node:fs'\n${body}\n`)
  return { npm_execpath: path }
}

async function launch(words: string[], npm?: Record<string, string>) {
  const script = join(project, 'scripts/showrunner.mjs')
  const env = { ...process.env, NO_COLOR: undefined, FORCE_COLOR: '0', ...(npm ?? (await fakeNpm('process.exit(9)'))) }
  return new Promise<{ code: number; out: string; err: string }>((resolve) => {
    execFile(process.execPath, [script, ...words], { env }, (error, out, err) => {
      resolve({ code: typeof error?.code === 'number' ? error.code : error ? -1 : 0, out, err })
    })
  })
}

describe('commands', () => {
  test('get their words, malloc settings that must be there before node starts, and their exit code back', async () => {
    await writeFile(
      join(project, 'src/cli.ts'),
      'const words: string[] = process.argv.slice(2)\nconsole.log(JSON.stringify([words, process.env.MALLOC_MMAP_THRESHOLD_, process.env.MALLOC_TRIM_THRESHOLD_]))\nprocess.exit(7)\n',
    )
    const { code, out } = await launch(['evaluate', '--max-turns', '5'])
    expect(JSON.parse(out)).toEqual([['evaluate', '--max-turns', '5'], '8589934592', '8589934592'])
    expect(code).toBe(7)
  })

  test('that die by a signal give 128 plus its number', async () => {
    await writeFile(join(project, 'src/cli.ts'), "process.kill(process.pid, 'SIGINT')\nsetTimeout(() => {}, 10_000)\n")
    expect((await launch(['serve'])).code).toBe(130)
  })
})

describe('test', () => {
  const lastLine = (out: string) => out.trimEnd().split('\n').at(-1)

  test('ends with what passed and failed; a file that cannot be loaded is a failure', async () => {
    const head = "import { expect, test } from 'vitest'\n"
    await writeFile(join(project, 'test/good.test.ts'), `${head}test('one', () => {})\ntest('two', () => {})\n`)
    const good = await launch(['test'])
    expect(lastLine(good.out)).toBe('2 passed, 0 failed')
    expect(good.code).toBe(0)

    await writeFile(join(project, 'test/bad.test.ts'), `${head}test('three', () => expect(1).toBe(2))\n`)
    await writeFile(join(project, 'test/broken.test.ts'), "import './nowhere.ts'\n")
    const bad = await launch(['test'])
    expect(lastLine(bad.out)).toBe('2 passed, 2 failed')
    expect(bad.code).toBe(1)
  })

  test('takes words for vitest', async () => {
    const { code, out } = await launch(['test', 'good'])
    expect(lastLine(out)).toBe('2 passed, 0 failed')
    expect(code).toBe(0)
  })
})

describe('without packages', () => {
  test('a failed install is one clear message and exit code 1', async () => {
    await unlink(join(project, 'node_modules'))
    const env = await fakeNpm(
      "console.error('npm error code ECONNREFUSED\\nnpm error     at somewhere (deep.js:1)'); process.exit(1)",
    )
    const { code, out, err } = await launch(['serve'], env)
    expect(err).toMatch(/^Installing \d+ packages with npm ci/)
    expect(err).toContain(
      'npm error code ECONNREFUSED\nThe packages could not be installed: npm ci ended with code 1. Check the network',
    )
    expect(err).not.toContain('deep.js')
    expect(out).toBe('')
    expect(code).toBe(1)
  })

  test('they are installed once, then the command runs', async () => {
    await writeFile(join(project, 'src/cli.ts'), "console.log('ran')\n")
    const env = await fakeNpm(
      `if (process.argv[2] !== 'ci' || process.env.ONNXRUNTIME_NODE_INSTALL !== 'skip') process.exit(3)\nsymlinkSync(${JSON.stringify(join(root, 'node_modules'))}, 'node_modules')`,
    )
    const first = await launch(['serve'], env)
    expect(first.err).toMatch(/Packages installed in \d+ s\n$/)
    expect(first).toMatchObject({ code: 0, out: 'ran\n' })
    expect(await launch(['serve'], env)).toEqual({ code: 0, out: 'ran\n', err: '' })
  })
})
