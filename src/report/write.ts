/**
 * Writes `report.html` into a run's folder, from its `summary.json`, or from its stored trajectories where there is no summary.
 */
import { readFile, rename, writeFile } from 'node:fs/promises'
import { basename, join, resolve } from 'node:path'
import { readTrajectories } from '../trajectory/read.ts'
import type { FailureKind, Result } from '../types.ts'
import { reportPage } from './html.ts'
import { measure, type Run, trainingCurve } from './summarize.ts'
import { type Summary, summary } from './summary.ts'

/** The path of the page. Fails when the folder has neither a summary nor trajectories, or the summary is not one. */
export async function writeReport(directory: string): Promise<Result<string>> {
  const read = (await readSummary(join(directory, 'summary.json'))) ?? (await storedSummary(directory))
  if (!read.ok) return read
  const path = join(directory, 'report.html')
  try {
    await writeFile(`${path}.partial`, reportPage(read.value))
    await rename(`${path}.partial`, path)
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException
    const full = code === 'ENOSPC' || code === 'EDQUOT'
    const advice = full ? 'make room' : 'check the path and its permissions'
    return fail(full ? 'disk_full' : 'bad_file', `${path}: cannot write the report: ${message}; ${advice}`)
  }
  return { ok: true, value: path }
}

/** null when there is no such file. */
export async function readSummary(path: string): Promise<Result<Summary> | null> {
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null
    return fail('bad_file', `${path}: cannot be read: ${(error as Error).message}; check its permissions`)
  }
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch (error) {
    return fail('bad_file', `${path}: expected JSON: ${(error as Error).message}; run the command that wrote it again`)
  }
  const parsed = summary.safeParse(value)
  if (parsed.success) return { ok: true, value: parsed.data }
  const issue = parsed.error.issues[0]
  return fail(
    'bad_file',
    `${path}: ${issue?.path.join('.')}: ${issue?.message}; expected a summary of this version of Showrunner`,
  )
}

/** What the trajectories alone tell: how they went and the course of training. */
async function storedSummary(directory: string): Promise<Result<Summary>> {
  const stored = await readTrajectories(directory)
  if (!stored.ok) return stored
  const runs: (Run & { system: string; budget: { turns: number }; seed: string })[] = []
  // only what is counted, since a store may hold millions of turns with their texts
  for await (const { system, budget, seed, turns, ...row } of stored.value) {
    const { step, qid, episodeId, kind, correct, grounded, visited, reward, sampledTokens, seconds } = row
    const counted = { step, qid, episodeId, kind, correct, grounded, visited, reward, sampledTokens, seconds }
    runs.push({
      ...counted,
      system,
      budget,
      seed,
      turns: turns.map(({ action, wellFormed }) => ({ action, wellFormed })),
    })
  }
  const first = runs[0]
  if (!first) return fail('missing_file', `${directory}: no trajectories are stored yet; nothing to report`)
  const all = measure(runs)
  const percent = (share: number) => `${(share * 100).toFixed(1)} %`
  return {
    ok: true,
    value: {
      name: basename(resolve(directory)),
      seed: Number(first.seed.split('/')[0]),
      setting: {
        system: first.system,
        'step budget K': [...new Set(runs.map((run) => run.budget.turns))].sort((a, b) => a - b).join(', '),
        trajectories: all.n,
        questions: new Set(runs.map((run) => run.qid)).size,
        accuracy: `${percent(all.accuracy)} (95 % interval ${all.accuracyCi95.map(percent).join(' to ')})`,
        'right clip shown': percent(all.groundingAccuracy),
        'well-formed turns': percent(all.formatRate),
        'turns per trajectory': all.meanTurns.toFixed(2),
        'failed outside the policy': all.failures,
      },
      budgets: [],
      training: {
        steps: new Set(runs.map((run) => run.step)).size,
        rollouts: runs.length,
        sampledTokens: runs.reduce((sum, run) => sum + run.sampledTokens, 0),
        seconds: null,
        curve: trainingCurve(runs),
      },
    },
  }
}

function fail<T>(kind: FailureKind, message: string): Result<T> {
  return { ok: false, failure: { boundary: 'store', kind, message } }
}
