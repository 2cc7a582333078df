/**
 * `dataset import` and `openDataset` at the size of the whole of TVQA: 152,545 questions in one file, 21,793 clips with subtitles, 924
 * episodes, all generated. Each runs in a process of its own; prints a JSON line with seconds and the peak of its resident memory.
 *
 * `npm run bench -- import [array|lines]`: the form of the question file; by default both.
 */
import { spawnSync } from 'node:child_process'
import { mkdtempSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { generateTvqa, WHOLE } from '../test/dataset/import/generate.ts'

const child = new URL('../test/dataset/import/child.ts', import.meta.url).pathname
const measure = (...words: string[]) => {
  const { stderr, status } = spawnSync(process.execPath, [...process.execArgv, child, ...words], { encoding: 'utf8' })
  if (status !== 0) throw new Error(stderr)
  return JSON.parse(stderr.trim().split('\n').at(-1) as string) as { seconds: number; peakMiB: number }
}

const given = process.argv[2]
for (const form of given === undefined ? (['lines', 'array'] as const) : [given as 'lines' | 'array']) {
  const folder = mkdtempSync(join(tmpdir(), 'showrunner-import-'))
  try {
    const { inputs, rows, kept } = await generateTvqa(join(folder, 'raw'), WHOLE, form)
    const megabytes = Math.round(inputs.reduce((sum, path) => sum + statSync(path).size, 0) / 1e6)
    const out = join(folder, 'imported')
    const imported = measure('import', 'dataset', 'import', ...inputs, '--out', out)
    console.log(JSON.stringify({ what: 'import', form, rows, kept, megabytes, ...imported }))
    console.log(JSON.stringify({ what: 'open', form, rows, kept, ...measure('open', out) }))
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}
