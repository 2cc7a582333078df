/** `/v1/rewards`: a client tells how a captured session went, which closes it. */
import type { IncomingHttpHeaders } from 'node:http'
import { z } from 'zod'
import type { Capture, Closed } from './capture.ts'
import { ApiError } from './errors.ts'
import { flag, parse } from './schema.ts'

const rewardRequest = z
  .object({
    session_id: z.string().min(1),
    // null says that there is none; left out by mistake it must not become a trajectory without a reward, let alone with 0
    reward: z.number().nullable(),
    correct: flag,
  })
  .strict()

export async function rewardCall(
  capture: Capture | undefined,
  body: unknown,
  headers: IncomingHttpHeaders,
): Promise<Closed> {
  if (capture === undefined) throw new ApiError(400, 'Nothing is captured here: start the server with --capture.')
  const request = parse(rewardRequest, body)
  return capture.reward(request.session_id, headers, request.reward, request.correct === true)
}
