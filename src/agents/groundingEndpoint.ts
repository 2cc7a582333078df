/**
 * Grounding behind a chat endpoint: the question, its options and every clip's subtitles in, one clip label out (spec 1.6, rows 17, 18, 40).
 * The label is checked against the episode: an unknown one is a failure, never a clip.
 */
import type { ChatCompletionMessageParam } from 'openai/resources/chat/completions'
import type { Episode, GroundingAgent, GroundingRequest } from '../types.ts'
import type { AnswerCache } from './cache.ts'
import type { ChatEndpoint, ChatReply } from './endpoint.ts'
import { failed } from './failure.ts'
import { spoken } from './groundingEmbedded.ts'
import { oneCall, secondsSince } from './usage.ts'

const instructions = [
  'You find the place in a long video where a question can be answered. You are given the question, its answer options, and the subtitles of the video, clip by clip:',
  'each line is one clip, its label as a tag around what is said in it. A clip may be silent.',
  'Think about which clip holds the evidence, seen or heard, then reply with one short sentence that says why, followed by the label of that one clip, copied exactly, like this:',
  '<clip>label</clip>',
].join('\n')

export function openGroundingEndpoint(endpoint: ChatEndpoint, cache: AnswerCache, model: string): GroundingAgent {
  return {
    name: `endpoint:${model}`,
    async ground(request, { signal }) {
      const begin = performance.now()
      const messages = prompt(request)
      const answered = await cache.answer<ChatReply>({
        content: ['grounding', endpoint.identity, messages],
        boundary: 'grounding',
        what: `grounding question ${request.question.qid} with ${model}`,
        signal,
        answer: (shared) => endpoint.ask(messages, shared),
      })
      if (!answered.ok) return answered
      const { value, cached } = answered.value
      const written = /<clip>([\s\S]*?)<\/clip>/i.exec(value.text)?.[1]
      if (written === undefined)
        return failed(
          'grounding',
          'bad_response',
          `${model}: expected <clip>label</clip>, got "${value.text.slice(0, 120)}"`,
        )
      const clipId = normaliseClipLabel(written, request.episode)
      if (clipId === null)
        return failed(
          'grounding',
          'bad_response',
          `${model}: expected a clip of ${request.episode.id}, got "${written.trim().slice(0, 80)}"`,
        )
      const reason = value.text
        .replace(/<clip>[\s\S]*$/i, '')
        .replace(/\s+/g, ' ')
        .trim()
        .slice(0, 300)
      const spent = cached ? { cached: 1 } : value.usage
      return { ok: true, value: { clipId, reason, usage: oneCall({ ...spent, seconds: secondsSince(begin) }) } }
    },
  }
}

function prompt({ episode, question, visited, query }: GroundingRequest): ChatCompletionMessageParam[] {
  const lines = episode.clips.map(
    ({ id, subtitles }) => `<${id}>${subtitles.map((line) => withoutTags(spoken(line))).join(' ')}</${id}>`,
  )
  // in the episode's order: the same set of clips is the same question (row 40)
  const known = episode.clips.filter(({ id }) => visited.includes(id)).map(({ id }) => id)
  const shown =
    known.length > 0
      ? `\n\nThese clips were already looked at and did not settle the question; choose another one: ${known.join(', ')}`
      : ''
  const wanted = query === undefined ? '' : `\n\nWho answers the question now looks for this: ${withoutTags(query)}`
  const options = question.options.map((option, index) => `a${index}: ${option}`)
  return [
    { role: 'system', content: instructions },
    {
      role: 'user',
      content: `Question: ${question.text}\n${options.join('\n')}\n\nClips:\n${lines.join('\n')}${shown}${wanted}`,
    },
  ]
}

/** Subtitles must not look like a clip of their own. */
function withoutTags(text: string): string {
  return text.replace(/[<>]/g, ' ')
}

/** The episode's clip that a label means: brackets and quotes stripped, the episode's name added where it was left out. Null when there is none. */
export function normaliseClipLabel(written: string, episode: Episode): string | null {
  const label = written
    .trim()
    .replace(/^[<[({"'`\s]+|[>\])}"'`.,/\s]+$/g, '')
    .toLowerCase()
  const named = (id: string) => episode.clips.find((clip) => clip.id.toLowerCase() === id)?.id
  return named(label) ?? named(`${episode.id.toLowerCase()}_${label}`) ?? null
}
