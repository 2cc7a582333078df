/** Opens the further agents that the options name, over one set of models, frames and caches. Nothing is loaded before the first request. */
import type { AgentKind, FurtherAgents, Result } from '../types.ts'
import type { FrameReader } from '../video/index.ts'
import type { Behind } from './askEndpoint.ts'
import type { AnswerCache } from './cache.ts'
import { openCaptionerEmbedded } from './captionerEmbedded.ts'
import { openCaptionerEndpoint } from './captionerEndpoint.ts'
import { openCaptionerStored } from './captionerStored.ts'
import { openChatEndpoint } from './endpoint.ts'
import { openFrameInspectionEmbedded } from './frameInspectionEmbedded.ts'
import { openFrameInspectionEndpoint } from './frameInspectionEndpoint.ts'
import { openFrameRetrieval } from './frameRetrieval.ts'
import { vectorScorer, wordScorer } from './frameScores.ts'
import { openObjectTracking } from './objectTracking.ts'
import type { AgentsOptions, EndpointOptions } from './options.ts'
import type { Perception } from './perception.ts'
import type { Embed } from './relevance.ts'
import { openSceneGraphEmbedded } from './sceneGraphEmbedded.ts'
import { openSceneGraphEndpoint } from './sceneGraphEndpoint.ts'
import { openSegmentScoringEmbedded } from './segmentScoringEmbedded.ts'
import { openSegmentScoringEndpoint } from './segmentScoringEndpoint.ts'
import { openSight } from './sight.ts'
import { openSubtitlesEmbedded } from './subtitlesEmbedded.ts'
import { openSubtitlesEndpoint } from './subtitlesEndpoint.ts'
import { openSummaryEmbedded } from './summaryEmbedded.ts'
import { openSummaryEndpoint } from './summaryEndpoint.ts'
import { openTemporalGrounding } from './temporalGrounding.ts'
import { openVectorEndpoint, type VectorEndpoint } from './vectorEndpoint.ts'
import { embeddedComparer, openVisualSimilarity, vectorComparer } from './visualSimilarity.ts'

export interface FurtherParts {
  frames: FrameReader
  perception: Perception
  threads: number
  embed: Embed
  answers: AnswerCache
  percepts: AnswerCache
}

/** Fails when an endpoint's key is not set. */
export function openFurtherAgents(options: AgentsOptions, parts: FurtherParts): Result<FurtherAgents> {
  const { frames, embed } = parts
  const sight = openSight(parts, options.sight)
  const endpoints = openEndpoints(parts.answers)
  const opened: { [Kind in AgentKind]: Result<FurtherAgents[Kind]> } = {
    captioner:
      options.captioner.type === 'stored'
        ? { ok: true, value: openCaptionerStored(options.captioner) }
        : endpoints.chat(
            options.captioner,
            () => openCaptionerEmbedded(sight),
            (behind, own) => openCaptionerEndpoint(behind, frames, own),
          ),
    summary: endpoints.chat(options.summary, (own) => openSummaryEmbedded(embed, own), openSummaryEndpoint),
    subtitles: endpoints.chat(options.subtitles, (own) => openSubtitlesEmbedded(embed, own), openSubtitlesEndpoint),
    segmentScoring: endpoints.chat(
      options.segmentScoring,
      (own) => openSegmentScoringEmbedded(sight, embed, own),
      (behind, own) => openSegmentScoringEndpoint(behind, frames, own),
    ),
    frameRetrieval: endpoints.vectors(
      options.frameRetrieval,
      (own) => openFrameRetrieval(wordScorer(sight, embed, own)),
      (vectors, own) => openFrameRetrieval(vectorScorer(vectors, frames, own)),
    ),
    temporalGrounding: endpoints.vectors(
      options.temporalGrounding,
      (own) => openTemporalGrounding(wordScorer(sight, embed, own)),
      (vectors, own) => openTemporalGrounding(vectorScorer(vectors, frames, own)),
    ),
    frameInspection: endpoints.chat(
      options.frameInspection,
      (own) => openFrameInspectionEmbedded(sight, own),
      (behind, own) => openFrameInspectionEndpoint(behind, frames, own),
    ),
    sceneGraph: endpoints.chat(
      options.sceneGraph,
      () => openSceneGraphEmbedded(sight),
      (behind, own) => openSceneGraphEndpoint(behind, frames, own),
    ),
    objectTracking: { ok: true, value: openObjectTracking(sight, options.objectTracking) },
    visualSimilarity: endpoints.vectors(
      options.visualSimilarity,
      () => openVisualSimilarity(embeddedComparer(sight)),
      (vectors, own) => openVisualSimilarity(vectorComparer(vectors, frames, own)),
    ),
  }
  const agents: Partial<FurtherAgents> = {}
  for (const [kind, agent] of Object.entries(opened)) {
    if (!agent.ok) return agent
    Object.assign(agents, { [kind]: agent.value })
  }
  // the record above names every kind
  return { ok: true, value: agents as FurtherAgents }
}

type Ours<Options> = Extract<Options, { type: 'embedded' }>
type Theirs<Options> = Extract<Options, { type: 'endpoint' }>

/** Opens the body that options name. Agents with the same endpoint share its connections and its limit of requests in flight. */
function openEndpoints(answers: AnswerCache) {
  const chats = new Map<string, Result<Behind>>()
  const makers = new Map<string, Result<VectorEndpoint>>()
  return {
    chat<Options extends { type: string }, Body>(
      options: Options,
      embedded: (own: Ours<Options>) => Body,
      endpoint: (behind: Behind, own: Theirs<Options>) => Body,
    ): Result<Body> {
      if (options.type === 'embedded') return { ok: true, value: embedded(options as Ours<Options>) }
      const own = options as Theirs<Options> & EndpointOptions
      const behind = once(chats, own, (): Result<Behind> => {
        const opened = openChatEndpoint('agent', own)
        return opened.ok ? { ok: true, value: { endpoint: opened.value, model: own.model, answers } } : opened
      })
      return behind.ok ? { ok: true, value: endpoint(behind.value, own) } : behind
    },
    vectors<Options extends { type: string }, Body>(
      options: Options,
      embedded: (own: Ours<Options>) => Body,
      endpoint: (vectors: VectorEndpoint, own: Theirs<Options>) => Body,
    ): Result<Body> {
      if (options.type === 'embedded') return { ok: true, value: embedded(options as Ours<Options>) }
      const own = options as Theirs<Options> & EndpointOptions
      const vectors = once(makers, own, () => openVectorEndpoint(own, answers))
      return vectors.ok ? { ok: true, value: endpoint(vectors.value, own) } : vectors
    },
  }
}

function once<T>(known: Map<string, T>, options: EndpointOptions, open: () => T): T {
  const key = JSON.stringify(options)
  const before = known.get(key)
  if (before !== undefined) return before
  const opened = open()
  known.set(key, opened)
  return opened
}
