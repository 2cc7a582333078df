/**
 * Every number that is reported of a set of trajectories: what it is called, what it means in a sentence, and what one trajectory adds
 * to it. Tables, charts and hover texts take all three from here. A metric is sum(value) / sum(weight) over the trajectories to which
 * it applies; what failed outside the master stays in, as wrong.
 */
import type { Usage } from '../types.ts'
import type { Prices } from './options.ts'
import type { Outcome } from './outcome.ts'
import { bootstrapInterval, type Interval, shareInterval, type Weighted, wilson } from './statistics.ts'

export type Unit = 'share' | 'number' | 'tokens' | 'frames' | 'seconds' | 'usd' | 'iou'

export interface Metric {
  label: string
  unit: Unit
  definition: string
  /** null where it does not apply. A share of trajectories is 0 or 1 with weight 1. */
  of(outcome: Outcome, prices: Prices): { value: number; weight: number } | null
}

const each = (value: number) => ({ value, weight: 1 })
const bit = (holds: boolean | null) => (holds === null ? null : each(holds ? 1 : 0))
const recallAt = (least: number) => (outcome: Outcome) => bit(outcome.iou === null ? null : outcome.iou >= least)

const roles = ['master', 'grounding', 'vision'] as const
type Role = (typeof roles)[number]

/** One metric for each of the three: `callsMaster`, `callsGrounding`, `callsVision`. */
function perRole<Name extends string>(
  name: Name,
  label: string,
  unit: Unit,
  definition: string,
  of: (usage: Usage, price: Prices[Role]) => number,
) {
  const own = (role: Role): Metric => ({
    label: `${label}, ${role}`,
    unit,
    definition: `${definition}: the part of the ${role === 'master' ? 'master' : `${role} agent`}.`,
    of: ({ usage }, prices) => each(of(usage[role], prices[role])),
  })
  const entries = roles.map((role) => [`${name}${role[0]?.toUpperCase()}${role.slice(1)}`, own(role)])
  return Object.fromEntries(entries) as Record<`${Name}${Capitalize<Role>}`, Metric>
}

function dollars({ promptTokens, completionTokens, frames, costUsd }: Usage, price: Prices[Role]): number {
  if (price === null) return costUsd
  return (
    (promptTokens * price.promptUsdPerMillion + completionTokens * price.completionUsdPerMillion) / 1e6 +
    frames * price.usdPerFrame
  )
}

/** By key, in the order in which tables show them. */
export const metrics = {
  accuracy: {
    label: 'accuracy',
    unit: 'share',
    definition:
      'Questions answered with the right option, read strictly: the run ended with one well-marked label. Every question counts; one that failed counts as wrong.',
    of: (one) => bit(one.correct),
  },
  accuracyLenient: {
    label: 'lenient accuracy',
    unit: 'share',
    definition:
      'The same with a lenient reading of the last response: its first label, else the one option whose words it has. Never used for rewards.',
    of: (one) => bit(one.lenient),
  },
  groundingInitial: {
    label: 'right clip first',
    unit: 'share',
    definition: 'The clip with the evidence was in the first window shown: among the first w clips.',
    of: (one) => bit(one.groundedInitial),
  },
  groundingFinal: {
    label: 'right clip at the end',
    unit: 'share',
    definition: 'The clip with the evidence was in the window in view when the run ended.',
    of: (one) => bit(one.groundedFinal),
  },
  groundingAnyVisited: {
    label: 'right clip shown',
    unit: 'share',
    definition:
      'The clip with the evidence was among all clips shown. This is the grounding accuracy of the LongVideoAgent paper.',
    of: (one) => bit(one.groundedAny),
  },
  windowHits: {
    label: 'window hits',
    unit: 'share',
    definition: 'Of all windows that grounding showed: those that hold the clip with the evidence.',
    of: (one) => (one.windowHits === null || one.windows === 0 ? null : { value: one.windowHits, weight: one.windows }),
  },
  meanIou: {
    label: 'mIoU',
    unit: 'iou',
    definition:
      'Mean over questions of the overlap of the last window in view with the evidence, on the episode’s time: intersection over union. A clip is much longer than most evidence, so that even the right one scores low.',
    of: (one) => (one.iou === null ? null : each(one.iou)),
  },
  recallIou10: {
    label: 'R@IoU 0.1',
    unit: 'share',
    definition: 'Questions whose last window overlaps the evidence with an intersection over union of at least 0.1.',
    of: recallAt(0.1),
  },
  recallIou30: {
    label: 'R@IoU 0.3',
    unit: 'share',
    definition: 'Questions whose last window overlaps the evidence with an intersection over union of at least 0.3.',
    of: recallAt(0.3),
  },
  recallIou50: {
    label: 'R@IoU 0.5',
    unit: 'share',
    definition: 'Questions whose last window overlaps the evidence with an intersection over union of at least 0.5.',
    of: recallAt(0.5),
  },
  answered: {
    label: 'answered',
    unit: 'share',
    definition: 'Runs that ended with a valid answer, right or wrong.',
    of: (one) => bit(one.answered),
  },
  formatRate: {
    label: 'format',
    unit: 'share',
    definition:
      'Turns of the policy that are exactly what was asked for (one action, one structured output), after at most one reasoning block.',
    of: (one) => (one.turns === 0 ? null : { value: one.wellFormed, weight: one.turns }),
  },
  groundRate: {
    label: 'grounded',
    unit: 'share',
    definition: 'Runs in which the master asked the grounding agent at least once.',
    of: (one) => bit(one.grounds > 0),
  },
  lookRate: {
    label: 'looked',
    unit: 'share',
    definition: 'Runs in which the master asked the vision agent at least once.',
    of: (one) => bit(one.looks > 0),
  },
  regroundRate: {
    label: 'grounded again',
    unit: 'share',
    definition: 'Runs in which the master asked the grounding agent more than once.',
    of: (one) => bit(one.grounds > 1),
  },
  toolCalls: {
    label: 'tool calls',
    unit: 'number',
    definition: 'Requests to tools, agents and other roles, per question, in systems that have them.',
    of: ({ calls }) => {
      const counts = Object.values(calls)
      return counts.length === 0 ? null : each(counts.reduce((sum, count) => sum + count, 0))
    },
  },
  turns: {
    label: 'turns',
    unit: 'number',
    definition: 'Times that the master wrote, per question, the answer included.',
    of: (one) => each(one.turns),
  },
  calls: {
    label: 'model calls',
    unit: 'number',
    definition: 'Calls of the master and of all helpers per question. Calls answered from a cache are among them.',
    of: (one) => each(one.usage.total.calls),
  },
  sampledTokens: {
    label: 'tokens written',
    unit: 'tokens',
    definition: 'Tokens that the master sampled, per question.',
    of: (one) => each(one.sampledTokens),
  },
  tokens: {
    label: 'tokens',
    unit: 'tokens',
    definition:
      'Tokens read and written by the master and all helpers, per question. Prompts count each time they are read; embedded agents and answers from a cache count none.',
    of: (one) => each(one.usage.total.promptTokens + one.usage.total.completionTokens),
  },
  frames: {
    label: 'frames',
    unit: 'frames',
    definition: 'Pictures that agents looked at, per question.',
    of: (one) => each(one.usage.total.frames),
  },
  seconds: {
    label: 'seconds',
    unit: 'seconds',
    definition:
      'Wall-clock seconds from start to end of one run. Many run at once and share the machine, so this depends on how many; model calls are the steadier number.',
    of: (one) => each(one.seconds),
  },
  usd: {
    label: 'US dollars',
    unit: 'usd',
    definition:
      'Cost of the master and all helpers per question, by the prices in the configuration; of frozen roles and further agents as it was counted.',
    of: ({ usage }, prices) =>
      each(roles.reduce((sum, role) => sum + dollars(usage[role], prices[role]), usage.others.costUsd)),
  },
  ...perRole('calls', 'model calls', 'number', 'Calls per question', ({ calls }) => calls),
  ...perRole(
    'tokens',
    'tokens',
    'tokens',
    'Tokens read and written per question',
    ({ promptTokens, completionTokens }) => promptTokens + completionTokens,
  ),
  ...perRole(
    'seconds',
    'seconds',
    'seconds',
    'Wall-clock seconds per question spent waiting',
    ({ seconds }) => seconds,
  ),
  ...perRole('usd', 'US dollars', 'usd', 'Cost per question', dollars),
  failed: {
    label: 'failed',
    unit: 'share',
    definition:
      'Runs that failed outside the master: an agent or the master could not be reached, or time ran out. They count as wrong everywhere.',
    of: (one) => bit(one.failedOutside),
  },
} as const satisfies Record<string, Metric>

export type MetricKey = keyof typeof metrics
export const metricKeys = Object.keys(metrics) as MetricKey[]

export interface Measured {
  value: number
  /** 95 %, by episode; null for fewer than two episodes. */
  ci95: Interval | null
  /** Trajectories to which it applies. */
  n: number
}

/** null when it applies to none of the trajectories. */
export function measured(key: MetricKey, outcomes: readonly Outcome[], prices: Prices): Measured | null {
  const metric: Metric = metrics[key]
  const parts: Weighted[] = outcomes.flatMap((outcome) => {
    const part = metric.of(outcome, prices)
    return part === null ? [] : [{ cluster: outcome.episodeId, ...part }]
  })
  const weight = parts.reduce((sum, part) => sum + part.weight, 0)
  if (weight === 0) return null
  const value = parts.reduce((sum, part) => sum + part.value, 0) / weight
  return { value, ci95: intervalOf(metric, value, parts), n: parts.length }
}

function intervalOf({ unit }: Metric, value: number, parts: readonly Weighted[]): Interval | null {
  if (unit !== 'share') return bootstrapInterval(parts)
  if (parts.every((part) => part.weight === 1)) return shareInterval(parts)
  // where nothing ever failed, or succeeded, a bootstrap cannot draw that it might
  return value === 0 || value === 1 ? wilson(value * parts.length, parts.length) : bootstrapInterval(parts)
}

export type Measures = Partial<Record<MetricKey, Measured>>

/** Every metric that applies. */
export function measureAll(outcomes: readonly Outcome[], prices: Prices): Measures {
  return Object.fromEntries(
    metricKeys.flatMap((key) => {
      const one = measured(key, outcomes, prices)
      return one === null ? [] : [[key, one]]
    }),
  )
}
