/**
 * What a run found, as it stands in `summary.json`: the contract between whoever measures and whoever draws. Shares and accuracies
 * are between 0 and 1, seconds are wall clock. Computes nothing.
 */
import { z } from 'zod'
import { metricKeys } from './metrics.ts'

const share = z.number().min(0).max(1)
const count = z.number().int().min(0)
const interval = z.tuple([z.number(), z.number()])

/** Stands in everything that is reported of runs with `agents.oracleBoxes`. */
export const ORACLE_NOTICE =
  'Oracle: the vision agent was given the boxes that annotators drew around what question and right answer name. Compare with such runs only.'

export const measurement = z.object({
  n: count.describe('Trajectories; those that failed outside the policy among them, as wrong.'),
  accuracy: share,
  accuracyCi95: interval.describe('95 % interval; questions about one episode depend on each other.'),
  groundingAccuracy: share.describe('The clip with the evidence was among the clips shown.'),
  formatRate: share.describe('Turns that are exactly one well-formed action.'),
  meanTurns: z.number(),
  meanTokens: z.number().describe('Tokens that the master sampled, per trajectory.'),
  secondsPerQuestion: z.number().describe('From start to end of one trajectory, of which many run at once.'),
  failures: count.describe('Trajectories that failed outside the policy.'),
  failed: z
    .array(z.object({ qid: z.string(), message: z.string() }))
    .optional()
    .describe('Which those are, and why; absent where there are none.'),
  metrics: z
    .partialRecord(
      z.enum(metricKeys),
      z.object({ value: z.number(), ci95: interval.nullable(), n: count.describe('Trajectories that it applies to.') }),
    )
    .default({})
    .describe(
      'Every metric that applies, with its 95 % interval; what each means stands in metrics.ts and in the report.',
    ),
  oracle: z.string().optional().describe('Said where the vision agent was told about the right answer.'),
})

const modes = z.object({ greedy: measurement, sampled: measurement.describe('Temperature 1.') })

const difference = z
  .object({ n: count, difference: z.number(), ci95: interval })
  .nullable()
  .describe('After minus before on the same questions; null for fewer than two episodes.')

/** Share of trajectories by question kind and by what the master did: g grounds, v looks, a answers, x is malformed. */
const patterns = z.record(z.string(), z.record(z.string(), share))

const regrounding = z.object({
  wrongFirstClip: count.describe('Trajectories whose first clip was not the one with the evidence.'),
  groundedAgain: share.describe('Of these: grounded again before the answer.'),
  found: share.describe('Of these: were shown the right clip in the end.'),
  accuracy: share.describe('Of these: answered right.'),
})

export const summary = z.object({
  name: z.string(),
  seed: z.number(),
  configHash: z.string().optional().describe('Of the configuration that made it.'),
  setting: z
    .record(z.string(), z.union([z.string(), z.number()]))
    .default({})
    .describe('What was run, for the reader of the report.'),
  heldOut: z
    .object({
      before: modes,
      after: modes,
      difference: z.object({ greedy: difference, sampled: difference }).optional(),
    })
    .optional(),
  unmetAnswers: z
    .object({ n: count, before: share, after: share })
    .optional()
    .describe('Greedy accuracy on the held-out questions whose right answer never was an answer in training.'),
  budgets: z
    .array(
      measurement
        .pick({
          n: true,
          accuracy: true,
          accuracyCi95: true,
          meanTurns: true,
          meanTokens: true,
          secondsPerQuestion: true,
        })
        .extend({
          maxTurns: count.describe('K: how often the master could write.'),
          oracleAccuracy: share
            .nullable()
            .describe('What a scripted oracle reaches with the same agents; null: not measured.'),
        }),
    )
    .default([])
    .describe('Greedy, one point per K.'),
  actionPatterns: z
    .object({ before: patterns.optional(), after: patterns })
    .optional()
    .describe('Greedy, on the held-out questions.'),
  regrounding: z.object({ before: regrounding.nullable().optional(), after: regrounding.nullable() }).optional(),
  asked: z
    .object({
      url: z.string(),
      question: z.string(),
      turns: z.array(z.string()).describe('What the served master wrote, turn by turn.'),
      answer: z.string().nullable(),
      correct: z.boolean(),
    })
    .optional()
    .describe('One held-out question, put to the endpoint through the openai client.'),
  training: z
    .object({
      steps: count,
      rollouts: count,
      sampledTokens: count,
      seconds: z.number().nullable().describe('null: not known.'),
      curve: z
        .array(z.object({ step: count, reward: z.number(), accuracy: share }))
        .default([])
        .describe('Means over the trajectories of each step, sampled at the temperature of training.'),
    })
    .optional(),
})

export type Measurement = z.output<typeof measurement>
export type Patterns = z.output<typeof patterns>
export type Regrounding = z.output<typeof regrounding>
export type Summary = z.output<typeof summary>
