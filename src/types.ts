/**
 * The nouns of Showrunner. Imports nothing; read this file first.
 *
 * Public and gold data are separate types on purpose: nothing that a policy or an agent receives has a field for the answer.
 */

// ---------------------------------------------------------------- video and questions

/** One line of dialogue. Times are seconds on the clip's own timeline; absent where the data set has none (LongTVQA). */
export interface SubtitleLine {
  speaker?: string
  text: string
  start?: number
  end?: number
}

/** What somebody wrote about a stretch of a clip; seconds on the clip's own timeline. */
export interface VisualDescription {
  start: number
  end: number
  text: string
}

/** Where a clip's pictures come from. `offset` is where the clip begins inside the file, in seconds. */
export type FrameSource =
  | { kind: 'video'; path: string; offset: number; duration: number }
  | { kind: 'frames'; directory: string; fps: number; count: number }
  | { kind: 'descriptions'; lines: readonly VisualDescription[] }
  | { kind: 'none' }

export interface Clip {
  /** Full name, such as `s05e02_seg02_clip_00`. */
  id: string
  /** Position in the episode, from 0. */
  index: number
  /** Span on the episode's timeline, in seconds; both 0 where durations are unknown. */
  start: number
  end: number
  subtitles: readonly SubtitleLine[]
  source: FrameSource
}

/** One long video: clips in (segment, clip) order. Elsewhere "episode" means a finished run; here never. */
export interface Episode {
  id: string
  show: string
  clips: readonly Clip[]
}

/** Public: a policy and agents may see every field. */
export interface Question {
  qid: string
  /** The episode that it is about; of several, the first. */
  episodeId: string
  text: string
  /** Two or more, of which one is right (LongTVQA: always five); none: the question is open-ended. Label `a{i}` is option i. */
  options: readonly string[]
}

/** The secret half of a multiple-choice question. Only `reward/`, `report/` and root files read it. */
export interface Gold {
  qid: string
  /** Index into `Question.options`. */
  answer: number
  /** The clip that holds the evidence; null where the data set does not say. */
  clipId: string | null
  /** Evidence span on the clip's own timeline, in seconds; null where the data has none. */
  span: readonly [number, number] | null
  /** The same on the episode's timeline, cut to the clip; absent or null where durations are unknown. */
  episodeSpan?: readonly [number, number] | null
  /** How the question is answered, where the data set says so (the miniature one does). */
  kind: QuestionKind | null
  /** What a benchmark scores apart, by name, such as `duration: long` or `task: plotQA`. */
  categories?: Readonly<Record<string, string>>
}

/** The secret half of an open-ended question, which no option is right for: kept apart from those that can be scored by comparing. */
export interface OpenGold {
  qid: string
  /** What an answer is compared with. */
  reference: string
  /** Points that each count; empty where the benchmark has none. */
  points: readonly string[]
  categories?: Readonly<Record<string, string>>
}

export type QuestionKind = 'dialogue' | 'visual' | 'both'

/** One of several videos that a question is about. */
export interface TaskVideo {
  /** What the question calls it, such as `video 1`. */
  id: string
  /** What it is for, where the question says: `reference`, `candidate`, ... */
  role: string | null
  episode: Episode
}

/** What a rollout is about. Plain JSON. */
export interface Task {
  /** Of several videos, the first. */
  episode: Episode
  question: Question
  /** All of them, in the order of the question, where there are several; absent: the episode is the only one. */
  videos?: readonly TaskVideo[]
}

// ---------------------------------------------------------------- failures outside the program

/** Which boundary an outside failure crossed. */
export type Boundary =
  | 'policy'
  | 'grounding'
  | 'vision'
  /** Any further agent; the message names it. */
  | 'agent'
  | 'video'
  | 'dataset'
  | 'store'
  | 'checkpoint'
  | 'config'
  | 'serve'

export type FailureKind =
  | 'timeout'
  | 'unreachable'
  | 'rate_limited'
  | 'server_error'
  | 'bad_request'
  | 'bad_response'
  | 'missing_file'
  | 'bad_file'
  | 'context_limit'
  | 'disk_full'
  | 'cancelled'

/** A failure that is a value: it names the file, row or URL, what was expected, what came, and what to do, in one line. */
export interface Failure {
  boundary: Boundary
  kind: FailureKind
  message: string
}

export type Result<T> = { ok: true; value: T } | { ok: false; failure: Failure }

// ---------------------------------------------------------------- policies

export interface Message {
  role: 'system' | 'user' | 'assistant'
  content: string
}

/** A message as chat templates read it: those of clients may call tools and tell what came back. */
export interface ChatMessage {
  role: Message['role'] | 'tool'
  content: string
  name?: string
  tool_calls?: readonly unknown[]
  tool_call_id?: string
}

/** What a chat template is given besides the messages. */
export interface PromptSettings {
  /** Where the prompt ends: where the assistant begins a new message (the default), behind the last message, or inside of it. */
  opening?: 'new message' | 'none' | 'final message'
  /** JSON descriptions of functions, as OpenAI's. */
  tools?: readonly unknown[]
  /** Further variables of the template, such as `enable_thinking`. */
  variables?: Readonly<Record<string, unknown>>
}

/** How a template writes a call of a tool: `<tool_call>{...}</tool_call>` (Hermes, Qwen), `{"name": ..., "parameters": ...}` (Llama 3), or otherwise. */
export type ToolSyntax = 'hermes' | 'llama3' | 'other'

export interface Sampling {
  /** 0 is greedy. Log-probabilities are those of the temperature-scaled distribution (of temperature 1 when greedy). */
  temperature: number
  maxTokens: number
  /** Generation ends after one of these is written; the stop string is kept in the text and its tokens in the ids. */
  stop: readonly string[]
  /** Tokens that end generation besides those that end a message; kept in the ids. */
  stopIds?: readonly number[]
  /** Goes on behind tokens that end a message. */
  ignoreEnd?: boolean
  /** Before so many tokens, those that end generation are not drawn and stop strings do not count. */
  minTokens?: number
  /**
   * Cuts of the distribution that is drawn from: the smallest set of tokens with this probability, so many tokens (0: all), tokens with at
   * least this share of the likeliest one's probability. Log-probabilities stay those of the whole distribution.
   */
  topP?: number
  topK?: number
  minP?: number
  /** Added to logits by token id. Log-probabilities stay those of the model's own distribution, as with cuts. */
  logitBias?: ReadonlyMap<number, number>
  /** Called before each token with all ids sampled so far: 1 for every token that may come next, [vocabularySize]. A cut like `topP`. */
  allowed?(sampled: readonly number[]): Uint8Array
}

/** What changed the distribution that was drawn from. */
export type SamplingCut = 'top_p' | 'top_k' | 'min_p' | 'logit_bias' | 'allowed' | 'min_tokens'

/** A token and the natural logarithm of its probability. */
export interface TokenLogprob {
  id: number
  logprob: number
}

/** A token of a prompt or an answer. */
export interface ToldToken extends TokenLogprob {
  /** The likeliest tokens there, likeliest first, as many as were asked for. */
  alternatives: readonly TokenLogprob[]
  /** 1 for the likeliest. */
  rank: number
}

export interface GenerateRequest {
  messages: readonly Message[]
  /** The exact ids to continue from. Given by callers that keep token ids (see `ChatTokenizer`); else the policy renders `messages`. */
  promptIds?: readonly number[]
  sampling: Sampling
  /** Same seed, weights and prompt: same tokens, whatever else is in the batch. */
  seed: string
  /** Names a conversation whose key-value cache may be kept for its next turn. */
  session?: string
  /** How many alternatives to tell for each sampled token, and for each token of the prompt; absent: nothing is told of them. */
  tellSampled?: number
  tellPrompt?: number
  /** Told of each token as it is sampled, in order, before the call resolves. */
  onToken?(token: TokenLogprob & Partial<ToldToken>): void
  signal?: AbortSignal
}

export interface Generation {
  text: string
  /** Sampled ids; null when the policy does not tell (an endpoint without token ids). Same length as `logprobs`. */
  tokenIds: readonly number[] | null
  logprobs: readonly number[] | null
  finishReason: 'stop' | 'length'
  /** The stop string, or the id among `stopIds`, that ended it; null or absent when something else did. */
  stopReason?: string | number | null
  version: string
  /**
   * Present when something changed the distribution that was drawn from. `keptMass[t]` is the probability of token t divided by the one
   * that it was drawn with: for cuts, the share of the distribution that they kept; 1 where nothing was changed.
   */
  cut?: { by: readonly SamplingCut[]; keptMass: readonly number[] }
  /** Of each sampled token, when `tellSampled` asked for it. */
  told?: readonly ToldToken[]
  /** Of each token of the prompt, at temperature 1, when `tellPrompt` asked for it; nothing is known of the first: null. */
  toldPrompt?: readonly (ToldToken | null)[]
  usage: Usage
}

/** Turns messages into the token ids that a policy reads, so that what was sampled is what is trained on. */
export interface ChatTokenizer {
  /** Ids of a text as it stands, special tokens among it included; nothing is added (`/v1/completions` with a string). */
  encode(text: string): number[]
  /** Ids of the whole conversation, ending where the assistant begins to write unless `settings` say otherwise. Throws when the template refuses. */
  encodePrompt(messages: readonly ChatMessage[], settings?: PromptSettings): number[]
  /** Ids to append after sampled assistant ids: what closes that message, then `messages`, ending where the assistant begins again. */
  encodeContinuation(messages: readonly ChatMessage[]): number[]
  /** `skipSpecial` leaves out tokens such as `<|im_end|>`. */
  decode(ids: readonly number[], skipSpecial?: boolean): string
  /** Ids that end a message, where they are known. */
  readonly endIds?: ReadonlySet<number>
  /** Absent when the chat template knows no tools. */
  readonly toolSyntax?: ToolSyntax
}

/** What is trained, or stands in for it. */
export interface Policy {
  readonly name: string
  /** Changes with every weight update. */
  readonly version: string
  /** Absent when the policy does not work in token ids. */
  readonly tokenizer?: ChatTokenizer
  /** Longest prompt plus answer, in tokens; null when unknown. */
  readonly contextLength: number | null
  /** Token ids are below it; absent when unknown. */
  readonly vocabularySize?: number
  generate(request: GenerateRequest): Promise<Result<Generation>>
  /** Forgets the kept cache of a conversation. */
  endSession?(session: string): void
  close(): Promise<void>
}

// ---------------------------------------------------------------- agents (frozen helpers)

/** What one or more calls used. Costs in US dollars, 0 for embedded models. */
export interface Usage {
  calls: number
  promptTokens: number
  completionTokens: number
  /** Pictures looked at. */
  frames: number
  /** Wall-clock seconds spent waiting for the answer. */
  seconds: number
  costUsd: number
  /** Answered from a cache. */
  cached: number
}

export interface CallOptions {
  signal?: AbortSignal
}

export interface GroundingRequest {
  episode: Episode
  question: Question
  /** Clips the master has been shown, in order; a grounding agent should look elsewhere. */
  visited: readonly string[]
  /** The master's words about what it looks for, where it wrote any. */
  query?: string
}

export interface GroundingAnswer {
  clipId: string
  reason: string
  usage: Usage
}

export interface GroundingAgent {
  readonly name: string
  ground(request: GroundingRequest, options: CallOptions): Promise<Result<GroundingAnswer>>
}

export interface VisionRequest {
  /** The clips in the evidence window, in order. */
  clips: readonly Clip[]
  /** The master's words. The question and its options are not given. */
  query: string
}

/** A picture that a vision agent looked at. */
export interface SeenFrame {
  clipId: string
  /** Seconds on the clip's own timeline. */
  time: number
  /** Which picture that was, so that a person can be shown the same one. Absent where it was not recorded. */
  picture?: SeenPicture
}

export interface SeenPicture {
  /** The video file, or the file of the picture itself. */
  path: string
  /** Seconds from the start of a video file; null when `path` is the picture. */
  at: number | null
  /** Wider pictures were scaled down to this many pixels across; null: shown as stored. */
  width: number | null
  /** Hash of the file's identity, the time and the width: another hash, perhaps another picture. */
  hash: string
}

export interface VisionAnswer {
  text: string
  /** What was looked at. */
  frames: readonly SeenFrame[]
  usage: Usage
}

export interface VisionAgent {
  readonly name: string
  look(request: VisionRequest, options: CallOptions): Promise<Result<VisionAnswer>>
}

/** A further helper: one request, one answer. A system asks the ones that it needs by their names in `FurtherAgents`. */
export interface Agent<Request, Answer extends AgentAnswer> {
  readonly name: string
  ask(request: Request, options: CallOptions): Promise<Result<Answer>>
}

/** What every further agent answers. */
export interface AgentAnswer {
  usage: Usage
  /** What was looked at; empty for agents that read. */
  frames: readonly SeenFrame[]
  /** What this body could not do of what was asked, for whoever reads the answer; null: nothing. */
  caveat: string | null
}

/** Seconds on an episode's timeline, `start < end`. */
export interface Stretch {
  start: number
  end: number
}

/** A stretch of a video; null: all of it. */
export interface Place {
  episode: Episode
  stretch: Stretch | null
}

/** One caption per moment. */
export interface CaptionRequest {
  episode: Episode
  /** Seconds on the episode's timeline, ascending. */
  times: readonly number[]
}

export interface CaptionAnswer extends AgentAnswer {
  /** In the order of the moments; those that nothing is known of are left out. */
  captions: readonly { time: number; text: string }[]
}

export interface SummaryRequest {
  /** In order; seconds on the episode's timeline where they are known. */
  lines: readonly { time: number | null; text: string }[]
  /** What the summary is for, such as the question; null: whatever matters most. */
  focus: string | null
  /** Longest summary, in words. */
  words: number
}

export interface SummaryAnswer extends AgentAnswer {
  text: string
}

/** Lines of dialogue that bear on a query, of a stretch or the whole video. */
export interface SubtitleRequest extends Place {
  /** null: every line of the stretch. */
  query: string | null
  /** Most lines. */
  count: number
}

/** Without lines: the video has no subtitles, or none that bear on the query; `available` tells which. */
export interface SubtitleAnswer extends AgentAnswer {
  available: boolean
  /** In order of time. `start` and `end` in seconds on the episode's timeline; null where the data set has none. */
  lines: readonly { clipId: string; start: number | null; end: number | null; speaker: string | null; text: string }[]
  /** Who and what matters in them, and with what feeling; empty where the body cannot tell. */
  entities: readonly string[]
  /** What the dialogue is about as a whole; empty where the body cannot tell. */
  topic: string
}

/** A question about pictures at given moments. */
export interface InspectionRequest {
  episode: Episode
  /** Seconds on the episode's timeline, ascending. */
  times: readonly number[]
  question: string
}

export interface InspectionAnswer extends AgentAnswer {
  text: string
}

/** How much segments of a video have to do with a question (Symphony's scale). */
export interface SegmentScoringRequest {
  episode: Episode
  question: Question
  segments: readonly Stretch[]
  framesPerSegment: number
}

/** 4 enough to answer, 3 relevant, 2 indirectly related, 1 unrelated. */
export type Relevance = 1 | 2 | 3 | 4

export interface SegmentScoringAnswer extends AgentAnswer {
  /** One per segment, in order. */
  scores: readonly { relevance: Relevance; caption: string; reasoning: string | null }[]
}

/** The frames that look most like a description. */
export interface FrameRetrievalRequest extends Place {
  query: string
  count: number
}

export interface FrameRetrievalAnswer extends AgentAnswer {
  /** Best first; `time` on the episode's timeline; a higher score is more alike. */
  hits: readonly { time: number; score: number }[]
}

/** Stretches where something happens: hints, to be verified by looking. */
export interface TemporalGroundingRequest extends Place {
  query: string
  count: number
}

export interface TemporalGroundingAnswer extends AgentAnswer {
  /** Best first. */
  stretches: readonly (Stretch & { score: number })[]
}

/** What stands in pictures at given moments, and how things stand to each other. */
export interface SceneGraphRequest {
  episode: Episode
  times: readonly number[]
}

/** Left, top, width and height as shares of the picture. */
export type Box = readonly [left: number, top: number, width: number, height: number]

export interface SceneGraphAnswer extends AgentAnswer {
  scenes: readonly {
    time: number
    objects: readonly { label: string; box: Box; attributes: readonly string[] }[]
    relations: readonly { subject: string; relation: string; object: string }[]
  }[]
}

/** The same things followed from frame to frame. */
export interface ObjectTrackingRequest extends Place {
  /** Kinds of things; empty: all that are found. */
  objects: readonly string[]
  framesPerSecond: number
}

export interface ObjectTrackingAnswer extends AgentAnswer {
  /** One per thing, in order of first appearance; `time` on the episode's timeline. */
  tracks: readonly { id: string; label: string; points: readonly { time: number; box: Box; score: number }[] }[]
}

/** How alike places look to a reference. */
export interface VisualSimilarityRequest {
  reference: Place
  candidates: readonly Place[]
  framesPerPlace: number
}

export interface VisualSimilarityAnswer extends AgentAnswer {
  /** One per candidate, in order, from 0 to 1. */
  similarities: readonly number[]
}

/** What each further agent is asked and answers. */
export interface AgentCalls {
  captioner: { request: CaptionRequest; answer: CaptionAnswer }
  summary: { request: SummaryRequest; answer: SummaryAnswer }
  subtitles: { request: SubtitleRequest; answer: SubtitleAnswer }
  frameInspection: { request: InspectionRequest; answer: InspectionAnswer }
  segmentScoring: { request: SegmentScoringRequest; answer: SegmentScoringAnswer }
  frameRetrieval: { request: FrameRetrievalRequest; answer: FrameRetrievalAnswer }
  temporalGrounding: { request: TemporalGroundingRequest; answer: TemporalGroundingAnswer }
  sceneGraph: { request: SceneGraphRequest; answer: SceneGraphAnswer }
  objectTracking: { request: ObjectTrackingRequest; answer: ObjectTrackingAnswer }
  visualSimilarity: { request: VisualSimilarityRequest; answer: VisualSimilarityAnswer }
}

export type AgentKind = keyof AgentCalls

/** Agents that a configuration may lack. A system names those it needs, and is refused before anything runs without them. */
export type FurtherAgents = {
  [Kind in AgentKind]: Agent<AgentCalls[Kind]['request'], AgentCalls[Kind]['answer']>
}

export interface Agents extends Partial<FurtherAgents> {
  grounding: GroundingAgent
  vision: VisionAgent
  /**
   * Answers from a file that was made before (`showrunner ground`), for the clip of the first message; a question that it lacks is a
   * `bad_response`. Absent: there is no such file.
   */
  groundingCache?: GroundingAgent
}

// ---------------------------------------------------------------- rollouts

/** What was chosen in a turn. */
export type Action =
  | { kind: 'ground'; query?: string }
  | { kind: 'look'; query: string }
  /** Asks a tool, an agent or another role for something. */
  | { kind: 'call'; tool: string; query: string }
  /** Says something that the system's program goes on with, such as a hypothesis or a score. */
  | { kind: 'output' }
  | { kind: 'answer'; option: number }
  | { kind: 'invalid'; problem: string }

/** One step of a run: what an LLM role wrote, the action read from it, and what came of it. In the order in which they were written. */
export interface Turn {
  /** Who wrote; absent: the master of LongVideoAgent. `program`: nobody, the system itself called a tool. */
  role?: string
  /** The role is not played by the policy: the turn earns and costs nothing. */
  frozen?: true
  /** What the role wrote. */
  response: string
  action: Action
  /** True when the response is exactly what the role's format asks for, after at most one reasoning block. */
  wellFormed: boolean
  /** Structured output, as read from the response: plain JSON. */
  output?: unknown
  /** What came back; null after the last turn. */
  observation: string | null
  /** Set when an agent failed in this turn. */
  failure: Failure | null
  /** Clip in view after this turn. */
  clipId: string | null
  frames: readonly SeenFrame[]
}

/**
 * One contiguous training sequence. The three arrays have the same length.
 * `actionMask[t]` is 1 where the policy sampled `ids[t]`; `logprobs[t]` is its log-probability then, and 0 elsewhere.
 */
export interface Segment {
  ids: readonly number[]
  actionMask: readonly (0 | 1)[]
  logprobs: readonly number[]
  /** Length of the first prompt: ids[0..promptLength) were never sampled. */
  promptLength: number
  policyVersion: string
  /** Whose conversation it is; absent: the master's. */
  role?: string
  /** Sampled by a model that is not trained: kept for the record, in no loss. */
  frozen?: true
}

/** Why a run ended. Limits are truncations, not failures. */
export type StopReason =
  | 'answered'
  /** A role wrote nothing that can be gone on with, in systems that end then. */
  | 'invalid_action'
  | 'turn_limit'
  | 'token_limit'
  | 'context_limit'
  | 'deadline'
  | 'agent_error'
  | 'policy_error'
  | 'cancelled'

/** Bounds on one trajectory. null means no bound. */
export interface Budget {
  /** K: rounds of the system. Of LongVideoAgent generations of the master, the one that answers among them. */
  turns: number
  /** w: clips in the evidence window. */
  windowClips: number
  /** What the window is cut off at; absent: the episode. */
  windowWithin?: 'episode' | 'segment'
  tokensPerTurn: number
  tokensPerObservation: number | null
  tokensPerTrajectory: number | null
  /** Wall-clock bound on the whole trajectory. */
  deadlineSeconds: number | null
}

/** How the clip of the first message was found, where there was one. No turn. */
export interface InitialGrounding {
  from: 'agent' | 'cache' | 'random'
  clipId: string
}

/** One run of a system on a task. Carries no gold. */
export interface Trajectory {
  /** `{step}/{qid}/{sample}`: unique in a run. */
  id: string
  system: string
  step: number
  sample: number
  seed: string
  task: Task
  budget: Budget
  turns: readonly Turn[]
  segments: readonly Segment[]
  /** Chosen option; null when the run ended without a valid answer. */
  answer: number | null
  /** The answer to an open-ended question; null or absent where there is none. */
  answerText?: string | null
  stopReason: StopReason
  /** Why it ended, for the stop reasons that are failures. */
  failure: Failure | null
  /** The clip of the first message; null or absent where the run began without one. */
  initial?: InitialGrounding | null
  /** Clips shown, in order of first showing. The one in view at the end is `turns.at(-1).clipId`. */
  visited: readonly string[]
  /** What the policy called itself at the first generation (before it, if there was none). Each segment keeps its own. */
  policyVersion: string
  usage: TrajectoryUsage
  /** What the system measured of itself, by name, from 0 to 1; see `System.measures`. */
  measures?: Readonly<Record<string, number>>
  seconds: number
}

export interface TrajectoryUsage {
  /** The policy, in all roles that it plays. */
  master: Usage
  grounding: Usage
  vision: Usage
  /** Each role of a system that has several; those that are not frozen are also in `master`. */
  roles?: Readonly<Record<string, Usage & { frozen: boolean }>>
  /** Further agents that were asked. */
  agents?: Readonly<Record<string, Usage>>
}

/** G runs of the same task. */
export interface TrajectoryGroup {
  id: string
  step: number
  task: Task
  trajectories: readonly Trajectory[]
}

// ---------------------------------------------------------------- rewards

/** Named parts and their sum; written once, never overwritten by advantages. */
export interface Reward {
  /** R. */
  total: number
  /** alpha * aggregated format reward. */
  format: number
  /** 1 for the right option, else 0. */
  answer: number
  /** What the turns cost; 0 or negative. */
  turnCost: number
  /** Weighted measures of the system, by name; absent: none are rewarded. */
  extras?: Readonly<Record<string, number>>
}

export interface ScoredTrajectory {
  trajectory: Trajectory
  /** null when the run failed outside the policy: it is excluded from training, not given 0. */
  reward: Reward | null
  correct: boolean
  /** The gold clip was among the clips shown. */
  grounded: boolean
  kind: QuestionKind | null
  /** As in `Gold`. */
  categories?: Readonly<Record<string, string>>
}

export interface ScoredGroup {
  group: TrajectoryGroup
  scored: readonly ScoredTrajectory[]
}

// ---------------------------------------------------------------- systems

/** An LLM role as a system sees it: messages in, text out; the rollout keeps tokens, budgets and usage. */
export interface Speaker {
  /** `stop`: the system's stop strings for this turn (see `Sampling.stop`). One call at a time. */
  say(messages: readonly Message[], stop: readonly string[]): Promise<SpeakerResult>
}

export type SpeakerResult =
  | { ok: true; text: string }
  /** `text`: what was written before a limit cut it off; absent when nothing was. */
  | { ok: false; stopReason: StopReason; failure: Failure | null; text?: string }

/** Who plays a role that the policy does not play. */
export interface FrozenRole {
  policy: Policy
  temperature: number
  /** Most tokens of one answer. */
  maxTokens: number
}

/** What a system is given. A system is a short program over these and imports no room. */
export interface SystemContext {
  task: Task
  /**
   * Who speaks in a role of the system. Calls whose messages go on from the last ones share a training sequence, others begin a new one;
   * a role that holds several conversations, at once or in turn, names each, and the same name is the same conversation.
   */
  speaker(role: string, conversation?: string): Speaker
  agents: Agents
  budget: Budget
  /** Stops agent calls at the trajectory's deadline or when the user cancels. */
  signal: AbortSignal
  /** Cuts an observation to `budget.tokensPerObservation`. */
  fitObservation(text: string): string
  /** Records what an agent call used. */
  spend(agent: 'grounding' | 'vision' | AgentKind, usage: Usage): void
}

export interface SystemOutcome {
  turns: readonly Turn[]
  answer: number | null
  /** To an open-ended question. */
  answerText?: string | null
  stopReason: StopReason
  failure: Failure | null
  initial?: InitialGrounding | null
  visited: readonly string[]
  /** Those that `System.measures` names. */
  measures?: Readonly<Record<string, number>>
}

export interface System {
  readonly name: string
  /** LLM roles that it speaks through, the first one first trained. */
  readonly roles: readonly string[]
  /** K where the configuration names none. */
  readonly turns: number
  /** Further agents that it asks. */
  readonly needs?: readonly AgentKind[]
  /** What it measures of itself without knowing the answer, and a configuration may reward. */
  readonly measures?: readonly string[]
  run(context: SystemContext): Promise<SystemOutcome>
}
