/** API keys from a file and from the environment. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { readKeys } from '../../src/serve/keys.ts'

const folder = mkdtempSync(join(tmpdir(), 'showrunner-keys-'))
const variable = 'SHOWRUNNER_TEST_KEYS'
afterEach(() => {
  delete process.env[variable]
})

async function keys(file: string | null) {
  const path = file === null ? null : join(folder, 'keys')
  if (path !== null) writeFileSync(path, file as string)
  return readKeys({ apiKeyFile: path, apiKeyVariable: variable })
}

test('one a line in a file, several in a variable; both hold', async () => {
  process.env[variable] = 'of-the-variable, second'
  const read = await keys('# the lab\nfirst\n\n  spaced  \n')
  if (!read.ok) throw new Error(read.failure.message)
  expect(read.value.required).toBe(true)
  for (const key of ['first', 'spaced', 'of-the-variable', 'second']) expect(read.value.accept(key)).toBe(true)
  for (const key of ['', 'firs', 'first ', 'FIRST', '# the lab', 'of-the-variable, second'])
    expect(read.value.accept(key)).toBe(false)
})

test('without any, none is asked for', async () => {
  const read = await keys(null)
  expect(read).toMatchObject({ ok: true, value: { required: false } })
})

test('a file without keys, or that is not there, is a failure: nobody should believe that keys are asked for', async () => {
  expect(await keys('# nothing\n\n')).toMatchObject({
    ok: false,
    failure: { kind: 'bad_file', message: expect.stringContaining('found none') },
  })
  rmSync(join(folder, 'keys'))
  expect(await readKeys({ apiKeyFile: join(folder, 'keys'), apiKeyVariable: variable })).toMatchObject({
    ok: false,
    failure: { message: expect.stringContaining(join(folder, 'keys')) },
  })
})
