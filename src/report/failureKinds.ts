/**
 * Where a wrong trajectory went wrong, from what is stored: the first of these kinds that holds. It says what happened, not why: that
 * is for a person to judge in the viewer.
 */
import type { Outcome } from './outcome.ts'

export interface FailureClass {
  key: string
  label: string
  definition: string
  holds(outcome: Outcome): boolean
}

/** In the order in which they are asked. The last one holds for every wrong trajectory. */
export const failureKinds: readonly FailureClass[] = [
  {
    key: 'outside',
    label: 'failed outside the master',
    definition:
      'An agent or the master could not be reached, or time ran out: the trajectory has no reward and counts as wrong.',
    holds: (one) => one.failedOutside,
  },
  {
    key: 'noAnswer',
    label: 'no answer',
    definition: 'The trajectory ended without a valid answer: turns, tokens or context ran out.',
    holds: (one) => !one.answered,
  },
  {
    key: 'neverFound',
    label: 'right clip never shown',
    definition: 'Answered wrong, and the clip with the evidence was never among the clips shown.',
    holds: (one) => one.groundedAny === false,
  },
  {
    key: 'leftClip',
    label: 'left the right clip',
    definition: 'Answered wrong after the clip with the evidence was shown and then another one took its place.',
    holds: (one) => one.groundedFinal === false,
  },
  {
    key: 'neverLooked',
    label: 'right clip, did not look',
    definition:
      'Answered wrong with the right clip in view, to a question about what is seen, without asking the vision agent.',
    holds: (one) => one.kind !== 'dialogue' && one.kind !== null && one.looks === 0,
  },
  {
    key: 'looked',
    label: 'right clip, looked, still wrong',
    definition:
      'Answered wrong with the right clip in view after asking the vision agent: it saw, asked or concluded wrongly.',
    holds: (one) => one.looks > 0,
  },
  {
    key: 'read',
    label: 'right clip, read, still wrong',
    definition:
      'Answered wrong with the right clip in view and without a look: what was said there was not understood.',
    holds: () => true,
  },
]

/** null for a right trajectory. */
export function failureKindOf(outcome: Outcome): FailureClass | null {
  return outcome.correct ? null : (failureKinds.find((kind) => kind.holds(outcome)) ?? null)
}
