/**
 * Captions that were made before: a JSON file `{ video: [caption per second] }`, such as those of EgoSchema or NExT-QA (spec systems.md,
 * section 3.1). The video is the episode's id. Looks at nothing.
 */
import { readFile } from 'node:fs/promises'
import type { Agent, CaptionAnswer, CaptionRequest, Result } from '../types.ts'
import { failed, reasonOf } from './failure.ts'
import { furtherAgent } from './furtherAgent.ts'
import { oneCall } from './usage.ts'

export interface StoredCaptionsOptions {
  path: string
  /** Caption i is of the moments from i times this, in seconds. */
  secondsPerCaption: number
}

export function openCaptionerStored({
  path,
  secondsPerCaption,
}: StoredCaptionsOptions): Agent<CaptionRequest, CaptionAnswer> {
  let loading: Promise<Result<Record<string, unknown>>> | null = null
  return furtherAgent('captioner', 'stored', async ({ episode, times }) => {
    loading ??= load(path)
    const file = await loading
    if (!file.ok) return file
    if (!Object.hasOwn(file.value, episode.id))
      return failed(
        'agent',
        'missing_file',
        `${path}: no captions of video ${episode.id}; make them, or use another captioner`,
      )
    const lines = file.value[episode.id]
    if (!isCaptions(lines))
      return failed(
        'agent',
        'bad_file',
        `${path}: video ${episode.id}: expected a list of captions, got ${JSON.stringify(lines)?.slice(0, 60)}`,
      )
    const captions = times
      .map((time) => ({ time, text: plain(lines[Math.floor(time / secondsPerCaption)] ?? '') }))
      .filter(({ text }) => text !== '')
    const unknown = times.length - captions.length
    return {
      ok: true,
      value: {
        captions,
        frames: [],
        caveat: unknown === 0 ? null : `there is no caption of ${unknown} of ${times.length} moments .`,
        usage: oneCall({}),
      },
    }
  })
}

async function load(path: string): Promise<Result<Record<string, unknown>>> {
  try {
    const content: unknown = JSON.parse(await readFile(path, 'utf8'))
    if (typeof content === 'object' && content !== null && !Array.isArray(content))
      return { ok: true, value: content as Record<string, unknown> }
    return failed(
      'agent',
      'bad_file',
      `${path}: expected {"video": ["caption of its first second", ...]}, got something else`,
    )
  } catch (error) {
    const kind = error instanceof SyntaxError ? 'bad_file' : 'missing_file'
    return failed(
      'agent',
      kind,
      `${path}: cannot read these captions (${reasonOf(error)}); check agents.captioner.path`,
    )
  }
}

function isCaptions(lines: unknown): lines is readonly string[] {
  return Array.isArray(lines) && lines.every((line) => typeof line === 'string')
}

/** One line: what wrote the file may have broken it. */
function plain(text: string): string {
  return text.replace(/\s+/g, ' ').trim()
}
