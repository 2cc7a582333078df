/**
 * A question of a further agent to a chat endpoint, answered in words or in JSON that a schema accepts. Answers are kept by content; one that
 * cannot be read is a failure and is not kept. Knows no prompts.
 */
import type { ChatCompletionContentPart, ChatCompletionMessageParam } from 'openai/resources/chat/completions'
import type { z } from 'zod'
import type { AgentKind, Result, Usage } from '../types.ts'
import type { AnswerCache } from './cache.ts'
import type { ChatEndpoint, ChatReply } from './endpoint.ts'
import { failed } from './failure.ts'
import { oneCall } from './usage.ts'

export interface Behind {
  endpoint: ChatEndpoint
  model: string
  answers: AnswerCache
}

export interface Asking {
  agent: AgentKind
  instructions: string
  /** Pictures as URLs, then words. */
  pictures?: readonly string[]
  text: string
  signal: AbortSignal | undefined
}

export interface Answered<T> {
  value: T
  usage: Usage
}

export function askWords(behind: Behind, asking: Asking): Promise<Result<Answered<string>>> {
  return ask(behind, asking, (text) => ({ ok: true, value: withoutThoughts(text).trim() }))
}

export function askJson<T>(behind: Behind, asking: Asking, schema: z.ZodType<T>): Promise<Result<Answered<T>>> {
  return ask(behind, asking, (text) => {
    const said = withoutThoughts(text)
    const read = schema.safeParse(jsonIn(said))
    if (read.success) return { ok: true, value: read.data }
    const [issue] = read.error.issues
    const at = issue!.path.join('.')
    return failed(
      'agent',
      'bad_response',
      `${behind.model}: expected the JSON that was asked for, got "${said.trim().slice(0, 120)}" (${at === '' ? '' : `${at}: `}${issue!.message})`,
    )
  })
}

async function ask<T>(
  { endpoint, model, answers }: Behind,
  { agent, instructions, pictures = [], text, signal }: Asking,
  read: (text: string) => Result<T>,
): Promise<Result<Answered<T>>> {
  const content: ChatCompletionContentPart[] = [
    ...pictures.map((url) => ({ type: 'image_url' as const, image_url: { url } })),
    { type: 'text', text },
  ]
  const messages: ChatCompletionMessageParam[] = [
    { role: 'system', content: instructions },
    { role: 'user', content: pictures.length > 0 ? content : text },
  ]
  const answered = await answers.answer<{ value: T; usage: ChatReply['usage'] }>({
    content: [agent, endpoint.identity, messages],
    boundary: 'agent',
    what: `${agent} with ${model}`,
    signal,
    answer: async (shared) => {
      const reply = await endpoint.ask(messages, shared)
      if (!reply.ok) return reply
      const value = read(reply.value.text)
      return value.ok ? { ok: true, value: { value: value.value, usage: reply.value.usage } } : value
    },
  })
  if (!answered.ok) return answered
  const { value, cached } = answered.value
  const spent = cached ? { cached: 1 } : value.usage
  return { ok: true, value: { value: value.value, usage: oneCall({ ...spent, frames: pictures.length }) } }
}

function withoutThoughts(text: string): string {
  return text.replace(/<(think|reasoning)>[\s\S]*?<\/\1>/g, '')
}

/** The JSON object in a text, in a fence or among words; undefined when there is none. */
function jsonIn(text: string): unknown {
  try {
    return JSON.parse(text.slice(text.indexOf('{'), text.lastIndexOf('}') + 1))
  } catch {
    return undefined
  }
}

/** The texts of others inside prompts: no brackets that look like tags, one line. */
export function inline(text: string): string {
  return text.replace(/[<>]/g, ' ').replace(/\s+/g, ' ').trim()
}
