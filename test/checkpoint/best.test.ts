/** Which checkpoints of a run stay: the newest, and the one that `best` is a link to. */
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, expect, test } from 'vitest'
import { linkBest, pruneCheckpoints } from '../../src/checkpoint/best.ts'

let run: string
beforeEach(() => {
  run = mkdtempSync(join(tmpdir(), 'showrunner-best-'))
  for (const step of ['000010', '000020', '000030', '000040', '1000000']) {
    mkdirSync(join(run, `step-${step}`))
    writeFileSync(join(run, `step-${step}`, 'config.json'), step)
  }
  mkdirSync(join(run, 'non-finite-step-000005'))
})
afterEach(() => rmSync(run, { recursive: true }))

test('the best is never deleted, and moves in one step', async () => {
  expect(await linkBest(run, 20)).toEqual({ ok: true, value: join(run, 'best') })
  expect(readFileSync(join(run, 'best', 'config.json'), 'utf8')).toBe('000020')
  expect(await pruneCheckpoints(run, 2)).toEqual({ ok: true, value: [30, 10] })
  expect(readdirSync(run).sort()).toEqual([
    'best',
    'non-finite-step-000005',
    'step-000020',
    'step-000040',
    'step-1000000',
  ])
  expect(await linkBest(run, 40)).toMatchObject({ ok: true })
  expect(readFileSync(join(run, 'best', 'config.json'), 'utf8')).toBe('000040')
  expect(await pruneCheckpoints(run, 1)).toEqual({ ok: true, value: [20] })
})

test('without a best one only the newest stay', async () => {
  expect(await pruneCheckpoints(run, 1)).toEqual({ ok: true, value: [40, 30, 20, 10] })
})
