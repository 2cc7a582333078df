/** The presets: what they are is what docs/longvideoagent.md says, and each is named by one word. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { parse } from 'yaml'
import { z } from 'zod'
import { loadConfig, loadEvaluationConfig, runConfig } from '../src/config.ts'
import { presetNames } from '../src/configFile.ts'

const OWN = ['dataset.path=d', 'policy.path=c']
const ALPHA = 'reward.alpha=0.1'

/** The cells of the table between two marks of the docs. */
function cellsBetween(mark: string): string[][] {
  const text = readFileSync('docs/longvideoagent.md', 'utf8')
    .split(`<!-- ${mark} -->`)[1]
    ?.split(`<!-- /${mark} -->`)[0]
  const cells = (line: string) => line.split('|').slice(1, -1)
  return (text as string)
    .trim()
    .split('\n')
    .map((line) => cells(line).map((cell) => cell.trim()))
}

const [head, , ...rows] = cellsBetween('presets') as [string[], string[], ...string[][]]
const names = head.slice(1, -1)

test('the table has every preset', async () => {
  expect(names.toSorted()).toEqual(await presetNames())
  expect(names.map((name) => `${name}.yaml`).toSorted()).toEqual(readdirSync('configs/presets').toSorted())
})

test.each(names)('%s is what the table says', async (name) => {
  const column = names.indexOf(name) + 1
  const read = await loadConfig(name, [...OWN, ...(alphaIn(name) === null ? [ALPHA] : [])])
  if (!read.ok) throw new Error(read.failure.message)
  const told = Object.fromEntries(rows.map((row) => [key(row), row[column]]))
  const are = Object.fromEntries(
    rows.map((row) => [
      key(row),
      key(row) === 'reward.alpha' && alphaIn(name) === null ? 'required' : shown(at(read.value, key(row))),
    ]),
  )
  expect(are).toEqual(told)
})

test('the table has every key that a preset sets, and a source for each', () => {
  const set = new Set(readdirSync('configs/presets').flatMap((file) => leaves(yaml(join('configs/presets', file)))))
  for (const one of ['name', 'extends']) set.delete(one)
  expect([...set].filter((one) => !rows.some((row) => key(row) === one))).toEqual([])
  expect(rows.filter((row) => !row.at(-1)).map(key)).toEqual([])
})

test('alpha is required where nobody published it', async () => {
  const read = await loadConfig('paper', OWN)
  expect(!read.ok && read.failure.message).toMatch(
    /^paper: reward\.alpha: expected a number: the paper does not publish/,
  )
  expect(readFileSync('configs/presets/paper.yaml', 'utf8')).toMatch(/# reward\.alpha, .* has to be set/)
})

test('every decision has its row, whose keys and files there are', () => {
  const told = cellsBetween('decisions')
  expect(told.slice(2).map(([number]) => Number(number))).toEqual(Array.from({ length: 40 }, (_, i) => i + 1))
  const schema = z.toJSONSchema(runConfig, { io: 'input', unrepresentable: 'any' }) as Schema
  const missing = told.slice(2).flatMap((row) => {
    const named = [...(row.at(-1) as string).matchAll(/`([^`]+)`/g)].map((match) => match[1] as string)
    expect(named.length, row.join()).toBeGreaterThan(0)
    return named.filter((one) => (one.includes('/') ? !existsSync(one) : !knows([schema], one.split('.'))))
  })
  expect(missing).toEqual([])
})

describe('a file of one’s own', () => {
  const own = async (text: string, overrides: string[] = []) => {
    const folder = await mkdtemp(join(tmpdir(), 'showrunner-presets-'))
    try {
      const path = join(folder, 'mine.yaml')
      await writeFile(path, text)
      return { whole: await loadConfig(path, overrides), evaluated: await loadEvaluationConfig(path, overrides) }
    } finally {
      await rm(folder, { recursive: true })
    }
  }

  test('the one in the docs extends a preset and replaces its agents', async () => {
    const text = /```yaml\n(# mine\.yaml[\s\S]*?)```/.exec(
      readFileSync('docs/longvideoagent.md', 'utf8'),
    )?.[1] as string
    const { whole } = await own(text)
    expect(whole).toMatchObject({
      ok: true,
      value: {
        name: 'mine',
        system: { initialGrounding: 'none', onAgentFailure: 'observe' },
        agents: { grounding: { type: 'embedded' }, vision: { type: 'embedded' } },
        rollout: { groupSize: 4, budget: { turns: 5 } },
        policy: { type: 'endpoint' },
      },
    })
  })

  test('evaluation has what the preset says for it alone, and --set wins over that', async () => {
    const text = 'extends: released-dapo\nname: mine\ndataset: {path: d}\npolicy: {path: c}\n'
    const { whole, evaluated } = await own(text)
    expect(whole).toMatchObject({ ok: true, value: { agents: { vision: { framesPerLook: 12 } } } })
    expect(evaluated).toMatchObject({
      ok: true,
      value: { agents: { vision: { framesPerLook: 15 }, grounding: { maxTokens: 1024 } } },
    })
    const { evaluated: set } = await own(text, ['agents.vision.framesPerLook=3'])
    expect(set).toMatchObject({ ok: true, value: { agents: { vision: { framesPerLook: 3 } } } })
    const { evaluated: replaced } = await own(`${text}agents: {vision: {type: descriptions}}\n`)
    expect(!replaced.ok && replaced.failure.message).toMatch(/\(evaluation\.set has it; \[\] leaves it out\)$/)
  })

  test('a preset that there is not: the ones that there are', async () => {
    const { whole } = await own('extends: papr\nname: mine\n')
    expect(!whole.ok && whole.failure.message).toMatch(
      /or a preset: paper, released-dapo, released-grpo, showrunner\.$/,
    )
  })
})

const key = (row: string[]) => (row[0] as string).replaceAll('`', '')
const yaml = (path: string): unknown => parse(readFileSync(path, 'utf8'))

/** What the preset, or one that it extends, says of alpha; null when it has to be set. */
function alphaIn(name: string): unknown {
  const { reward, extends: below } = yaml(`configs/presets/${name}.yaml`) as {
    reward?: { alpha?: number }
    extends?: string
  }
  return reward?.alpha ?? (below === undefined ? null : alphaIn(below))
}

function at(value: unknown, path: string): unknown {
  return path
    .split('.')
    .reduce<unknown>((inner, part) => (inner as Record<string, unknown> | null | undefined)?.[part], value)
}

function shown(value: unknown): string {
  if (value === undefined) return '–'
  return typeof value === 'string' ? value : JSON.stringify(value)
}

/** Paths of all values that are no mapping. */
function leaves(value: unknown, path = ''): string[] {
  if (value === null || typeof value !== 'object' || Array.isArray(value)) return [path]
  return Object.entries(value).flatMap(([name, inner]) => leaves(inner, path === '' ? name : `${path}.${name}`))
}

interface Schema {
  properties?: Record<string, Schema>
  oneOf?: Schema[]
  anyOf?: Schema[]
}

/** Whether some branch of the schemas has the key. */
function knows(schemas: readonly Schema[], [first, ...rest]: readonly string[]): boolean {
  if (first === undefined) return schemas.length > 0
  const branches = (one: Schema): Schema[] => [one, ...[...(one.oneOf ?? []), ...(one.anyOf ?? [])].flatMap(branches)]
  const inner = schemas.flatMap(branches).flatMap(({ properties }) => properties?.[first] ?? [])
  return inner.length > 0 && knows(inner, rest)
}
