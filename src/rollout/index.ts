/**
 * Runs a system over tasks: G trajectories per task, many at once, groups in the order of the tasks. Seeds come from coordinates
 * (run seed, step, qid, sample), so a trajectory does not depend on what runs beside it or on when a run was resumed.
 * Does not score, store or train.
 */
import PQueue from 'p-queue'
import seedrandom from 'seedrandom'
import type { Agents, Budget, Policy, System, Task, TrajectoryGroup } from '../types.ts'
import { type Cutoff, startCutoff } from './cutoff.ts'
import type { RolloutOptions } from './options.ts'
import type { FrozenRoles } from './speakers.ts'
import { runTrajectory } from './trajectory.ts'

export interface RolloutRun {
  system: System
  policy: Policy
  /** Who plays the roles that the policy does not play; absent: the policy plays all. */
  roles?: FrozenRoles
  agents: Agents
  options: RolloutOptions
  /** Training step, or any number that tells this pass over the tasks from others. */
  step: number
  runSeed: string | number
  /** Default: that of the tasks. */
  order?: 'tasks' | 'completion'
  /** Cancels: running trajectories end with stop reason `cancelled`, groups not begun are left out. */
  signal?: AbortSignal
}

/** All groups at once, in the order of `tasks`; for many tasks use `rolloutStream`. */
export async function rollout(tasks: Iterable<Task>, run: RolloutRun): Promise<TrajectoryGroup[]> {
  const groups: TrajectoryGroup[] = []
  for await (const group of rolloutStream(tasks, run)) groups.push(group)
  return groups
}

/**
 * Groups as they complete, in the order of `tasks` or, with `order: 'completion'`, each as soon as it is done: then whoever stores them
 * loses no more to a crash than what was running. Begins no more groups than keep the queue busy, so memory does not grow with the
 * number of tasks. A caller that stops iterating cancels the rest. Throws when two tasks have the same qid: their ids would be the same.
 */
export async function* rolloutStream(tasks: Iterable<Task>, run: RolloutRun): AsyncGenerator<TrajectoryGroup> {
  const { options, signal } = run
  const queue = new PQueue({ concurrency: options.concurrency })
  // More than the queue needs, so that one slow trajectory at the head does not idle the others.
  const mostGroups = 4 * Math.ceil(options.concurrency / options.groupSize) + 1
  const running = new Set<Cutoff>()
  let cancelled = signal?.aborted ?? false
  const cancel = (): void => {
    cancelled = true
    for (const cutoff of running) cutoff.cancel()
  }
  signal?.addEventListener('abort', cancel)

  const startGroup = async (task: Task): Promise<TrajectoryGroup> => {
    const id = `${run.step}/${task.question.qid}`
    const budget = budgetFor(task, run)
    const samples = Array.from({ length: options.groupSize }, (_, sample) =>
      queue.add(async () => {
        // A turn of the event loop each: begun together, hundreds would take turns at every step, and the first question would leave last.
        await new Promise((resolve) => setImmediate(resolve))
        const cutoff = startCutoff(`${id}/${sample}`, options.budget.deadlineSeconds)
        running.add(cutoff)
        if (cancelled) cutoff.cancel()
        try {
          const { system, policy, roles = {}, agents, step } = run
          return await runTrajectory({
            task,
            system,
            policy,
            roles,
            agents,
            budget,
            temperature: options.temperature,
            step,
            sample,
            id: `${id}/${sample}`,
            seed: `${run.runSeed}/${id}/${sample}`,
            cutoff,
          })
        } finally {
          running.delete(cutoff)
        }
      }),
    )
    return { id, step: run.step, task, trajectories: await Promise.all(samples) }
  }

  const remaining = tasks[Symbol.iterator]()
  const seen = new Set<string>()
  const begun = new Set<Promise<TrajectoryGroup>>()
  const byCompletion = run.order === 'completion'
  const done: Promise<TrajectoryGroup>[] = []
  let wake = (): void => {}
  const begin = (): void => {
    while (begun.size < mostGroups && !cancelled) {
      const next = remaining.next()
      if (next.done) return
      const { qid } = next.value.question
      if (seen.has(qid)) throw new Error(`rollout: question ${qid} occurs twice among the tasks of step ${run.step}`)
      seen.add(qid)
      const group = startGroup(next.value)
      begun.add(group)
      const settle = (): void => {
        if (byCompletion) done.push(group)
        wake()
      }
      group.then(settle, settle) // a failure is reported when its turn comes
    }
  }

  try {
    begin()
    while (begun.size > 0) {
      if (byCompletion && done.length === 0)
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      const group = (byCompletion ? done.shift() : begun.values().next().value) as Promise<TrajectoryGroup>
      begun.delete(group)
      yield await group
      begin()
    }
  } finally {
    cancel()
    signal?.removeEventListener('abort', cancel)
    await Promise.allSettled(begun)
  }
}

export type { FrozenRoles } from './speakers.ts'

/** The budget of a task; a K drawn from a list depends on seed, step and question only, so a group shares it. */
function budgetFor(task: Task, { options, runSeed, step, system }: RolloutRun): Budget {
  const { turns: given, ...bounds } = options.budget
  const turns = given ?? system.turns
  if (typeof turns === 'number') return { turns, ...bounds }
  const draw = seedrandom(`${runSeed}/${step}/${task.question.qid}/turns`)()
  return { turns: turns[Math.floor(draw * turns.length)] as number, ...bounds }
}
