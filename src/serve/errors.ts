/** Errors as OpenAI's clients expect them: `{"error": {message, type, param, code}}` with a status that says whose fault it is. */
import type { Failure, FailureKind } from '../types.ts'

/** Thrown inside a request; the server's one error handler answers with it. */
export class ApiError extends Error {
  readonly statusCode: number
  readonly param: string | null
  readonly code: string | null
  /** For the header Retry-After. */
  readonly retrySeconds: number | null

  constructor(
    statusCode: number,
    message: string,
    {
      param = null,
      code = null,
      retrySeconds = null,
    }: { param?: string | null; code?: string | null; retrySeconds?: number | null } = {},
  ) {
    super(message)
    this.statusCode = statusCode
    this.param = param
    this.code = code
    this.retrySeconds = retrySeconds
  }
}

export function errorBody(
  statusCode: number,
  message: string,
  param: string | null = null,
  code: string | null = null,
) {
  const type =
    statusCode === 401
      ? 'authentication_error'
      : statusCode === 429
        ? 'rate_limit_error'
        : statusCode < 500
          ? 'invalid_request_error'
          : 'server_error'
  return { error: { message, type, param, code } }
}

const STATUS: Record<FailureKind, number> = {
  bad_request: 400,
  context_limit: 400,
  rate_limited: 429,
  // 499: the client went away (nginx); nobody reads it
  cancelled: 499,
  timeout: 504,
  unreachable: 502,
  server_error: 502,
  bad_response: 502,
  missing_file: 500,
  bad_file: 500,
  disk_full: 500,
}

/** What a client is told when the policy could not generate. */
export function apiErrorOf(failure: Failure): ApiError {
  const code = failure.kind === 'context_limit' ? 'context_length_exceeded' : failure.kind
  return new ApiError(STATUS[failure.kind], failure.message, { code })
}

/** What a client is told: our own errors and the framework's about the request as they are, anything else as a bug of ours. */
export function describeError(error: Error & { statusCode?: number; code?: string | null }) {
  const statusCode = error.statusCode ?? 500
  if (error instanceof ApiError)
    return { statusCode, body: errorBody(statusCode, error.message, error.param, error.code) }
  if (statusCode < 500) return { statusCode, body: errorBody(statusCode, error.message, null, error.code ?? null) }
  console.error(error)
  return { statusCode: 500, body: errorBody(500, 'The server failed; its log says why.') }
}
