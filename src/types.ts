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

/** A multiple-choice question. Public: a policy and agents may see every field. */
export interface Question {
  qid: string
  episodeId: string
  text: string
  /** Always five; label `a{i}` is option i. */
  options: readonly string[]
}

/** The secret half of a question. Only `reward/`, `report/` and root files read it. */
export interface Gold {
  qid: string
  /** Index into `Question.options`. */
  answer: number
  /** The clip that holds the evidence. */
  clipId: string
  /** Evidence span on the clip's own timeline, in seconds; null where the data has none. */
  span: readonly [number, number] | null
  /** The same on the episode's timeline, cut to the clip; absent or null where durations are unknown. */
  episodeSpan?: readonly [number, number] | null
  /** How the question is answered, where the data set says so (the miniature one does). */
  kind: QuestionKind | null
}

export type QuestionKind = 'dialogue' | 'visual' | 'both'

/** What a rollout is about. Plain JSON. */
export interface Task {
  episode: Episode
  question: Question
}

// ---------------------------------------------------------------- failures outside the program

/** Which boundary an outside failure crossed. */
export type Boundary =
  | 'policy'
  | 'grounding'
  | 'vision'
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

export interface Agents {
  grounding: GroundingAgent
  vision: VisionAgent
  /**
   * Answers from a file that was made before (`showrunner ground`), for the clip of the first message; a question that it lacks is a
   * `bad_response`. Absent: there is no such file.
   */
  groundingCache?: GroundingAgent
}

// ---------------------------------------------------------------- rollouts

/** What the policy chose in a turn. */
export type Action =
  | { kind: 'ground'; query?: string }
  | { kind: 'look'; query: string }
  | { kind: 'answer'; option: number }
  | { kind: 'invalid'; problem: string }

export interface Turn {
  /** What the policy wrote. */
  response: string
  action: Action
  /** True when the response is exactly one well-formed action, optionally after one reasoning block. */
  wellFormed: boolean
  /** What came back; null after the last turn. */
  observation: string | null
  /** Set when an agent failed in this turn. */
  failure: Failure | null
  /** Clip in view after this turn. */
  clipId: string | null
  frames: readonly SeenFrame[]
}

/**
 * One contiguous training sequence. All four arrays have the same length.
 * `actionMask[t]` is 1 where the policy sampled `ids[t]`; `logprobs[t]` is its log-probability then, and 0 elsewhere.
 */
export interface Segment {
  ids: readonly number[]
  actionMask: readonly (0 | 1)[]
  logprobs: readonly number[]
  /** Length of the first prompt: ids[0..promptLength) were never sampled. */
  promptLength: number
  policyVersion: string
}

/** Why a run ended. Limits are truncations, not failures. */
export type StopReason =
  | 'answered'
  /** The policy wrote no action, in systems that end then. */
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
  /** K: master generations, including the one that answers. */
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
  stopReason: StopReason
  /** Why it ended, for the stop reasons that are failures. */
  failure: Failure | null
  /** The clip of the first message; null or absent where the run began without one. */
  initial?: InitialGrounding | null
  /** Clips shown, in order of first showing. The one in view at the end is `turns.at(-1).clipId`. */
  visited: readonly string[]
  /** What the policy called itself at the first generation (before it, if there was none). Each segment keeps its own. */
  policyVersion: string
  usage: { master: Usage; grounding: Usage; vision: Usage }
  seconds: number
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
}

export interface ScoredTrajectory {
  trajectory: Trajectory
  /** null when the run failed outside the policy: it is excluded from training, not given 0. */
  reward: Reward | null
  correct: boolean
  /** The gold clip was among the clips shown. */
  grounded: boolean
  kind: QuestionKind | null
}

export interface ScoredGroup {
  group: TrajectoryGroup
  scored: readonly ScoredTrajectory[]
}

// ---------------------------------------------------------------- systems

/** An LLM role as a system sees it: messages in, text out; the rollout keeps tokens, budgets and usage. */
export interface Speaker {
  /** `stop`: the system's stop strings for this turn (see `Sampling.stop`). */
  say(messages: readonly Message[], stop: readonly string[]): Promise<SpeakerResult>
}

export type SpeakerResult =
  | { ok: true; text: string }
  /** `text`: what was written before a limit cut it off; absent when nothing was. */
  | { ok: false; stopReason: StopReason; failure: Failure | null; text?: string }

/** What a system is given. A system is a short program over these and imports no room. */
export interface SystemContext {
  task: Task
  master: Speaker
  agents: Agents
  budget: Budget
  /** Stops agent calls at the trajectory's deadline or when the user cancels. */
  signal: AbortSignal
  /** Cuts an observation to `budget.tokensPerObservation`. */
  fitObservation(text: string): string
  /** Records what an agent call used. */
  spend(role: 'grounding' | 'vision', usage: Usage): void
}

export interface SystemOutcome {
  turns: readonly Turn[]
  answer: number | null
  stopReason: StopReason
  failure: Failure | null
  initial?: InitialGrounding | null
  visited: readonly string[]
}

export interface System {
  readonly name: string
  run(context: SystemContext): Promise<SystemOutcome>
}
