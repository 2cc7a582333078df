/** The tiny model that transformers made (test/golden/trl-grpo), with a chat template that knows tools, behind HTTP. */
import { cp, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import OpenAI from 'openai'
import { engineOptions } from '../../src/engine/options.ts'
import { type RunningServer, startServer } from '../../src/serve/open.ts'
import { serveOptions } from '../../src/serve/options.ts'

export const golden = resolve(import.meta.dirname, '../golden/trl-grpo')
export const engine = engineOptions.parse({ threads: 1 })

/** Calls as Hermes models write them: arguments as JSON between tags. */
const template = `{% if tools %}<|im_start|>system
Tools:
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}Call one with <tool_call>{"name": ..., "arguments": ...}</tool_call><|im_end|>
{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if think %}<think>{% endif %}{% endif %}`

/** What transformers computed with the model. */
export interface Forward {
  input_ids: number[][]
  /** Of each token but the first: [2][T - 1]. */
  logprobs: number[][]
  greedy_continuation_of_row_0: number[]
}

export interface TinyServer extends RunningServer {
  client: OpenAI
  forward: Forward
  /** A raw request, for what the client would not send. */
  post(path: string, body: unknown, headers?: Record<string, string>): Promise<Reply>
}

export interface Reply {
  status: number
  body: Record<string, unknown>
  headers: Headers
}

/** Serves it as `tiny`. */
export async function startTiny(options: Record<string, unknown> = {}): Promise<TinyServer> {
  const folder = await mkdtemp(join(tmpdir(), 'showrunner-tiny-'))
  const model = join(folder, 'tiny')
  await cp(join(golden, 'tiny-qwen2'), model, { recursive: true })
  await writeFile(join(model, 'chat_template.jinja'), template)
  const started = await startServer(model, engine, serveOptions.parse({ port: 0, ...options }))
  if (!started.ok) throw new Error(started.failure.message)
  const { url, close } = started.value
  return {
    ...started.value,
    client: new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 }),
    forward: JSON.parse(await readFile(join(golden, 'forward.json'), 'utf8')),
    post: (path, body, headers) => post(url, path, body, headers),
    async close() {
      const closed = await close()
      await rm(folder, { recursive: true })
      return closed
    },
  }
}

export async function post(
  url: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Reply> {
  const response = await fetch(`${url}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  return {
    status: response.status,
    body: (await response.json()) as Record<string, unknown>,
    headers: response.headers,
  }
}
