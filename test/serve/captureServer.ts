/** A server that captures what is sampled from a made policy, for tests of sessions, and the process that gets killed in them. */
import { pathToFileURL } from 'node:url'
import { type Capture, openCapture } from '../../src/serve/capture.ts'
import { keysOf } from '../../src/serve/keys.ts'
import { ModelRegistry } from '../../src/serve/models.ts'
import { type ServeOptions, serveOptions } from '../../src/serve/options.ts'
import { createServer } from '../../src/serve/server.ts'
import { readSegments, readTrajectories } from '../../src/trajectory/read.ts'
import type { SegmentRow, TrajectoryRow } from '../../src/trajectory/schema.ts'
import type { ChatTokenizer, GenerateRequest, Generation, Policy, Result } from '../../src/types.ts'
import { letters } from './letters.ts'

/**
 * Answers with the text after the last `say ` of its prompt, letter by letter; the log-probability of a letter is its code divided by
 * minus 128, which float32 keeps as it is. `wait N ` before it: answers after so many milliseconds.
 */
export class SayingPolicy implements Policy {
  readonly name = 'saying'
  version = 'saying@1'
  readonly contextLength = 10_000

  readonly tokenizer?: ChatTokenizer

  /** null: it works in messages only. */
  constructor(tokenizer: ChatTokenizer | null = letters) {
    if (tokenizer) this.tokenizer = tokenizer
  }

  async generate({ promptIds, messages, sampling, signal }: GenerateRequest): ReturnType<Policy['generate']> {
    const { version } = this
    const prompt = promptIds ? letters.decode(promptIds).replaceAll('\u0100', 'ab') : (messages.at(-1)?.content ?? '')
    const words = /(?:wait (\d+) )?say ((?:(?!say )[^\n])*)\n?(?:assistant:)?$/.exec(prompt)
    const wait = Number(words?.[1] ?? 0)
    await new Promise((resolve) => {
      const timer = setTimeout(resolve, wait)
      signal?.addEventListener('abort', () => resolve(clearTimeout(timer)))
    })
    const ids = letters.encode(words?.[2] ?? '?').slice(0, sampling.maxTokens)
    const text = letters.decode(ids)
    const value: Generation = {
      text,
      tokenIds: this.tokenizer ? ids : null,
      logprobs: this.tokenizer ? ids.map(logprobOf) : null,
      finishReason: ids.length === sampling.maxTokens ? 'length' : 'stop',
      version,
      usage: {
        calls: 1,
        promptTokens: prompt.length,
        completionTokens: ids.length,
        frames: 0,
        seconds: 0,
        costUsd: 0,
        cached: 0,
      },
    }
    return { ok: true, value }
  }

  async close(): Promise<void> {}
}

export const logprobOf = (id: number) => -id / 128

export interface CaptureServer {
  url: string
  capture: Capture
  /** As Ctrl-C ends it. */
  close(): Promise<Result<void>>
}

export async function startCaptureServer(
  directory: string,
  policy: Policy = new SayingPolicy(),
  options: Partial<ServeOptions> = {},
  keys: readonly string[] = [],
): Promise<CaptureServer> {
  const settings = { ...serveOptions.parse({}), ...options, capture: directory }
  const captured = await openCapture(settings)
  if (!captured.ok || captured.value === null) throw new Error(JSON.stringify(captured))
  const models = new ModelRegistry()
  models.add({ name: 'saying', policy, created: new Date(), root: null, parent: null, stopStrings: [] })
  const { capture, close } = captured.value
  const server = createServer(settings, { models, keys: keysOf(keys), capture })
  const url = await server.listen({ host: '127.0.0.1', port: 0 })
  return {
    url,
    capture,
    async close() {
      await server.close()
      return close()
    },
  }
}

/** Everything that a store holds, also while it is written. */
export async function storedIn(directory: string): Promise<{ trajectories: TrajectoryRow[]; segments: SegmentRow[] }> {
  const [trajectories, segments] = [await readTrajectories(directory), await readSegments(directory)]
  if (!trajectories.ok || !segments.ok) throw new Error(JSON.stringify({ trajectories, segments }))
  const all = async <Row>(rows: AsyncIterable<Row>) => {
    const list: Row[] = []
    for await (const row of rows) list.push(row)
    return list
  }
  return { trajectories: await all(trajectories.value), segments: await all(segments.value) }
}

/** What a client of a session does. */
export function clientOf(url: string, headers: Record<string, string>) {
  const post = async (path: string, body: unknown) => {
    const response = await fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    })
    return {
      status: response.status,
      body: (await response.json()) as Record<string, never>,
      headers: response.headers,
    }
  }
  return {
    post,
    complete: (prompt: string, more: Record<string, unknown> = {}) =>
      post('/v1/completions', { model: 'saying', prompt, max_tokens: 100, ...more }),
    chat: (contents: readonly string[], more: Record<string, unknown> = {}) =>
      post('/v1/chat/completions', {
        model: 'saying',
        messages: contents.map((content, at) => ({ role: at % 2 === 0 ? 'user' : 'assistant', content })),
        ...more,
      }),
    reward: (reward: number | null, more: Record<string, unknown> = {}) =>
      post('/v1/rewards', { session_id: headers['x-session-id'], reward, ...more }),
  }
}

// started by a test to be killed: tells its address
const [, started, directory] = process.argv
if (started !== undefined && import.meta.url === pathToFileURL(started).href && directory !== undefined)
  console.log((await startCaptureServer(directory)).url)
