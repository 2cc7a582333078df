import { readdirSync } from 'node:fs'
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { loadConfig, runConfig } from '../src/config.ts'
import { configHash, readConfigFile } from '../src/configFile.ts'
import { pretrainConfig } from '../src/pretrain.ts'

const schema = z
  .object({
    name: z.string(),
    seed: z.number().int().min(0).default(7),
    policy: z.discriminatedUnion('kind', [
      z.object({ kind: z.literal('checkpoint'), path: z.string() }).strict(),
      z.object({ kind: z.literal('endpoint'), url: z.url() }).strict(),
    ]),
    grpo: z
      .object({
        learningRate: z.number().positive().default(2e-4),
        aggregation: z.enum(['sum', 'mean']).default('mean'),
        betas: z.array(z.number()).default([0.9, 0.999]),
      })
      .strict()
      .prefault({}),
  })
  .strict()

let folder: string
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'showrunner-config-'))
})
afterAll(() => rm(folder, { recursive: true }))

async function read(text: string, overrides: string[] = []) {
  const path = join(folder, 'x.yaml')
  await writeFile(path, text)
  const result = await readConfigFile(schema, path, overrides)
  return result.ok ? result.value : result.failure.message.replaceAll(`${folder}/`, '')
}

const good = `name: demo
policy: # what is trained
  kind: checkpoint
  path: checkpoints/base
`

describe('a configuration file', () => {
  test('is completed by the defaults of the schema', async () => {
    expect(await read(good)).toEqual({
      name: 'demo',
      seed: 7,
      policy: { kind: 'checkpoint', path: 'checkpoints/base' },
      grpo: { learningRate: 2e-4, aggregation: 'mean', betas: [0.9, 0.999] },
    })
  })

  test('with an unknown key: file, line, path and the nearest key', async () => {
    expect(await read(`${good}grpo:\n  learningRat: 1\n`)).toBe(
      'x.yaml:6: grpo.learningRat: there is no such key; did you mean "learningRate"?',
    )
    expect(await read(`${good}zebra: 1\n`)).toBe(
      'x.yaml:5: zebra: there is no such key; known here: name, seed, policy, grpo',
    )
  })

  test('with an unknown key in one branch of a choice: names the keys there, and what is then missing', async () => {
    expect(await read('name: demo\npolicy:\n  kind: checkpoint\n  pth: x\n')).toBe(
      'x.yaml:4: policy.pth: there is no such key; did you mean "path"?; x.yaml:2: policy.path: expected string, got nothing',
    )
  })

  test('with a value of the wrong type: what was expected and what came', async () => {
    expect(await read(`${good}grpo: {learningRate: fast}\n`)).toBe(
      'x.yaml:5: grpo.learningRate: expected number, got "fast"',
    )
    expect(await read(`${good}seed: -1\n`)).toBe('x.yaml:5: seed: expected number to be >=0, got -1')
    expect(await read(`${good}grpo:\n  betas:\n    - 0.9\n    - high\n`)).toBe(
      'x.yaml:8: grpo.betas.1: expected number, got "high"',
    )
    expect(await read(`${good}grpo:\n`)).toBe('x.yaml:5: grpo: expected object, got null')
  })

  test('with a value outside a closed set: the set and the nearest of it', async () => {
    expect(await read(`${good}grpo:\n  aggregation: meen\n`)).toBe(
      'x.yaml:6: grpo.aggregation: expected "sum" or "mean", got "meen"; did you mean "mean"?',
    )
    expect(await read('name: demo\npolicy:\n  kind: endpont\n  url: http://127.0.0.1:1/v1\n')).toContain(
      'x.yaml:3: policy.kind: expected checkpoint or endpoint, got "endpont"; did you mean "endpoint"?',
    )
  })

  test('that is no YAML, no mapping, empty, or has a key twice', async () => {
    expect(await read('name: [1,\npolicy: 3')).toMatch(/^x\.yaml:\d: this is not YAML: /)
    expect(await read('- 1\n- 2\n')).toBe('x.yaml: expected a YAML mapping of keys to values, got a list.')
    expect(await read('')).toBe('x.yaml: expected a YAML mapping of keys to values, got nothing.')
    expect(await read(`${good}name: again\n`)).toMatch(/^x\.yaml:5: this is not YAML: Map keys must be unique/)
  })

  test('that does not exist', async () => {
    const result = await readConfigFile(schema, 'nowhere.yaml')
    expect(result).toMatchObject({ ok: false, failure: { boundary: 'config', kind: 'missing_file' } })
    expect(!result.ok && result.failure.message).toBe(
      'nowhere.yaml: cannot read this configuration: there is no such file. Give the path of a YAML file, such as those in configs/, or a preset: paper, released-dapo, released-grpo, showrunner.',
    )
  })
})

describe('extends', () => {
  const base = `policy:
  kind: endpoint
  url: http://127.0.0.1:1/v1
grpo:
  learningRate: 0.1
  betas: [0.8, 0.9]
`
  const files = async (others: Record<string, string>) => {
    for (const [name, text] of Object.entries(others)) await writeFile(join(folder, name), text)
  }

  test('takes what this file does not say, key by key, through any number of files', async () => {
    await files({ 'base.yaml': base, 'middle.yaml': 'extends: base.yaml\ngrpo: {learningRate: 0.2}\n' })
    expect(await read('extends: middle.yaml\nname: demo\ngrpo: {aggregation: sum, betas: [0.5]}\n')).toEqual({
      name: 'demo',
      seed: 7,
      policy: { kind: 'endpoint', url: 'http://127.0.0.1:1/v1' },
      grpo: { learningRate: 0.2, aggregation: 'sum', betas: [0.5] },
    })
  })

  test('is read from the folder of the file that says it, also from --set', async () => {
    await mkdir(join(folder, 'presets'), { recursive: true })
    await files({ 'base.yaml': base, 'presets/one.yaml': 'extends: ../base.yaml\nseed: 3\n' })
    expect(await read('extends: presets/one.yaml\nname: demo\n')).toMatchObject({
      seed: 3,
      grpo: { learningRate: 0.1 },
    })
    expect(await read('extends: base.yaml\nname: demo\n', ['extends=presets/one.yaml'])).toMatchObject({ seed: 3 })
  })

  test('a section of another kind replaces the one below, and keys of both names of a run do not matter', async () => {
    const kinds = z.object({ name: z.string(), agent: z.record(z.string(), z.unknown()) })
    await files({
      'base.yaml': 'name: below\nagent: {type: endpoint, url: x}\n',
      'own.yaml': 'extends: base.yaml\nname: above\nagent: {type: embedded}\n',
      'same.yaml': 'extends: base.yaml\nagent: {type: endpoint, model: m}\n',
    })
    const own = await readConfigFile(kinds, join(folder, 'own.yaml'))
    expect(own.ok && own.value).toEqual({ name: 'above', agent: { type: 'embedded' } })
    const same = await readConfigFile(kinds, join(folder, 'same.yaml'))
    expect(same.ok && same.value).toEqual({ name: 'below', agent: { type: 'endpoint', url: 'x', model: 'm' } })
  })

  test('a bad key is named where it stands', async () => {
    await files({ 'base.yaml': `${base}  learningRat: 1\n` })
    expect(await read('extends: base.yaml\nname: demo\n')).toBe(
      'base.yaml:7: grpo.learningRat: there is no such key; did you mean "learningRate"?',
    )
    await files({ 'base.yaml': base })
    expect(await read('extends: base.yaml\nname: demo\ngrpo:\n  learningRate: fast\n')).toBe(
      'x.yaml:4: grpo.learningRate: expected number, got "fast"',
    )
  })

  test('a file that is not there, no path, and a circle are told with their line', async () => {
    expect(await read('name: demo\nextends: nowhere.yaml\n')).toMatch(
      /^x\.yaml:2: extends: nowhere\.yaml: cannot read this configuration/,
    )
    expect(await read('extends: 3\n')).toBe(
      'x.yaml:1: extends: expected the path of a YAML file from the folder of this one, or a preset, got 3.',
    )
    await files({ 'base.yaml': 'extends: x.yaml\n' })
    expect(await read('extends: base.yaml\n')).toBe(
      'base.yaml:1: extends: x.yaml extends this file in turn; one of them has to stand alone.',
    )
  })
})

describe('--set', () => {
  test('wins over the file, reads YAML values, makes sections that the file lacks', async () => {
    const config = await read(good, ['name=other', 'grpo.learningRate=1e-4', 'grpo.betas=[0.8, 0.99]'])
    expect(config).toMatchObject({ name: 'other', grpo: { learningRate: 1e-4, betas: [0.8, 0.99] } })
  })

  test('with an unknown key or a bad value names the override, not a line', async () => {
    expect(await read(good, ['grpo.learningRat=1e-4'])).toBe(
      '--set grpo.learningRat=1e-4: grpo.learningRat: there is no such key; did you mean "learningRate"?',
    )
    expect(await read(good, ['seed=x'])).toBe('--set seed=x: seed: expected number, got "x"')
    expect(await read(good, ['policy.path.deep=1'])).toBe(
      '--set policy.path.deep=1: policy.path.deep cannot be set, since policy.path is no mapping in this file.',
    )
    expect(await read(good, ['seed'])).toBe(
      '--set seed: expected path.to.key=value, such as --set grpo.learningRate=1e-4.',
    )
  })
})

test('the hash of a configuration depends on its values and not on their order', () => {
  expect(configHash({ a: 1, b: { c: [1, 2], d: null } })).toBe(configHash({ b: { d: null, c: [1, 2] }, a: 1 }))
  expect(configHash({ a: 1 })).not.toBe(configHash({ a: 2 }))
  expect(configHash({ a: [1, 2] })).not.toBe(configHash({ a: [2, 1] }))
})

describe('configs/', () => {
  const files = ['.', 'experiments'].flatMap((folder) =>
    readdirSync(join('configs', folder)).flatMap((file) => (file.endsWith('.yaml') ? [join(folder, file)] : [])),
  )

  test.each(files)('%s is valid', async (file) => {
    const path = join('configs', file)
    const read = file.startsWith('pretrain') ? await readConfigFile(pretrainConfig, path) : await loadConfig(path)
    expect(read.ok ? '' : read.failure.message).toBe('')
  })

  test('every key of a run says what it is', () => {
    const undescribed: string[] = []
    walk(z.toJSONSchema(runConfig, { io: 'input' }) as Schema, '')
    expect(undescribed).toEqual([])

    function walk(schema: Schema, path: string) {
      for (const branch of [schema, ...(schema.oneOf ?? []), ...(schema.anyOf ?? [])]) {
        for (const [key, inner] of Object.entries(branch.properties ?? {})) {
          const deeper = [inner, ...(inner.oneOf ?? []), ...(inner.anyOf ?? [])].some((one) => one.properties)
          // a section explains itself by its keys, and a kind by its name
          if (!deeper && inner.const === undefined && !inner.description) undescribed.push(`${path}${key}`)
          walk(inner, `${path}${key}.`)
        }
      }
    }
  })
})

interface Schema {
  properties?: Record<string, Schema>
  oneOf?: Schema[]
  anyOf?: Schema[]
  const?: unknown
  description?: string
}
