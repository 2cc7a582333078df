/** The short version of `npm run bench -- serveSoak`: twenty seconds of mixed traffic leave nothing behind in the server. */
import { spawnSync } from 'node:child_process'
import { resolve } from 'node:path'
import { expect, test } from 'vitest'

test('twenty seconds of chats, streams, leaving clients, sessions, adapters and new weights', {
  timeout: 120_000,
}, () => {
  const words = [
    '--import',
    resolve('node_modules/tsx/dist/loader.mjs'),
    resolve('bench/serveSoak.ts'),
    '--minutes',
    '0.33',
  ]
  const env = { ...process.env, MALLOC_MMAP_THRESHOLD_: '8589934592', MALLOC_TRIM_THRESHOLD_: '8589934592' }
  const { stdout, stderr, status } = spawnSync(process.execPath, words, { env, encoding: 'utf8' })
  expect(stderr).toBe('')
  const { problems, counts, heapGrowthMiB } = JSON.parse(stdout.trim().split('\n').at(-1)!)
  expect([problems, status]).toEqual([[], 0])
  const kinds = ['chat', 'completions', 'streaming', 'leaving', 'tooLong', 'wrong', 'session', 'adapters', 'swaps']
  for (const kind of kinds) expect(counts[kind]).toBeGreaterThan(0)
  // the JIT makes code all the while; a request that were kept would be some 10 KiB
  expect(heapGrowthMiB).toBeLessThan(4)
})
