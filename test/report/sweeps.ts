/** A made-up comparison of three step budgets: 60 questions about 12 episodes, whose outcomes follow from their numbers. */
import type { Outcome } from '../../src/report/outcome.ts'
import type { Sweep } from '../../src/report/sweep.ts'
import { outcome } from './outcomes.ts'

/** Right at one turn: every third question; at two: every second; at three: the same, and one question more. */
const rightAt = [(i: number) => i % 3 === 0, (i: number) => i % 2 === 0, (i: number) => i % 2 === 0 || i === 7]

export function madeSweep(changes: Partial<Sweep> = {}): { sweep: Sweep; outcomes: Outcome[][] } {
  const qids = Array.from({ length: 60 }, (_, i) => `q${i}`)
  const sweep: Sweep = {
    name: 'made',
    seed: 1,
    varied: [
      { setting: 'policy', values: ['m'] },
      { setting: 'maxTurns', values: [1, 2, 3] },
    ],
    baseline: { policy: 'm', maxTurns: 1 },
    questions: { dataset: 'data', split: null, qids, of: 80 },
    setting: { system: 'longVideoAgent' },
    prices: { master: null, grounding: null, vision: null },
    cells: [1, 2, 3].map((maxTurns) => ({
      settings: { policy: 'm', maxTurns },
      directory: `cells/${maxTurns}`,
      ceiling: false,
    })),
    ...changes,
  }
  const outcomes = rightAt.map((right, cell) =>
    qids.map((qid, i) =>
      outcome('ga', {
        qid,
        id: `0/${qid}/0`,
        episodeId: `e${Math.floor(i / 5)}`,
        correct: right(i),
        failedOutside: cell === 1 && i === 1,
        failure: cell === 1 && i === 1 ? 'http://127.0.0.1:9 cannot be reached' : null,
        turns: cell + 1,
        wellFormed: cell + 1,
      }),
    ),
  )
  return { sweep, outcomes }
}
