/** Holds the forward pass and whole training runs against what TRL 1.13.0 did (`test/golden`, see its README), and tests that comparison. */

import { execFile } from 'node:child_process'
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterAll, describe, expect, test } from 'vitest'
import { type Check, compareFolder, TOLERANCES } from '../../scripts/golden/compare.ts'
import { goldenRun, optionsOf } from '../../scripts/golden/settings.ts'

const ROOT = fileURLToPath(new URL('../../', import.meta.url))
const GOLDEN = join(ROOT, 'test/golden')

describe.each([
  ['trl-grpo', 4, 3],
  ['trl-variants', 10, 3],
])('%s', (folder, checks, withWeights) => {
  test('every check is within its tolerance', async () => {
    const found: Check[] = []
    for await (const check of compareFolder(join(GOLDEN, folder))) found.push(check)
    expect(found.filter(({ ok }) => !ok)).toEqual([])
    expect(found.length).toBe(checks)
    const weights = found.filter(({ maxParameterDiff }) => maxParameterDiff !== null)
    expect(weights.length).toBe(withWeights)
    for (const { maxParameterDiff, undetermined } of weights) {
      expect(maxParameterDiff!).toBeLessThan(TOLERANCES.parameter)
      // of 97,000
      expect(undetermined!.entries).toBeLessThan(20)
    }
  })
})

describe('npm run golden', () => {
  const directory = mkdtempSync(join(tmpdir(), 'golden-'))
  afterAll(() => rmSync(directory, { recursive: true }))

  /** A copy of the first fixture with one run, changed. */
  function fixture(change: (run: Record<string, unknown>) => void): string {
    const copy = mkdtempSync(join(directory, 'case-'))
    for (const name of ['tiny-qwen2', 'rollouts.json'])
      cpSync(join(GOLDEN, 'trl-grpo', name), join(copy, name), { recursive: true })
    const golden = JSON.parse(readFileSync(join(GOLDEN, 'trl-grpo/golden.json'), 'utf8'))
    const run = golden['dapo-token-beta0.0']
    change(run)
    writeFileSync(join(copy, 'golden.json'), JSON.stringify({ changed: run }))
    return copy
  }

  const command = (...words: string[]) =>
    new Promise<{ code: number; out: string; err: string }>((resolve) => {
      execFile(
        process.execPath,
        ['--import', 'tsx', 'scripts/golden/golden.ts', ...words],
        { cwd: ROOT },
        (error, out, err) => resolve({ code: error === null ? 0 : Number(error.code), out, err }),
      )
    })

  test('prints a line per check and ends with 0', async () => {
    const { code, out } = await command(fixture(() => {}))
    expect(
      out
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line)),
    ).toEqual([
      {
        name: 'changed',
        maxLossDiff: expect.any(Number),
        maxGradNormRelDiff: expect.any(Number),
        maxParameterDiff: null,
        maxLogprobDiff: null,
        undetermined: null,
        ok: true,
      },
    ])
    expect(code).toBe(0)
  })

  test('another setting than was trained with is noticed: code 1', async () => {
    const { code, out } = await command(fixture((run) => Object.assign(run, { epsilon: 0.1 })))
    expect(JSON.parse(out)).toMatchObject({ ok: false })
    expect(code).toBe(1)
  })

  test('unknown settings and values, and folders of another layout, are named: code 2', async () => {
    const unknown = await command(fixture((run) => Object.assign(run, { entropy_coef: 0.1 })))
    expect(unknown).toMatchObject({ code: 2, err: expect.stringMatching(/golden.json: changed: .*entropy_coef/) })
    const sapo = await command(fixture((run) => Object.assign(run, { loss_type: 'sapo' })))
    expect(sapo).toMatchObject({ code: 2, err: expect.stringContaining('golden.json: changed.loss_type') })
    const empty = await command(directory)
    expect(empty).toMatchObject({ code: 2, err: expect.stringContaining('expected a folder that has a model') })
  })
})

describe('settings', () => {
  const run = (overrides: Record<string, unknown>) =>
    optionsOf(
      goldenRun.parse({
        loss_type: 'dapo',
        learning_rate: 1e-3,
        adamw: { betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0 },
        optimizer_steps: 1,
        steps: [{ loss: 0, grad_norm: 1, learning_rate: 1e-3 }],
        ...overrides,
      }),
    )

  test('epsilon_high is a bound above 1, but the cap itself for cispo', () => {
    expect(run({ epsilon: 0.1 })).toMatchObject({ clipLow: 0.1, clipHigh: 0.1, dualClip: null })
    expect(run({ epsilon: 0.1, epsilon_high: 0.3, delta: 2 })).toMatchObject({ clipHigh: 0.3, dualClip: 2 })
    expect(run({ loss_type: 'cispo', epsilon_high: 3 })).toMatchObject({ ratioCap: 3, clipHigh: 0.2 })
    expect(run({ loss_type: 'cispo', epsilon: 0.3 })).toMatchObject({ ratioCap: 0.3, clipLow: 0.2 })
    expect(() => run({ loss_type: 'cispo', delta: 2 })).toThrow('cispo does not read it')
  })

  test('schedules by name, scale_rewards also as a truth value', () => {
    expect(run({ lr_schedule: 'cosine to 0, 12 warm-up steps' })).toMatchObject({ schedule: 'cosine', warmupSteps: 12 })
    expect(run({ lr_schedule: 'constant, no warm-up' })).toMatchObject({ schedule: 'constant', warmupSteps: 0 })
    expect(run({ scale_rewards: false })).toMatchObject({ advantageScale: 'none' })
    expect(run({ scale_rewards: 'batch' })).toMatchObject({ advantageScale: 'batch' })
  })
})
