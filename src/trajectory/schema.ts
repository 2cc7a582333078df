/**
 * What the store holds: every column, its type and its meaning, and the way there and back. Nothing here touches a file.
 *
 * Two tables, one record batch per group in each. `trajectories` is what evaluation and viewing need, without token ids; `segments` is
 * what a trainer needs. They join on `trajectory_id`. `turns` is a list of structs (not JSON), so that pyarrow, polars and DuckDB can
 * query it. Column descriptions are also in the files, as field metadata.
 */
import {
  Bool,
  type DataType,
  Field,
  Float32,
  Float64,
  Int32,
  List,
  makeData,
  RecordBatch,
  type Schema,
  Struct,
  Uint8,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import type {
  Action,
  Budget,
  Failure,
  InitialGrounding,
  QuestionKind,
  Reward,
  ScoredGroup,
  ScoredTrajectory,
  SeenFrame,
  Segment,
  StopReason,
  Trajectory,
  TrajectoryUsage,
  Turn,
  Usage,
} from '../types.ts'
import { batchOf, type Column, plainRows, schemaOf } from './columns.ts'

/** Raised when a column changes its name, type or meaning. */
const STORE_VERSION = '1'

// ---------------------------------------------------------------- trajectories

/** One run as it is stored. */
export interface TrajectoryRow {
  step: number
  groupId: string
  trajectoryId: string
  sample: number
  seed: string
  system: string
  policyVersion: string
  show: string
  episodeId: string
  qid: string
  question: string
  options: string[]
  kind: QuestionKind | null
  budget: Budget
  turns: Turn[]
  answer: number | null
  correct: boolean
  grounded: boolean
  visited: string[]
  initial?: InitialGrounding | null
  stopReason: StopReason
  failure: Failure | null
  reward: Reward | null
  advantage: number | null
  sampledTokens: number
  segmentCount: number
  usage: TrajectoryUsage
  seconds: number
  /** Names of the videos, where there are several. */
  videos?: string[]
  categories?: Readonly<Record<string, string>>
  answerText?: string
  measures?: Readonly<Record<string, number>>
}

/** What a row is made from. */
interface Scored {
  groupId: string
  scored: ScoredTrajectory
  advantage: number | null
}

const text = new Utf8()
const integer = new Int32()
const number = new Float64()
const flag = new Bool()
const list = (of: DataType): List => new List(new Field('item', of, false))
const struct = (fields: Record<string, DataType>, nullable: readonly string[] = []): Struct =>
  new Struct(Object.entries(fields).map(([name, type]) => new Field(name, type, nullable.includes(name))))

const usageFields = {
  calls: integer,
  prompt_tokens: integer,
  completion_tokens: integer,
  frames: integer,
  seconds: number,
  cost_usd: number,
  cached: integer,
}
const usageType = struct(usageFields)
/** What several columns say by name. */
const namedNumbers = list(struct({ name: text, value: number }))
const namedTexts = list(struct({ name: text, value: text }))
const turnType = struct(
  {
    response: text,
    action: text,
    query: text,
    option: integer,
    problem: text,
    well_formed: flag,
    observation: text,
    failure_boundary: text,
    failure_kind: text,
    failure_message: text,
    clip_id: text,
    frames: list(
      struct({ clip_id: text, time: number, path: text, at: number, width: integer, hash: text }, [
        'path',
        'at',
        'width',
        'hash',
      ]),
    ),
    role: text,
    frozen: flag,
    tool: text,
    output: text,
  },
  [
    'query',
    'option',
    'problem',
    'observation',
    'failure_boundary',
    'failure_kind',
    'failure_message',
    'clip_id',
    'role',
    'frozen',
    'tool',
    'output',
  ],
)

const run = (read: (trajectory: Trajectory) => unknown) => (row: Scored) => read(row.scored.trajectory)
const reward = (part: keyof Reward) => (row: Scored) => row.scored.reward?.[part] ?? null

const trajectoryColumns: readonly Column<Scored>[] = [
  {
    name: 'step',
    type: integer,
    meaning: 'Training step, or the pass over the tasks that this run belongs to.',
    value: run(({ step }) => step),
  },
  {
    name: 'group_id',
    type: text,
    meaning: '{step}/{qid}: runs of the same task share it; one record batch holds one group.',
    value: ({ groupId }) => groupId,
  },
  {
    name: 'trajectory_id',
    type: text,
    meaning: '{step}/{qid}/{sample}: unique in a store; joins with segments.',
    value: run(({ id }) => id),
  },
  { name: 'sample', type: integer, meaning: 'Position in the group, from 0.', value: run(({ sample }) => sample) },
  {
    name: 'seed',
    type: text,
    meaning: '{run seed}/{step}/{qid}/{sample}: what the sampling was seeded with; turn n adds /n.',
    value: run(({ seed }) => seed),
  },
  {
    name: 'system',
    type: text,
    meaning: 'The system (the program of turns) that was run.',
    value: run(({ system }) => system),
  },
  {
    name: 'policy_version',
    type: text,
    meaning: 'What the policy called itself at the first generation.',
    value: run(({ policyVersion }) => policyVersion),
  },
  {
    name: 'show',
    type: text,
    meaning: 'Series that the episode belongs to.',
    value: run(({ task }) => task.episode.show),
  },
  {
    name: 'episode_id',
    type: text,
    meaning: 'Episode that the question is about.',
    value: run(({ task }) => task.episode.id),
  },
  { name: 'qid', type: text, meaning: 'Question.', value: run(({ task }) => task.question.qid) },
  { name: 'question', type: text, meaning: 'Its text.', value: run(({ task }) => task.question.text) },
  {
    name: 'options',
    type: list(text),
    meaning: 'Its options; label a{i} is option i. None: it is open-ended.',
    value: run(({ task }) => task.question.options),
  },
  {
    name: 'kind',
    type: text,
    nullable: true,
    meaning: 'dialogue, visual or both, where the data set says how the question is answered.',
    value: ({ scored }) => scored.kind,
  },
  {
    name: 'max_turns',
    type: integer,
    meaning: 'K: rounds of the system; of LongVideoAgent how many times the master could write.',
    value: run(({ budget }) => budget.turns),
  },
  {
    name: 'window_clips',
    type: integer,
    meaning: 'w: clips in view at once.',
    value: run(({ budget }) => budget.windowClips),
  },
  {
    name: 'window_within',
    type: text,
    nullable: true,
    meaning: 'What the window was cut off at: episode (also where null) or segment.',
    value: run(({ budget }) => budget.windowWithin ?? null),
  },
  {
    name: 'tokens_per_turn',
    type: integer,
    meaning: 'Bound on tokens written in one turn.',
    value: run(({ budget }) => budget.tokensPerTurn),
  },
  {
    name: 'tokens_per_observation',
    type: integer,
    nullable: true,
    meaning: 'Bound on tokens of one observation; null: none.',
    value: run(({ budget }) => budget.tokensPerObservation),
  },
  {
    name: 'tokens_per_trajectory',
    type: integer,
    nullable: true,
    meaning: 'Bound on tokens after the first prompt; null: none.',
    value: run(({ budget }) => budget.tokensPerTrajectory),
  },
  {
    name: 'deadline_seconds',
    type: number,
    nullable: true,
    meaning: 'Wall-clock bound; null: none.',
    value: run(({ budget }) => budget.deadlineSeconds),
  },
  {
    name: 'turns',
    type: list(turnType),
    meaning:
      'In order: response (what was written), action (ground, look, call, output, answer, invalid), query (of look and call, and of ground where there were words), option (of answer), problem (of invalid), well_formed, observation (null when nothing came back), failure_* (of an agent in this turn), clip_id (in view afterwards), frames (looked at; time in seconds on the clip; path of the video or picture, at in seconds of that video, width it was scaled down to, hash of all these; null where not recorded), role (who wrote; null: the master; program: nobody, the system called a tool), frozen (true: not the policy), tool (of call), output (structured output, JSON).',
    value: run(({ turns }) => turns.map(storedTurn)),
  },
  {
    name: 'answer',
    type: integer,
    nullable: true,
    meaning: 'Chosen option; null when there was no valid answer.',
    value: run(({ answer }) => answer),
  },
  {
    name: 'correct',
    type: flag,
    meaning: 'The run was answered with the right option.',
    value: ({ scored }) => scored.correct,
  },
  {
    name: 'grounded',
    type: flag,
    meaning: 'The clip with the evidence was among the clips shown.',
    value: ({ scored }) => scored.grounded,
  },
  {
    name: 'visited',
    type: list(text),
    meaning: 'Clips shown, in order of first showing.',
    value: run(({ visited }) => visited),
  },
  {
    name: 'initial_clip_id',
    type: text,
    nullable: true,
    meaning: 'The clip in the first message, found before turn 1; null: there was none.',
    value: run(({ initial }) => initial?.clipId ?? null),
  },
  {
    name: 'initial_from',
    type: text,
    nullable: true,
    meaning: 'Who found it: agent, cache (made before the run) or random.',
    value: run(({ initial }) => initial?.from ?? null),
  },
  {
    name: 'stop_reason',
    type: text,
    meaning:
      'answered, invalid_action, turn_limit, token_limit, context_limit, deadline, agent_error, policy_error or cancelled.',
    value: run(({ stopReason }) => stopReason),
  },
  {
    name: 'failure_boundary',
    type: text,
    nullable: true,
    meaning: 'Which outside part failed, where a failure ended the run.',
    value: run(({ failure }) => failure?.boundary ?? null),
  },
  {
    name: 'failure_kind',
    type: text,
    nullable: true,
    meaning: 'How it failed.',
    value: run(({ failure }) => failure?.kind ?? null),
  },
  {
    name: 'failure_message',
    type: text,
    nullable: true,
    meaning: 'The failure in one line.',
    value: run(({ failure }) => failure?.message ?? null),
  },
  {
    name: 'reward_total',
    type: number,
    nullable: true,
    meaning: 'R; null in all four when the run failed outside the policy and is not to be trained on.',
    value: reward('total'),
  },
  {
    name: 'reward_format',
    type: number,
    nullable: true,
    meaning: 'alpha times the aggregated format reward.',
    value: reward('format'),
  },
  {
    name: 'reward_answer',
    type: number,
    nullable: true,
    meaning: '1 for the right option, else 0.',
    value: reward('answer'),
  },
  {
    name: 'reward_turn_cost',
    type: number,
    nullable: true,
    meaning: 'What the turns cost; 0 or negative.',
    value: reward('turnCost'),
  },
  {
    name: 'advantage',
    type: number,
    nullable: true,
    meaning: 'Advantage used in the update; null when there was none.',
    value: ({ advantage }) => advantage,
  },
  {
    name: 'sampled_tokens',
    type: integer,
    meaning: 'Tokens that the policy sampled: ones in the action masks of its segments, frozen ones apart.',
    value: run(({ segments }) =>
      segments.reduce((sum, segment) => sum + (segment.frozen === true ? 0 : sampledIn(segment)), 0),
    ),
  },
  {
    name: 'segment_count',
    type: integer,
    meaning:
      'Rows in segments, those of frozen roles among them. In a system of one role, more than 1: the prompt stopped matching what was sampled, or the policy changed, that many times less one.',
    value: run(({ segments }) => segments.length),
  },
  {
    name: 'usage_master',
    type: usageType,
    meaning:
      'What the policy used over the run; seconds spent waiting, cost in US dollars, cached: calls answered from a cache.',
    value: run(({ usage }) => storedUsage(usage.master)),
  },
  {
    name: 'usage_grounding',
    type: usageType,
    meaning: 'The same for the grounding agent.',
    value: run(({ usage }) => storedUsage(usage.grounding)),
  },
  {
    name: 'usage_vision',
    type: usageType,
    meaning: 'The same for the vision agent.',
    value: run(({ usage }) => storedUsage(usage.vision)),
  },
  {
    name: 'seconds',
    type: number,
    meaning: 'Wall-clock seconds from start to end of the run.',
    value: run(({ seconds }) => seconds),
  },
  {
    name: 'videos',
    type: list(text),
    nullable: true,
    meaning: 'What the question calls its videos, where there are several; episode_id is the first.',
    value: run(({ task }) => task.videos?.map(({ id }) => id) ?? null),
  },
  {
    name: 'categories',
    type: namedTexts,
    nullable: true,
    meaning: 'What a benchmark scores apart: name and value; null: nothing.',
    value: ({ scored }) => pairs(scored.categories),
  },
  {
    name: 'answer_text',
    type: text,
    nullable: true,
    meaning: 'The answer to an open-ended question.',
    value: run(({ answerText }) => answerText ?? null),
  },
  {
    name: 'measures',
    type: namedNumbers,
    nullable: true,
    meaning: 'What the system measured of itself, from 0 to 1: name and value; null: nothing.',
    value: run(({ measures }) => pairs(measures)),
  },
  {
    name: 'reward_extras',
    type: namedNumbers,
    nullable: true,
    meaning: 'Weighted measures that are in reward_total: name and value; null: none are rewarded.',
    value: ({ scored }) => pairs(scored.reward?.extras),
  },
  {
    name: 'usage_roles',
    type: list(struct({ name: text, frozen: flag, ...usageFields })),
    nullable: true,
    meaning:
      'Of a system with several roles: what each used. Those that are not frozen are played by the policy and are in usage_master too.',
    value: run(({ usage: { roles } }) =>
      roles === undefined
        ? null
        : Object.entries(roles).map(([name, one]) => ({ name, frozen: one.frozen, ...storedUsage(one) })),
    ),
  },
  {
    name: 'usage_agents',
    type: list(struct({ name: text, ...usageFields })),
    nullable: true,
    meaning: 'What further agents used, by name; null: none were asked.',
    value: run(({ usage: { agents } }) =>
      agents === undefined ? null : Object.entries(agents).map(([name, one]) => ({ name, ...storedUsage(one) })),
    ),
  },
]

function pairs<Value>(of: Readonly<Record<string, Value>> | undefined): { name: string; value: Value }[] | null {
  return of === undefined ? null : Object.entries(of).map(([name, value]) => ({ name, value }))
}

function fromPairs<Value>(of: readonly { name: string; value: Value }[]): Record<string, Value> {
  return Object.fromEntries(of.map(({ name, value }) => [name, value]))
}

export const trajectorySchema: Schema = schemaOf(trajectoryColumns, {
  showrunner_table: 'trajectories',
  showrunner_store_version: STORE_VERSION,
})

/** The rows of one group. `advantages[i]` belongs to `scored[i]`; absent: none. */
export function trajectoryBatch(
  { group, scored }: ScoredGroup,
  advantages: readonly (number | null)[] | undefined,
): RecordBatch {
  if (scored.length === 0) throw new Error(`group ${group.id} has no trajectories`)
  if (advantages !== undefined && advantages.length !== scored.length)
    throw new Error(`group ${group.id}: ${scored.length} trajectories and ${advantages.length} advantages`)
  const rows = scored.map((one, index) => ({ groupId: group.id, scored: one, advantage: advantages?.[index] ?? null }))
  return batchOf(trajectorySchema, trajectoryColumns, rows)
}

export function trajectoryRows(batch: RecordBatch): TrajectoryRow[] {
  return plainRows(batch).map((row) => readTrajectory(row as unknown as StoredTrajectory))
}

/** The ids of group and step that a batch belongs to. */
export function groupOf(batch: RecordBatch): { groupId: string; step: number } {
  return { groupId: batch.getChild('group_id')?.get(0) as string, step: batch.getChild('step')?.get(0) as number }
}

function sampledIn({ actionMask }: Segment): number {
  return actionMask.reduce<number>((sum, bit) => sum + bit, 0)
}

type StoredUsage = ReturnType<typeof storedUsage>
function storedUsage({ calls, promptTokens, completionTokens, frames, seconds, costUsd, cached }: Usage) {
  return {
    calls,
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    frames,
    seconds,
    cost_usd: costUsd,
    cached,
  }
}

function readUsage({ calls, prompt_tokens, completion_tokens, frames, seconds, cost_usd, cached }: StoredUsage): Usage {
  return {
    calls,
    promptTokens: prompt_tokens,
    completionTokens: completion_tokens,
    frames,
    seconds,
    costUsd: cost_usd,
    cached,
  }
}

type StoredTurn = ReturnType<typeof storedTurn>
function storedTurn(turn: Turn) {
  const { response, action, wellFormed, observation, failure, clipId, frames, role, frozen, output } = turn
  return {
    response,
    action: action.kind,
    query: 'query' in action ? (action.query ?? null) : null,
    option: action.kind === 'answer' ? action.option : null,
    problem: action.kind === 'invalid' ? action.problem : null,
    well_formed: wellFormed,
    observation,
    failure_boundary: failure?.boundary ?? null,
    failure_kind: failure?.kind ?? null,
    failure_message: failure?.message ?? null,
    clip_id: clipId,
    frames: frames.map(({ clipId, time, picture }) => ({
      clip_id: clipId,
      time,
      path: picture?.path ?? null,
      at: picture?.at ?? null,
      width: picture?.width ?? null,
      hash: picture?.hash ?? null,
    })),
    role: role ?? null,
    frozen: frozen ?? null,
    tool: action.kind === 'call' ? action.tool : null,
    output: output === undefined ? null : JSON.stringify(output),
  }
}

function readTurn(turn: StoredTurn): Turn {
  return {
    response: turn.response,
    action: readAction(turn),
    wellFormed: turn.well_formed,
    observation: turn.observation,
    failure: readFailure(turn),
    clipId: turn.clip_id,
    frames: turn.frames.map(readFrame),
    // stores written before systems had several roles lack these
    ...(turn.role == null ? {} : { role: turn.role }),
    ...(turn.frozen === true ? { frozen: true } : {}),
    ...(turn.output == null ? {} : { output: JSON.parse(turn.output) as unknown }),
  }
}

/** Stores written before pictures were recorded have no such columns. */
function readFrame(frame: StoredTurn['frames'][number]): SeenFrame {
  const { clip_id: clipId, time, path, hash } = frame
  return path == null || hash == null
    ? { clipId, time }
    : { clipId, time, picture: { path, at: frame.at, width: frame.width, hash } }
}

function readAction({ action, query, option, problem, tool }: StoredTurn): Action {
  switch (action) {
    case 'ground':
      return query === null ? { kind: 'ground' } : { kind: 'ground', query }
    case 'look':
      return { kind: 'look', query: query ?? '' }
    case 'call':
      return { kind: 'call', tool: tool ?? '', query: query ?? '' }
    case 'output':
      return { kind: 'output' }
    case 'answer':
      return { kind: 'answer', option: option ?? 0 }
    case 'invalid':
      return { kind: 'invalid', problem: problem ?? '' }
  }
}

interface StoredFailure {
  failure_boundary: Failure['boundary'] | null
  failure_kind: Failure['kind'] | null
  failure_message: string | null
}

function readFailure({ failure_boundary, failure_kind, failure_message }: StoredFailure): Failure | null {
  return failure_boundary === null || failure_kind === null
    ? null
    : { boundary: failure_boundary, kind: failure_kind, message: failure_message ?? '' }
}

/** A row under its column names. */
interface StoredTrajectory extends StoredFailure {
  step: number
  group_id: string
  trajectory_id: string
  sample: number
  seed: string
  system: string
  policy_version: string
  show: string
  episode_id: string
  qid: string
  question: string
  options: string[]
  kind: QuestionKind | null
  max_turns: number
  window_clips: number
  /** Absent in earlier stores, as are the other two of the kind. */
  window_within?: Budget['windowWithin'] | null
  tokens_per_turn: number
  tokens_per_observation: number | null
  tokens_per_trajectory: number | null
  deadline_seconds: number | null
  turns: StoredTurn[]
  answer: number | null
  correct: boolean
  grounded: boolean
  visited: string[]
  initial_clip_id?: string | null
  initial_from?: InitialGrounding['from'] | null
  stop_reason: StopReason
  reward_total: number | null
  reward_format: number | null
  reward_answer: number | null
  reward_turn_cost: number | null
  advantage: number | null
  sampled_tokens: number
  segment_count: number
  usage_master: StoredUsage
  usage_grounding: StoredUsage
  usage_vision: StoredUsage
  seconds: number
  /** These are absent in earlier stores. */
  videos?: string[] | null
  categories?: { name: string; value: string }[] | null
  answer_text?: string | null
  measures?: { name: string; value: number }[] | null
  reward_extras?: { name: string; value: number }[] | null
  usage_roles?: ({ name: string; frozen: boolean } & StoredUsage)[] | null
  usage_agents?: ({ name: string } & StoredUsage)[] | null
}

function readTrajectory(row: StoredTrajectory): TrajectoryRow {
  const { reward_total: total, reward_format: format, reward_answer: answer, reward_turn_cost: turnCost } = row
  return {
    step: row.step,
    groupId: row.group_id,
    trajectoryId: row.trajectory_id,
    sample: row.sample,
    seed: row.seed,
    system: row.system,
    policyVersion: row.policy_version,
    show: row.show,
    episodeId: row.episode_id,
    qid: row.qid,
    question: row.question,
    options: row.options,
    kind: row.kind,
    budget: {
      turns: row.max_turns,
      windowClips: row.window_clips,
      ...(row.window_within == null ? {} : { windowWithin: row.window_within }),
      tokensPerTurn: row.tokens_per_turn,
      tokensPerObservation: row.tokens_per_observation,
      tokensPerTrajectory: row.tokens_per_trajectory,
      deadlineSeconds: row.deadline_seconds,
    },
    turns: row.turns.map(readTurn),
    answer: row.answer,
    correct: row.correct,
    grounded: row.grounded,
    visited: row.visited,
    ...(row.initial_clip_id == null || row.initial_from == null
      ? {}
      : { initial: { clipId: row.initial_clip_id, from: row.initial_from } }),
    stopReason: row.stop_reason,
    failure: readFailure(row),
    reward:
      total === null || format === null || answer === null || turnCost === null
        ? null
        : {
            total,
            format,
            answer,
            turnCost,
            ...(row.reward_extras == null ? {} : { extras: fromPairs(row.reward_extras) }),
          },
    advantage: row.advantage,
    sampledTokens: row.sampled_tokens,
    segmentCount: row.segment_count,
    usage: {
      master: readUsage(row.usage_master),
      grounding: readUsage(row.usage_grounding),
      vision: readUsage(row.usage_vision),
      ...(row.usage_roles == null
        ? {}
        : {
            roles: Object.fromEntries(
              row.usage_roles.map((one) => [one.name, { ...readUsage(one), frozen: one.frozen }]),
            ),
          }),
      ...(row.usage_agents == null
        ? {}
        : { agents: Object.fromEntries(row.usage_agents.map((one) => [one.name, readUsage(one)])) }),
    },
    seconds: row.seconds,
    ...(row.videos == null ? {} : { videos: row.videos }),
    ...(row.categories == null ? {} : { categories: fromPairs(row.categories) }),
    ...(row.answer_text == null ? {} : { answerText: row.answer_text }),
    ...(row.measures == null ? {} : { measures: fromPairs(row.measures) }),
  }
}

// ---------------------------------------------------------------- segments

/** One training sequence as it is stored. Log-probabilities come back rounded to float32. */
export interface SegmentRow extends Segment {
  step: number
  groupId: string
  trajectoryId: string
  /** Position in the trajectory, from 0. */
  index: number
}

type SegmentColumn = Omit<Column<SegmentRow>, 'value'>
const segmentColumns: readonly SegmentColumn[] = [
  { name: 'step', type: integer, meaning: 'As in trajectories.' },
  { name: 'group_id', type: text, meaning: 'As in trajectories.' },
  { name: 'trajectory_id', type: text, meaning: 'As in trajectories; joins with it.' },
  { name: 'segment', type: integer, meaning: 'Position in the trajectory, from 0.' },
  { name: 'ids', type: list(integer), meaning: 'Token ids: the prompt, then what was sampled and observed, in order.' },
  { name: 'action_mask', type: list(new Uint8()), meaning: '1 where the policy sampled the id; same length as ids.' },
  {
    name: 'logprobs',
    type: list(new Float32()),
    meaning: 'Log-probability of the id when it was sampled, 0 elsewhere; same length as ids.',
  },
  { name: 'prompt_length', type: integer, meaning: 'Ids before this were never sampled.' },
  { name: 'policy_version', type: text, meaning: 'Version of the policy that sampled this segment.' },
  { name: 'role', type: text, nullable: true, meaning: 'Role of the system that wrote; null: the master.' },
  {
    name: 'frozen',
    type: flag,
    nullable: true,
    meaning: 'True: sampled by a model that is not trained, in no loss; null: by the policy.',
  },
]

export const segmentSchema: Schema = schemaOf(
  segmentColumns.map((column) => ({ ...column, value: () => null })),
  { showrunner_table: 'segments', showrunner_store_version: STORE_VERSION },
)

/** The segments of one group; none is a batch without rows, so that both tables have a batch per group. */
export function segmentBatch({ group, scored }: ScoredGroup): RecordBatch {
  const rows = scored.flatMap(({ trajectory }) =>
    trajectory.segments.map(
      (segment, index): SegmentRow => ({
        ...segment,
        step: group.step,
        groupId: group.id,
        trajectoryId: trajectory.id,
        index,
      }),
    ),
  )
  for (const { ids, actionMask, logprobs, trajectoryId, index } of rows) {
    if (ids.length !== actionMask.length || ids.length !== logprobs.length)
      throw new Error(
        `segment ${index} of ${trajectoryId}: ${ids.length} ids, ${actionMask.length} mask bits and ${logprobs.length} log-probabilities`,
      )
  }
  const texts = (values: readonly string[]) =>
    values.length === 0 ? makeData({ type: text, length: 0 }) : vectorFromArray(values, text).data[0]
  const nullable = (values: readonly unknown[], type: DataType) =>
    values.length === 0
      ? makeData({ type, length: 0 })
      : vectorFromArray(
          values.map((value) => value ?? null),
          type,
        ).data[0]
  const integers = (values: readonly number[]) =>
    makeData({ type: integer, length: values.length, nullCount: 0, data: Int32Array.from(values) })
  const children = [
    integers(rows.map(({ step }) => step)),
    texts(rows.map(({ groupId }) => groupId)),
    texts(rows.map(({ trajectoryId }) => trajectoryId)),
    integers(rows.map(({ index }) => index)),
    listData(
      rows.map(({ ids }) => ids),
      integer,
      Int32Array,
    ),
    listData(
      rows.map(({ actionMask }) => actionMask),
      new Uint8(),
      Uint8Array,
    ),
    listData(
      rows.map(({ logprobs }) => logprobs),
      new Float32(),
      Float32Array,
    ),
    integers(rows.map(({ promptLength }) => promptLength)),
    texts(rows.map(({ policyVersion }) => policyVersion)),
    nullable(
      rows.map(({ role }) => role),
      text,
    ),
    nullable(
      rows.map(({ frozen }) => frozen),
      flag,
    ),
  ]
  return new RecordBatch(
    segmentSchema,
    makeData({
      type: new Struct(segmentSchema.fields),
      length: rows.length,
      nullCount: 0,
      children: children as never,
    }),
  )
}

/** Lists of numbers as one flat array and its offsets: many times faster than a builder. */
function listData(
  lists: readonly (readonly number[])[],
  type: DataType,
  Values: { new (length: number): Int32Array | Uint8Array | Float32Array },
) {
  const offsets = new Int32Array(lists.length + 1)
  for (const [index, { length }] of lists.entries()) offsets[index + 1] = (offsets[index] as number) + length
  const data = new Values(offsets[lists.length] as number)
  for (const [index, values] of lists.entries()) data.set(values, offsets[index])
  const child = makeData({ type, length: data.length, nullCount: 0, data } as never)
  return makeData({ type: list(type), length: lists.length, nullCount: 0, valueOffsets: offsets, child } as never)
}

export function segmentRows(batch: RecordBatch): SegmentRow[] {
  const at = (name: string, row: number) => batch.getChild(name)?.get(row)
  const numbers = (name: string, row: number): number[] => Array.from(at(name, row).toArray() as Iterable<number>)
  return Array.from({ length: batch.numRows }, (_, row) => ({
    step: at('step', row),
    groupId: at('group_id', row),
    trajectoryId: at('trajectory_id', row),
    index: at('segment', row),
    ids: numbers('ids', row),
    actionMask: numbers('action_mask', row) as (0 | 1)[],
    logprobs: numbers('logprobs', row),
    promptLength: at('prompt_length', row),
    policyVersion: at('policy_version', row),
    ...(at('role', row) == null ? {} : { role: at('role', row) }),
    ...(at('frozen', row) === true ? { frozen: true as const } : {}),
  }))
}
