/** The short version of `npm run bench -- soak`: nothing piles up over thirty steps, in the heap, on the device or in the process. */

import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'

test('thirty steps of sampling, scoring and updating', { timeout: 120_000 }, () => {
  const words = ['--expose-gc', '--import', resolve('node_modules/tsx/dist/loader.mjs'), resolve('bench/soak.ts')]
  const env = { ...process.env, MALLOC_MMAP_THRESHOLD_: '8589934592', MALLOC_TRIM_THRESHOLD_: '8589934592' }
  const { stdout, stderr } = spawnSync(process.execPath, [...words, '30', '32', '2'], { env, encoding: 'utf8' })
  expect(stderr).not.toContain('Error')
  const { heapGrowthMiB, tensorGrowth, residentGrowthMiB } = JSON.parse(stdout.trim().split('\n').at(-1)!)
  // A step makes some 60 KiB of rows and numbers: kept, they would be more than this by the end.
  expect(heapGrowthMiB).toBeLessThan(1)
  expect(tensorGrowth).toBe(0)
  expect(residentGrowthMiB).toBeLessThan(80)
})
