/** `npm run typecheck` as a test, so that a change that does not type-check cannot pass. */
import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'

test('the repository type-checks', () => {
  const root = resolve(import.meta.dirname, '..')
  const tsc = resolve(root, 'node_modules/typescript/bin/tsc')
  const { stdout, stderr } = spawnSync(process.execPath, [tsc, '-p', root], { encoding: 'utf8', timeout: 60_000 })
  expect(`${stdout}${stderr}`).toBe('')
})
