/** When the work for a request is over before it is done: its client is gone, its time is, or the server's. Knows no policies. */
import { setMaxListeners } from 'node:events'
import type { FastifyReply } from 'fastify'
import { ApiError } from './errors.ts'

/**
 * Aborted with an `ApiError` when the client goes away, when `closing` is, or after so many seconds with `late`. Whoever answers may abort
 * it too. Lets go of `closing` when the connection is done, which AbortSignal.any does not.
 */
export function abortFor(reply: FastifyReply, closing: AbortSignal, seconds: number, late: string): AbortController {
  const abort = new AbortController()
  // each sequence of a request listens
  setMaxListeners(0, abort.signal)
  const deadline = setTimeout(() => abort.abort(new ApiError(504, late, { code: 'timeout' })), seconds * 1000)
  const close = () => abort.abort(closing.reason)
  if (closing.aborted) close()
  closing.addEventListener('abort', close, { once: true })
  reply.raw.on('close', () => {
    clearTimeout(deadline)
    closing.removeEventListener('abort', close)
    if (!reply.raw.writableEnded) abort.abort(new ApiError(499, 'The client went away.'))
  })
  return abort
}
