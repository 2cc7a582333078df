/** Options of the systems: defaults live here and only here. */
import { z } from 'zod'

export const systemsOptions = z
  .object({
    name: z.literal('longVideoAgent').default('longVideoAgent').describe('The published system to run.'),
    prompt: z
      .enum(['brief', 'instructed'])
      .default('brief')
      .describe(
        'First message: `brief` has the question and options only (small masters that learnt the format), `instructed` explains the task first.',
      ),
    showTurnsLeft: z.boolean().default(true).describe('End every message to the master with <turns_left_N>.'),
    forceAnswerNotice: z.boolean().default(false).describe('On the last turn, tell the master to answer now.'),
    onAgentFailure: z
      .enum(['observe', 'stop'])
      .default('stop')
      .describe(
        'When an agent cannot be reached or cannot read its video: `stop` ends the trajectory with stop reason agent_error, which training leaves out; `observe` tells the master and goes on.',
      ),
    initialGrounding: z
      .enum(['none', 'agent'])
      .default('none')
      .describe('`agent`: ground once before turn 1 and show the clip in the first message; not counted as a turn.'),
  })
  .strict()

export type SystemsOptions = z.infer<typeof systemsOptions>
