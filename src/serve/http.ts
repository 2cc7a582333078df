/**
 * What every HTTP server of this room has: limits, keys, errors in OpenAI's form, counted and logged requests, and an end that lets running
 * requests finish. Has no routes.
 */
import { setMaxListeners } from 'node:events'
import { type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import fastify, { type FastifyError, type FastifyInstance, type FastifyReply, type FastifyRequest } from 'fastify'
import { ApiError, describeError, errorBody } from './errors.ts'
import type { Keys } from './keys.ts'
import type { Metrics } from './metrics.ts'
import type { ServeOptions } from './options.ts'

export interface HttpParts {
  options: ServeOptions
  keys: Keys
  metrics: Metrics
  log(line: string): void
}

export interface HttpServer {
  server: FastifyInstance
  /** Aborted with a 503 when the grace time is over. */
  closing: AbortSignal
}

/** `onClosing` is called when the server was asked to close, before it waits. */
export function createHttpServer({ options, keys, metrics, log }: HttpParts, onClosing: () => void): HttpServer {
  const server = fastify({
    bodyLimit: options.bodyLimitBytes,
    requestTimeout: options.bodySeconds * 1000,
    // nothing is read or written for as long as any request may take: its client does not read its answer
    connectionTimeout: (options.deadlineSeconds + options.bodySeconds) * 1000,
    keepAliveTimeout: options.keepAliveSeconds * 1000,
    // looked after every second; Node's own half minute would make short limits long
    http: { headersTimeout: options.headerSeconds * 1000, connectionsCheckingInterval: 1000 },
    logger: false,
    clientErrorHandler: answerNonsense,
    // after preClose only connections without a request are left; clients keep spare ones open
    forceCloseConnections: true,
  })
  const closing = new AbortController()
  // each request listens
  setMaxListeners(0, closing.signal)
  const active = new Set<ServerResponse>()

  server.addHook('onRequest', async (request, reply) => {
    const begun = performance.now()
    active.add(reply.raw)
    reply.raw.on('close', () => {
      active.delete(reply.raw)
      const status = reply.raw.writableEnded ? reply.raw.statusCode : 499
      const route = request.routeOptions.url ?? 'unknown'
      metrics.requests.inc({ route, status: String(status) })
      if (options.log !== 'none')
        log(`${request.ip} ${request.method} ${route} ${status} ${Math.round(performance.now() - begun)} ms`)
    })
  })
  server.addHook('preClose', async () => {
    onClosing()
    const done = Promise.all([...active].map((response) => new Promise((resolve) => response.on('close', resolve))))
    const grace = setTimeout(() => closing.abort(closed()), options.graceSeconds * 1000)
    // a client that does not read its answer is not waited for
    const unread = new Promise((resolve) =>
      closing.signal.addEventListener('abort', () => setTimeout(resolve, 1000).unref()),
    )
    await Promise.race([done, unread])
    clearTimeout(grace)
  })
  server.addHook('onRequest', async (request) => requireKey(request, keys))
  server.setErrorHandler((error: FastifyError | ApiError, _request, reply) => answerError(error, reply))
  server.setNotFoundHandler((request, reply) => {
    const message = `There is no ${request.method} ${request.url} here; try /v1/models, /v1/chat/completions, /v1/completions or /health.`
    return reply.code(404).send(errorBody(404, message, null, 'not_found'))
  })
  return { server, closing: closing.signal }
}

/** What requests are answered with that a closing server does not begin or finish. */
export function closed(): ApiError {
  return new ApiError(503, 'The server is closing; send this to another, or again later.', {
    code: 'closing',
    retrySeconds: 5,
  })
}

function requireKey(request: FastifyRequest, keys: Keys) {
  if (!keys.required || request.url === '/health') return
  const given = request.headers.authorization?.replace(/^Bearer /i, '') ?? ''
  if (keys.accept(given)) return
  throw new ApiError(401, 'The API key is missing or wrong: send it as "Authorization: Bearer KEY".', {
    code: 'invalid_api_key',
  })
}

/** What came is no request, or not within the time for it: nobody is there to answer but the socket. */
function answerNonsense({ code }: NodeJS.ErrnoException, socket: Socket) {
  if (code === 'ECONNRESET' || !socket.writable) return socket.destroy()
  const [status, problem] =
    code === 'ERR_HTTP_REQUEST_TIMEOUT'
      ? [408, 'The request did not come within the time for it; send it again.']
      : code === 'HPE_HEADER_OVERFLOW'
        ? [431, 'The headers are too long.']
        : [400, 'This is no HTTP request.']
  const body = JSON.stringify(errorBody(status, problem))
  const head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nconnection: close`
  socket.end(`${head}\r\n\r\n${body}`)
}

function answerError(error: FastifyError | ApiError, reply: FastifyReply) {
  const { statusCode, body } = describeError(error)
  if (error instanceof ApiError && error.retrySeconds !== null) reply.header('retry-after', String(error.retrySeconds))
  return reply.code(statusCode).send(body)
}
