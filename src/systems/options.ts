/** Options of the systems: defaults live here and only here. A new system adds its schema to `systemsOptions`. */
import { z } from 'zod'

export const longVideoAgentOptions = z
  .object({
    name: z.literal('longVideoAgent').default('longVideoAgent').describe('LongVideoAgent: a master that calls tools.'),
    dialect: z
      .enum(['paper', 'released'])
      .default('paper')
      .describe(
        'Names of tags, in what the master is told and in what comes back: those of the paper, or those of the released code and checkpoints (<search>, <New_clip>). What the master writes is read in both.',
      ),
    prompt: z
      .enum(['brief', 'instructed'])
      .default('brief')
      .describe(
        'First message: `brief` has the question and options only (small masters that learnt the format), `instructed` explains the task first.',
      ),
    actionChoice: z
      .enum(['earliest', 'priority'])
      .default('earliest')
      .describe(
        'Which of several actions in one turn is carried out: the earliest complete one, or, as in the released code, the first visual query anywhere, else grounding, else an answer.',
      ),
    stopAtAction: z
      .boolean()
      .default(true)
      .describe(
        'End generation at the tag that completes an action. false: the master writes on, and what follows the action is left out of the transcript.',
      ),
    onInvalid: z
      .enum(['tell', 'endInTraining'])
      .default('tell')
      .describe(
        'A turn without an action: `tell` the master the rules and go on, or, as in the released code, do so everywhere but in training, where it ends the run.',
      ),
    transcript: z
      .enum(['chat', 'single'])
      .default('chat')
      .describe(
        "How the history is sent: `chat` as alternating messages, `single` as one user message. The master's own words are in both.",
      ),
    vision: z.boolean().default(true).describe('Visual queries are an action; false takes them away (ablation).'),
    showTurnsLeft: z.boolean().default(true).describe('End every message to the master with <turns_left_N>.'),
    forceAnswerNotice: z
      .enum(['never', 'evaluation', 'always'])
      .default('evaluation')
      .describe('On the last turn, tell the master to answer now: never, everywhere but in training, or always.'),
    extraGeneration: z
      .enum(['never', 'training'])
      .default('never')
      .describe(
        'One generation more than K in training, as in the released code; turn K may then still use a tool. Budgets in reports say K.',
      ),
    onAgentFailure: z
      .enum(['observe', 'stop'])
      .default('stop')
      .describe(
        'When an agent cannot be reached or cannot read its video: `stop` ends the trajectory with stop reason agent_error, which training leaves out; `observe` tells the master and goes on.',
      ),
    initialGrounding: z
      .enum(['none', 'agent', 'cache', 'random'])
      .default('agent')
      .describe(
        'Where the clip of the first message comes from, which is no turn: the grounding agent, agents.groundingCache, chance (the same clip for every run of a question), or there is none.',
      ),
    onCacheMiss: z
      .enum(['agent', 'random'])
      .default('agent')
      .describe('initialGrounding cache: who chooses where the cache has no clip for a question.'),
  })
  .strict()

export const wholeEpisodeOptions = z
  .object({
    name: z
      .literal('wholeEpisode')
      .describe('Baseline without tools: one call with the subtitles of the whole episode.'),
    clipsSeen: z
      .number()
      .int()
      .min(0)
      .default(0)
      .describe(
        'Evenly spaced clips whose pictures the vision agent describes for the same call; 0: subtitles only. The published baseline has 16.',
      ),
  })
  .strict()

export const videoHvAgentOptions = z
  .object({
    name: z
      .literal('videoHvAgent')
      .describe('VideoHV-Agent: hypotheses about the options, a clue that tells them apart, and its verification.'),
    prompt: z
      .enum(['brief', 'instructed'])
      .default('instructed')
      .describe(
        'Prompts of the roles: `instructed` explains task and format, `brief` has what the role is given only (small policies that learnt the format).',
      ),
    frames: z
      .number()
      .int()
      .min(1)
      .default(180)
      .describe('Frames that are captioned, evenly spaced, at most one per second; several videos share them.'),
    subtitles: z.boolean().default(true).describe('Dialogue stands among the captions; false: pictures only.'),
    summaryParts: z
      .number()
      .int()
      .min(1)
      .default(4)
      .describe('Parts of the video that are summarised each before the whole is.'),
    summaryWords: z
      .number()
      .int()
      .min(1)
      .default(100)
      .describe('Longest summary, of a part and of the whole, in words.'),
    distinctness: z
      .number()
      .min(0)
      .max(1)
      .default(0.5)
      .describe('Hypotheses that the judge scores lower are made again, to be told apart, and judged again.'),
    verifierRounds: z
      .number()
      .int()
      .min(0)
      .default(2)
      .describe('How often the verifier may go on, by looking or after PARTIAL, before its verdict is demanded.'),
    framesPerLook: z.number().int().min(1).default(5).describe('Most frames that the verifier has looked at at once.'),
    repairs: z
      .number()
      .int()
      .min(0)
      .default(1)
      .describe('Further tries of a role whose output cannot be read; after them the round is over.'),
  })
  .strict()

export const symphonyOptions = z
  .object({
    name: z
      .literal('symphony')
      .describe('Symphony: a planner that asks a grounding, a subtitle and a perception agent, and a reflection.'),
    prompt: z
      .enum(['brief', 'instructed'])
      .default('instructed')
      .describe(
        'Prompts of the roles: `instructed` explains task and format, `brief` has what the role is given only (small policies that learnt the format).',
      ),
    reflections: z
      .number()
      .int()
      .min(0)
      .default(1)
      .describe('How many answers are reflected on; those after them stand as they are.'),
    segmentSeconds: z
      .number()
      .positive()
      .default(30)
      .describe('Length of a segment that is scored. 30: as the released code does, whose comments say a minute.'),
    framesPerSegment: z.number().int().min(1).default(15).describe('Pictures that a segment is scored by.'),
    leastRelevance: z
      .number()
      .int()
      .min(1)
      .max(4)
      .default(2)
      .describe(
        'The planner is told of segments that score so much: 4 enough to answer, 3 relevant, 2 indirectly, 1 not.',
      ),
    retrievedFrames: z.number().int().min(1).default(15).describe('Frames that grounding by a cue finds.'),
    subtitleLines: z.number().int().min(1).default(40).describe('Most lines that the subtitle agent returns.'),
    perceptionRounds: z
      .number()
      .int()
      .min(1)
      .default(6)
      .describe('Outputs of the perception agent at one call; the last one has to be its report.'),
    inspectFrames: z
      .number()
      .int()
      .min(1)
      .default(70)
      .describe('frame_inspect: evenly spaced frames of the range, at most one per second.'),
    inspectRetrieved: z
      .number()
      .int()
      .min(1)
      .default(20)
      .describe('frame_inspect: frames of the range most like the cue.'),
    summaryFrames: z.number().int().min(1).default(30).describe('interval_summary: evenly spaced frames of the range.'),
    associateFrames: z.number().int().min(1).default(10).describe('frame_associate: frames most like each cue.'),
    repairs: z
      .number()
      .int()
      .min(0)
      .default(5)
      .describe(
        'Further tries of a role whose output cannot be read. 5: the released code gives its agents six tries. After them a planner has used up its cycle, and words of an agent are taken as they are.',
      ),
  })
  .strict()

export const systemsOptions = z.discriminatedUnion('name', [
  longVideoAgentOptions,
  wholeEpisodeOptions,
  videoHvAgentOptions,
  symphonyOptions,
])

/** What a system is run for: some options hold for one of them only. */
export type Purpose = 'training' | 'evaluation'

export type LongVideoAgentOptions = z.output<typeof longVideoAgentOptions>
export type WholeEpisodeOptions = z.output<typeof wholeEpisodeOptions>
export type VideoHvAgentOptions = z.output<typeof videoHvAgentOptions>
export type SymphonyOptions = z.output<typeof symphonyOptions>
export type SystemsOptions = z.output<typeof systemsOptions>
