/** A chat endpoint on 127.0.0.1 whose replies the test scripts, one per request; the last one repeats. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'

export interface ReceivedBody {
  model: string
  temperature?: number
  max_tokens?: number
  messages: { role: string; content: string | { type: string; text?: string; image_url?: { url: string } }[] }[]
}

export type ScriptedReply = (response: ServerResponse, body: ReceivedBody, request: IncomingMessage) => void

export interface ChatServer {
  baseUrl: string
  received: ReceivedBody[]
  script(...replies: ScriptedReply[]): void
  close(): Promise<void>
}

export async function startChatServer(): Promise<ChatServer> {
  let replies: ScriptedReply[] = []
  const received: ReceivedBody[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const body = JSON.parse(Buffer.concat(chunks).toString('utf8')) as ReceivedBody
    received.push(body)
    const reply = replies.length > 1 ? replies.shift()! : replies[0]!
    reply(response, body, request)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    baseUrl: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    received,
    script(...next) {
      replies = next
      received.length = 0
    },
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}

export const says =
  (content: string | null, usage = { prompt_tokens: 1000, completion_tokens: 20 }): ScriptedReply =>
  (response) => {
    response.setHeader('content-type', 'application/json')
    response.end(
      JSON.stringify({
        id: 'x',
        object: 'chat.completion',
        choices: [{ index: 0, finish_reason: 'stop', message: { role: 'assistant', content } }],
        usage,
      }),
    )
  }

export const status =
  (code: number, headers: Record<string, string> = {}): ScriptedReply =>
  (response) => {
    response.writeHead(code, { 'content-type': 'application/json', ...headers })
    response.end(JSON.stringify({ error: { message: `status ${code}`, type: 'error', param: null, code: null } }))
  }

export const raw =
  (text: string, type = 'application/json'): ScriptedReply =>
  (response) => {
    response.setHeader('content-type', type)
    response.end(text)
  }

/** Accepts the request and never answers. */
export const hangs: ScriptedReply = () => undefined

/** Answers with headers and half a body, then nothing. */
export const stalls: ScriptedReply = (response) => {
  response.writeHead(200, { 'content-type': 'application/json', 'content-length': '1000' })
  response.write('{"id":"x","choices":[')
}
