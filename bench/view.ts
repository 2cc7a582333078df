/**
 * How quick the viewer is on a large run: `npm run bench -- view [trajectories] [group size]`, 100,000 and 8 by default.
 *
 * Writes a run through the real store, starts the viewer on it as users do, and measures with a real HTTP client: time to the first page,
 * to the whole index, for filters and searches, and the memory of the viewer's process. One JSON line per number.
 */
import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { createProgress } from '../src/progress.ts'
import { writeMadeRun } from '../test/view/madeRun.ts'

const trajectories = Number(process.argv[2] ?? 100_000)
const groupSize = Number(process.argv[3] ?? 8)

const directory = join(mkdtempSync(join(tmpdir(), 'view-bench-')), 'made')
try {
  const progress = createProgress()
  progress.stage('writing a run', Math.ceil(trajectories / groupSize))
  const run = { trajectories, groupSize, groupsPerStep: 16, reasoningWords: 60 }
  await writeMadeRun(directory, run, { onGroup: () => progress.tick() })
  progress.done()
  const bytes = statSync(join(directory, 'trajectories.arrows')).size
  tell({ trajectories, groupSize, megabytes: Math.round(bytes / 1e6) })
  await measure()
} finally {
  rmSync(join(directory, '..'), { recursive: true, force: true })
}

async function measure(): Promise<void> {
  const started = performance.now()
  const viewer = startViewer()
  try {
    const base = await urlOf(viewer)
    tell({ what: 'listening', seconds: since(started) })
    await page(base, '/')
    tell({ what: 'first page', seconds: since(started) })
    const many = trajectories.toLocaleString('en-US')
    while (!(await page(base, '/')).text.includes(`<strong>${many}</strong>`))
      await new Promise((soon) => setTimeout(soon, 20))
    tell({ what: 'whole index', seconds: since(started), megabytes: memory(viewer) })
    for (const path of [
      '/',
      '/?page=1500',
      '/?outcome=wrong',
      '/?stop=turn_limit&turns=5',
      '/?least=1&kind=visual&page=100',
      '/?version=made@77',
      '/t/12/q3/0?gold=1',
      '/tokens/12/q3/0',
      '/tokens/781/q3/0',
      '/t/781/q3/0?q=kite',
      '/training',
    ]) {
      const times: number[] = []
      for (let i = 0; i < 5; i++) times.push((await page(base, path)).milliseconds)
      tell({ what: path, firstMs: times[0], medianMs: times.sort((a, b) => a - b)[2] })
    }
    for (const words of ['zanzibar', 'kite 7', 'nowhere']) await search(base, words)
    tell({ what: 'afterwards', megabytes: memory(viewer) })
  } finally {
    viewer.kill('SIGTERM')
  }
}

/** To the first answer, and until all of the run is searched. */
async function search(base: string, words: string): Promise<void> {
  const path = `/?q=${encodeURIComponent(words)}`
  const began = performance.now()
  const first = await page(base, path)
  let last = first
  while (last.text.includes('searching')) last = await page(base, path)
  tell({ what: `search ${words}`, firstMs: first.milliseconds, allSeconds: since(began) })
}

function startViewer(): ChildProcess {
  const root = fileURLToPath(new URL('..', import.meta.url))
  const words = ['--import', 'tsx', join(root, 'src/cli.ts'), 'view', directory]
  return spawn(process.execPath, words, { cwd: root, stdio: ['ignore', 'ignore', 'pipe'] })
}

async function urlOf({ stderr }: ChildProcess): Promise<string> {
  if (stderr === null) throw new Error('the viewer has no standard error')
  const lines = createInterface({ input: stderr })
  for await (const line of lines) {
    const url = /http:\S+/.exec(line)?.[0]
    if (url !== undefined) {
      stderr.resume()
      return url
    }
  }
  throw new Error('the viewer ended without telling its address')
}

async function page(base: string, path: string): Promise<{ text: string; milliseconds: number }> {
  const began = performance.now()
  const answer = await fetch(base + path)
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`)
  return { text, milliseconds: Math.round(performance.now() - began) }
}

/** Resident memory and its highest so far, from Linux. */
function memory({ pid }: ChildProcess): { resident: number; highest: number } | null {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    const of = (name: string) => Math.round(Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status)?.[1]) / 1000)
    return { resident: of('VmRSS'), highest: of('VmHWM') }
  } catch {
    return null
  }
}

function since(began: number): number {
  return Number(((performance.now() - began) / 1000).toFixed(2))
}

function tell(record: Record<string, unknown>): void {
  console.log(JSON.stringify(record))
}
