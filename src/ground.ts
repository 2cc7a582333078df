/**
 * `showrunner ground`: asks the grounding agent once per question, before any run, and keeps the answers in `agents.groundingCache`.
 * A second run asks what is missing or could not be asked before. It runs no system and scores nothing.
 */
import PQueue from 'p-queue'
import type { GroundingRow } from './agents/index.ts'
import { openGroundingWriter } from './agents/index.ts'
import type { RunConfig } from './config.ts'
import { openHelpers, openQuestions } from './open.ts'
import type { Progress } from './progress.ts'
import type { Failure, GroundingAgent, Result, Task } from './types.ts'

/** Questions by what came of them, those of earlier runs included. */
export type GroundingCounts = Record<GroundingRow['status'], number>

/** So many calls that fail one after another are an outage, and nothing more is asked. */
const OUTAGE = 20

export async function groundQuestions(
  config: RunConfig,
  progress: Progress,
  signal: AbortSignal,
): Promise<Result<GroundingCounts>> {
  const path = config.agents.groundingCache
  if (path === null)
    return stopped({
      boundary: 'config',
      kind: 'bad_request',
      message: 'agents.groundingCache: expected the file to write; add --set agents.groundingCache=grounding.jsonl',
    })
  const dataset = await openQuestions(config.dataset, progress, signal)
  if (!dataset.ok) return dataset
  const writer = await openGroundingWriter(path)
  if (!writer.ok) return writer
  const agents = await openHelpers(config, dataset.value)
  if (!agents.ok) return agents
  const { statuses, append } = writer.value
  const tasks = dataset.value.tasks().slice(0, config.dataset.limit ?? undefined)
  const missing = tasks.filter(({ question }) => (statuses.get(question.qid) ?? 'error') === 'error')
  const counts: GroundingCounts = { ok: 0, empty: 0, error: 0 }
  for (const { question } of tasks) {
    const status = statuses.get(question.qid)
    if (status !== undefined && status !== 'error') counts[status]++
  }
  progress.stage(`grounding into ${path}`, tasks.length)
  progress.to(tasks.length - missing.length)
  let failure: Failure | null = null
  let failedInARow = 0
  const queue = new PQueue({ concurrency: config.rollout.concurrency })
  try {
    await queue.addAll(
      missing.map((task) => async () => {
        if (failure !== null || signal.aborted) return
        const asked = await groundingRow(agents.value.grounding, task, signal)
        if (signal.aborted) return
        const written = await append(asked.row)
        if (!written.ok) failure = written.failure
        counts[asked.row.status]++
        failedInARow = asked.failure === null ? 0 : failedInARow + 1
        if (failedInARow === OUTAGE) failure = asked.failure
        progress.tick()
      }),
    )
  } finally {
    await writer.value.close()
    await agents.value.close()
  }
  const soFar = `${counts.ok + counts.empty} of ${tasks.length} questions are in ${path}; run the same command again to go on`
  if (failure !== null)
    return stopped({ ...(failure as Failure), message: `${(failure as Failure).message}; ${soFar}` })
  if (signal.aborted) return stopped({ boundary: 'grounding', kind: 'cancelled', message: `stopped: ${soFar}` })
  progress.done(`${counts.ok} questions have a clip, ${counts.empty} none, ${counts.error} could not be asked`)
  return { ok: true, value: counts }
}

async function groundingRow(
  agent: GroundingAgent,
  { episode, question }: Task,
  signal: AbortSignal,
): Promise<{ row: GroundingRow; failure: Failure | null }> {
  const answer = await agent.ground({ episode, question, visited: [] }, { signal })
  const about = { qid: question.qid, agent: agent.name }
  if (answer.ok)
    return { row: { ...about, status: 'ok', clip: answer.value.clipId, reason: answer.value.reason }, failure: null }
  const { kind, message } = answer.failure
  return kind === 'bad_response'
    ? { row: { ...about, status: 'empty', clip: null, reason: message }, failure: null }
    : { row: { ...about, status: 'error', clip: null, reason: message }, failure: answer.failure }
}

function stopped(failure: Failure): { ok: false; failure: Failure } {
  return { ok: false, failure }
}
