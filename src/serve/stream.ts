/** Server-sent events: `data: {...}` lines, a comment now and then while nothing comes, `data: [DONE]` at the end. */
import type { ServerResponse } from 'node:http'

/** Proxies and clients drop connections that are silent for long. */
const KEEP_ALIVE_SECONDS = 10

export function eventStream(response: ServerResponse, headers: Record<string, string>) {
  response.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-cache',
    ...headers,
  })
  response.flushHeaders()
  const keepAlive = setInterval(() => response.write(': waiting\n\n'), KEEP_ALIVE_SECONDS * 1000)
  response.on('close', () => clearInterval(keepAlive))
  const send = (data: unknown) => {
    if (!response.destroyed) response.write(`data: ${JSON.stringify(data)}\n\n`)
  }
  const close = () => {
    clearInterval(keepAlive)
    response.end()
  }
  return {
    send,
    end() {
      if (!response.destroyed) response.write('data: [DONE]\n\n')
      close()
    },
    /** The status was sent long ago: the error itself is the last event, and no [DONE] follows. */
    fail(error: unknown) {
      send(error)
      close()
    },
  }
}
