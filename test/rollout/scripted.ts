/**
 * Scripted stand-ins for tests: a policy that says what it is told, agents that answer from a list, a tokenizer of words, a tiny
 * episode. None of them models anything.
 */
import type {
  Agents,
  ChatTokenizer,
  Clip,
  Failure,
  GenerateRequest,
  Generation,
  GroundingRequest,
  Message,
  Policy,
  Result,
  Task,
  Usage,
  VisionRequest,
} from '../../src/types.ts'

export const usageOf = (part: Partial<Usage> = {}): Usage => ({
  calls: 1,
  promptTokens: 0,
  completionTokens: 0,
  frames: 0,
  seconds: 0,
  costUsd: 0,
  cached: 0,
  ...part,
})

/** One token per word or tag; the vocabulary grows as words come. */
export function wordTokenizer(): ChatTokenizer & { END: number } {
  const ids = new Map<string, number>()
  const words: string[] = []
  const idOf = (word: string): number => {
    const known = ids.get(word)
    if (known !== undefined) return known
    ids.set(word, words.length)
    words.push(word)
    return words.length - 1
  }
  const END = idOf('<|end|>')
  const encode = (text: string): number[] => (text.match(/<[^<>\s]+>|[^\s<]+|</g) ?? []).map(idOf)
  const wrap = ({ role, content }: Pick<Message, 'content'> & { role: string }): number[] => [
    idOf(`<|${role}|>`),
    ...encode(content),
    END,
  ]
  return {
    END,
    encode,
    encodePrompt: (messages) => [...messages.flatMap(wrap), idOf('<|assistant|>')],
    encodeContinuation: (messages) => [END, ...messages.flatMap(wrap), idOf('<|assistant|>')],
    decode: (tokens) => tokens.map((id) => words[id]).join(' '),
  }
}

export type Line =
  | string
  | Partial<Generation>
  | Failure
  | 'hang'
  | ((request: GenerateRequest) => string | Promise<string>)

const isFailure = (line: Line): line is Failure => typeof line === 'object' && 'boundary' in line

/** Says the lines in order, then the last one again; each trajectory starts from the first line. Works in tokens unless `textOnly`. */
export function scriptedPolicy(
  lines: readonly Line[],
  settings: { textOnly?: boolean; contextLength?: number; version?: () => string; tokenizer?: ChatTokenizer } = {},
) {
  const tokenizer = settings.tokenizer ?? wordTokenizer()
  const requests: GenerateRequest[] = []
  const turns = new Map<string, number>()
  const ended: string[] = []
  const policy: Policy = {
    name: 'scripted',
    version: '0',
    contextLength: settings.contextLength ?? null,
    ...(settings.textOnly ? {} : { tokenizer }),
    async generate(request): Promise<Result<Generation>> {
      requests.push({ ...request, messages: [...request.messages] })
      const session = request.session ?? ''
      const turn = turns.get(session) ?? 0
      turns.set(session, turn + 1)
      const line = lines[Math.min(turn, lines.length - 1)] as Line
      if (line === 'hang') return new Promise(() => {})
      if (isFailure(line)) return { ok: false, failure: line }
      const said =
        typeof line === 'function' ? await line(request) : typeof line === 'string' ? line : (line.text ?? '')
      const all = tokenizer.encode(said)
      const tokenIds = all.slice(0, request.sampling.maxTokens)
      const made: Generation = {
        text: settings.textOnly ? said : tokenizer.decode(tokenIds),
        tokenIds: settings.textOnly ? null : tokenIds,
        logprobs: settings.textOnly ? null : tokenIds.map((id) => -0.1 - id / 1000),
        finishReason: all.length > tokenIds.length ? 'length' : 'stop',
        version: settings.version?.() ?? '0',
        usage: usageOf({
          promptTokens: request.promptIds?.length ?? 10 * request.messages.length,
          completionTokens: tokenIds.length,
        }),
      }
      return { ok: true, value: typeof line === 'object' ? { ...made, ...line } : made }
    },
    endSession: (session) => void ended.push(session),
    async close() {},
  }
  return { policy, requests, ended, tokenizer }
}

type Scripted<T> = T | Failure | 'hang' | 'throw'

/** Agents that answer from lists, the last entry again and again; they keep what they were asked. */
export function scriptedAgents(
  clips: readonly Scripted<string>[] = ['e1_seg01_clip_00'],
  sights: readonly Scripted<string>[] = ['a red mug'],
) {
  const asked = { ground: [] as GroundingRequest[], look: [] as VisionRequest[] }
  const answer = async <T>(line: Scripted<string>, build: (text: string) => T): Promise<Result<T>> => {
    if (line === 'hang') return new Promise(() => {})
    if (line === 'throw') throw new Error('scripted agent broke')
    return typeof line === 'string' ? { ok: true, value: build(line) } : { ok: false, failure: line }
  }
  const agents: Agents = {
    grounding: {
      name: 'scripted-grounding',
      ground: (request) => {
        asked.ground.push(request)
        return answer(clips[Math.min(asked.ground.length, clips.length) - 1] as Scripted<string>, (clipId) => ({
          clipId,
          reason: 'scripted',
          usage: usageOf({ costUsd: 0.5 }),
        }))
      },
    },
    vision: {
      name: 'scripted-vision',
      look: (request) => {
        asked.look.push(request)
        return answer(sights[Math.min(asked.look.length, sights.length) - 1] as Scripted<string>, (text) => ({
          text,
          frames: [{ clipId: request.clips[0]?.id ?? '', time: 1 }],
          usage: usageOf({ frames: 3 }),
        }))
      },
    },
  }
  return { agents, asked }
}

/** Episode e1 with `clips` clips of one line each; five options. */
export function tinyTask(qid = 'q1', clips = 4): Task {
  const all: Clip[] = Array.from({ length: clips }, (_, index) => ({
    id: `e1_seg01_clip_0${index}`,
    index,
    start: index * 10,
    end: index * 10 + 10,
    subtitles: [{ speaker: 'Ann', text: `line ${index}` }],
    source: { kind: 'none' },
  }))
  return {
    episode: { id: 'e1', show: 'test', clips: all },
    question: {
      qid,
      episodeId: 'e1',
      text: 'what does Ann hold ?',
      options: ['a cup', 'a mug', 'a hat', 'a key', 'a map'],
    },
  }
}

export const GROUND = '<request_grounding/>'
export const look = (query: string): string => `<visual_query>${query}</visual_query>`
export const answer = (label: string): string => `<answer>${label}</answer>`
export const failure = (boundary: Failure['boundary'], kind: Failure['kind'] = 'timeout'): Failure => ({
  boundary,
  kind,
  message: `scripted ${boundary} failure`,
})
