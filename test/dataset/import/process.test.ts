/** What only a process of its own can show: an import that is killed goes on; memory that does not grow with the file. */
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { openDataset } from '../../../src/dataset/index.ts'
import { folder, value } from '../folder.ts'
import { generateTvqa } from './generate.ts'

const here = import.meta.dirname
function node(script: string, words: string[], flags: string[] = []) {
  const run = spawnSync(process.execPath, [...flags, '--import', 'tsx', join(here, script), ...words], {
    encoding: 'utf8',
  })
  return { ...run, told: run.stderr.trim().split('\n').at(-1) as string }
}

/** Every file under a folder with a hash of its bytes. */
function contents(root: string): Record<string, string> {
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' }).filter((name) =>
    statSync(join(root, name)).isFile(),
  )
  return Object.fromEntries(
    files.sort().map((name) => [
      name,
      createHash('sha1')
        .update(readFileSync(join(root, name)))
        .digest('hex'),
    ]),
  )
}

test('killed at any moment, run again: the same bytes, nothing twice', async () => {
  const raw = folder()
  await generateTvqa(raw, { episodes: 30, clips: 700, questions: 5_000 })
  // a second split, and pictures to look at
  const second = {
    ...JSON.parse(readFileSync(join(raw, 'tvqa_train.jsonl'), 'utf8').split('\n')[0] as string),
    qid: 'second',
  }
  writeFileSync(join(raw, 'tvqa_val.jsonl'), `${JSON.stringify(second)}\n${JSON.stringify({ ...second, qid: 7 })}\n`)
  for (let i = 0; i < 12; i++) {
    mkdirSync(join(raw, `frames/s01e01_seg02_clip_${String(i).padStart(2, '0')}`), { recursive: true })
    writeFileSync(join(raw, `frames/s01e01_seg02_clip_${String(i).padStart(2, '0')}/00001.jpg`), 'x')
  }
  const whole = join(folder(), 'whole')
  expect(node('killed.ts', [raw, whole, 'never', '0']).status).toBe(0)
  const expected = contents(whole)
  expect(Object.keys(expected)).toEqual([
    'dataset.json',
    'episodes.jsonl',
    'gold/train.jsonl',
    'gold/val.jsonl',
    'import-report.json',
    'questions/train.jsonl',
    'questions/val.jsonl',
  ])

  const out = join(folder(), 'killed')
  for (const [stage, count] of [
    ['reading clips', '1'],
    ['looking at frames', '5'],
    ['writing episodes', '17'],
    ['writing questions of train', '3000'],
    ['writing questions of val', '0'],
  ] as const) {
    const killed = node('killed.ts', [raw, out, stage, count])
    expect(killed.signal, `${stage} ${killed.stderr}`).toBe('SIGKILL')
    expect(existsSync(join(out, 'dataset.json'))).toBe(false)
  }
  expect(node('killed.ts', [raw, out, 'never', '0']).status).toBe(0)
  expect(contents(out)).toEqual(expected)
  const dataset = value(await openDataset(whole))
  expect(new Set(dataset.questions.map(({ qid }) => qid)).size).toBe(dataset.questions.length)
}, 120_000)

test('a large file streams: it goes through a heap that cannot hold its rows, and a whole process stays small', async () => {
  const raw = folder()
  const { inputs, kept } = await generateTvqa(raw, { episodes: 240, clips: 5_600, questions: 60_000 }, 'array')
  const heap = '--max-old-space-size=48'
  const reading = `const rows = JSON.parse(require('fs').readFileSync(${JSON.stringify(inputs[0])}, 'utf8')); console.log(rows.length)`
  const held = spawnSync(process.execPath, [heap, '-e', reading], { encoding: 'utf8' })
  expect(held.stderr).toContain('heap out of memory')

  const out = join(folder(), 'out')
  const run = node('child.ts', ['import', 'dataset', 'import', ...inputs, '--out', out], [heap])
  expect(run.status, run.stderr).toBe(0)
  const { peakMiB } = JSON.parse(run.told) as { peakMiB: number }
  expect(peakMiB).toBeLessThan(200)
  expect(run.stdout).toContain(`train: ${kept} questions`)
  expect(run.stdout).toMatch(
    /\n +\d+ {2}time spans that are no numbers \(the questions are kept\)\n +.*tvqa_train\.jsonl row 1165 \(qid 1164\)/,
  )
  expect(JSON.parse(readFileSync(join(out, 'import-report.json'), 'utf8')).splits.train.questions).toBe(kept)
}, 120_000)
