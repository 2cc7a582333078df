/**
 * Subtitle analysis behind a chat endpoint: all lines of the place in, numbers of those that bear on the query, who matters, and the topic
 * out (spec systems.md, section 3.2). Lines are quoted by number, so that what comes back was said.
 */
import { z } from 'zod'
import type { Agent, SubtitleAnswer, SubtitleRequest } from '../types.ts'
import { askJson, type Behind, inline } from './askEndpoint.ts'
import { dialogueOf, type PlacedLine, spokenLine } from './dialogue.ts'
import { furtherAgent } from './furtherAgent.ts'
import { oneCall } from './usage.ts'

const instructions = [
  'You read the subtitles of a video for somebody who has a question about it. Each line has a number, its time where that is known, and what is said.',
  'Find the lines that bear on the question, and those needed to understand them; find none where none do.',
  'Reply with JSON alone: {"lines": [numbers], "entities": ["who or what matters: its feeling or part in it", ...], "topic": "what the dialogue is about as a whole"}',
].join('\n')

const reply = z.object({
  lines: z.array(z.number().int()),
  entities: z.array(z.string()).default([]),
  topic: z.string().default(''),
})

export function openSubtitlesEndpoint(behind: Behind): Agent<SubtitleRequest, SubtitleAnswer> {
  return furtherAgent('subtitles', `endpoint:${behind.model}`, async (request, { signal }) => {
    const { query, count, episode } = request
    const here = dialogueOf(request)
    if (!here.ok) return here
    const available = episode.clips.some(({ subtitles }) => subtitles.length > 0)
    if (query === null || here.value.length === 0) {
      const rest = { available, entities: [], topic: '', frames: [], caveat: null, usage: oneCall({}) }
      return { ok: true, value: { ...rest, lines: here.value.slice(0, count) } }
    }
    const text = `Subtitles:\n${here.value.map(numbered).join('\n')}\n\nQuestion: ${inline(query)}\n\nName at most ${count} lines.`
    const answered = await askJson(behind, { agent: 'subtitles', instructions, text, signal }, reply)
    if (!answered.ok) return answered
    const { value, usage } = answered.value
    const chosen = [...new Set(value.lines)]
    const known = chosen.filter((number) => here.value[number - 1] !== undefined)
    const lines = known
      .slice(0, count)
      .sort((a, b) => a - b)
      .map((number) => here.value[number - 1]!)
    const invented = chosen.length - known.length
    return {
      ok: true,
      value: {
        available,
        lines,
        entities: value.entities,
        topic: value.topic,
        frames: [],
        caveat: invented === 0 ? null : `${invented} lines were named that there are not .`,
        usage,
      },
    }
  })
}

function numbered(line: PlacedLine, index: number): string {
  const time = line.start === null ? '' : ` [${line.start.toFixed(1)} s]`
  return `${index + 1}.${time} ${inline(spokenLine(line))}`
}
