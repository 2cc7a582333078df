/** The agents room's door: opens the grounding, the vision and the further agents that the options name. */
import { join } from 'node:path'
import type { Agents, Episode, Failure, FurtherAgents, GroundingAgent, Result, VisionAgent } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import { openFrameReader } from '../video/index.ts'
import { openCache } from './cache.ts'
import { cachedEmbed } from './embeddings.ts'
import { openChatEndpoint } from './endpoint.ts'
import { openFurtherAgents } from './further.ts'
import { openGroundingCache } from './groundingCache.ts'
import type { EmbeddedGrounding } from './groundingEmbedded.ts'
import { openGroundingEmbedded } from './groundingEmbedded.ts'
import { openGroundingEndpoint } from './groundingEndpoint.ts'
import type { AgentsOptions } from './options.ts'
import { type MarkedBoxes, withOracleBoxes } from './oracleBoxes.ts'
import type { Perception } from './perception.ts'
import { openPerception } from './perception.ts'
import type { Embed } from './relevance.ts'
import { openStore } from './store.ts'
import { openVisionDescriptions } from './visionDescriptions.ts'
import type { EmbeddedVision, PrepareOptions } from './visionEmbedded.ts'
import { openVisionEmbedded } from './visionEmbedded.ts'
import { openVisionEndpoint } from './visionEndpoint.ts'

export { checkGroundingCache, type GroundingRow, openGroundingWriter } from './groundingCache.ts'
export type { AgentsOptions } from './options.ts'
export { agentsOptions } from './options.ts'
export type { MarkedBox, MarkedBoxes } from './oracleBoxes.ts'
export type { QueryKind } from './query.ts'
export { queryKind } from './query.ts'
export type { PrepareOptions } from './visionEmbedded.ts'

export type OpenAgents = Agents &
  FurtherAgents & {
    /**
     * Lets the embedded agents see and read whole episodes ahead of any question, much faster than clip by clip; answers do not change, and what was
     * seen is kept (see `cacheDirectory`). Endpoint agents have nothing to prepare. Resolves to what could not be seen.
     */
    prepare(episodes: readonly Episode[], options?: PrepareOptions): Promise<readonly Failure[]>
    /** Finishes what the models have begun, writes what is cached, stops the threads. Requests that still wait fail. */
    close(): Promise<void>
  }

/**
 * Opens all agents; models load with the first request that needs them. Fails when an endpoint's key is not set.
 * @param boxes wanted with `options.oracleBoxes`, and only then.
 */
export async function openAgents(
  options: AgentsOptions,
  boxes: MarkedBoxes | null = null,
): Promise<Result<OpenAgents>> {
  if (options.oracleBoxes !== (boxes !== null)) throw new Error('openAgents: boxes go with oracleBoxes')
  const inCache = (name: string) => (options.cacheDirectory === null ? null : join(options.cacheDirectory, name))
  const perception = openPerception({ threads: options.threads, cacheDirectory: inCache('models') })
  const answers = openStore(inCache('answers.jsonl'))
  const percepts = openStore(inCache('percepts.jsonl'))
  const vectors = openStore(inCache('embeddings.jsonl'))
  const shared: Shared = {
    frames: openFrameReader(options.video),
    perception,
    threads: options.threads,
    embed: cachedEmbed(perception.embed, vectors),
    answers: openCache(answers, { replay: options.replay }),
    // The embedded models answer the same again: there is nothing to replay.
    percepts: openCache(percepts, { replay: false }),
  }
  const grounding = openGrounding(options.grounding, shared)
  if (!grounding.ok) return grounding
  const vision = openVision(options.vision, shared)
  if (!vision.ok) return vision
  const further = openFurtherAgents(options, shared)
  if (!further.ok) return further
  const prepare = async (episodes: readonly Episode[], preparing: PrepareOptions = {}) => {
    if ('prepare' in grounding.value) for (const episode of episodes) await grounding.value.prepare(episode)
    if (!('prepare' in vision.value)) return []
    return vision.value.prepare(
      episodes.flatMap((episode) => episode.clips),
      preparing,
    )
  }
  const close = async () => {
    await perception.close()
    await Promise.all([answers.settled(), percepts.settled(), vectors.settled()])
  }
  const { groundingCache } = options
  return {
    ok: true,
    value: {
      ...further.value,
      grounding: grounding.value,
      vision: boxes === null ? vision.value : withOracleBoxes(vision.value, boxes),
      ...(groundingCache === null ? {} : { groundingCache: openGroundingCache(groundingCache) }),
      prepare,
      close,
    },
  }
}

interface Shared {
  frames: FrameReader
  perception: Perception
  threads: number
  embed: Embed
  answers: ReturnType<typeof openCache>
  percepts: ReturnType<typeof openCache>
}

function openGrounding(
  options: AgentsOptions['grounding'],
  shared: Shared,
): Result<GroundingAgent | EmbeddedGrounding> {
  if (options.type === 'embedded') return { ok: true, value: openGroundingEmbedded(shared.embed, options) }
  const endpoint = openChatEndpoint('grounding', options)
  return endpoint.ok
    ? { ok: true, value: openGroundingEndpoint(endpoint.value, shared.answers, options.model) }
    : endpoint
}

function openVision(options: AgentsOptions['vision'], shared: Shared): Result<VisionAgent | EmbeddedVision> {
  switch (options.type) {
    case 'embedded':
      return { ok: true, value: openVisionEmbedded({ ...shared, cache: shared.percepts }, options) }
    case 'descriptions':
      return { ok: true, value: openVisionDescriptions(shared.embed, options) }
    case 'endpoint': {
      const endpoint = openChatEndpoint('vision', options)
      return endpoint.ok
        ? { ok: true, value: openVisionEndpoint(endpoint.value, shared.frames, shared.answers, options) }
        : endpoint
    }
  }
}
